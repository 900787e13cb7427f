//! Row images taken apart: where the values of a stretch of rows are, before any of them is decoded.
//!
//! ```text
//!            column 0  column 1  column 2 …
//! row 0      cell      cell      cell           a cell is a range of the event's bytes, or says that there is no value
//! row 1      cell      cell      cell
//! ```
//! A row is walked once, by sizes alone. The lanes then take the cells column by column, so that each decodes many values of one
//! type in a loop of its own. A block is small enough to stay in the processor's first cache.

use std::ops::Range;

/// A block has room for about so many cells.
const BLOCK_CELLS: usize = 2048;

/// A value's bytes (without the length in front) as a range of the event; a range that begins behind its end is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub start: usize,
    pub end: usize,
}

impl Cell {
    /// The image does not have this column. (A null begins at the largest number.)
    pub const ABSENT: Self = Self { start: usize::MAX - 1, end: 0 };

    pub fn is_none(self) -> bool {
        self.start > self.end
    }

    /// None when there is no value.
    #[inline]
    pub fn of(self, event: &[u8]) -> Option<&[u8]> {
        event.get(self.start..self.end)
    }
}

/// The cells of some rows.
pub struct Block {
    columns: usize,
    cells: Vec<Cell>,
    pub rows: usize,
}

impl Block {
    pub fn new(columns: usize) -> Self {
        Self { columns, cells: Vec::new(), rows: 0 }
    }

    /// An empty block has room for a row, however many columns that has.
    pub fn is_full(&self) -> bool {
        self.rows > 0 && self.cells.len() + self.columns > BLOCK_CELLS
    }

    /// A new row without values; it counts when `rows` is raised.
    #[inline]
    pub fn next_row(&mut self) -> &mut [Cell] {
        let start = self.rows * self.columns;
        self.cells.resize(start + self.columns, Cell::ABSENT);
        self.cells.get_mut(start..).unwrap_or_default()
    }

    pub fn clear(&mut self) {
        self.cells.clear();
        self.rows = 0;
    }

    /// The values of one column in some rows.
    #[inline]
    pub fn column<'b>(&'b self, event: &'b [u8], column: usize, rows: Range<usize>) -> Values<'b> {
        let cells = rows.start * self.columns + column..rows.end * self.columns;
        let cells = self.cells.get(cells).unwrap_or_default();
        Values { event, cells, step: self.columns }
    }

    pub fn cell(&self, row: usize, column: usize) -> Cell {
        self.cells.get(row * self.columns + column).copied().unwrap_or(Cell::ABSENT)
    }
}

/// The values of one column, row by row.
#[derive(Clone, Copy)]
pub struct Values<'b> {
    event: &'b [u8],
    cells: &'b [Cell],
    step: usize,
}

impl<'b> Values<'b> {
    #[inline]
    pub fn len(&self) -> usize {
        self.cells.len().div_ceil(self.step)
    }

    /// Each row's bytes; None for a row without a value.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Option<&'b [u8]>> {
        self.cells.iter().step_by(self.step).map(move |cell| cell.of(self.event))
    }
}
