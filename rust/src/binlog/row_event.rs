//! Row events: what stands before the rows, and what all rows of an event share.
//!
//! ```text
//! table id u48 | flags u16 | v2: length u16 (itself included), extra data | columns lenenc | present bitmap (update: two)
//! | row, row, …       insert: after image · delete: before image · update: before image, [options, bitmap,] after image
//! ```

use super::cursor::Cursor;
use super::event::kind;
use super::fault::{Fault, Read};
use super::image::Present;
use super::json::quote;
use super::table_map::Table;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Insert,
    Update,
    Delete,
}

impl Operation {
    pub fn letter(self) -> u8 {
        match self {
            Self::Insert => b'i',
            Self::Update => b'u',
            Self::Delete => b'd',
        }
    }
}

/// What the type of a row event says.
#[derive(Clone, Copy)]
pub struct Layout {
    operation: Operation,
    /// Version 2: extra data stands before the columns.
    extra: bool,
    /// After images can be differences.
    partial: bool,
}

impl Layout {
    /// None when events of this type hold no rows.
    pub fn of(event_kind: u8) -> Option<Self> {
        let (operation, extra) = match event_kind {
            kind::WRITE_ROWS_V1 => (Operation::Insert, false),
            kind::UPDATE_ROWS_V1 => (Operation::Update, false),
            kind::DELETE_ROWS_V1 => (Operation::Delete, false),
            kind::WRITE_ROWS => (Operation::Insert, true),
            kind::UPDATE_ROWS | kind::PARTIAL_UPDATE_ROWS => (Operation::Update, true),
            kind::DELETE_ROWS => (Operation::Delete, true),
            _ => return None,
        };
        Some(Self { operation, extra, partial: event_kind == kind::PARTIAL_UPDATE_ROWS })
    }
}

/// A row event behind its common header.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub table_id: u64,
    operation: Operation,
    partial: bool,
    body: Cursor<'a>,
    /// Bytes of its images that have been taken.
    pub taken: usize,
}

/// A row event of which not all rows have been taken: together they would need too much memory.
pub struct RowsLeft {
    pub table: usize,
    pub stamp: Stamp,
    layout: Layout,
    body: Vec<u8>,
    pub taken: usize,
}

impl RowsLeft {
    pub fn of(rows: &Rows<'_>, table: usize, stamp: Stamp, taken: usize) -> Self {
        let layout = Layout { operation: rows.operation, extra: false, partial: rows.partial };
        Self { table, stamp, layout, body: { rows.body }.rest().to_vec(), taken }
    }

    pub fn body(&self) -> &[u8] {
        &self.body
    }

    pub fn rows(&self) -> Rows<'_> {
        let Layout { operation, partial, .. } = self.layout;
        Rows { table_id: 0, operation, partial, body: Cursor::new(&self.body), taken: self.taken }
    }
}

impl<'a> Rows<'a> {
    pub fn read(mut body: Cursor<'a>, layout: Layout) -> Read<Self> {
        let table_id = body.u48()?;
        body.skip(2)?;
        if layout.extra {
            let length = usize::from(body.u16()?);
            body.skip(length.checked_sub(2).ok_or_else(|| Fault::corrupt("extra row data of less than its length"))?)?;
        }
        Ok(Self { table_id, operation: layout.operation, partial: layout.partial, body, taken: 0 })
    }
}

/// What all rows of an event share.
#[derive(Clone, Copy)]
pub struct Stamp {
    /// File number * 10^12 + position of the event.
    pub event_id: i64,
    pub event_offset: i64,
    /// Length of the event without its checksum.
    pub event_bytes: usize,
    pub ts_us: i64,
    pub commit_ts_us: i64,
}

impl Stamp {
    /// The id of what begins where the event has `left` bytes left.
    #[inline]
    pub fn id_at(&self, left: usize) -> i64 {
        // An event has at most 2^32 bytes.
        self.event_id + i64::try_from(self.event_bytes - left).unwrap_or(0)
    }
}

/// What a row event says of all its images.
pub struct Images<'a> {
    pub operation: Operation,
    pub partial: bool,
    /// Which columns the first images have, and in an update the second.
    pub first: Present<'a>,
    pub second: Present<'a>,
    /// Names of the columns that they do not have.
    pub absent: Option<String>,
    pub bytes: &'a [u8],
    pub stamp: &'a Stamp,
}

impl<'a> Images<'a> {
    pub fn read(event: &Rows<'a>, columns: usize, stamp: &'a Stamp) -> Read<Self> {
        let mut cursor = event.body;
        let count = cursor.lenenc_size()?;
        if count != columns {
            return Err(Fault::corrupt(format!("rows of {count} columns for a table of {columns}")));
        }
        let first = Present::read(&mut cursor, count)?;
        let second = if event.operation == Operation::Update { Present::read(&mut cursor, count)? } else { first };
        let Rows { operation, partial, taken, .. } = *event;
        let bytes = cursor.rest().get(taken..).unwrap_or_default();
        Ok(Self { operation, partial, first, second, absent: None, bytes, stamp })
    }
}

/// Changes can be applied to a copy only when the log has whole rows; of a deleted row the key is enough.
pub fn require_whole(table: &Table, images: &Images<'_>) -> Read<()> {
    let Images { first, second, .. } = images;
    let whole = match images.operation {
        Operation::Insert => first.all,
        Operation::Update => second.all,
        Operation::Delete => first.all || (!table.key.is_empty() && table.key.iter().all(|&index| first.has(index))),
    };
    if whole {
        return Ok(());
    }
    Err(Fault::refused(
        format!(
            "a row of {}.{} has only {} of its {} columns",
            table.schema,
            table.name,
            second.count,
            table.columns.len()
        ),
        "set binlog_row_image=FULL at the source (in every session); then let capture go on behind it \
         (`headrace skip FLOW.yaml --to latest`) and load the table again",
    ))
}

/// `{"before": [names], "after": [names]}` of the columns that are not in the log; None when all are.
pub fn absent_columns(table: &Table, images: &Images<'_>) -> Option<String> {
    let Images { first, second, .. } = images;
    if first.all && second.all {
        return None;
    }
    let list = |present: &Present<'_>| {
        let mut text = String::from("[");
        for (_, column) in table.kept_columns().filter(|(index, _)| !present.has(*index)) {
            text.push_str(if text.len() > 1 { ", " } else { "" });
            quote(&column.name, &mut text);
        }
        text + "]"
    };
    let (before, after) = match images.operation {
        Operation::Insert => ("[]".to_owned(), list(first)),
        Operation::Delete => (list(first), "[]".to_owned()),
        Operation::Update => (list(first), list(second)),
    };
    Some(format!("{{\"before\": {before}, \"after\": {after}}}"))
}
