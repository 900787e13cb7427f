//! The side text of rows: column -> text of what the column's type cannot hold.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};

use super::fault::Read;
use super::json::quote_bytes;
use super::strings::Strings;

struct Note {
    row: usize,
    column: usize,
    text: String,
}

/// The notes of a batch, in whatever order the lanes find them. Nearly always there are none.
#[derive(Default)]
pub struct Notes(Vec<Note>);

impl Notes {
    #[cold]
    pub fn add(&mut self, row: usize, column: usize, text: String) {
        self.0.push(Note { row, column, text });
    }

    /// For each row a JSON object of its notes, or null.
    pub fn finish<'n>(&mut self, rows: usize, name: impl Fn(usize) -> &'n str) -> Read<ArrayRef> {
        if self.0.is_empty() {
            return Ok(Arc::new(StringArray::new_null(rows)));
        }
        let mut notes = std::mem::take(&mut self.0);
        notes.sort_unstable_by_key(|note| (note.row, note.column));
        let mut notes = notes.into_iter().peekable();
        let mut texts = Strings::default();
        for row in 0..rows {
            if notes.peek().is_none_or(|note| note.row != row) {
                texts.push_null();
                continue;
            }
            texts.push_by(|object| {
                let mut before: &[u8] = b"{";
                while let Some(note) = notes.next_if(|note| note.row == row) {
                    object.extend_from_slice(before);
                    quote_bytes(name(note.column).as_bytes(), object);
                    object.extend_from_slice(b": ");
                    quote_bytes(note.text.as_bytes(), object);
                    before = b", ";
                }
                object.push(b'}');
                Ok(())
            })?;
        }
        Ok(texts.finish_text())
    }
}
