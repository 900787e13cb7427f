//! Lanes: one per column, each carrying values of one type from the log's bytes into an Arrow array.
//!
//! A table's lanes are built once per batch from its columns, so the value loop calls them without asking for types. A lane adds
//! nothing until it has read its value whole: after a fault in mid-row, lanes differ by one value at most and are cut to whole rows.

use std::sync::Arc;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, BinaryArray, PrimitiveArray, StringArray};
use arrow_buffer::{Buffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::DataType;

use super::cursor::Cursor;
use super::fault::{Fault, Read};
use super::json;
use super::temporal::Held;

pub trait Lane: Send + Sync {
    /// Takes one value that is not null.
    fn read(&mut self, cursor: &mut Cursor<'_>, notes: &mut Notes) -> Read<()>;

    /// Takes a value that is written as differences to the one `before` (None: the log does not have that one).
    fn read_partial(&mut self, _cursor: &mut Cursor<'_>, _before: Option<&[u8]>) -> Read<()> {
        Err(Fault::corrupt("differences of a column that is not JSON"))
    }

    fn null(&mut self);

    /// The array of everything taken; the lane is empty then.
    fn finish(&mut self) -> Read<ArrayRef>;
}

/// The side text of a row: column -> text of what the column's type cannot hold, as the inside of a JSON object.
#[derive(Default)]
pub struct Notes {
    text: String,
}

impl Notes {
    #[cold]
    pub fn add(&mut self, column: &str, text: &str) {
        self.text.push_str(if self.text.is_empty() { "{" } else { ", " });
        json::quote(column, &mut self.text);
        self.text.push_str(": ");
        json::quote(text, &mut self.text);
    }

    /// The row's notes as a JSON object, or null when there are none.
    #[inline]
    pub fn finish_row(&mut self, into: &mut Strings) -> Read<()> {
        if self.text.is_empty() {
            into.push_null();
            return Ok(());
        }
        self.text.push('}');
        let result = into.push(self.text.as_bytes());
        self.text.clear();
        result
    }
}

/// How a value of fixed width is read.
pub trait Scalar: Send + Sync {
    type Arrow: ArrowPrimitiveType;

    fn read(&self, cursor: &mut Cursor<'_>) -> Read<Held<<Self::Arrow as ArrowPrimitiveType>::Native>>;
}

pub struct ScalarLane<S: Scalar> {
    scalar: S,
    column: Arc<str>,
    data_type: DataType,
    values: Vec<<S::Arrow as ArrowPrimitiveType>::Native>,
    nulls: NullBufferBuilder,
}

impl<S: Scalar> ScalarLane<S> {
    pub fn new(scalar: S, column: Arc<str>, data_type: DataType) -> Self {
        Self { scalar, column, data_type, values: Vec::new(), nulls: NullBufferBuilder::new(0) }
    }
}

impl<S: Scalar> Lane for ScalarLane<S> {
    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>, notes: &mut Notes) -> Read<()> {
        match self.scalar.read(cursor)? {
            Held::Value(value) => {
                self.values.push(value);
                self.nulls.append_non_null();
            }
            Held::Beyond(text) => {
                notes.add(&self.column, &text);
                self.null();
            }
        }
        Ok(())
    }

    fn null(&mut self) {
        self.values.push(Default::default());
        self.nulls.append_null();
    }

    fn finish(&mut self) -> Read<ArrayRef> {
        let values: ScalarBuffer<_> = std::mem::take(&mut self.values).into();
        let array = PrimitiveArray::<S::Arrow>::try_new(values, self.nulls.finish());
        let array = array.map_err(|error| Fault::corrupt(error.to_string()))?;
        Ok(Arc::new(array.with_data_type(self.data_type.clone())))
    }
}

/// Texts or byte strings, one behind the other.
pub struct Strings {
    offsets: Vec<i32>,
    values: Vec<u8>,
    nulls: NullBufferBuilder,
}

impl Default for Strings {
    fn default() -> Self {
        Self { offsets: vec![0], values: Vec::new(), nulls: NullBufferBuilder::new(0) }
    }
}

impl Strings {
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) -> Read<()> {
        let end = self.end_after(bytes.len())?;
        self.values.extend_from_slice(bytes);
        self.offsets.push(end);
        self.nulls.append_non_null();
        Ok(())
    }

    /// As `push`, filled up with zero bytes to `width`.
    #[inline]
    fn push_padded(&mut self, bytes: &[u8], width: usize) -> Read<()> {
        let missing = width.saturating_sub(bytes.len());
        let end = self.end_after(bytes.len() + missing)?;
        self.values.extend_from_slice(bytes);
        self.values.resize(self.values.len() + missing, 0);
        self.offsets.push(end);
        self.nulls.append_non_null();
        Ok(())
    }

    #[inline]
    fn end_after(&self, more: usize) -> Read<i32> {
        i32::try_from(self.values.len() + more).map_err(|_| {
            Fault::refused("one column of one batch would hold more than 2 GiB", "feed the log in smaller pieces")
        })
    }

    #[inline]
    pub fn push_null(&mut self) {
        // `end_after` keeps the length within i32, and the last offset is it.
        self.offsets.push(self.offsets.last().copied().unwrap_or(0));
        self.nulls.append_null();
    }

    fn parts(&mut self) -> (OffsetBuffer<i32>, Buffer, Option<arrow_buffer::NullBuffer>) {
        let Self { offsets, values, mut nulls } = std::mem::take(self);
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

/// How a text is taken out of the log.
pub trait Text: Send + Sync {
    fn read(&mut self, cursor: &mut Cursor<'_>, into: &mut Strings, column: &str, notes: &mut Notes) -> Read<()>;

    fn read_partial(&mut self, _cursor: &mut Cursor<'_>, _before: Option<&[u8]>, _into: &mut Strings) -> Read<()> {
        Err(Fault::corrupt("differences of a column that is not JSON"))
    }
}

pub struct TextLane<T: Text> {
    text: T,
    column: Arc<str>,
    strings: Strings,
}

impl<T: Text> TextLane<T> {
    pub fn new(text: T, column: Arc<str>) -> Self {
        Self { text, column, strings: Strings::default() }
    }
}

impl<T: Text> Lane for TextLane<T> {
    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>, notes: &mut Notes) -> Read<()> {
        self.text.read(cursor, &mut self.strings, &self.column, notes)
    }

    fn read_partial(&mut self, cursor: &mut Cursor<'_>, before: Option<&[u8]>) -> Read<()> {
        self.text.read_partial(cursor, before, &mut self.strings)
    }

    fn null(&mut self) {
        self.strings.push_null();
    }

    fn finish(&mut self) -> Read<ArrayRef> {
        Ok(self.strings.finish_text())
    }
}

/// Byte strings behind a length of `W` bytes, filled up to `pad_to` (BINARY loses its trailing zeros in the log).
pub struct BytesLane<const W: usize> {
    pad_to: usize,
    strings: Strings,
}

impl<const W: usize> BytesLane<W> {
    pub fn new(pad_to: usize) -> Self {
        Self { pad_to, strings: Strings::default() }
    }
}

impl<const W: usize> Lane for BytesLane<W> {
    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>, _notes: &mut Notes) -> Read<()> {
        let bytes = cursor.prefixed::<W>()?;
        self.strings.push_padded(bytes, self.pad_to)
    }

    fn null(&mut self) {
        self.strings.push_null();
    }

    fn finish(&mut self) -> Read<ArrayRef> {
        Ok(self.strings.finish_bytes())
    }
}

/// Byte strings behind a length of `width` bytes that are stored in another form.
pub struct DecodedBytesLane {
    width: usize,
    decode: fn(&[u8]) -> Read<Vec<u8>>,
    strings: Strings,
}

impl DecodedBytesLane {
    pub fn new(width: usize, decode: fn(&[u8]) -> Read<Vec<u8>>) -> Self {
        Self { width, decode, strings: Strings::default() }
    }
}

impl Lane for DecodedBytesLane {
    fn read(&mut self, cursor: &mut Cursor<'_>, _notes: &mut Notes) -> Read<()> {
        let stored = cursor.prefixed_by(self.width)?;
        self.strings.push(&(self.decode)(stored)?)
    }

    fn null(&mut self) {
        self.strings.push_null();
    }

    fn finish(&mut self) -> Read<ArrayRef> {
        Ok(self.strings.finish_bytes())
    }
}
