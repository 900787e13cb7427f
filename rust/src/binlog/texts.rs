//! Values that become text: characters, labels, JSON.

use std::fmt::Write;
use std::sync::Arc;

use super::charset::Charset;
use super::cursor::Cursor;
use super::fault::{Fault, Read};
use super::json;
use super::json_diff;
use super::lanes::{Notes, Strings, Text};

/// Characters behind a length of `W` bytes that are UTF-8 already.
pub struct Utf8<const W: usize>;

impl<const W: usize> Text for Utf8<W> {
    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>, into: &mut Strings, column: &str, notes: &mut Notes) -> Read<()> {
        let bytes = cursor.prefixed::<W>()?;
        if simdutf8::basic::from_utf8(bytes).is_ok() {
            return into.push(bytes);
        }
        broken(bytes, &String::from_utf8_lossy(bytes), into, column, notes)
    }
}

/// Characters of another set.
pub struct Coded<const W: usize>(pub Charset);

impl<const W: usize> Text for Coded<W> {
    #[inline]
    fn read(&mut self, cursor: &mut Cursor<'_>, into: &mut Strings, column: &str, notes: &mut Notes) -> Read<()> {
        let bytes = cursor.prefixed::<W>()?;
        push_decoded(self.0, bytes, into, column, notes)
    }
}

/// Takes bytes of a character set as text.
pub fn push_decoded(charset: Charset, bytes: &[u8], into: &mut Strings, column: &str, notes: &mut Notes) -> Read<()> {
    match charset.decode(bytes) {
        Ok(text) => into.push(text.as_bytes()),
        Err(marked) => broken(bytes, &marked, into, column, notes),
    }
}

/// Text with marks where bytes mean nothing; the bytes themselves go beside it.
#[cold]
fn broken(bytes: &[u8], marked: &str, into: &mut Strings, column: &str, notes: &mut Notes) -> Read<()> {
    into.push(marked.as_bytes())?;
    let mut hex = String::from("0x");
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    notes.add(column, &hex);
    Ok(())
}

/// One label, by its number from 1; 0 is what an invalid value became.
pub struct Enum {
    pub bytes: usize,
    pub labels: Arc<[String]>,
}

impl Text for Enum {
    fn read(&mut self, cursor: &mut Cursor<'_>, into: &mut Strings, _column: &str, _notes: &mut Notes) -> Read<()> {
        let number = cursor.le(self.bytes)?;
        let label = match usize::try_from(number).ok().and_then(|number| number.checked_sub(1)) {
            None => "",
            Some(index) => self
                .labels
                .get(index)
                .ok_or_else(|| Fault::corrupt(format!("label {number} of an ENUM of {}", self.labels.len())))?,
        };
        into.push(label.as_bytes())
    }
}

/// Labels by their bits, joined with commas.
pub struct Set {
    pub bytes: usize,
    pub labels: Arc<[String]>,
}

impl Text for Set {
    fn read(&mut self, cursor: &mut Cursor<'_>, into: &mut Strings, _column: &str, _notes: &mut Notes) -> Read<()> {
        let bits = cursor.le(self.bytes)?;
        if self.labels.len() < 64 && bits >> self.labels.len() != 0 {
            return Err(Fault::corrupt(format!("bits {bits:#x} of a SET of {} labels", self.labels.len())));
        }
        let chosen: Vec<&str> = self
            .labels
            .iter()
            .enumerate()
            .filter(|(index, _)| bits >> index & 1 == 1)
            .map(|(_, label)| &**label)
            .collect();
        into.push(chosen.join(",").as_bytes())
    }
}

/// A JSON document behind a length of `bytes` bytes.
pub struct Json {
    pub bytes: usize,
}

impl Text for Json {
    fn read(&mut self, cursor: &mut Cursor<'_>, into: &mut Strings, _column: &str, _notes: &mut Notes) -> Read<()> {
        let document = cursor.prefixed_by(self.bytes)?;
        into.push(json::text(json::Value::document(document), document.len())?.as_bytes())
    }

    fn read_partial(&mut self, cursor: &mut Cursor<'_>, before: Option<&[u8]>, into: &mut Strings) -> Read<()> {
        let differences = cursor.prefixed_by(self.bytes)?;
        let text = match before {
            Some(document) => json_diff::apply(document, differences)?,
            None => json_diff::describe(differences)?,
        };
        into.push(text.as_bytes())
    }
}
