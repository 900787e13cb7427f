//! Texts or byte strings, one behind the other: an Arrow array of variable width under way.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, StringArray};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};

use super::cells::{Extent, Values};
use super::columns::{Size, prefix_of};
use super::fault::{Fault, Read};
use super::lanes::Broken;
use super::nulls::Nulls;

/// So many bytes are copied at once for a value that has fewer, which is quicker than to count them.
const SHORT_BYTES: usize = 32;

pub struct Strings {
    offsets: Vec<i32>,
    values: Vec<u8>,
    nulls: Nulls,
    /// What the array before had: this one is likely to become as large.
    expected_rows: usize,
    expected_bytes: usize,
}

impl Default for Strings {
    fn default() -> Self {
        Self::expecting(0, 0)
    }
}

/// Appends the first `length` bytes of `rest`, filled up with zero bytes to `pad_to`.
#[inline]
fn append(values: &mut Vec<u8>, rest: &[u8], length: usize, pad_to: usize) {
    let end = values.len() + length;
    match rest.first_chunk::<SHORT_BYTES>() {
        Some(more) if length <= SHORT_BYTES => {
            values.extend_from_slice(more);
            values.truncate(end);
        }
        _ => values.extend_from_slice(rest.get(..length).unwrap_or_default()),
    }
    if length < pad_to {
        values.resize(end + pad_to - length, 0);
    }
}

#[cold]
fn too_large() -> Fault {
    Fault::refused("one column of one batch would hold more than 2 GiB", "feed the log in smaller pieces")
}

impl Strings {
    fn expecting(expected_rows: usize, expected_bytes: usize) -> Self {
        Self { offsets: vec![0], values: Vec::new(), nulls: Nulls::default(), expected_rows, expected_bytes }
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

    pub fn push(&mut self, bytes: &[u8]) -> Read<()> {
        self.values.extend_from_slice(bytes);
        self.end_value()
    }

    /// Takes values as they are, filled up with zero bytes to `pad_to`. At a fault those before it are taken.
    pub fn take(&mut self, values: Values<'_>, pad_to: usize) -> Result<(), Broken> {
        self.reserve(values.len());
        let first = self.offsets.len();
        self.offsets.resize(first + values.len(), 0);
        let ends = self.offsets.get_mut(first..).unwrap_or_default();
        // A bit for each of 64 rows.
        let mut held = 0_u64;
        for (row, (end, rest)) in ends.iter_mut().zip(values.rests()).enumerate() {
            if let Some(rest) = rest {
                let (front, length) = match values.extent {
                    Extent::Sized(Size::Prefixed(width)) => (rest.get(width..), prefix_of(rest, width)),
                    other => (other.value(rest), other.value(rest).map(<[u8]>::len)),
                };
                append(&mut self.values, front.unwrap_or_default(), length.unwrap_or(0), pad_to);
            }
            let Ok(offset) = i32::try_from(self.values.len()) else {
                self.nulls.append(held, row & 63);
                self.offsets.truncate(first + row);
                self.values.truncate(self.start(self.len()));
                return Err(Broken { row, fault: too_large() });
            };
            *end = offset;
            held |= u64::from(rest.is_some()) << (row & 63);
            if row & 63 == 63 {
                self.nulls.append(std::mem::take(&mut held), 64);
            }
        }
        self.nulls.append(held, values.len() & 63);
        Ok(())
    }

    /// Pushes what `write` appends; nothing when it fails.
    pub fn push_by(&mut self, write: impl FnOnce(&mut Vec<u8>) -> Read<()>) -> Read<()> {
        let start = self.values.len();
        if let Err(fault) = write(&mut self.values) {
            self.values.truncate(start);
            return Err(fault);
        }
        self.end_value()
    }

    #[inline]
    fn end_value(&mut self) -> Read<()> {
        let Ok(end) = i32::try_from(self.values.len()) else {
            self.values.truncate(self.start(self.len()));
            return Err(too_large());
        };
        self.offsets.push(end);
        self.nulls.append_value();
        Ok(())
    }

    #[inline]
    pub fn push_null(&mut self) {
        // `end_value` keeps the length within i32, and the last offset is it.
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
        let taken = (row..self.len()).map(|row| bytes(row).filter(|_| self.nulls.is_value(row))).collect();
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
