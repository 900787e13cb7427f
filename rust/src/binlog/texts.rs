//! Values that become text: characters, labels, JSON.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use super::charset::Charset;
use super::cursor::Cursor;
use super::fault::{Fault, Read};
use super::json;
use super::json_diff;
use super::lanes::Text;
use super::notes::Notes;
use super::strings::Strings;

/// Characters of a set that is not UTF-8.
pub struct Coded {
    charset: Charset,
    singles: Arc<Singles>,
}

/// What single bytes mean in a character set.
struct Singles {
    /// The UTF-8 of each and how many bytes that has: none where it means nothing alone.
    texts: Vec<([u8; 4], u8)>,
    ascii_is_same: bool,
}

/// Made once for each character set: many columns have the same.
static SINGLES: Mutex<Vec<(Charset, Arc<Singles>)>> = Mutex::new(Vec::new());

impl Singles {
    fn of(charset: Charset) -> Arc<Self> {
        let mut known = SINGLES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, singles)) = known.iter().find(|(known, _)| *known == charset) {
            return singles.clone();
        }
        let singles = Arc::new(Self::new(charset));
        known.push((charset, singles.clone()));
        singles
    }

    fn new(charset: Charset) -> Self {
        let text = |byte: u8| {
            let byte = [byte];
            let text = charset.decode(&byte).unwrap_or_default();
            let mut bytes = [0; 4];
            let place = bytes.get_mut(..text.len())?;
            place.copy_from_slice(text.as_bytes());
            Some((bytes, u8::try_from(text.len()).ok()?))
        };
        let texts: Vec<_> = (0..=u8::MAX).map(|byte| text(byte).unwrap_or_default()).collect();
        let ascii_is_same = (0..128).zip(&texts).all(|(byte, text)| *text == ([byte, 0, 0, 0], 1));
        Self { texts, ascii_is_same }
    }

    fn write(&self, bytes: &[u8], out: &mut Vec<u8>) -> Read<()> {
        for &byte in bytes {
            let Some(&(text, length @ 1..)) = self.texts.get(usize::from(byte)) else {
                return Err(Fault::corrupt(format!("the byte {byte:#x} is no character")));
            };
            let end = out.len() + usize::from(length);
            out.extend_from_slice(&text);
            out.truncate(end);
        }
        Ok(())
    }
}

impl Coded {
    pub fn new(charset: Charset) -> Self {
        Self { charset, singles: Singles::of(charset) }
    }
}

impl Text for Coded {
    fn read(&mut self, bytes: &[u8], into: &mut Strings, column: usize, notes: &mut Notes) -> Read<()> {
        if self.singles.ascii_is_same && bytes.is_ascii() {
            return into.push(bytes);
        }
        if self.charset.max_bytes() == 1 && into.push_by(|out| self.singles.write(bytes, out)).is_ok() {
            return Ok(());
        }
        push_decoded(self.charset, bytes, into, column, notes)
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
        push_json(into, |text| json::print(json::Value::document(document), document.len(), text))
    }

    fn read_differences(&mut self, differences: &[u8], before: Option<&[u8]>, into: &mut Strings) -> Read<()> {
        push_json(into, |text| match before {
            Some(document) => json_diff::apply(document, differences, text),
            None => json_diff::describe(differences, text),
        })
    }
}

fn push_json(into: &mut Strings, write: impl FnOnce(&mut Vec<u8>) -> Read<()>) -> Read<()> {
    into.push_by(|text| {
        let start = text.len();
        write(text)?;
        json::check_text(text.get(start..).unwrap_or_default())
    })
}
