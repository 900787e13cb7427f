//! Row images: the values of one row.
//!
//! ```text
//! null bitmap (one bit per column that is present) | value, value, …       of the columns that are present and not null
//! ```
//! The unused bits of the null bitmap's last byte mean nothing (servers set them).

use super::cells::Cell;
use super::columns::Size;
use super::cursor::{Cursor, bit};
use super::fault::{Fault, Read};

/// Which columns the images of an event have: all, or fewer with a minimal row image.
#[derive(Clone, Copy)]
pub struct Present<'a> {
    bitmap: &'a [u8],
    pub count: usize,
    pub all: bool,
}

impl<'a> Present<'a> {
    pub fn read(cursor: &mut Cursor<'a>, columns: usize) -> Read<Self> {
        let bitmap = cursor.bytes(columns.div_ceil(8))?;
        let (whole, rest) = (columns / 8, columns % 8);
        let ones = |bytes: &[u8]| bytes.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
        let last = bitmap.get(whole).map_or(0, |byte| byte & ((1 << rest) - 1));
        let count = ones(bitmap.get(..whole).unwrap_or_default()) + last.count_ones() as usize;
        Ok(Self { bitmap, count, all: count == columns })
    }

    #[inline]
    pub fn has(&self, index: usize) -> bool {
        self.all || bit(self.bitmap, index)
    }
}

/// Walks over the image that begins at byte `at` of the event, and says where its values are and where it ends.
///
/// A value of fixed width is only counted: that all of them are there is known at the image's end, and nobody reads them before.
#[inline]
pub fn walk(event: &[u8], at: usize, present: &Present<'_>, sizes: &[Size], row: &mut [Cell]) -> Read<usize> {
    let mut end = at + present.count.div_ceil(8);
    let nulls = event.get(at..end).ok_or_else(|| Fault::short(end - at, event.len().saturating_sub(at)))?;
    if present.all {
        for ((sizes, cells), nulls) in sizes.chunks(8).zip(row.chunks_mut(8)).zip(nulls) {
            let nulls = nulls & (0xff >> (8 - sizes.len()));
            if nulls == 0 {
                for (size, cell) in sizes.iter().zip(cells) {
                    end = size.walk(event, end, false, cell)?;
                }
                continue;
            }
            for (place, (size, cell)) in sizes.iter().zip(cells).enumerate() {
                end = size.walk(event, end, nulls >> place & 1 == 1, cell)?;
            }
        }
    } else {
        let mut place = 0;
        for (index, (size, cell)) in sizes.iter().zip(row).enumerate() {
            if !present.has(index) {
                *cell = Cell::ABSENT;
                continue;
            }
            end = size.walk(event, end, bit(nulls, place), cell)?;
            place += 1;
        }
    }
    if end > event.len() {
        return Err(Fault::short(end - at, event.len() - at));
    }
    Ok(end)
}

/// What stands before an after image that can hold differences: the bitmap of the columns that do, empty when none.
pub fn partial_columns<'a>(cursor: &mut Cursor<'a>, json_columns: usize) -> Read<&'a [u8]> {
    const PARTIAL_JSON: u64 = 1;
    match cursor.lenenc()? {
        0 => Ok(&[]),
        PARTIAL_JSON => cursor.bytes(json_columns.div_ceil(8)),
        other => Err(Fault::corrupt(format!("a row image with options {other:#x}"))),
    }
}
