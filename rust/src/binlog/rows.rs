//! Row events into the rows of one table: one Arrow batch under way.
//!
//! ```text
//! table id u48 | flags u16 | v2: length u16 (itself included), extra data | columns lenenc | present bitmap (update: two)
//! | row, row, …       insert: after image · delete: before image · update: before image, [options, bitmap,] after image
//! ```
//! A row's id is made of the position of its first image. An update that changes the key becomes a delete with the before image
//! and an insert with the after image, each with its own image's position.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StructArray, TimestampMicrosecondArray};
use arrow_buffer::NullBufferBuilder;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use super::cursor::Cursor;
use super::event::kind;
use super::fault::{Fault, Read};
use super::image::{self, Present};
use super::json::quote;
use super::lanes::{Lane, Notes, Strings};
use super::table_map::Table;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Insert,
    Update,
    Delete,
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
pub struct Rows<'a> {
    pub table_id: u64,
    operation: Operation,
    partial: bool,
    body: Cursor<'a>,
}

impl<'a> Rows<'a> {
    pub fn read(mut body: Cursor<'a>, layout: Layout) -> Read<Self> {
        let table_id = body.u48()?;
        body.skip(2)?;
        if layout.extra {
            let length = usize::from(body.u16()?);
            body.skip(length.checked_sub(2).ok_or_else(|| Fault::corrupt("extra row data of less than its length"))?)?;
        }
        Ok(Self { table_id, operation: layout.operation, partial: layout.partial, body })
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
    #[inline]
    fn id_at(&self, cursor: &Cursor<'_>) -> i64 {
        // An event has at most 2^32 bytes.
        self.event_id + i64::try_from(self.event_bytes - cursor.left()).unwrap_or(0)
    }
}

/// The rows of one table between two moments.
pub struct TableRows {
    table: Arc<Table>,
    schema: SchemaRef,
    rows: usize,
    pub bytes: usize,
    ids: Vec<i64>,
    ts_us: Vec<i64>,
    operations: Strings,
    commit_ts_us: Vec<i64>,
    raw: Strings,
    notes: Notes,
    lanes: Vec<Box<dyn Lane>>,
    before: Option<Before>,
}

/// Before images, where the caller asked for them.
struct Before {
    offsets: Vec<i64>,
    valid: NullBufferBuilder,
    lanes: Vec<Box<dyn Lane>>,
    raw: Strings,
    notes: Notes,
    /// Names of columns that a minimal row image left out.
    absent: Strings,
}

fn new_lanes(table: &Table) -> Vec<Box<dyn Lane>> {
    table.columns.iter().map(|column| (column.shape.new_lane)(column.name.clone())).collect()
}

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn column_fields(table: &Table) -> Fields {
    table.columns.iter().map(|column| Field::new(&*column.name, column.shape.data_type.clone(), true)).collect()
}

/// The columns of a table's batches, in their order.
pub fn schema(table: &Table, before_images: bool) -> SchemaRef {
    let mut fields: Vec<Arc<Field>> = vec![
        Field::new("_ums_id_", DataType::Int64, false).into(),
        Field::new("_ums_ts_", utc(), false).into(),
        Field::new("_ums_op_", DataType::Utf8, false).into(),
        Field::new("_ums_commit_ts_", utc(), false).into(),
        Field::new("_ums_raw_", DataType::Utf8, true).into(),
    ];
    let columns = column_fields(table);
    if before_images {
        fields.push(Field::new("_ums_offset_", DataType::Int64, false).into());
        fields.push(Field::new("_ums_before_", DataType::Struct(columns.clone()), true).into());
        fields.push(Field::new("_ums_before_raw_", DataType::Utf8, true).into());
        fields.push(Field::new("_ums_absent_", DataType::Utf8, true).into());
    }
    fields.extend(columns.iter().cloned());
    Arc::new(Schema::new(fields))
}

impl TableRows {
    pub fn new(table: Arc<Table>, schema: SchemaRef, before_images: bool) -> Self {
        let before = before_images.then(|| Before {
            offsets: Vec::new(),
            valid: NullBufferBuilder::new(0),
            lanes: new_lanes(&table),
            raw: Strings::default(),
            notes: Notes::default(),
            absent: Strings::default(),
        });
        Self {
            lanes: new_lanes(&table),
            table,
            schema,
            rows: 0,
            bytes: 0,
            ids: Vec::new(),
            ts_us: Vec::new(),
            operations: Strings::default(),
            commit_ts_us: Vec::new(),
            raw: Strings::default(),
            notes: Notes::default(),
            before,
        }
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    /// Takes all rows of an event. After a fault the rows before the broken one are kept.
    pub fn take(&mut self, event: &Rows<'_>, stamp: &Stamp) -> Read<()> {
        let mut cursor = event.body;
        let table = self.table.clone();
        let count = cursor.lenenc_size()?;
        if count != table.columns.len() {
            let known = table.columns.len();
            return Err(Fault::corrupt(format!("rows of {count} columns for a table of {known}")));
        }
        let first = Present::read(&mut cursor, count)?;
        let second = if event.operation == Operation::Update { Present::read(&mut cursor, count)? } else { first };
        let absent = if self.before.is_some() {
            absent_columns(&table, event.operation, &first, &second)
        } else {
            require_whole(&table, event.operation, &first, &second)?;
            None
        };
        while !cursor.is_empty() {
            let left = cursor.left();
            match &mut self.before {
                None => self.plain_row(event, &mut cursor, (&first, &second), stamp)?,
                Some(_) => self.row_with_before(event, &mut cursor, (&first, &second), stamp, absent.as_deref())?,
            }
            if cursor.left() == left {
                return Err(Fault::corrupt("a row without bytes"));
            }
        }
        Ok(())
    }

    #[inline]
    fn plain_row(
        &mut self,
        event: &Rows<'_>,
        cursor: &mut Cursor<'_>,
        (first, second): (&Present<'_>, &Present<'_>),
        stamp: &Stamp,
    ) -> Read<()> {
        let id = stamp.id_at(cursor);
        match event.operation {
            Operation::Insert => {
                image::read(&mut self.lanes, cursor, first, &mut self.notes)?;
                self.close_row(id, b"i", stamp)
            }
            Operation::Delete => {
                image::read(&mut self.lanes, cursor, first, &mut self.notes)?;
                self.close_row(id, b"d", stamp)
            }
            Operation::Update => self.update(event, cursor, (first, second), stamp),
        }
    }

    fn update(
        &mut self,
        event: &Rows<'_>,
        cursor: &mut Cursor<'_>,
        (first, second): (&Present<'_>, &Present<'_>),
        stamp: &Stamp,
    ) -> Read<()> {
        let table = self.table.clone();
        let id = stamp.id_at(cursor);
        let before = *cursor;
        image::skip(&table.columns, cursor, first)?;
        let after_id = stamp.id_at(cursor);
        let partial = if event.partial { image::partial_columns(cursor, table.json_columns())? } else { &[] };
        if !image::key_differs(&table, (before, first), (*cursor, second))? {
            self.after_image(cursor, second, (before, first), partial)?;
            return self.close_row(id, b"u", stamp);
        }
        image::read(&mut self.lanes, &mut { before }, first, &mut self.notes)?;
        self.close_row(id, b"d", stamp)?;
        self.after_image(cursor, second, (before, first), partial)?;
        self.close_row(after_id, b"i", stamp)
    }

    #[inline]
    fn after_image(
        &mut self,
        cursor: &mut Cursor<'_>,
        present: &Present<'_>,
        (mut before, before_present): (Cursor<'_>, &Present<'_>),
        partial: &[u8],
    ) -> Read<()> {
        if partial.is_empty() {
            return image::read(&mut self.lanes, cursor, present, &mut self.notes);
        }
        let columns = &self.table.columns;
        let before = image::stored(columns, &mut before, before_present)?;
        image::read_partial((&mut self.lanes, columns), cursor, present, (partial, &before), &mut self.notes)
    }

    fn row_with_before(
        &mut self,
        event: &Rows<'_>,
        cursor: &mut Cursor<'_>,
        (first, second): (&Present<'_>, &Present<'_>),
        stamp: &Stamp,
        absent: Option<&str>,
    ) -> Read<()> {
        let id = stamp.id_at(cursor);
        let before = *cursor;
        let operation = event.operation;
        if let Some(kept) = &mut self.before {
            if operation == Operation::Insert {
                kept.lanes.iter_mut().for_each(|lane| lane.null());
                kept.valid.append_null();
            } else {
                image::read(&mut kept.lanes, cursor, first, &mut kept.notes)?;
                kept.valid.append_non_null();
            }
            kept.notes.finish_row(&mut kept.raw)?;
            kept.offsets.push(stamp.event_offset);
            match absent {
                Some(names) => kept.absent.push(names.as_bytes())?,
                None => kept.absent.push_null(),
            }
        }
        match operation {
            Operation::Insert => image::read(&mut self.lanes, cursor, first, &mut self.notes)?,
            Operation::Delete => self.lanes.iter_mut().for_each(|lane| lane.null()),
            Operation::Update => {
                let json_columns = self.table.json_columns();
                let partial = if event.partial { image::partial_columns(cursor, json_columns)? } else { &[] };
                self.after_image(cursor, second, (before, first), partial)?;
            }
        }
        self.close_row(id, operation.letter(), stamp)
    }

    #[inline]
    fn close_row(&mut self, id: i64, operation: &[u8], stamp: &Stamp) -> Read<()> {
        self.notes.finish_row(&mut self.raw)?;
        self.ids.push(id);
        self.ts_us.push(stamp.ts_us);
        self.operations.push(operation)?;
        self.commit_ts_us.push(stamp.commit_ts_us);
        self.rows += 1;
        Ok(())
    }

    /// The batch of all whole rows.
    pub fn finish(mut self) -> Read<RecordBatch> {
        let micros = |values: Vec<i64>| Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"));
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(self.ids)),
            micros(self.ts_us),
            self.operations.finish_text(),
            micros(self.commit_ts_us),
            self.raw.finish_text(),
        ];
        if let Some(mut before) = self.before {
            let lanes = before.lanes.iter_mut().map(|lane| Ok(lane.finish()?.slice(0, self.rows)));
            let lanes = lanes.collect::<Read<Vec<_>>>()?;
            let valid = before.valid.finish().map(|valid| valid.slice(0, self.rows));
            let columns = column_fields(&self.table);
            let images = StructArray::try_new_with_length(columns, lanes, valid, self.rows).map_err(unfit)?;
            arrays.push(Arc::new(Int64Array::from(before.offsets)));
            arrays.push(Arc::new(images));
            arrays.push(before.raw.finish_text());
            arrays.push(before.absent.finish_text());
        }
        for lane in &mut self.lanes {
            arrays.push(lane.finish()?);
        }
        // A fault in mid-row leaves values of that row in some of the arrays.
        let whole = arrays.iter().map(|array| array.slice(0, self.rows)).collect();
        RecordBatch::try_new(self.schema, whole).map_err(unfit)
    }
}

/// Columns are built from the schema that they are checked against, so that this does not happen.
#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn unfit(error: arrow_schema::ArrowError) -> Fault {
    Fault::corrupt(format!("the columns of a batch do not fit: {error}"))
}

impl Operation {
    fn letter(self) -> &'static [u8] {
        match self {
            Self::Insert => b"i",
            Self::Update => b"u",
            Self::Delete => b"d",
        }
    }
}

/// Changes can be applied to a copy only when the log has whole rows; of a deleted row the key is enough.
fn require_whole(table: &Table, operation: Operation, first: &Present<'_>, second: &Present<'_>) -> Read<()> {
    let whole = match operation {
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
        "set binlog_row_image=FULL at the source (in every session) and start from a position behind it",
    ))
}

/// `{"before": [names], "after": [names]}` of the columns that are not in the log; None when all are.
fn absent_columns(table: &Table, operation: Operation, first: &Present<'_>, second: &Present<'_>) -> Option<String> {
    if first.all && second.all {
        return None;
    }
    let list = |present: &Present<'_>| {
        let mut text = String::from("[");
        for (_, column) in table.columns.iter().enumerate().filter(|(index, _)| !present.has(*index)) {
            text.push_str(if text.len() > 1 { ", " } else { "" });
            quote(&column.name, &mut text);
        }
        text + "]"
    };
    let (before, after) = match operation {
        Operation::Insert => ("[]".to_owned(), list(first)),
        Operation::Delete => (list(first), "[]".to_owned()),
        Operation::Update => (list(first), list(second)),
    };
    Some(format!("{{\"before\": {before}, \"after\": {after}}}"))
}
