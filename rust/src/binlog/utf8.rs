//! Columns whose bytes are UTF-8 already: copied first, checked in stretches.
//!
//! The bytes of many values are checked as one text. That is right because of this: when a whole stretch is UTF-8 and each value
//! in it begins at the first byte of a character, each value is UTF-8. A stretch that is not is gone through value by value; what
//! is broken there gets marks, and its bytes go into a note.

use arrow_array::ArrayRef;

use super::cells::Values;
use super::fault::Read;
use super::lanes::{Broken, Lane};
use super::notes::Notes;
use super::strings::Strings;
use super::texts::push_utf8;

/// As much as is still in the processor's first cache.
const STRETCH_BYTES: usize = 8 << 10;

pub struct Utf8Lane {
    column: usize,
    strings: Strings,
    /// Values before this one are checked.
    checked: usize,
}

impl Utf8Lane {
    pub fn new(column: usize) -> Self {
        Self { column, strings: Strings::default(), checked: 0 }
    }

    fn check(&mut self, notes: &mut Notes) -> Read<()> {
        if !self.strings.is_utf8_from(self.checked) {
            for value in self.strings.split_off(self.checked) {
                match value {
                    Some(bytes) => push_utf8(&bytes, &mut self.strings, self.column, notes)?,
                    None => self.strings.push_null(),
                }
            }
        }
        self.checked = self.strings.len();
        Ok(())
    }
}

impl Lane for Utf8Lane {
    fn take(&mut self, values: Values<'_>, notes: &mut Notes) -> Result<(), Broken> {
        self.strings.take(values, 0)?;
        if self.strings.bytes_from(self.checked) >= STRETCH_BYTES {
            let row = values.len().saturating_sub(1);
            self.check(notes).map_err(|fault| Broken { row, fault })?;
        }
        Ok(())
    }

    fn finish(&mut self, notes: &mut Notes) -> Read<ArrayRef> {
        self.check(notes)?;
        self.checked = 0;
        Ok(self.strings.finish_text())
    }
}
