//! Row images: the values of one row.
//!
//! ```text
//! null bitmap (one bit per column that is present) | value, value, …       of the columns that are present and not null
//! ```
//! The unused bits of the null bitmap's last byte mean nothing (servers set them).

use super::cursor::{Cursor, bit};
use super::fault::{Fault, Read};
use super::lanes::{Lane, Notes};
use super::table_map::{Column, Table};

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
        let count = (0..columns).filter(|&index| bit(bitmap, index)).count();
        Ok(Self { bitmap, count, all: count == columns })
    }

    #[inline]
    pub fn has(&self, index: usize) -> bool {
        self.all || bit(self.bitmap, index)
    }

    fn nulls<'c>(&self, cursor: &mut Cursor<'c>) -> Read<Nulls<'c>> {
        let bitmap = cursor.bytes(self.count.div_ceil(8))?;
        let unused = if self.count.is_multiple_of(8) { 0 } else { 0xff_u8 << (self.count % 8) };
        let none = match bitmap.split_last() {
            Some((last, others)) => last & !unused == 0 && others.iter().all(|&byte| byte == 0),
            None => true,
        };
        Ok(Nulls { bitmap, none })
    }
}

struct Nulls<'a> {
    bitmap: &'a [u8],
    none: bool,
}

/// Carries one image into the lanes; columns that the image does not have become null.
#[inline]
pub fn read(
    lanes: &mut [Box<dyn Lane>],
    cursor: &mut Cursor<'_>,
    present: &Present<'_>,
    notes: &mut Notes,
) -> Read<()> {
    let nulls = present.nulls(cursor)?;
    if present.all && nulls.none {
        for lane in lanes {
            lane.read(cursor, notes)?;
        }
        return Ok(());
    }
    let mut place = 0;
    for (index, lane) in lanes.iter_mut().enumerate() {
        if !present.has(index) {
            lane.null();
            continue;
        }
        if bit(nulls.bitmap, place) {
            lane.null();
        } else {
            lane.read(cursor, notes)?;
        }
        place += 1;
    }
    Ok(())
}

/// As `read`, for an after image in which JSON columns can be differences to the image `before`.
pub fn read_partial(
    (lanes, columns): (&mut [Box<dyn Lane>], &[Column]),
    cursor: &mut Cursor<'_>,
    present: &Present<'_>,
    (partial, before): (&[u8], &[Option<&[u8]>]),
    notes: &mut Notes,
) -> Read<()> {
    let nulls = present.nulls(cursor)?;
    let (mut place, mut json) = (0, 0);
    for (index, (lane, column)) in lanes.iter_mut().zip(columns).enumerate() {
        // The bitmap of differences has a bit for every JSON column, present or not.
        let by_difference = column.is_json && bit(partial, json);
        json += usize::from(column.is_json);
        if !present.has(index) {
            lane.null();
            continue;
        }
        if bit(nulls.bitmap, place) {
            lane.null();
        } else if by_difference {
            let document = before.get(index).copied().flatten();
            let width = column.shape.size.prefix_bytes();
            lane.read_partial(cursor, document.and_then(|stored| stored.get(width..)))?;
        } else {
            lane.read(cursor, notes)?;
        }
        place += 1;
    }
    Ok(())
}

/// Steps over one image.
#[inline]
pub fn skip(columns: &[Column], cursor: &mut Cursor<'_>, present: &Present<'_>) -> Read<()> {
    let nulls = present.nulls(cursor)?;
    let mut place = 0;
    for (index, column) in columns.iter().enumerate() {
        if present.has(index) {
            if nulls.none || !bit(nulls.bitmap, place) {
                column.shape.size.skip(cursor)?;
            }
            place += 1;
        }
    }
    Ok(())
}

/// The stored bytes of each value of one image; None where it is null or absent.
pub fn stored<'a>(columns: &[Column], cursor: &mut Cursor<'a>, present: &Present<'_>) -> Read<Vec<Option<&'a [u8]>>> {
    let mut walk = Walk::begin(cursor, present)?;
    let step = |(index, column)| {
        Ok(match walk.step(index, column)? {
            Stored::Bytes(bytes) => Some(bytes),
            Stored::Null | Stored::Absent => None,
        })
    };
    columns.iter().enumerate().map(step).collect()
}

/// True when two images of one row differ in a column of the key.
pub fn key_differs(
    table: &Table,
    (mut before, before_present): (Cursor<'_>, &Present<'_>),
    (mut after, after_present): (Cursor<'_>, &Present<'_>),
) -> Read<bool> {
    if table.key_end == 0 {
        return Ok(false);
    }
    let mut before = Walk::begin(&mut before, before_present)?;
    let mut after = Walk::begin(&mut after, after_present)?;
    for (index, column) in table.columns.iter().take(table.key_end).enumerate() {
        let old = before.step(index, column)?;
        let new = after.step(index, column)?;
        // A key column that an image does not have did not change.
        if column.is_key && old != Stored::Absent && new != Stored::Absent && old != new {
            return Ok(true);
        }
    }
    Ok(false)
}

#[derive(PartialEq)]
enum Stored<'a> {
    Absent,
    Null,
    Bytes(&'a [u8]),
}

/// An image read value by value, as stored.
struct Walk<'c, 'a, 'p> {
    cursor: &'c mut Cursor<'a>,
    present: &'p Present<'p>,
    nulls: Nulls<'a>,
    place: usize,
}

impl<'c, 'a, 'p> Walk<'c, 'a, 'p> {
    fn begin(cursor: &'c mut Cursor<'a>, present: &'p Present<'p>) -> Read<Self> {
        let nulls = present.nulls(cursor)?;
        Ok(Self { cursor, present, nulls, place: 0 })
    }

    #[inline]
    fn step(&mut self, index: usize, column: &Column) -> Read<Stored<'a>> {
        if !self.present.has(index) {
            return Ok(Stored::Absent);
        }
        let null = bit(self.nulls.bitmap, self.place);
        self.place += 1;
        if null {
            return Ok(Stored::Null);
        }
        let start = *self.cursor;
        column.shape.size.skip(self.cursor)?;
        let length = start.left() - self.cursor.left();
        { start }.bytes(length).map(Stored::Bytes)
    }
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
