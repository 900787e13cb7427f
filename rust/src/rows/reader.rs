//! The answer to one SELECT: what its packets are, and how rows become batches.

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, SchemaRef};

use super::columns::{Column, Width};
use super::packets::{Packets, Payload};
use crate::binlog::cells::{Block, Cell};
use crate::binlog::cursor::{Cursor, bit};
use crate::binlog::fault::{Fault, Read};
use crate::binlog::lanes::Lane;
use crate::binlog::notes::Notes;

const ROW: u8 = 0x00;
const END: u8 = 0xfe;
const ERROR: u8 = 0xff;
const MORE_RESULTS: u16 = 8;
/// Of the header, and in the bitmap.
const BITS_BEFORE_NULLS: usize = 2;

/// What comes next.
enum Expected {
    Count,
    Columns,
    EndOfColumns,
    Rows,
    Nothing,
}

/// Why rows came to an end before their time.
pub enum Stopped {
    /// The server's error code and text.
    Error(u16, String),
    /// What is wrong with the columns.
    Unfit(String),
}

/// When to hand out a batch.
#[derive(Clone, Copy)]
pub struct Stop {
    pub rows: usize,
    pub bytes: usize,
}

pub struct Reader {
    /// The columns asked for, and the side text behind them.
    schema: SchemaRef,
    packets: Packets,
    expected: Expected,
    columns: Vec<Column>,
    widths: Vec<Width>,
    lanes: Vec<Box<dyn Lane>>,
    notes: Notes,
    block: Block,
    /// Of the batch under way.
    rows: usize,
    bytes: usize,
    stopped: Option<Stopped>,
}

impl Reader {
    pub fn new(schema: SchemaRef) -> Self {
        let columns = schema.fields().len().saturating_sub(1);
        Self {
            schema,
            packets: Packets::default(),
            expected: Expected::Count,
            columns: Vec::new(),
            widths: Vec::new(),
            lanes: Vec::new(),
            notes: Notes::default(),
            block: Block::new(columns),
            rows: 0,
            bytes: 0,
            stopped: None,
        }
    }

    /// Rows that are taken and not handed out.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn at_end(&self) -> bool {
        matches!(self.expected, Expected::Nothing)
    }

    pub fn stopped(&self) -> Option<&Stopped> {
        self.stopped.as_ref()
    }

    pub fn is_full(&self, stop: Stop) -> bool {
        self.rows > 0 && (self.rows >= stop.rows || self.bytes >= stop.bytes)
    }

    /// Takes whole packets, up to a full batch or the end; returns the bytes they had.
    pub fn feed(&mut self, data: &[u8], stop: Stop) -> Read<usize> {
        let data = data.get(..Block::TOO_MANY_BYTES).unwrap_or(data);
        let mut at = 0;
        while !self.at_end() && !self.is_full(stop) {
            match self.packets.next(data, &mut at)? {
                None => break,
                Some(Payload::Here(range)) => {
                    self.take(data, range.start, range.end)?;
                    if self.block.is_full() {
                        self.carry(data)?;
                    }
                }
                Some(Payload::Joined(bytes)) => {
                    self.carry(data)?;
                    self.take(&bytes, 0, bytes.len())?;
                    self.carry(&bytes)?;
                }
            }
        }
        self.carry(data)?;
        Ok(at)
    }

    #[inline]
    fn take(&mut self, data: &[u8], start: usize, end: usize) -> Read<()> {
        let packet = data.get(start..end).unwrap_or_default();
        if let (Expected::Rows, Some(&ROW)) = (&self.expected, packet.first()) {
            walk(data, start, end, &self.widths, self.block.next_row())?;
            self.block.rows += 1;
            self.rows += 1;
            self.bytes += end - start;
            return Ok(());
        }
        self.take_other(packet)
    }

    fn take_other(&mut self, packet: &[u8]) -> Read<()> {
        let mut cursor = Cursor::new(packet);
        match (&self.expected, packet.first()) {
            (Expected::Count | Expected::Rows, Some(&ERROR)) => {
                self.stopped = Some(error(packet)?);
                self.expected = Expected::Nothing;
            }
            (Expected::Count, _) => {
                let (count, wanted) = (cursor.lenenc_size()?, self.schema.fields().len().saturating_sub(1));
                if count != wanted || count == 0 {
                    return Err(Fault::corrupt(format!("{count} columns came where {wanted} were asked for")));
                }
                self.expected = Expected::Columns;
            }
            (Expected::Columns, _) => {
                self.columns.push(Column::read(cursor)?);
                if self.columns.len() + 1 == self.schema.fields().len() {
                    self.expected = Expected::EndOfColumns;
                }
            }
            (Expected::EndOfColumns, Some(&END)) => self.begin(),
            (Expected::Rows, Some(&END)) => {
                cursor.skip(3)?;
                if cursor.u16()? & MORE_RESULTS != 0 {
                    return Err(Fault::corrupt("more than one result came"));
                }
                self.expected = Expected::Nothing;
            }
            (_, first) => return Err(Fault::corrupt(format!("a packet that begins with {first:?} came out of turn"))),
        }
        Ok(())
    }

    /// The columns are known: each gets its lane.
    fn begin(&mut self) {
        self.expected = Expected::Rows;
        for (index, (column, field)) in self.columns.iter().zip(self.schema.fields()).enumerate() {
            let Some((width, lane)) = column.lane(field.data_type(), index) else {
                let (name, data_type) = (field.name(), field.data_type());
                self.stopped =
                    Some(Stopped::Unfit(format!("column {name} does not hold values of {data_type} any more")));
                self.expected = Expected::Nothing;
                return;
            };
            self.widths.push(width);
            self.lanes.push(lane);
        }
    }

    /// Carries the block, whose cells point into `data`, into the lanes.
    fn carry(&mut self, data: &[u8]) -> Read<()> {
        if self.block.rows == 0 {
            return Ok(());
        }
        for (index, (lane, width)) in self.lanes.iter_mut().zip(&self.widths).enumerate() {
            let values = self.block.column(data, (index, width.extent()), 0..self.block.rows);
            lane.take(values, &mut self.notes).map_err(|broken| {
                let name = self.schema.fields().get(index).map_or("", |field| field.name());
                broken.fault.at(format!("column {name}"))
            })?;
        }
        self.block.clear();
        Ok(())
    }

    /// The batch of all rows taken.
    pub fn finish(&mut self) -> Read<RecordBatch> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        let mut arrays = self.lanes.iter_mut().map(|lane| lane.finish(&mut self.notes)).collect::<Read<Vec<_>>>()?;
        let fields = self.schema.fields();
        arrays.push(self.notes.finish(rows, |index| fields.get(index).map_or("", |field| field.name()))?);
        RecordBatch::try_new(self.schema.clone(), arrays)
            .map_err(|error| Fault::corrupt(format!("the columns of a batch do not fit: {error}")))
    }
}

/// The schema of batches with these columns: all can be null, and the side text comes last.
pub fn schema_is_right(schema: &SchemaRef) -> bool {
    let (last, columns) = match schema.fields().split_last() {
        Some((last, columns)) => (last.data_type(), columns),
        None => return false,
    };
    *last == DataType::Utf8 && !columns.is_empty() && columns.iter().all(|field| Field::is_nullable(field))
}

/// Says where the values of the row in `data[start..end]` are.
#[inline]
fn walk(data: &[u8], start: usize, end: usize, widths: &[Width], row: &mut [Cell]) -> Read<()> {
    let event = data.get(..end).unwrap_or_default();
    let first = start + 1;
    let mut at = first + (widths.len() + BITS_BEFORE_NULLS).div_ceil(8);
    let nulls = event.get(first..at).ok_or_else(|| Fault::short(at - first, end.saturating_sub(first)))?;
    for (index, (width, cell)) in widths.iter().zip(row).enumerate() {
        if bit(nulls, index + BITS_BEFORE_NULLS) {
            *cell = Cell::ABSENT;
            continue;
        }
        let mut rest = Cursor::new(event.get(at..).unwrap_or_default());
        let left = rest.left();
        let length = match *width {
            Width::Fixed(bytes) => bytes,
            Width::Byte => usize::from(rest.u8()?),
            Width::LengthEncoded => rest.lenenc_size()?,
        };
        if length > rest.left() {
            return Err(Fault::short(length, rest.left()));
        }
        *cell = Cell::at(at);
        at += left - rest.left() + length;
    }
    if at != end {
        return Err(Fault::corrupt(format!("a row with {} bytes more than its columns have", end - at)));
    }
    Ok(())
}

fn error(packet: &[u8]) -> Read<Stopped> {
    let mut cursor = Cursor::new(packet);
    cursor.skip(1)?;
    let code = cursor.u16()?;
    let text = cursor.rest();
    let text = match text.split_first() {
        Some((b'#', rest)) => rest.get(5..).unwrap_or_default(),
        _ => text,
    };
    Ok(Stopped::Error(code, String::from_utf8_lossy(text).into_owned()))
}
