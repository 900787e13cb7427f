//! Values that become text: characters, labels, JSON.

use std::fmt::Write;
use std::sync::Arc;

use super::charset::Charset;
use super::cursor::Cursor;
use super::fault::{Fault, Read};
use super::json;
use super::json_diff;
use super::lanes::Text;
use super::notes::Notes;
use super::strings::Strings;

/// Characters of a set that is not UTF-8.
pub struct Coded(pub Charset);

impl Text for Coded {
    fn read(&mut self, bytes: &[u8], into: &mut Strings, column: usize, notes: &mut Notes) -> Read<()> {
        push_decoded(self.0, bytes, into, column, notes)
    }
}

/// Takes bytes that should be UTF-8.
pub fn push_utf8(bytes: &[u8], into: &mut Strings, column: usize, notes: &mut Notes) -> Read<()> {
    push_decoded(Charset::Utf8 { max_bytes: 4 }, bytes, into, column, notes)
}

/// Takes bytes of a character set as text.
pub fn push_decoded(charset: Charset, bytes: &[u8], into: &mut Strings, column: usize, notes: &mut Notes) -> Read<()> {
    match charset.decode(bytes) {
        Ok(text) => into.push(text.as_bytes()),
        Err(marked) => broken(bytes, &marked, into, column, notes),
    }
}

/// Text with marks where bytes mean nothing; the bytes themselves go beside it.
#[cold]
fn broken(bytes: &[u8], marked: &str, into: &mut Strings, column: usize, notes: &mut Notes) -> Read<()> {
    let row = into.len();
    into.push(marked.as_bytes())?;
    let mut hex = String::from("0x");
    for byte in bytes {
        let _ = write!(hex, "{byte:02x}");
    }
    notes.add(row, column, hex);
    Ok(())
}

/// One label, by its number from 1; 0 is what an invalid value became.
pub struct Enum {
    pub labels: Arc<[String]>,
}

impl Text for Enum {
    fn read(&mut self, bytes: &[u8], into: &mut Strings, _column: usize, _notes: &mut Notes) -> Read<()> {
        let number = Cursor::new(bytes).le(bytes.len())?;
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
    labels: Arc<[String]>,
    joined: String,
}

impl Set {
    pub fn new(labels: Arc<[String]>) -> Self {
        Self { labels, joined: String::new() }
    }
}

impl Text for Set {
    fn read(&mut self, bytes: &[u8], into: &mut Strings, _column: usize, _notes: &mut Notes) -> Read<()> {
        let bits = Cursor::new(bytes).le(bytes.len())?;
        if self.labels.len() < 64 && bits >> self.labels.len() != 0 {
            return Err(Fault::corrupt(format!("bits {bits:#x} of a SET of {} labels", self.labels.len())));
        }
        self.joined.clear();
        let mut separator = "";
        for (_, label) in self.labels.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1) {
            self.joined.push_str(separator);
            self.joined.push_str(label);
            separator = ",";
        }
        into.push(self.joined.as_bytes())
    }
}

/// A JSON document.
pub struct Json;

impl Text for Json {
    fn read(&mut self, document: &[u8], into: &mut Strings, _column: usize, _notes: &mut Notes) -> Read<()> {
        into.push(json::text(json::Value::document(document), document.len())?.as_bytes())
    }

    fn read_differences(&mut self, differences: &[u8], before: Option<&[u8]>, into: &mut Strings) -> Read<()> {
        let text = match before {
            Some(document) => json_diff::apply(document, differences)?,
            None => json_diff::describe(differences)?,
        };
        into.push(text.as_bytes())
    }
}
