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

#[cfg(test)]
mod tests {
    use super::*;

    /// "abc" behind its length.
    const PACKED: [u8; 13] = [0x81, 3, 0x78, 0x9c, 0x4b, 0x4c, 0x4a, 0x06, 0x00, 0x02, 0x4d, 0x01, 0x27];

    fn unpacked(kind: u8, front: &[u8], packed: &[u8]) -> Option<(u8, Vec<u8>)> {
        let body = [front, packed].concat();
        let compressed = Compressed::read(kind, &body).ok()?;
        assert_eq!(compressed.front, front);
        assert_eq!(compressed.added(), 0);
        Some((compressed.kind, compressed.unpack().ok()?))
    }

    #[test]
    fn every_type_is_what_it_is_without_compression() {
        let query = [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 9, 9, b's', 0];
        let (insert, update) = ([0, 0, 0, 0, 0, 0, 1, 0, 9, 0xff, 1], [0, 0, 0, 0, 0, 0, 1, 0, 8, 0xff, 0xff]);
        let version_2 = [0, 0, 0, 0, 0, 0, 1, 0, 3, 0, 7, 8, 0xff];
        for (packed_kind, front, kind) in [
            (165, &query[..], kind::QUERY),
            (166, &insert, kind::WRITE_ROWS_V1),
            (167, &update, kind::UPDATE_ROWS_V1),
            (168, &insert, kind::DELETE_ROWS_V1),
            (169, &version_2, kind::WRITE_ROWS),
            (171, &version_2, kind::DELETE_ROWS),
        ] {
            assert!(Compressed::is(packed_kind));
            assert_eq!(unpacked(packed_kind, front, &PACKED), Some((kind, [front, b"abc"].concat())));
            for end in 0..front.len() {
                assert!(front.get(..end).is_some_and(|cut| Compressed::read(packed_kind, cut).is_err()));
            }
        }
        assert!(!Compressed::is(164) && !Compressed::is(172));
    }

    #[test]
    fn what_does_not_begin_a_compressed_part() {
        let front = [0, 0, 0, 0, 0, 0, 1, 0, 1, 1];
        for form in [0x00, 0x01, 0x80, 0x85, 0x91, 0xff] {
            let packed = [&[form], &PACKED[1..]].concat();
            assert_eq!(unpacked(166, &front, &packed), None);
        }
        assert!(Compressed::read(166, &[&front[..], &[0x84, 0xff, 0xff]].concat()).is_err());
        let long = [&front[..], &[0x84, 0xff, 0xff, 0xff, 0xff], &PACKED[2..]].concat();
        assert!(Compressed::read(166, &long).is_ok_and(|long| long.added() > 4_000_000_000 && long.unpack().is_err()));
    }
}
