//! Row events into the rows of one table: one Arrow batch under way.
//!
//! ```text
//! table id u48 | flags u16 | v2: length u16 (itself included), extra data | columns lenenc | present bitmap (update: two)
//! | row, row, …       insert: after image · delete: before image · update: before image, [options, bitmap,] after image
//! ```
//! The rows are taken apart into cells first (`cells`), block by block; the lanes then take each block column by column.
//! A row's id is made of the position of its first image. An update that changes the key becomes a delete with the before image
//! and an insert with the after image, each with its own image's position.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use super::cells::{Block, Cell};
use super::cursor::{Cursor, bit};
use super::event::kind;
use super::fault::{Fault, Read, RowPlace};
use super::image::{self, Present};
use super::json::quote;
use super::lanes::{Broken, Lane};
use super::notes::Notes;
use super::strings::Strings;
use super::table_map::{Column, Table};

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

/// Images gathered up to here are decoded: about what the processor's second cache holds beside the lanes.
const GATHERED_BYTES: usize = 64 << 10;

impl Stamp {
    /// The id of what begins where the event has `left` bytes left.
    #[inline]
    fn id_at(&self, left: usize) -> i64 {
        // An event has at most 2^32 bytes.
        self.event_id + i64::try_from(self.event_bytes - left).unwrap_or(0)
    }
}

/// What a row event says of all its images.
struct Images<'a> {
    operation: Operation,
    partial: bool,
    /// Which columns the first images have, and in an update the second.
    first: Present<'a>,
    second: Present<'a>,
    /// Names of the columns that they do not have.
    absent: Option<String>,
    bytes: &'a [u8],
    stamp: &'a Stamp,
}

impl<'a> Images<'a> {
    fn read(event: &Rows<'a>, columns: usize, stamp: &'a Stamp) -> Read<Self> {
        let mut cursor = event.body;
        let count = cursor.lenenc_size()?;
        if count != columns {
            return Err(Fault::corrupt(format!("rows of {count} columns for a table of {columns}")));
        }
        let first = Present::read(&mut cursor, count)?;
        let second = if event.operation == Operation::Update { Present::read(&mut cursor, count)? } else { first };
        let Rows { operation, partial, .. } = *event;
        Ok(Self { operation, partial, first, second, absent: None, bytes: cursor.rest(), stamp })
    }
}

/// Images of several events, one behind the other: what the cells of a block point into.
#[derive(Default)]
struct Gathered {
    bytes: Vec<u8>,
    /// For each event its first row in the block and its place in the file.
    events: Vec<(usize, i64)>,
}

impl Gathered {
    /// The id of what begins at byte `at` of the newest event.
    fn id_at(&self, at: usize, stamp: &Stamp) -> i64 {
        stamp.id_at(self.bytes.len() - at)
    }

    /// The bitmap of the columns that the after image behind byte `at` has as differences, and where that image begins.
    fn differences(&self, at: usize, images: &Images<'_>, table: &Table) -> Read<(&[u8], usize)> {
        if !images.partial {
            return Ok((&[], at));
        }
        let mut cursor = Cursor::new(self.bytes.get(at..).unwrap_or_default());
        let differences = image::partial_columns(&mut cursor, table.json_columns())?;
        Ok((differences, self.bytes.len() - cursor.left()))
    }

    /// The place of the event that a row of the block came with.
    fn event_of(&self, row: usize) -> i64 {
        let event = self.events.iter().rev().find(|(first, _)| *first <= row);
        event.map_or(0, |(_, offset)| *offset)
    }
}

/// One image per row: its cells under way, and where their values go.
struct Side {
    block: Block,
    /// Each with the index of its column.
    lanes: Vec<(usize, Box<dyn Lane>)>,
    notes: Notes,
}

impl Side {
    fn new(table: &Table) -> Self {
        let lanes = table.kept_columns().map(|(index, column)| (index, (column.shape.new_lane)(index)));
        Self { block: Block::new(table.columns.len()), lanes: lanes.collect(), notes: Notes::default() }
    }

    /// Carries the block into the lanes. At a broken value the rows before it are whole.
    fn carry(&mut self, event: &[u8], differences: &[Difference]) -> Result<(), Broken> {
        let mut result = Ok(());
        let mut rows = self.block.rows;
        for (column, lane) in &mut self.lanes {
            let taken = carry_column(&self.block, event, (*column, lane.as_mut()), rows, differences, &mut self.notes);
            if let Err(broken) = taken {
                rows = broken.row;
                result = Err(broken);
            }
        }
        self.block.clear();
        result
    }

    fn finish(&mut self, table: &Table, rows: usize) -> Read<(Vec<ArrayRef>, ArrayRef)> {
        let arrays = self.lanes.iter_mut().map(|(_, lane)| Ok(lane.finish(&mut self.notes)?.slice(0, rows)));
        let arrays = arrays.collect::<Read<Vec<_>>>()?;
        let name = |index: usize| table.columns.get(index).map_or("", |column| &*column.name);
        Ok((arrays, self.notes.finish(rows, name)?))
    }
}

/// A value of a block that is written as differences to the one of its before image.
struct Difference {
    row: usize,
    column: usize,
    before: Cell,
}

/// Carries one column of the first `rows` rows: runs of values as they are, and differences between them.
fn carry_column(
    block: &Block,
    event: &[u8],
    (column, lane): (usize, &mut dyn Lane),
    rows: usize,
    differences: &[Difference],
    notes: &mut Notes,
) -> Result<(), Broken> {
    let mut first = 0;
    let mut take = |lane: &mut dyn Lane, first: usize, end: usize| {
        let taken = lane.take(block.column(event, column, first..end), notes);
        taken.map_err(|broken| Broken { row: first + broken.row, ..broken })
    };
    for difference in differences.iter().filter(|difference| difference.column == column && difference.row < rows) {
        let row = difference.row;
        take(lane, first, row)?;
        let value = block.cell(row, column).of(event).unwrap_or_default();
        lane.take_differences(value, difference.before.of(event)).map_err(|fault| Broken { row, fault })?;
        first = row + 1;
    }
    take(lane, first, rows)
}

/// The columns of the row under way that the bitmap names; it has a bit for every JSON column, present or not.
fn differing(bitmap: &[u8], table: &Table, row: usize, before: &[Cell], after: &[Cell]) -> Vec<Difference> {
    let json = table.columns.iter().enumerate().filter(|(_, column)| column.is_json).zip(0..);
    let named = json.filter(|(_, place)| bit(bitmap, *place)).map(|((index, _), _)| index);
    let stored = named.filter(|&index| after.get(index).is_some_and(|cell| !cell.is_none()));
    let before = |index| before.get(index).copied().unwrap_or(Cell::ABSENT);
    stored.map(|column| Difference { row, column, before: before(column) }).collect()
}

/// The rows of one table between two moments.
pub struct TableRows {
    table: Arc<Table>,
    schema: SchemaRef,
    /// Rows that the lanes have; the block holds those behind them.
    rows: usize,
    expected_rows: usize,
    pub bytes: usize,
    ids: Vec<i64>,
    ts_us: Vec<i64>,
    operations: Vec<u8>,
    commit_ts_us: Vec<i64>,
    gathered: Gathered,
    after: Side,
    before: Option<Before>,
    differences: Vec<Difference>,
    /// The before image of the row that is being taken apart.
    before_row: Vec<Cell>,
}

/// Before images, where the caller asked for them.
struct Before {
    offsets: Vec<i64>,
    valid: NullBufferBuilder,
    side: Side,
    /// Names of columns that a minimal row image left out.
    absent: Strings,
}

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn column_fields(table: &Table) -> Fields {
    let field = |column: &Column| Field::new(&*column.name, column.shape.data_type.clone(), true);
    table.kept_columns().map(|(_, column)| field(column)).collect()
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
            side: Side::new(&table),
            absent: Strings::default(),
        });
        Self {
            after: Side::new(&table),
            table,
            schema,
            rows: 0,
            expected_rows: 0,
            bytes: 0,
            ids: Vec::new(),
            ts_us: Vec::new(),
            operations: Vec::new(),
            commit_ts_us: Vec::new(),
            gathered: Gathered::default(),
            before,
            differences: Vec::new(),
            before_row: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Takes all rows of an event. After a fault the rows before the broken one are kept.
    ///
    /// Values are decoded when enough of them have come, so that a broken one can be found at a later event (`Fault::row`).
    pub fn take(&mut self, table: &Table, event: &Rows<'_>, stamp: &Stamp) -> Read<()> {
        let mut images = Images::read(event, table.columns.len(), stamp)?;
        if self.before.is_some() {
            images.absent = absent_columns(table, &images);
        } else {
            require_whole(table, &images)?;
        }
        self.expect();
        let mut gathered = std::mem::take(&mut self.gathered);
        let mut at = gathered.bytes.len();
        gathered.bytes.extend_from_slice(images.bytes);
        let mut result = Ok(());
        while at < gathered.bytes.len() && result.is_ok() {
            gathered.events.push((self.after.block.rows, stamp.event_offset));
            let walked = self.fill(&gathered, &images, table, &mut at);
            self.ts_us.resize(self.ids.len(), stamp.ts_us);
            self.commit_ts_us.resize(self.ids.len(), stamp.commit_ts_us);
            result = self.carry_full(&mut gathered).and(walked);
        }
        if gathered.bytes.len() >= GATHERED_BYTES {
            result = self.carry_all(&mut gathered).and(result);
        }
        if gathered.events.is_empty() {
            gathered.bytes.clear();
        }
        self.gathered = gathered;
        result
    }

    /// Makes room for as much as the batch before had.
    fn expect(&mut self) {
        if self.ids.is_empty() {
            self.ids.reserve(self.expected_rows);
            self.ts_us.reserve(self.expected_rows);
            self.operations.reserve(self.expected_rows);
            self.commit_ts_us.reserve(self.expected_rows);
        }
    }

    /// Takes rows apart until the block is full.
    fn fill(&mut self, gathered: &Gathered, images: &Images<'_>, table: &Table, at: &mut usize) -> Read<()> {
        while *at < gathered.bytes.len() && !self.after.block.is_full() {
            let end = match self.before {
                None => self.plain_row(gathered, images, table, *at)?,
                Some(_) => self.row_with_before(gathered, images, table, *at)?,
            };
            if end == *at {
                return Err(Fault::corrupt("a row without bytes"));
            }
            *at = end;
        }
        Ok(())
    }

    #[inline]
    fn plain_row(&mut self, gathered: &Gathered, images: &Images<'_>, table: &Table, at: usize) -> Read<usize> {
        let (bytes, sizes) = (&*gathered.bytes, &*table.sizes);
        let id = gathered.id_at(at, images.stamp);
        if images.operation != Operation::Update {
            let end = image::walk(bytes, at, &images.first, sizes, self.after.block.next_row())?;
            self.add(id, images.operation.letter());
            return Ok(end);
        }
        let before = &mut self.before_row;
        before.resize(sizes.len(), Cell::ABSENT);
        let middle = image::walk(bytes, at, &images.first, sizes, before)?;
        let (bitmap, start) = gathered.differences(middle, images, table)?;
        let row = self.after.block.rows;
        let after = self.after.block.next_row();
        let end = image::walk(bytes, start, &images.second, sizes, after)?;
        if !key_differs(table, bytes, before, after) {
            if !bitmap.is_empty() {
                self.differences.extend(differing(bitmap, table, row, before, after));
            }
            self.add(id, b'u');
            return Ok(end);
        }
        after.copy_from_slice(before);
        self.add(id, b'd');
        let after = self.after.block.next_row();
        image::walk(bytes, start, &images.second, sizes, after)?;
        self.differences.extend(differing(bitmap, table, row + 1, &self.before_row, after));
        self.add(gathered.id_at(middle, images.stamp), b'i');
        Ok(end)
    }

    fn row_with_before(&mut self, gathered: &Gathered, images: &Images<'_>, table: &Table, at: usize) -> Read<usize> {
        let Some(kept) = &mut self.before else { return Ok(at) };
        let (bytes, sizes) = (&*gathered.bytes, &*table.sizes);
        let row = self.after.block.rows;
        let (before, after) = (kept.side.block.next_row(), self.after.block.next_row());
        let end = match images.operation {
            Operation::Insert => image::walk(bytes, at, &images.first, sizes, after)?,
            Operation::Delete => image::walk(bytes, at, &images.first, sizes, before)?,
            Operation::Update => {
                let middle = image::walk(bytes, at, &images.first, sizes, before)?;
                let (bitmap, start) = gathered.differences(middle, images, table)?;
                let end = image::walk(bytes, start, &images.second, sizes, after)?;
                self.differences.extend(differing(bitmap, table, row, before, after));
                end
            }
        };
        kept.side.block.rows += 1;
        kept.valid.append(images.operation != Operation::Insert);
        kept.offsets.push(images.stamp.event_offset);
        match &images.absent {
            Some(names) => kept.absent.push(names.as_bytes())?,
            None => kept.absent.push_null(),
        }
        self.add(gathered.id_at(at, images.stamp), images.operation.letter());
        Ok(end)
    }

    #[inline]
    fn add(&mut self, id: i64, operation: u8) {
        self.after.block.rows += 1;
        self.ids.push(id);
        self.operations.push(operation);
    }

    fn carry_full(&mut self, gathered: &mut Gathered) -> Read<()> {
        if self.after.block.is_full() { self.carry_all(gathered) } else { Ok(()) }
    }

    /// Carries the block into the lanes; the bytes stay, for rows of the newest event that are to come.
    fn carry_all(&mut self, gathered: &mut Gathered) -> Read<()> {
        let block_rows = self.after.block.rows;
        let before = match &mut self.before {
            Some(before) => before.side.carry(&gathered.bytes, &[]),
            None => Ok(()),
        };
        let after = self.after.carry(&gathered.bytes, &self.differences);
        self.differences.clear();
        let broken = [before, after].into_iter().filter_map(Result::err).min_by_key(|broken| broken.row);
        let result = match broken {
            None => {
                self.rows += block_rows;
                Ok(())
            }
            Some(broken) => {
                self.rows += broken.row;
                let id = self.ids.get(self.rows).copied().unwrap_or(i64::MAX);
                self.cut(id);
                let event_offset = gathered.event_of(broken.row).try_into().unwrap_or(0);
                Err(broken.fault.of_row(RowPlace { id, event_offset }))
            }
        };
        gathered.events.clear();
        result
    }

    /// Takes away the rows from `id` on; they have been decoded.
    pub fn cut(&mut self, id: i64) {
        self.rows = self.ids.partition_point(|known| *known < id);
        self.ids.truncate(self.rows);
        self.operations.truncate(self.rows);
        self.ts_us.truncate(self.rows);
        self.commit_ts_us.truncate(self.rows);
    }

    /// Decodes what has been taken and not been decoded.
    pub fn carry(&mut self) -> Read<()> {
        let mut gathered = std::mem::take(&mut self.gathered);
        let result = self.carry_all(&mut gathered);
        gathered.bytes.clear();
        self.gathered = gathered;
        result.map_err(|fault| fault.at(&*self.table))
    }

    /// The batch of all whole rows.
    pub fn finish(&mut self) -> Read<RecordBatch> {
        self.carry()?;
        let rows = std::mem::take(&mut self.rows);
        self.expected_rows = rows;
        self.bytes = 0;
        let micros = |values: &mut Vec<i64>| {
            let values = std::mem::take(values);
            Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"))
        };
        let (columns, notes) = self.after.finish(&self.table, rows)?;
        let letters = std::mem::take(&mut self.operations);
        let ends = OffsetBuffer::from_lengths(std::iter::repeat_n(1, rows));
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(std::mem::take(&mut self.ids))),
            micros(&mut self.ts_us),
            Arc::new(StringArray::try_new(ends, letters.into(), None).map_err(unfit)?),
            micros(&mut self.commit_ts_us),
            notes,
        ];
        if let Some(before) = &mut self.before {
            let (columns, notes) = before.side.finish(&self.table, rows)?;
            let valid = before.valid.finish().map(|valid| valid.slice(0, rows));
            let fields = column_fields(&self.table);
            let images = StructArray::try_new_with_length(fields, columns, valid, rows).map_err(unfit)?;
            before.offsets.truncate(rows);
            arrays.push(Arc::new(Int64Array::from(std::mem::take(&mut before.offsets))));
            arrays.push(Arc::new(images));
            arrays.push(notes);
            arrays.push(before.absent.finish_text().slice(0, rows));
        }
        arrays.extend(columns);
        RecordBatch::try_new(self.schema.clone(), arrays).map_err(unfit)
    }
}

/// True when two images of one row differ in a column of the key. One that an image does not have did not change.
fn key_differs(table: &Table, event: &[u8], before: &[Cell], after: &[Cell]) -> bool {
    table.key.iter().any(|&index| match (before.get(index), after.get(index)) {
        (Some(&old), Some(&new)) => old != Cell::ABSENT && new != Cell::ABSENT && old.of(event) != new.of(event),
        _ => false,
    })
}

/// Columns are built from the schema that they are checked against, so that this does not happen.
#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn unfit(error: arrow_schema::ArrowError) -> Fault {
    Fault::corrupt(format!("the columns of a batch do not fit: {error}"))
}

impl Operation {
    fn letter(self) -> u8 {
        match self {
            Self::Insert => b'i',
            Self::Update => b'u',
            Self::Delete => b'd',
        }
    }
}

/// Changes can be applied to a copy only when the log has whole rows; of a deleted row the key is enough.
fn require_whole(table: &Table, images: &Images<'_>) -> Read<()> {
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
        "set binlog_row_image=FULL at the source (in every session) and start from a position behind it",
    ))
}

/// `{"before": [names], "after": [names]}` of the columns that are not in the log; None when all are.
fn absent_columns(table: &Table, images: &Images<'_>) -> Option<String> {
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
