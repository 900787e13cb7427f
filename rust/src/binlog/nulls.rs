//! Which values of an array are null: nothing is written down until the first null comes.

use arrow_buffer::{BooleanBufferBuilder, NullBuffer};

#[derive(Default)]
pub struct Nulls {
    rows: usize,
    /// A bit for each row, set for a value; None: there is no null.
    bits: Option<BooleanBufferBuilder>,
}

impl Nulls {
    #[inline]
    pub fn append_value(&mut self) {
        self.rows += 1;
        if let Some(bits) = &mut self.bits {
            bits.append(true);
        }
    }

    #[inline]
    pub fn append_null(&mut self) {
        self.bits().append(false);
        self.rows += 1;
    }

    /// Appends 64 rows at most; the lowest bits say which are values, the others are not set.
    #[inline]
    pub fn append(&mut self, values: u64, rows: usize) {
        if self.bits.is_some() || values.count_ones() as usize != rows {
            self.bits().append_packed_range(0..rows, &values.to_le_bytes());
        }
        self.rows += rows;
    }

    fn bits(&mut self) -> &mut BooleanBufferBuilder {
        let rows = self.rows;
        self.bits.get_or_insert_with(|| {
            let mut bits = BooleanBufferBuilder::new(rows.next_multiple_of(1024));
            bits.append_n(rows, true);
            bits
        })
    }

    pub fn truncate(&mut self, rows: usize) {
        self.rows = rows;
        if let Some(bits) = &mut self.bits {
            bits.truncate(rows);
        }
    }

    pub fn is_value(&self, row: usize) -> bool {
        self.bits.as_ref().is_none_or(|bits| bits.get_bit(row))
    }

    /// What the array wants; it is empty then.
    pub fn finish(&mut self) -> Option<NullBuffer> {
        self.rows = 0;
        self.bits.take().map(|mut bits| NullBuffer::new(bits.finish()))
    }
}
