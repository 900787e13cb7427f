//! The cells of an entry, as they stand or out of dictionaries.

use super::batch::{Cells, MOST_BYTES, Texts};
use super::compression::{Compression, text};
use super::dictionary::Dictionary;
use super::header::Header;
use super::values::unpack;
use super::wire::{Bytes, Take, bad, whole};

/// Of a key: the lengths of row (2) and family (1), timestamp (8) and kind (1).
const KEY_FRAME_BYTES: usize = 12;
/// Of a cell: the lengths of key and value.
const CELL_FRAME_BYTES: usize = 8;

/// A cell as `KeyValue` has it. `entry`: its number in the batch.
#[inline]
pub fn plain(bytes: &mut Bytes<'_>, cells: &mut Cells, entry: u32) -> Take<()> {
    let total = bytes.length()?;
    let mut cell = Bytes::new(bytes.take(total)?);
    whole("a cell", key_value(&mut cell, cells, entry))
}

#[inline]
fn key_value(cell: &mut Bytes<'_>, cells: &mut Cells, entry: u32) -> Take<()> {
    let (key_bytes, value_bytes) = (cell.length()?, cell.length()?);
    let mut key = Bytes::new(cell.take(key_bytes)?);
    let row_bytes = usize::from(key.u16()?);
    cells.rows.push(key.take(row_bytes)?);
    let family_bytes = usize::from(key.u8()?);
    cells.families.push(key.take(family_bytes)?);
    match key_bytes.checked_sub(KEY_FRAME_BYTES + row_bytes + family_bytes) {
        Some(qualifier_bytes) => cells.qualifiers.push(key.take(qualifier_bytes)?),
        None => return bad(format!("a key of {key_bytes} bytes that has more in it")),
    }
    let (timestamp, kind) = (key.i64()?, key.u8()?);
    cells.values.push(cell.take(value_bytes)?);
    if cell.left() > 0 {
        let tags_bytes = usize::from(cell.u16()?);
        cells.tags.push(cell.take(tags_bytes)?);
        if cell.left() > 0 {
            return bad(format!("a cell with {} bytes more than it says", cell.left()));
        }
    } else {
        cells.tags.push(&[]);
    }
    cells.end(entry, timestamp, kind);
    Ok(())
}

/// Steps over a cell that nobody wants.
#[inline]
pub fn skip_plain(bytes: &mut Bytes<'_>) -> Take<()> {
    let total = bytes.length()?;
    if total < CELL_FRAME_BYTES {
        return bad(format!("a cell of {total} bytes"));
    }
    bytes.take(total).map(|_| ())
}

/// A cell whose row, family and qualifier are in dictionaries.
pub fn packed(
    bytes: &mut Bytes<'_>,
    cells: &mut Cells,
    entry: u32,
    (header, compression): (&Header, &mut Compression),
) -> Take<()> {
    let (key_bytes, value_bytes, tags_bytes) = (bytes.size()?, bytes.size()?, bytes.size()?);
    let before = cells.bytes();
    cells.rows.push(text(bytes, &mut compression.rows)?);
    cells.families.push(text(bytes, &mut compression.families)?);
    cells.qualifiers.push(text(bytes, &mut compression.qualifiers)?);
    let named = cells.bytes() - before;
    if named + KEY_FRAME_BYTES != key_bytes {
        return bad(format!("a key of {key_bytes} bytes has {} in it", named + KEY_FRAME_BYTES));
    }
    let (timestamp, kind) = (bytes.i64()?, bytes.u8()?);
    if before + key_bytes + value_bytes + tags_bytes > MOST_BYTES {
        return bad(format!("an entry that unpacks to more than {MOST_BYTES} bytes"));
    }
    match header.values {
        None => cells.values.push(bytes.take(value_bytes)?),
        Some(packing) => {
            let size = bytes.size()?;
            let value = bytes.take(size)?;
            unpack(cells.values.open(), value, packing, value_bytes)?;
            cells.values.close();
        }
    }
    if header.tags_compressed && tags_bytes > 0 {
        unpack_tags(bytes, &mut cells.tags, &mut compression.tags, tags_bytes)?;
    } else {
        cells.tags.push(bytes.take(tags_bytes)?);
    }
    cells.end(entry, timestamp, kind);
    Ok(())
}

/// Tags one by one, each behind its length as in a cell that is not compressed, until they are so many bytes.
fn unpack_tags(bytes: &mut Bytes<'_>, tags: &mut Texts, known: &mut Dictionary, size: usize) -> Take<()> {
    let out = tags.open();
    let end = out.len() + size;
    while out.len() < end {
        let tag = text(bytes, known)?;
        let Ok(length) = u16::try_from(tag.len()) else { return bad(format!("a tag of {} bytes", tag.len())) };
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(tag);
        if out.len() > end {
            return bad(format!("tags of {} bytes where {size} were written", out.len() + size - end));
        }
    }
    tags.close();
    Ok(())
}
