//! Texts or byte strings, one behind the other: an Arrow array of variable width under way.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, StringArray};
use arrow_buffer::{Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer};

use super::fault::{Fault, Read};

pub struct Strings {
    offsets: Vec<i32>,
    values: Vec<u8>,
    nulls: NullBufferBuilder,
    /// What the array before had: this one is likely to become as large.
    expected_rows: usize,
    expected_bytes: usize,
}

impl Default for Strings {
    fn default() -> Self {
        Self::expecting(0, 0)
    }
}

impl Strings {
    fn expecting(expected_rows: usize, expected_bytes: usize) -> Self {
        let nulls = NullBufferBuilder::new(0);
        Self { offsets: vec![0], values: Vec::new(), nulls, expected_rows, expected_bytes }
    }

    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn reserve(&mut self, rows: usize) {
        if self.len() == 0 {
            self.offsets.reserve(self.expected_rows);
            self.values.reserve(self.expected_bytes);
        }
        self.offsets.reserve(rows);
    }

    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Read<()> {
        self.push_padded(bytes, 0)
    }

    /// As `push`, filled up with zero bytes to `width`.
    #[inline]
    pub fn push_padded(&mut self, bytes: &[u8], width: usize) -> Read<()> {
        let missing = width.saturating_sub(bytes.len());
        let end = i32::try_from(self.values.len() + bytes.len() + missing).map_err(|_| {
            Fault::refused("one column of one batch would hold more than 2 GiB", "feed the log in smaller pieces")
        })?;
        self.values.extend_from_slice(bytes);
        if missing > 0 {
            self.values.resize(self.values.len() + missing, 0);
        }
        self.offsets.push(end);
        self.nulls.append_non_null();
        Ok(())
    }

    #[inline]
    pub fn push_null(&mut self) {
        // `push_padded` keeps the length within i32, and the last offset is it.
        self.offsets.push(self.offsets.last().copied().unwrap_or(0));
        self.nulls.append_null();
    }

    /// Where the bytes of row `row` begin.
    fn start(&self, row: usize) -> usize {
        self.offsets.get(row).and_then(|&offset| usize::try_from(offset).ok()).unwrap_or(self.values.len())
    }

    /// How many bytes the rows from `row` on have.
    pub fn bytes_from(&self, row: usize) -> usize {
        self.values.len() - self.start(row)
    }

    /// Whether each value from `row` on is UTF-8: together they are, and each begins at a character's first byte.
    pub fn is_utf8_from(&self, row: usize) -> bool {
        let start = self.start(row);
        let stretch = self.values.get(start..).unwrap_or_default();
        if stretch.is_ascii() {
            return true;
        }
        let Ok(text) = simdutf8::basic::from_utf8(stretch) else { return false };
        (row..self.len()).all(|row| text.is_char_boundary(self.start(row) - start))
    }

    /// Takes away the rows from `row` on.
    pub fn split_off(&mut self, row: usize) -> Vec<Option<Vec<u8>>> {
        let bytes = |row: usize| self.values.get(self.start(row)..self.start(row + 1)).map(<[u8]>::to_vec);
        let taken = (row..self.len()).map(|row| bytes(row).filter(|_| self.nulls.is_valid(row))).collect();
        self.values.truncate(self.start(row));
        self.offsets.truncate(row + 1);
        self.nulls.truncate(row);
        taken
    }

    fn parts(&mut self) -> (OffsetBuffer<i32>, Buffer, Option<NullBuffer>) {
        let next = Self::expecting(self.len(), self.values.len());
        let Self { offsets, values, mut nulls, .. } = std::mem::replace(self, next);
        (OffsetBuffer::new(offsets.into()), values.into(), nulls.finish())
    }

    /// The array of what was pushed, which the pushers know to be UTF-8.
    pub fn finish_text(&mut self) -> ArrayRef {
        let (offsets, values, nulls) = self.parts();
        // SAFETY: offsets begin at 0, never decrease and end at the length of the values; every push was whole UTF-8.
        Arc::new(unsafe { StringArray::new_unchecked(offsets, values, nulls) })
    }

    pub fn finish_bytes(&mut self) -> ArrayRef {
        let (offsets, values, nulls) = self.parts();
        // SAFETY: offsets begin at 0, never decrease and end at the length of the values.
        Arc::new(unsafe { BinaryArray::new_unchecked(offsets, values, nulls) })
    }
}
