//! Row events into the rows of one table: one Arrow batch under way.
//!
//! The rows are taken apart into cells first (`cells`), block by block; the lanes then take each block column by column.
//! A row's id is made of the position of its first image. An update that changes the key becomes a delete with the before image
//! and an insert with the after image, each with its own image's position.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray, StructArray, TimestampMicrosecondArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, TimeUnit};

use super::cells::{Block, Cell, Extent};
use super::columns::Size;
use super::cursor::{Cursor, bit};
use super::fault::{Fault, Read, RowPlace};
use super::gathered::{GATHERED_BYTES, Gathered, place_in};
use super::image::{self, Route};
use super::key::Key;
use super::lanes::{Broken, Lane};
use super::notes::Notes;
use super::row_event::{Images, Operation, Rows, Stamp, absent_columns, require_whole};
use super::strings::Strings;
use super::table_map::{Column, Table};

/// Rows of one event are taken up to here, those left when the caller has had a chance to take what there is. An event of some
/// kilobytes can hold rows of thousands of columns without values, each of which has its place in the arrays.
const PART_BYTES: usize = 4 << 20;

/// How much of an event was taken.
#[derive(Clone, Copy)]
pub struct Taken {
    /// About what the rows need in memory.
    pub bytes: usize,
    /// When rows are left: bytes of the event's images that were taken.
    pub until: Option<usize>,
}

/// The bitmap of the columns that the after image behind byte `at` has as differences, and where that image begins.
fn differences_at<'b>(bytes: &'b [u8], at: usize, images: &Images<'_>, table: &Table) -> Read<(&'b [u8], usize)> {
    if !images.partial {
        return Ok((&[], at));
    }
    let mut cursor = Cursor::new(bytes.get(at..).unwrap_or_default());
    let differences = image::partial_columns(&mut cursor, table.json_columns())?;
    Ok((differences, bytes.len() - cursor.left()))
}

/// One image per row: its cells under way, and where their values go.
struct Side {
    block: Block,
    lanes: Vec<Kept>,
    notes: Notes,
}

/// A column that batches have.
struct Kept {
    index: usize,
    size: Size,
    lane: Box<dyn Lane>,
}

impl Side {
    fn new(table: &Table) -> Self {
        let lanes = table.kept_columns().map(|(index, column)| {
            let lane = (column.shape.new_lane)(index);
            Kept { index, size: column.shape.size, lane }
        });
        Self { block: Block::new(table.columns.len()), lanes: lanes.collect(), notes: Notes::default() }
    }

    /// Carries the block into the lanes. At a broken value the rows before it are whole.
    fn carry(&mut self, bytes: &[u8], differences: &[Difference]) -> Result<(), Broken> {
        let mut result = Ok(());
        let mut rows = self.block.rows;
        for kept in &mut self.lanes {
            if let Err(broken) = carry_column(&self.block, bytes, kept, rows, differences, &mut self.notes) {
                rows = broken.row;
                result = Err(broken);
            }
        }
        self.block.clear();
        result
    }

    /// What a row needs in memory beside the bytes of its texts.
    fn row_bytes(table: &Table) -> usize {
        // A text has an offset of four bytes.
        table.kept_columns().map(|(_, column)| column.shape.data_type.primitive_width().unwrap_or(4)).sum()
    }

    fn finish(&mut self, table: &Table, rows: usize) -> Read<(Vec<ArrayRef>, ArrayRef)> {
        let arrays = self.lanes.iter_mut().map(|kept| Ok(kept.lane.finish(&mut self.notes)?.slice(0, rows)));
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
    bytes: &[u8],
    Kept { index, size, lane }: &mut Kept,
    rows: usize,
    differences: &[Difference],
    notes: &mut Notes,
) -> Result<(), Broken> {
    let mut first = 0;
    let mut take = |lane: &mut dyn Lane, first: usize, end: usize| {
        let taken = lane.take(block.column(bytes, (*index, Extent::Sized(*size)), first..end), notes);
        taken.map_err(|broken| Broken { row: first + broken.row, ..broken })
    };
    for difference in differences.iter().filter(|difference| difference.column == *index && difference.row < rows) {
        let row = difference.row;
        take(lane.as_mut(), first, row)?;
        let value = block.cell(row, *index).of(bytes, *size).unwrap_or_default();
        let before = difference.before.of(bytes, *size);
        lane.take_differences(value, before).map_err(|fault| Broken { row, fault })?;
        first = row + 1;
    }
    take(lane.as_mut(), first, rows)
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
    /// What a row needs in memory beside the bytes of its texts.
    row_bytes: usize,
    pub bytes: usize,
    ids: Vec<i64>,
    ts_us: Vec<i64>,
    operations: Vec<u8>,
    letter_ends: OffsetBuffer<i32>,
    commit_ts_us: Vec<i64>,
    route: Route,
    key: Key,
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

pub fn column_fields(table: &Table) -> Fields {
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
        // Id, two times, letter, two offsets of texts; place of the event and two more offsets.
        let system_bytes = 3 * 8 + 1 + 2 * 4 + if before_images { 8 + 2 * 4 } else { 0 };
        let row_bytes = system_bytes + Side::row_bytes(&table) * if before_images { 2 } else { 1 };
        Self {
            after: Side::new(&table),
            row_bytes,
            route: Route::new(table.columns.iter().map(|column| column.shape.size)),
            key: Key::of(&table),
            table,
            schema,
            rows: 0,
            expected_rows: 0,
            bytes: 0,
            ids: Vec::new(),
            ts_us: Vec::new(),
            operations: Vec::new(),
            letter_ends: OffsetBuffer::new_empty(),
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

    /// Takes all rows of an event. After a fault the rows before the broken one are kept. `fed` are the bytes that the decoder
    /// was fed: the same ones until the rows are carried.
    ///
    /// Values are decoded when enough of them have come, so that a broken one can be found at a later event (`Fault::row`).
    pub fn take(&mut self, table: &Table, event: &Rows<'_>, stamp: &Stamp, fed: &[u8]) -> Read<Taken> {
        let mut images = Images::read(event, table.columns.len(), stamp)?;
        if self.before.is_some() {
            images.absent = absent_columns(table, &images);
        } else {
            require_whole(table, &images)?;
        }
        self.expect();
        let rows_before = self.len();
        let row_bytes = self.row_bytes + images.absent.as_ref().map_or(0, String::len);
        let most_rows = self.len() + PART_BYTES / row_bytes + 1;
        let mut gathered = std::mem::take(&mut self.gathered);
        let left = self.take_images(&mut gathered, &images, table, fed, most_rows);
        self.gathered = gathered;
        let left = left?;
        let until = (left > 0).then_some(event.taken + images.bytes.len() - left);
        Ok(Taken { bytes: (self.len() - rows_before) * row_bytes, until })
    }

    /// Takes rows until there are `most_rows` or some more; returns how many bytes are left.
    fn take_images(
        &mut self,
        gathered: &mut Gathered,
        images: &Images<'_>,
        table: &Table,
        fed: &[u8],
        most_rows: usize,
    ) -> Read<usize> {
        let place = place_in(fed, images.bytes);
        if self.after.block.rows > 0 && !gathered.goes_with(images.bytes, place) {
            self.carry_all(gathered, fed)?;
        }
        if self.after.block.rows == 0 {
            gathered.clear();
        }
        let mut at = gathered.add(images.bytes, place);
        loop {
            gathered.events.push((self.after.block.rows, images.stamp.event_offset));
            let bytes = gathered.bytes(fed);
            let walked = self.fill(bytes, images, table, &mut at);
            let left = bytes.len() - at;
            self.ts_us.resize(self.ids.len(), images.stamp.ts_us);
            self.commit_ts_us.resize(self.ids.len(), images.stamp.commit_ts_us);
            let is_enough = left == 0 || walked.is_err() || self.ids.len() >= most_rows;
            if !is_enough || gathered.taken >= GATHERED_BYTES || left > 0 {
                self.carry_all(gathered, fed)?;
            }
            if is_enough {
                return walked.map(|()| left);
            }
        }
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
    fn fill(&mut self, bytes: &[u8], images: &Images<'_>, table: &Table, at: &mut usize) -> Read<()> {
        while *at < bytes.len() && !self.after.block.is_full() {
            let end = match self.before {
                None => self.plain_row(bytes, images, table, *at)?,
                Some(_) => self.row_with_before(bytes, images, table, *at)?,
            };
            if end == *at {
                return Err(Fault::corrupt("a row without bytes"));
            }
            *at = end;
        }
        Ok(())
    }

    #[inline]
    fn plain_row(&mut self, bytes: &[u8], images: &Images<'_>, table: &Table, at: usize) -> Read<usize> {
        let route = &mut self.route;
        let id = images.stamp.id_at(bytes.len() - at);
        if images.operation != Operation::Update {
            let end = route.walk(bytes, at, &images.first, self.after.block.next_row())?;
            self.add(id, images.operation.letter());
            return Ok(end);
        }
        let before = &mut self.before_row;
        before.resize(table.columns.len() + Block::MARGIN, Cell::ABSENT);
        let middle = route.walk(bytes, at, &images.first, before)?;
        let (bitmap, start) = differences_at(bytes, middle, images, table)?;
        let row = self.after.block.rows;
        let after = self.after.block.next_row();
        let end = route.walk(bytes, start, &images.second, after)?;
        if !self.key.differs(bytes, before, after) {
            if !bitmap.is_empty() {
                self.differences.extend(differing(bitmap, table, row, before, after));
            }
            self.add(id, b'u');
            return Ok(end);
        }
        after.copy_from_slice(before);
        self.add(id, b'd');
        let after = self.after.block.next_row();
        self.route.walk(bytes, start, &images.second, after)?;
        self.differences.extend(differing(bitmap, table, row + 1, &self.before_row, after));
        self.add(images.stamp.id_at(bytes.len() - middle), b'i');
        Ok(end)
    }

    fn row_with_before(&mut self, bytes: &[u8], images: &Images<'_>, table: &Table, at: usize) -> Read<usize> {
        let Some(kept) = &mut self.before else { return Ok(at) };
        let route = &mut self.route;
        let row = self.after.block.rows;
        let (before, after) = (kept.side.block.next_row(), self.after.block.next_row());
        let end = match images.operation {
            Operation::Insert => {
                before.fill(Cell::ABSENT);
                route.walk(bytes, at, &images.first, after)?
            }
            Operation::Delete => {
                after.fill(Cell::ABSENT);
                route.walk(bytes, at, &images.first, before)?
            }
            Operation::Update => {
                let middle = route.walk(bytes, at, &images.first, before)?;
                let (bitmap, start) = differences_at(bytes, middle, images, table)?;
                let end = route.walk(bytes, start, &images.second, after)?;
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
        self.add(images.stamp.id_at(bytes.len() - at), images.operation.letter());
        Ok(end)
    }

    #[inline]
    fn add(&mut self, id: i64, operation: u8) {
        self.after.block.rows += 1;
        self.ids.push(id);
        self.operations.push(operation);
    }

    /// Carries the block into the lanes; what is gathered stays, for rows of the newest event that are to come.
    fn carry_all(&mut self, gathered: &mut Gathered, fed: &[u8]) -> Read<()> {
        let block_rows = self.after.block.rows;
        let bytes = gathered.bytes(fed);
        let before = match &mut self.before {
            Some(before) => before.side.carry(bytes, &[]),
            None => Ok(()),
        };
        let after = self.after.carry(bytes, &self.differences);
        self.differences.clear();
        let broken = [before, after].into_iter().filter_map(Result::err).min_by_key(|broken| broken.row);
        let result = match broken {
            None => {
                self.rows += block_rows;
                Ok(())
            }
            Some(broken) => {
                self.rows += broken.row - usize::from(self.moves_a_row(gathered, broken.row));
                let id = self.ids.get(self.rows).copied().unwrap_or(i64::MAX);
                self.cut(id);
                let event_offset = gathered.event_of(broken.row).try_into().unwrap_or(0);
                Err(broken.fault.of_row(RowPlace { id, event_offset }))
            }
        };
        gathered.events.clear();
        result
    }

    /// True when a row of the block is the second half of an update that changes the key: the first goes with it.
    fn moves_a_row(&self, gathered: &Gathered, row: usize) -> bool {
        // One event has one kind of change; only updates come apart into two.
        let operation = |row: usize| self.operations.get(self.rows + row);
        operation(row) == Some(&b'i')
            && row.checked_sub(1).is_some_and(|first| {
                operation(first) == Some(&b'd') && gathered.part_of(first) == gathered.part_of(row)
            })
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
    pub fn carry(&mut self, fed: &[u8]) -> Read<()> {
        if self.after.block.rows == 0 {
            return Ok(());
        }
        let mut gathered = std::mem::take(&mut self.gathered);
        let result = self.carry_all(&mut gathered, fed);
        self.gathered = gathered;
        result.map_err(|fault| fault.at(&*self.table))
    }

    /// The operations' letters as texts of one byte each. Where those begin is the same for all batches.
    fn letters(&mut self, rows: usize) -> ArrayRef {
        if self.letter_ends.len() <= rows {
            self.letter_ends = OffsetBuffer::from_lengths(std::iter::repeat_n(1, rows));
        }
        let letters = std::mem::take(&mut self.operations);
        // SAFETY: each of the first `rows` texts is one of `rows` letters, which are ASCII.
        Arc::new(unsafe { StringArray::new_unchecked(self.letter_ends.slice(0, rows), letters.into(), None) })
    }

    /// The batch of all whole rows, which have been carried.
    pub fn finish(&mut self) -> Read<RecordBatch> {
        let rows = std::mem::take(&mut self.rows);
        self.expected_rows = rows;
        self.bytes = 0;
        let micros = |values: &mut Vec<i64>| {
            let values = std::mem::take(values);
            Arc::new(TimestampMicrosecondArray::from(values).with_timezone("UTC"))
        };
        let (columns, notes) = self.after.finish(&self.table, rows)?;
        let letters = self.letters(rows);
        let mut arrays: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(std::mem::take(&mut self.ids))),
            micros(&mut self.ts_us),
            letters,
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

/// Columns are built from the schema that they are checked against, so that this does not happen.
#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn unfit(error: arrow_schema::ArrowError) -> Fault {
    Fault::corrupt(format!("the columns of a batch do not fit: {error}"))
}
