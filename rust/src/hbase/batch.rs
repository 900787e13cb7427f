//! Entries and cells as they become Arrow columns. What was appended for an entry whose end is missing is cut off again.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, UInt8Array, UInt32Array};
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};

use super::key::Key;
use crate::binlog::fault::{Fault, Read};

/// Below what 32-bit offsets can address, whatever one entry adds.
pub const MOST_BYTES: usize = 1 << 29;

pub struct Texts {
    offsets: Vec<i32>,
    data: Vec<u8>,
}

impl Default for Texts {
    fn default() -> Self {
        Self { offsets: vec![0], data: Vec::new() }
    }
}

impl Texts {
    #[inline]
    pub fn push(&mut self, value: &[u8]) {
        self.data.extend_from_slice(value);
        self.close();
    }

    /// What is appended here, and then closed, is the next value.
    pub fn open(&mut self) -> &mut Vec<u8> {
        &mut self.data
    }

    #[inline]
    pub fn close(&mut self) {
        // `Cells::bytes` is bounded, far below the largest offset.
        self.offsets.push(i32::try_from(self.data.len()).unwrap_or(i32::MAX));
    }

    fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    fn cut(&mut self, values: usize) {
        self.offsets.truncate(values + 1);
        self.data.truncate(self.offsets.last().and_then(|&end| usize::try_from(end).ok()).unwrap_or(0));
    }

    fn finish(&mut self) -> ArrayRef {
        let Self { offsets, data } = std::mem::take(self);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Arc::new(BinaryArray::new(offsets, Buffer::from_vec(data), None))
    }
}

#[derive(Default)]
pub struct Cells {
    entries: Vec<u32>,
    pub rows: Texts,
    pub families: Texts,
    pub qualifiers: Texts,
    timestamps: Vec<i64>,
    kinds: Vec<u8>,
    pub values: Texts,
    pub tags: Texts,
}

impl Cells {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn bytes(&self) -> usize {
        let texts = [&self.rows, &self.families, &self.qualifiers, &self.values, &self.tags];
        texts.iter().map(|texts| texts.data.len()).sum()
    }

    /// Ends a cell whose texts have been pushed.
    #[inline]
    pub fn end(&mut self, entry: u32, timestamp: i64, kind: u8) {
        self.entries.push(entry);
        self.timestamps.push(timestamp);
        self.kinds.push(kind);
    }

    /// Also a cell that was begun and not ended goes.
    pub fn cut(&mut self, cells: usize) {
        self.entries.truncate(cells);
        self.timestamps.truncate(cells);
        self.kinds.truncate(cells);
        for texts in [&mut self.rows, &mut self.families, &mut self.qualifiers, &mut self.values, &mut self.tags] {
            texts.cut(cells);
        }
    }

    pub fn finish(&mut self) -> Read<RecordBatch> {
        let columns: [(&str, ArrayRef); 8] = [
            ("entry", Arc::new(UInt32Array::from(std::mem::take(&mut self.entries)))),
            ("row", self.rows.finish()),
            ("family", self.families.finish()),
            ("qualifier", self.qualifiers.finish()),
            ("timestamp", Arc::new(Int64Array::from(std::mem::take(&mut self.timestamps)))),
            ("kind", Arc::new(UInt8Array::from(std::mem::take(&mut self.kinds)))),
            ("value", self.values.finish()),
            ("tags", self.tags.finish()),
        ];
        batch(columns)
    }
}

#[derive(Default)]
pub struct Entries {
    starts: Vec<i64>,
    ends: Vec<i64>,
    regions: Texts,
    tables: Texts,
    sequences: Vec<i64>,
    write_times: Vec<i64>,
    nonce_groups: Vec<i64>,
    nonces: Vec<i64>,
    counts: Vec<u32>,
}

impl Entries {
    pub fn len(&self) -> usize {
        debug_assert_eq!(self.regions.len(), self.starts.len());
        self.starts.len()
    }

    pub fn push(&mut self, start: u64, end: u64, key: &Key) {
        self.starts.push(start.cast_signed());
        self.ends.push(end.cast_signed());
        self.regions.push(&key.region);
        self.tables.push(&key.table);
        self.sequences.push(key.sequence);
        self.write_times.push(key.write_time);
        self.nonce_groups.push(key.nonce_group);
        self.nonces.push(key.nonce);
        self.counts.push(key.cells);
    }

    pub fn finish(&mut self) -> Read<RecordBatch> {
        let number = |values: &mut Vec<i64>| Arc::new(Int64Array::from(std::mem::take(values))) as ArrayRef;
        let columns: [(&str, ArrayRef); 9] = [
            ("start", number(&mut self.starts)),
            ("end", number(&mut self.ends)),
            ("region", self.regions.finish()),
            ("table", self.tables.finish()),
            ("sequence", number(&mut self.sequences)),
            ("write_time", number(&mut self.write_times)),
            ("nonce_group", number(&mut self.nonce_groups)),
            ("nonce", number(&mut self.nonces)),
            ("cells", Arc::new(UInt32Array::from(std::mem::take(&mut self.counts)))),
        ];
        batch(columns)
    }
}

fn batch<const N: usize>(columns: [(&str, ArrayRef); N]) -> Read<RecordBatch> {
    RecordBatch::try_from_iter(columns)
        .map_err(|error| Fault::corrupt(format!("the columns of a batch do not fit: {error}")))
}
