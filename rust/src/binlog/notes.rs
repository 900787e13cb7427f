//! The side text of rows: column -> text of what the column's type cannot hold.

use std::sync::Arc;

use arrow_array::{ArrayRef, StringArray};

use super::fault::Read;
use super::json::quote;
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
        notes.sort_by_key(|note| (note.row, note.column));
        let mut notes = notes.into_iter().peekable();
        let mut texts = Strings::default();
        for row in 0..rows {
            let mut object = String::new();
            while let Some(note) = notes.next_if(|note| note.row == row) {
                object.push_str(if object.is_empty() { "{" } else { ", " });
                quote(name(note.column), &mut object);
                object.push_str(": ");
                quote(&note.text, &mut object);
            }
            if object.is_empty() {
                texts.push_null();
            } else {
                object.push('}');
                texts.push(object.as_bytes())?;
            }
        }
        Ok(texts.finish_text())
    }
}
