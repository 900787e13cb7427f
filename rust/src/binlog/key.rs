//! Whether two images of a row have the same key.

use super::cells::Cell;
use super::columns::Size;
use super::table_map::Table;

/// The columns of a table's key in the order of the row.
pub struct Key {
    columns: Vec<(usize, Size)>,
    stretch: Option<Stretch>,
}

/// A key of fixed columns, one behind the other, which is compared as one value.
struct Stretch {
    first: usize,
    last: usize,
    /// Where the last column begins, counted from the first, when none in between is null.
    last_begins: u32,
    bytes: usize,
}

impl Key {
    pub fn of(table: &Table) -> Self {
        let sized = |&index: &usize| Some((index, table.columns.get(index)?.shape.size));
        let mut columns: Vec<(usize, Size)> = table.key.iter().filter_map(sized).collect();
        columns.sort_unstable_by_key(|(index, _)| *index);
        Self { stretch: Stretch::of(&columns), columns }
    }

    /// True when the images differ in a column of the key. One that an image does not have did not change.
    #[inline]
    pub fn differs(&self, bytes: &[u8], before: &[Cell], after: &[Cell]) -> bool {
        let stretch = self.stretch.as_ref();
        let whole = stretch.and_then(|stretch| Some((stretch.of_row(bytes, before)?, stretch.of_row(bytes, after)?)));
        whole.map_or_else(|| self.any_differs(bytes, before, after), |(before, after)| before != after)
    }

    fn any_differs(&self, bytes: &[u8], before: &[Cell], after: &[Cell]) -> bool {
        self.columns.iter().any(|&(index, size)| match (before.get(index), after.get(index)) {
            (Some(&old), Some(&new)) => {
                old != Cell::ABSENT && new != Cell::ABSENT && old.of(bytes, size) != new.of(bytes, size)
            }
            _ => false,
        })
    }
}

impl Stretch {
    /// None when the columns are not fixed, or others stand between them.
    fn of(columns: &[(usize, Size)]) -> Option<Self> {
        let ((first, _), (last, _)) = (columns.first()?, columns.last()?);
        let (mut last_begins, mut bytes) = (0, 0);
        for (place, (index, size)) in columns.iter().enumerate() {
            let Size::Fixed(width) = size else { return None };
            if *index != first + place {
                return None;
            }
            last_begins = bytes;
            bytes += width;
        }
        Some(Self { first: *first, last: *last, last_begins: u32::try_from(last_begins).ok()?, bytes })
    }

    /// The key's bytes; None when a column of it is null, or not in the image.
    #[inline]
    fn of_row<'b>(&self, bytes: &'b [u8], row: &[Cell]) -> Option<&'b [u8]> {
        let (first, last) = (*row.get(self.first)?, *row.get(self.last)?);
        (first.behind(self.last_begins, 0) == last).then(|| first.of(bytes, Size::Fixed(self.bytes)))?
    }
}
