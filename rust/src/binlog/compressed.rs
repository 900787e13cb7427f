//! Single events with a compressed part (`MariaDB`: `log_bin_compress=ON`).
//!
//! ```text
//! event  = header (19 bytes) | front | packed | CRC32
//! front  = rows: table id u48, flags u16, [v2: extra data], columns lenenc, bitmap (update: two)
//!          query: thread u32, seconds u32, length of schema u8, error u16, length of status u16, status, schema, 0
//! packed = 0x80 | method << 4 | bytes of the length, length (BE), stream           method 0: zlib
//! ```
//! Unpacked, such an event is what the server writes without compression, but for its type. Its ids are counted as if it stood
//! in the file so (`place`).

use super::cursor::Cursor;
use super::event::kind;
use super::fault::{Fault, Read};
use super::inflate::{Form, inflate_into};

pub struct Compressed<'e> {
    /// The type of the event when it is unpacked.
    pub kind: u8,
    /// The part of the body that is not compressed.
    pub front: &'e [u8],
    stream: &'e [u8],
    packed_bytes: u64,
    plain_bytes: u64,
}

impl<'e> Compressed<'e> {
    pub fn is(event_kind: u8) -> bool {
        (kind::MARIADB_QUERY_COMPRESSED..=kind::MARIADB_DELETE_ROWS_COMPRESSED).contains(&event_kind)
    }

    pub fn read(event_kind: u8, body: &'e [u8]) -> Read<Self> {
        const FIRST_ROWS_V1: u8 = kind::MARIADB_QUERY_COMPRESSED + 1;
        const FIRST_ROWS: u8 = FIRST_ROWS_V1 + 3;
        let mut cursor = Cursor::new(body);
        let kind = match event_kind {
            kind::MARIADB_QUERY_COMPRESSED => kind::QUERY,
            FIRST_ROWS.. => kind::WRITE_ROWS + (event_kind - FIRST_ROWS),
            _ => kind::WRITE_ROWS_V1 + event_kind.saturating_sub(FIRST_ROWS_V1),
        };
        if kind == kind::QUERY {
            skip_query_front(&mut cursor)?;
        } else {
            skip_rows_front(&mut cursor, kind)?;
        }
        let (front, packed) = body.split_at_checked(body.len() - cursor.left()).unwrap_or_default();
        let form = cursor.u8()?;
        let width = usize::from(form & 7);
        if form & 0xf8 != 0x80 || !(1..=4).contains(&width) {
            return Err(Fault::corrupt(format!("{form:#04x} does not begin a compressed part of an event")));
        }
        let plain_bytes = cursor.be(width)?;
        Ok(Self { kind, front, stream: cursor.rest(), packed_bytes: packed.len() as u64, plain_bytes })
    }

    /// How many bytes unpacking adds to the file.
    pub fn added(&self) -> u64 {
        self.plain_bytes.saturating_sub(self.packed_bytes)
    }

    /// The body as it is without compression.
    pub fn unpack(&self) -> Read<Vec<u8>> {
        let mut body = self.front.to_vec();
        inflate_into(&mut body, self.stream, Form::Zlib, self.plain_bytes)?;
        Ok(body)
    }
}

fn skip_query_front(cursor: &mut Cursor<'_>) -> Read<()> {
    cursor.skip(8)?;
    let schema_bytes = usize::from(cursor.u8()?);
    cursor.skip(2)?;
    let status_bytes = usize::from(cursor.u16()?);
    cursor.skip(status_bytes + schema_bytes + 1)
}

fn skip_rows_front(cursor: &mut Cursor<'_>, kind: u8) -> Read<()> {
    cursor.skip(8)?;
    if kind >= kind::WRITE_ROWS {
        let length = usize::from(cursor.u16()?);
        cursor.skip(length.checked_sub(2).ok_or_else(|| Fault::corrupt("extra row data of less than its length"))?)?;
    }
    let bitmap_bytes = cursor.lenenc_size()?.div_ceil(8);
    cursor.skip(bitmap_bytes)?;
    if matches!(kind, kind::UPDATE_ROWS | kind::UPDATE_ROWS_V1) {
        cursor.skip(bitmap_bytes)?;
    }
    Ok(())
}
