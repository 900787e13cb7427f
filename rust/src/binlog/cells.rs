//! Row images taken apart: where the values of a stretch of rows are, before any of them is decoded.
//!
//! ```text
//!            column 0  column 1  column 2 …
//! row 0      cell      cell      cell           a cell is where a value begins, or says that there is none
//! row 1      cell      cell      cell
//! ```
//! A row is walked once, by sizes alone. The lanes then take the cells column by column, so that each decodes many values of one
//! type in a loop of its own. A block is small enough to stay in the processor's first cache.

use std::ops::Range;

use super::columns::Size;
use super::cursor::Cursor;

/// A block has room for about so many cells.
const BLOCK_CELLS: usize = 4096;
/// And for so many rows, however many columns they have: a lane is not called for fewer when more are there.
const BLOCK_ROWS: usize = 32;

/// The byte of the block's bytes at which a value begins, with the length in front of it if it has one. The largest number is a
/// null; no block has as many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell(u32);

impl Cell {
    /// The image does not have this column.
    pub const ABSENT: Self = Self(u32::MAX - 1);
    /// A place behind all others is cut to some place before them: nobody reads a row whose end is behind its event's.
    const END: usize = Self::ABSENT.0 as usize;

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "END says why that is right")]
    pub fn at(place: usize) -> Self {
        Self(place as u32)
    }

    #[inline]
    pub fn is_none(self) -> bool {
        self.0 >= Self::ABSENT.0
    }

    /// The place `more` bytes behind, or null when `nulls` has all bits.
    #[inline]
    pub fn behind(self, more: u32, nulls: u32) -> Self {
        Self(self.0.wrapping_add(more) | nulls)
    }

    /// Everything from the beginning of the value on; None when there is no value.
    #[inline]
    fn rest(self, bytes: &[u8]) -> Option<&[u8]> {
        bytes.get(self.0 as usize..)
    }

    /// None when there is no value.
    #[inline]
    pub fn of(self, bytes: &[u8], size: Size) -> Option<&[u8]> {
        size.value(self.rest(bytes)?)
    }
}

/// How far a value reads from where its cell begins.
#[derive(Clone, Copy)]
pub enum Extent {
    Sized(Size),
    /// As many bytes as the length-encoded number in front says.
    LengthEncoded,
}

impl Extent {
    /// The value at the beginning of `rest`, without the length in front of it; None when not all of it is there.
    #[inline]
    pub fn value(self, rest: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Sized(size) => size.value(rest),
            Self::LengthEncoded => Cursor::new(rest).lenenc_bytes().ok(),
        }
    }
}

/// The cells of some rows.
pub struct Block {
    columns: usize,
    cells: Vec<Cell>,
    pub rows: usize,
}

impl Block {
    /// So many bytes are too many for a block.
    pub const TOO_MANY_BYTES: usize = Cell::END;

    pub fn new(columns: usize) -> Self {
        Self { columns, cells: Vec::new(), rows: 0 }
    }

    #[inline]
    pub fn is_full(&self) -> bool {
        self.rows >= BLOCK_ROWS && (self.rows + 1) * self.columns > BLOCK_CELLS
    }

    /// A new row, with room behind it for what a walk writes beyond its end; it counts when `rows` is raised. What is in it has
    /// no meaning before the walk.
    #[inline]
    pub fn next_row(&mut self) -> &mut [Cell] {
        let start = self.rows * self.columns;
        let end = start + self.columns + Self::MARGIN;
        if self.cells.len() < end {
            self.cells.resize(end.max(self.cells.len() * 2), Cell::ABSENT);
        }
        self.cells.get_mut(start..end).unwrap_or_default()
    }

    /// Cells that a walk may write behind its row.
    pub const MARGIN: usize = 8;

    pub fn clear(&mut self) {
        self.rows = 0;
    }

    /// The values of one column in some rows.
    #[inline]
    pub fn column<'b>(&'b self, bytes: &'b [u8], (column, extent): (usize, Extent), rows: Range<usize>) -> Values<'b> {
        let cells = rows.start * self.columns + column..rows.end * self.columns;
        let cells = self.cells.get(cells).unwrap_or_default();
        Values { bytes, cells, step: self.columns, extent }
    }

    pub fn cell(&self, row: usize, column: usize) -> Cell {
        self.cells.get(row * self.columns + column).copied().unwrap_or(Cell::ABSENT)
    }
}

/// The values of one column, row by row.
#[derive(Clone, Copy)]
pub struct Values<'b> {
    bytes: &'b [u8],
    cells: &'b [Cell],
    step: usize,
    pub extent: Extent,
}

impl<'b> Values<'b> {
    #[inline]
    pub fn len(&self) -> usize {
        self.cells.len().div_ceil(self.step)
    }

    /// Each row's bytes; None for a row without a value.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = Option<&'b [u8]>> {
        self.rests().map(move |rest| self.extent.value(rest?))
    }

    /// For each row everything from its value on, the length in front of it too; None for a row without a value.
    #[inline]
    pub fn rests(self) -> impl Iterator<Item = Option<&'b [u8]>> {
        let mut place = 0;
        std::iter::from_fn(move || {
            let cell = self.cells.get(place)?;
            place += self.step;
            Some(cell.rest(self.bytes))
        })
    }
}
