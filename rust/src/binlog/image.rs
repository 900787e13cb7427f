//! Row images: the values of one row.
//!
//! ```text
//! null bitmap (one bit per column that is present) | value, value, …       of the columns that are present and not null
//! ```
//! The unused bits of the null bitmap's last byte mean nothing (servers set them).

use super::cells::Cell;
use super::columns::{Size, prefix_of};
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

/// How to walk over the images of a table: its columns in groups of eight, as the bytes of the null bitmap have them.
pub struct Route {
    groups: Vec<Group>,
}

const GROUP_COLUMNS: usize = 8;
/// Rows of a table have their nulls in few ways, mostly; others are walked over value by value.
const KNOWN_NULLS: usize = 16;

struct Group {
    sizes: Vec<Size>,
    /// The bits of the null bitmap's byte that have a column.
    mask: u8,
    /// For the first ways in which values were null: that byte, and how to walk then.
    known: Vec<(u8, Vec<Run>)>,
}

/// Columns of fixed size and the one behind them, whose size is written in front of it (the last run of a group can lack it).
struct Run {
    columns: usize,
    /// Where each column begins, counted from the first one; those behind the last are walked over again by the next run.
    starts: [u32; GROUP_COLUMNS],
    /// All bits of those that are null.
    nulls: [u32; GROUP_COLUMNS],
    /// Width of the length in front of the last column; 0 when that is fixed too.
    prefix: usize,
    /// Up to the end of that length.
    bytes: usize,
}

impl Route {
    pub fn new(sizes: impl Iterator<Item = Size>) -> Self {
        let sizes: Vec<Size> = sizes.collect();
        let groups = sizes.chunks(GROUP_COLUMNS).map(|sizes| Group {
            sizes: sizes.to_vec(),
            mask: 0xff >> (GROUP_COLUMNS - sizes.len()),
            known: vec![(0, runs(sizes, 0))],
        });
        Self { groups: groups.collect() }
    }

    /// Walks over the image that begins at byte `at`, and says where its values are and where it ends.
    ///
    /// `row` has `Block::MARGIN` more cells than there are columns. That all values are there is known at the image's end, and
    /// nobody reads them before.
    #[inline]
    pub fn walk(&mut self, bytes: &[u8], at: usize, present: &Present<'_>, row: &mut [Cell]) -> Read<usize> {
        let begin = at + present.count.div_ceil(8);
        let nulls = bytes.get(at..begin).ok_or_else(|| Fault::short(begin - at, bytes.len().saturating_sub(at)))?;
        let end = if present.all {
            self.walk_all(bytes, begin, nulls, row)
        } else {
            self.walk_some(bytes, begin, nulls, present, row)
        };
        match end {
            Some(end) if end <= bytes.len() => Ok(end),
            end => Err(Fault::short(end.unwrap_or(bytes.len() + 1) - at, bytes.len() - at)),
        }
    }

    #[inline]
    fn walk_all(&mut self, bytes: &[u8], mut at: usize, nulls: &[u8], row: &mut [Cell]) -> Option<usize> {
        let mut cells = row;
        for (group, nulls) in self.groups.iter_mut().zip(nulls) {
            let nulls = nulls & group.mask;
            at = match group.known.iter().find(|(known, _)| *known == nulls) {
                Some((_, runs)) => walk_runs(runs, bytes, at, cells)?,
                None => group.walk_unknown(bytes, at, nulls, cells)?,
            };
            cells = cells.get_mut(GROUP_COLUMNS..)?;
        }
        Some(at)
    }

    fn walk_some(
        &self,
        bytes: &[u8],
        mut at: usize,
        nulls: &[u8],
        present: &Present<'_>,
        row: &mut [Cell],
    ) -> Option<usize> {
        let mut place = 0;
        let sizes = self.groups.iter().flat_map(|group| &group.sizes);
        for (index, (size, cell)) in sizes.zip(row).enumerate() {
            if present.has(index) {
                at = step(*size, bytes, at, bit(nulls, place), cell)?;
                place += 1;
            } else {
                *cell = Cell::ABSENT;
            }
        }
        Some(at)
    }
}

impl Group {
    fn walk_unknown(&mut self, bytes: &[u8], mut at: usize, nulls: u8, cells: &mut [Cell]) -> Option<usize> {
        if self.known.len() < KNOWN_NULLS {
            self.known.push((nulls, runs(&self.sizes, nulls)));
        }
        for (place, (size, cell)) in self.sizes.iter().zip(cells).enumerate() {
            at = step(*size, bytes, at, nulls >> place & 1 == 1, cell)?;
        }
        Some(at)
    }
}

/// Eight cells are written at once for each run, which is quicker than to count them.
#[inline]
fn walk_runs(runs: &[Run], bytes: &[u8], mut at: usize, cells: &mut [Cell]) -> Option<usize> {
    let mut cells = cells;
    for run in runs {
        let first = Cell::at(at);
        for ((cell, start), nulls) in
            cells.first_chunk_mut::<GROUP_COLUMNS>()?.iter_mut().zip(run.starts).zip(run.nulls)
        {
            *cell = first.behind(start, nulls);
        }
        cells = cells.get_mut(run.columns..)?;
        let begin = at + run.bytes;
        at = if run.prefix == 0 { begin } else { begin + prefix_of(bytes.get(begin - run.prefix..)?, run.prefix)? };
    }
    Some(at)
}

/// How to walk over columns of which those are null that `nulls` has a bit for.
fn runs(sizes: &[Size], nulls: u8) -> Vec<Run> {
    const EMPTY: Run = Run { columns: 0, starts: [0; GROUP_COLUMNS], nulls: [0; GROUP_COLUMNS], prefix: 0, bytes: 0 };
    let mut runs = Vec::new();
    let mut run = EMPTY;
    for (place, size) in sizes.iter().enumerate() {
        let is_null = nulls >> place & 1 == 1;
        if let (Some(start), Some(nulls)) = (run.starts.get_mut(run.columns), run.nulls.get_mut(run.columns)) {
            *start = u32::try_from(run.bytes).unwrap_or(u32::MAX);
            *nulls = if is_null { u32::MAX } else { 0 };
        }
        run.columns += 1;
        match *size {
            _ if is_null => {}
            Size::Fixed(bytes) => run.bytes += bytes,
            Size::Prefixed(width) => {
                run.prefix = width;
                run.bytes += width;
                runs.push(std::mem::replace(&mut run, EMPTY));
            }
        }
    }
    if run.columns > 0 {
        runs.push(run);
    }
    runs
}

/// Takes the value that begins at byte `at`, or the null that takes no bytes; returns where the next one begins, which may be
/// behind the end. Nulls come as they please, so there is no branch for them, only masks.
#[inline(always)]
#[allow(clippy::inline_always, reason = "the loop over all values, from two places")]
fn step(size: Size, bytes: &[u8], at: usize, null: bool, cell: &mut Cell) -> Option<usize> {
    let taken = usize::from(null).wrapping_sub(1);
    *cell = Cell::at(at | !taken);
    let length = match size {
        Size::Fixed(length) => length,
        Size::Prefixed(width) => match prefix_of(bytes.get(at..).unwrap_or_default(), width) {
            Some(length) => width + length,
            None if null => 0,
            None => return None,
        },
    };
    Some(at + (length & taken))
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
