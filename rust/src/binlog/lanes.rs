//! Lanes: one per column, each carrying values of one type from the log's bytes into an Arrow array.
//!
//! A table's lanes are built once from its columns, so the value loops run without asking for types. A lane is given the values
//! of a stretch of rows and takes them in order; at a value that is broken it stops and says which. Lanes differ by what a block
//! holds then, and are cut to whole rows.

use std::sync::Arc;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{ArrayRef, PrimitiveArray};
use arrow_buffer::ScalarBuffer;
use arrow_schema::DataType;

use super::cells::{Extent, Values};
use super::columns::Size;
use super::cursor::Cursor;
use super::fault::{Fault, Read};
use super::notes::Notes;
use super::nulls::Nulls;
use super::strings::Strings;
use super::temporal::Held;

/// A value that cannot be read: which of those given, and why.
pub struct Broken {
    pub row: usize,
    pub fault: Fault,
}

pub trait Lane: Send + Sync {
    /// Takes the values of some rows.
    fn take(&mut self, values: Values<'_>, notes: &mut Notes) -> Result<(), Broken>;

    /// Takes a value that is written as differences to the one `before` (None: the log does not have that one).
    fn take_differences(&mut self, _differences: &[u8], _before: Option<&[u8]>) -> Read<()> {
        Err(Fault::corrupt("differences of a column that is not JSON"))
    }

    /// The array of everything taken; the lane is empty then, and expects as much again.
    fn finish(&mut self, notes: &mut Notes) -> Read<ArrayRef>;
}

/// How a value is read: one of fixed width, of which all bytes are there and more may follow, or one whose bytes are all that there are.
pub trait Scalar: Send + Sync {
    type Arrow: ArrowPrimitiveType;

    fn read(&self, cursor: &mut Cursor<'_>) -> Read<Held<<Self::Arrow as ArrowPrimitiveType>::Native>>;
}

pub struct ScalarLane<S: Scalar> {
    scalar: S,
    column: usize,
    data_type: DataType,
    values: Vec<<S::Arrow as ArrowPrimitiveType>::Native>,
    nulls: Nulls,
    expected: usize,
}

impl<S: Scalar> ScalarLane<S> {
    pub fn new(scalar: S, column: usize, data_type: DataType) -> Self {
        Self { scalar, column, data_type, values: Vec::new(), nulls: Nulls::default(), expected: 0 }
    }

    /// Takes `count` values, each read from the front of its bytes.
    #[inline]
    fn take_each<'b>(
        &mut self,
        count: usize,
        rests: impl Iterator<Item = Option<&'b [u8]>>,
        notes: &mut Notes,
    ) -> Result<(), Broken> {
        let first = self.values.len();
        if first == 0 {
            self.values.reserve(self.expected);
        }
        self.values.resize(first + count, Default::default());
        let slots = self.values.get_mut(first..).unwrap_or_default();
        // A bit for each of 64 rows.
        let mut held = 0_u64;
        for (row, (slot, rest)) in slots.iter_mut().zip(rests).enumerate() {
            if let Some(rest) = rest {
                match self.scalar.read(&mut Cursor::new(rest)) {
                    Ok(Held::Value(value)) => {
                        *slot = value;
                        held |= 1 << (row & 63);
                    }
                    Ok(Held::Beyond(text)) => notes.add(first + row, self.column, text),
                    Err(fault) => {
                        self.nulls.append(held, row & 63);
                        self.values.truncate(first + row);
                        return Err(Broken { row, fault });
                    }
                }
            }
            if row & 63 == 63 {
                self.nulls.append(std::mem::take(&mut held), 64);
            }
        }
        self.nulls.append(held, count & 63);
        Ok(())
    }
}

impl<S: Scalar> Lane for ScalarLane<S> {
    fn take(&mut self, values: Values<'_>, notes: &mut Notes) -> Result<(), Broken> {
        match values.extent {
            Extent::Sized(Size::Fixed(_)) => self.take_each(values.len(), values.rests(), notes),
            _ => self.take_each(values.len(), values.iter(), notes),
        }
    }

    fn finish(&mut self, _notes: &mut Notes) -> Read<ArrayRef> {
        self.expected = self.values.len();
        let values: ScalarBuffer<_> = std::mem::take(&mut self.values).into();
        let array = PrimitiveArray::<S::Arrow>::try_new(values, self.nulls.finish());
        let array = array.map_err(|error| Fault::corrupt(error.to_string()))?;
        Ok(Arc::new(array.with_data_type(self.data_type.clone())))
    }
}

/// How a text is taken out of its bytes.
pub trait Text: Send + Sync {
    /// Appends one text; nothing when the bytes are broken.
    fn read(&mut self, bytes: &[u8], into: &mut Strings, column: usize, notes: &mut Notes) -> Read<()>;

    fn read_differences(&mut self, _differences: &[u8], _before: Option<&[u8]>, _into: &mut Strings) -> Read<()> {
        Err(Fault::corrupt("differences of a column that is not JSON"))
    }
}

/// Gives each value that is one to `read`, and nulls to `strings`.
#[inline]
pub fn take_strings(
    strings: &mut Strings,
    values: Values<'_>,
    mut read: impl FnMut(&[u8], &mut Strings) -> Read<()>,
) -> Result<(), Broken> {
    strings.reserve(values.len());
    for (row, value) in values.iter().enumerate() {
        match value {
            Some(bytes) => read(bytes, strings).map_err(|fault| Broken { row, fault })?,
            None => strings.push_null(),
        }
    }
    Ok(())
}

pub struct TextLane<T: Text> {
    text: T,
    column: usize,
    strings: Strings,
}

impl<T: Text> TextLane<T> {
    pub fn new(text: T, column: usize) -> Self {
        Self { text, column, strings: Strings::default() }
    }
}

impl<T: Text> Lane for TextLane<T> {
    fn take(&mut self, values: Values<'_>, notes: &mut Notes) -> Result<(), Broken> {
        take_strings(&mut self.strings, values, |bytes, strings| self.text.read(bytes, strings, self.column, notes))
    }

    fn take_differences(&mut self, differences: &[u8], before: Option<&[u8]>) -> Read<()> {
        self.text.read_differences(differences, before, &mut self.strings)
    }

    fn finish(&mut self, _notes: &mut Notes) -> Read<ArrayRef> {
        Ok(self.strings.finish_text())
    }
}

/// Byte strings, filled up to `pad_to` (BINARY loses its trailing zeros in the log).
pub struct BytesLane {
    pad_to: usize,
    strings: Strings,
}

impl BytesLane {
    pub fn new(pad_to: usize) -> Self {
        Self { pad_to, strings: Strings::default() }
    }
}

impl Lane for BytesLane {
    fn take(&mut self, values: Values<'_>, _notes: &mut Notes) -> Result<(), Broken> {
        self.strings.take(values, self.pad_to)
    }

    fn finish(&mut self, _notes: &mut Notes) -> Read<ArrayRef> {
        Ok(self.strings.finish_bytes())
    }
}

/// Byte strings that are stored in another form.
pub struct DecodedBytesLane {
    decode: fn(&[u8]) -> Read<Vec<u8>>,
    strings: Strings,
}

impl DecodedBytesLane {
    pub fn new(decode: fn(&[u8]) -> Read<Vec<u8>>) -> Self {
        Self { decode, strings: Strings::default() }
    }
}

impl Lane for DecodedBytesLane {
    fn take(&mut self, values: Values<'_>, _notes: &mut Notes) -> Result<(), Broken> {
        take_strings(&mut self.strings, values, |bytes, strings| strings.push(&(self.decode)(bytes)?))
    }

    fn finish(&mut self, _notes: &mut Notes) -> Read<ArrayRef> {
        Ok(self.strings.finish_bytes())
    }
}
