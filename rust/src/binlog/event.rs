//! Events and the ones that are read whole: format description, query, rotate, GTIDs.
//!
//! ```text
//! event = timestamp u32 | type u8 | server id u32 | length u32 | end position u32 | flags u16 | body | CRC32 (when switched on)
//! ```

use super::charset::Charset;
use super::cursor::Cursor;
use super::fault::{Fault, Read};
use super::gtid::Gtid;

pub const HEADER_BYTES: usize = 19;
pub const CHECKSUM_BYTES: usize = 4;
const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];
const ENCRYPTED_MAGIC: [u8; 4] = [0xfd, b'b', b'i', b'n'];
pub const MAGIC_BYTES: usize = 4;

pub mod kind {
    pub const QUERY: u8 = 2;
    pub const STOP: u8 = 3;
    pub const ROTATE: u8 = 4;
    pub const INTVAR: u8 = 5;
    pub const SLAVE: u8 = 7;
    pub const APPEND_BLOCK: u8 = 9;
    pub const DELETE_FILE: u8 = 11;
    pub const RAND: u8 = 13;
    pub const USER_VAR: u8 = 14;
    pub const FORMAT_DESCRIPTION: u8 = 15;
    pub const XID: u8 = 16;
    pub const BEGIN_LOAD_QUERY: u8 = 17;
    pub const EXECUTE_LOAD_QUERY: u8 = 18;
    pub const TABLE_MAP: u8 = 19;
    pub const WRITE_ROWS_V1: u8 = 23;
    pub const UPDATE_ROWS_V1: u8 = 24;
    pub const DELETE_ROWS_V1: u8 = 25;
    pub const INCIDENT: u8 = 26;
    pub const HEARTBEAT: u8 = 27;
    pub const IGNORABLE: u8 = 28;
    pub const ROWS_QUERY: u8 = 29;
    pub const WRITE_ROWS: u8 = 30;
    pub const UPDATE_ROWS: u8 = 31;
    pub const DELETE_ROWS: u8 = 32;
    pub const GTID: u8 = 33;
    pub const ANONYMOUS_GTID: u8 = 34;
    pub const PREVIOUS_GTIDS: u8 = 35;
    pub const TRANSACTION_CONTEXT: u8 = 36;
    pub const VIEW_CHANGE: u8 = 37;
    pub const XA_PREPARE: u8 = 38;
    pub const PARTIAL_UPDATE_ROWS: u8 = 39;
    pub const TRANSACTION_PAYLOAD: u8 = 40;
    pub const HEARTBEAT_V2: u8 = 41;
    pub const GTID_TAGGED: u8 = 42;
    pub const MARIADB_ANNOTATE: u8 = 160;
    pub const MARIADB_CHECKPOINT: u8 = 161;
    pub const MARIADB_GTID: u8 = 162;
    pub const MARIADB_GTID_LIST: u8 = 163;
    pub const MARIADB_START_ENCRYPTION: u8 = 164;
    pub const MARIADB_QUERY_COMPRESSED: u8 = 165;
    pub const MARIADB_DELETE_ROWS_COMPRESSED: u8 = 171;
}

const IN_USE_FLAG: u8 = 0x1;
const ARTIFICIAL_FLAG: u16 = 0x20;
const IGNORABLE_FLAG: u16 = 0x80;

#[derive(Clone, Copy, Debug)]
pub struct Header {
    pub seconds: u32,
    pub kind: u8,
    pub server_id: u32,
    pub length: usize,
    /// Low 32 bits of the position behind the event; 0 when it has none.
    pub end: u32,
    flags: u16,
}

impl Header {
    #[inline]
    pub fn read(bytes: &[u8]) -> Read<Self> {
        // Checked once for all fields: every event begins here.
        let head = Cursor::new(bytes).array::<HEADER_BYTES>()?;
        let mut cursor = Cursor::new(&head);
        let (seconds, kind, server_id) = (cursor.u32()?, cursor.u8()?, cursor.u32()?);
        let length =
            usize::try_from(cursor.u32()?).map_err(|_| Fault::corrupt("an event too long for this machine"))?;
        if length < HEADER_BYTES {
            return Err(Fault::corrupt(format!("an event of {length} bytes, less than its header")));
        }
        Ok(Self { seconds, kind, server_id, length, end: cursor.u32()?, flags: cursor.u16()? })
    }

    /// Made by the server for this connection, not in its file.
    pub fn is_artificial(&self) -> bool {
        self.flags & ARTIFICIAL_FLAG != 0 || (self.kind == kind::ROTATE && self.seconds == 0) || self.end == 0
    }

    /// Names the transaction whose events follow.
    pub fn opens_transaction(&self) -> bool {
        matches!(self.kind, kind::GTID | kind::ANONYMOUS_GTID | kind::GTID_TAGGED | kind::MARIADB_GTID)
    }

    pub fn is_ignorable(&self) -> bool {
        self.flags & IGNORABLE_FLAG != 0
    }

    /// The header of the same event in another form.
    #[must_use]
    pub fn with_kind(self, kind: u8) -> Self {
        Self { kind, ..self }
    }

    pub fn ts_us(&self) -> i64 {
        i64::from(self.seconds) * 1_000_000
    }
}

/// Checks the four bytes that a file begins with.
pub fn check_magic(bytes: [u8; MAGIC_BYTES]) -> Read<()> {
    match bytes {
        MAGIC => Ok(()),
        ENCRYPTED_MAGIC => Err(encrypted()),
        _ => Err(Fault::corrupt("the file does not begin as a binary log does")),
    }
}

pub fn encrypted() -> Fault {
    Fault::refused(
        "the file is encrypted",
        "capture from the server itself (it sends its log decrypted), or switch binlog encryption off and rotate the log",
    )
}

/// True when the last four bytes are the CRC32 of those before them.
pub fn checksum_fits(event: &[u8]) -> bool {
    let Some((body, stored)) = event.split_last_chunk::<CHECKSUM_BYTES>() else { return false };
    crc32fast::hash(body) == u32::from_le_bytes(*stored)
}

/// What a format description says.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Events end with a checksum.
    pub checksums: bool,
    pub family: Family,
}

/// Who wrote the log. Both write the same events, but not in every particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    MySql,
    MariaDb,
}

impl Format {
    /// `event` is whole, with its header. It ends with the number of the checksum algorithm and its own CRC32, whatever the
    /// algorithm is. Only when a server sends a changed copy (`on_wire`) and has no checksums, that CRC32 is the old one.
    pub fn read(event: &[u8], on_wire: bool) -> Read<Self> {
        let algorithm = event.split_last_chunk::<CHECKSUM_BYTES>().and_then(|(front, _)| front.last()).copied();
        let unsigned = on_wire && algorithm == Some(0);
        if !unsigned && !Self::checksum_fits(event) {
            return Err(Fault::corrupt(
                "the checksum of the format description is wrong (servers before MySQL 5.6 and MariaDB 5.3 have none)",
            ));
        }
        let mut body = Cursor::new(event);
        body.skip(HEADER_BYTES)?;
        let version = body.u16()?;
        let server = body.bytes(50)?;
        let is_mariadb = server.windows(7).any(|part| part.eq_ignore_ascii_case(b"mariadb"));
        let family = if is_mariadb { Family::MariaDb } else { Family::MySql };
        body.skip(4)?;
        let header_bytes = body.u8()?;
        if version != 4 || usize::from(header_bytes) != HEADER_BYTES {
            return Err(Fault::corrupt(format!(
                "a log of version {version} with event headers of {header_bytes} bytes"
            )));
        }
        match algorithm {
            Some(0) => Ok(Self { checksums: false, family }),
            Some(1) => Ok(Self { checksums: true, family }),
            _ => Err(Fault::corrupt("the format description names a checksum that does not exist")),
        }
    }

    /// What is between an event's header and its checksum, which is not verified.
    pub fn body(self, event: &[u8]) -> Read<&[u8]> {
        let end = if self.checksums { event.len().saturating_sub(CHECKSUM_BYTES) } else { event.len() };
        event.get(HEADER_BYTES..end).ok_or_else(|| Fault::short(HEADER_BYTES + CHECKSUM_BYTES, event.len()))
    }

    /// The mark of a file in use is set when its checksum has been written already.
    fn checksum_fits(event: &[u8]) -> bool {
        let mut unmarked = event.to_vec();
        if let Some(flags) = unmarked.get_mut(17) {
            *flags &= !IN_USE_FLAG;
        }
        checksum_fits(&unmarked) || checksum_fits(event)
    }
}

pub struct Query {
    pub schema: String,
    pub sql: String,
    /// The session's time zone; the server writes it when the statement's effect depends on it.
    pub time_zone: Option<String>,
    /// The fraction of the second at which the statement began; written when the statement used it.
    pub micros: u32,
    /// The server's character set, which a schema gets without one of its own.
    pub server_charset: Option<&'static str>,
}

impl Query {
    /// Whether the statement is the BEGIN that the server writes before the rows of each transaction.
    pub fn is_begin(mut body: Cursor<'_>) -> Read<bool> {
        body.skip(8)?;
        let schema_bytes = usize::from(body.u8()?);
        body.skip(2)?;
        let status_bytes = usize::from(body.u16()?);
        body.skip(status_bytes + schema_bytes + 1)?;
        Ok(body.rest() == b"BEGIN")
    }

    pub fn read(mut body: Cursor<'_>) -> Read<Self> {
        body.skip(8)?;
        let schema_bytes = usize::from(body.u8()?);
        body.skip(2)?;
        let status_bytes = usize::from(body.u16()?);
        let mut status = Status::default();
        // What stands behind a variable that is not known cannot be read, and need not be.
        let _ = status.read(Cursor::new(body.bytes(status_bytes)?));
        let schema = String::from_utf8_lossy(body.bytes(schema_bytes)?).into_owned();
        body.skip(1)?;
        let charset = status.charset.unwrap_or(Charset::Utf8 { max_bytes: 4 });
        let Status { time_zone, micros, server_charset, .. } = status;
        Ok(Self { schema, sql: charset.decode_lossy(body.rest()), time_zone, micros, server_charset })
    }
}

/// What the status variables say of the session: a code and a value of a length that only the code tells, again and again.
#[derive(Default)]
struct Status {
    /// The character set that the statement is written in.
    charset: Option<Charset>,
    time_zone: Option<String>,
    micros: u32,
    server_charset: Option<&'static str>,
}

impl Status {
    fn read(&mut self, mut status: Cursor<'_>) -> Read<()> {
        while !status.is_empty() {
            match status.u8()? {
                0 | 3 | 10 => status.skip(4)?,
                1 | 9 | 17 | 129 => status.skip(8)?,
                2 => {
                    status.prefixed::<1>()?;
                    status.skip(1)?;
                }
                4 => {
                    self.charset = Charset::of_collation(u64::from(status.u16()?));
                    status.skip(2)?;
                    self.server_charset = Charset::name_of(u64::from(status.u16()?));
                }
                5 => self.time_zone = Some(String::from_utf8_lossy(status.prefixed::<1>()?).into_owned()),
                6 => {
                    status.prefixed::<1>()?;
                }
                7 | 8 | 18 | 130 => status.skip(2)?,
                11 => {
                    status.prefixed::<1>()?;
                    status.prefixed::<1>()?;
                }
                12 => Self::skip_schemas(&mut status)?,
                13 | 128 => self.micros = status.u24()?,
                16 | 19 | 20 => status.skip(1)?,
                _ => break,
            }
        }
        Ok(())
    }

    /// The names of the schemas that the statement changes, each with a zero behind it; none when they are too many.
    fn skip_schemas(status: &mut Cursor<'_>) -> Read<()> {
        const TOO_MANY: u8 = 254;
        let count = status.u8()?;
        for _ in 0..if count == TOO_MANY { 0 } else { count } {
            while status.u8()? != 0 {}
        }
        Ok(())
    }
}

pub struct Rotate {
    pub offset: u64,
    pub file: String,
}

impl Rotate {
    pub fn read(mut body: Cursor<'_>) -> Read<Self> {
        let offset = body.u64()?;
        Ok(Self { offset, file: String::from_utf8_lossy(body.rest()).into_owned() })
    }
}

/// What the event that opens a transaction says.
#[derive(Debug, Default)]
pub struct Opening {
    pub gtid: Gtid,
    pub original_commit_us: Option<i64>,
    pub immediate_commit_us: Option<i64>,
    /// `MariaDB`: rows follow at once, this is the BEGIN (else one statement follows, without COMMIT).
    pub begins: bool,
}

impl Opening {
    /// `MySQL`: flags u8, source 16, number u64, 2 u8, last committed u64, sequence u64, times (from 8.0 on).
    pub fn mysql(mut body: Cursor<'_>, anonymous: bool) -> Read<Self> {
        const HAS_ORIGINAL: u64 = 1 << 55;
        body.skip(1)?;
        let (source, number) = (body.array()?, body.u64()?);
        let gtid = if anonymous { Gtid::None } else { Gtid::mysql(source, String::new(), number)? };
        let mut opening = Self { gtid, ..Self::default() };
        if body.left() < 1 + 16 + 7 || body.u8()? != 2 {
            return Ok(opening);
        }
        body.skip(16)?;
        let immediate = body.le(7)?;
        let original = if immediate & HAS_ORIGINAL == 0 { immediate } else { body.le(7)? };
        opening.immediate_commit_us = i64::try_from(immediate & !HAS_ORIGINAL).ok();
        opening.original_commit_us = i64::try_from(original).ok();
        Ok(opening)
    }

    /// `MariaDB`: sequence u64, domain u32, flags u8.
    pub fn mariadb(mut body: Cursor<'_>, header: &Header) -> Read<Self> {
        const STANDALONE: u8 = 1;
        let (sequence, domain, flags) = (body.u64()?, body.u32()?, body.u8()?);
        Ok(Self {
            gtid: Gtid::MariaDb { domain, server: header.server_id, sequence },
            immediate_commit_us: Some(header.ts_us()),
            original_commit_us: None,
            begins: flags & STANDALONE == 0,
        })
    }

    /// `MySQL` 8.3 and newer, for a GTID with a tag: numbered fields in the encoding of its serialization library.
    pub fn tagged(mut body: Cursor<'_>) -> Read<Self> {
        let _version = varying(&mut body)?;
        let _size = varying(&mut body)?;
        let _last_field_to_know = varying(&mut body)?;
        let (mut source, mut number, mut tag) = ([0; 16], 0, String::new());
        let mut opening = Self::default();
        while !body.is_empty() {
            match varying(&mut body)? {
                1 => {
                    for byte in &mut source {
                        *byte = u8::try_from(varying(&mut body)?).map_err(|_| Fault::corrupt("a GTID's source"))?;
                    }
                }
                // Signed: the lowest bit is the sign.
                2 => number = varying(&mut body)? >> 1,
                3 => {
                    let length = usize::try_from(varying(&mut body)?).unwrap_or(usize::MAX);
                    tag = String::from_utf8_lossy(body.bytes(length)?).into_owned();
                }
                6 => opening.immediate_commit_us = i64::try_from(varying(&mut body)?).ok(),
                7 => opening.original_commit_us = i64::try_from(varying(&mut body)?).ok(),
                _ => {
                    varying(&mut body)?;
                }
            }
        }
        opening.original_commit_us = opening.original_commit_us.or(opening.immediate_commit_us);
        opening.gtid = Gtid::mysql(source, tag, number)?;
        Ok(opening)
    }
}

/// A number whose first byte says by its lowest one-bits how many bytes follow.
fn varying(cursor: &mut Cursor<'_>) -> Read<u64> {
    let first = cursor.u8()?;
    let more = first.trailing_ones();
    let high = cursor.le(more as usize)?;
    if more >= 7 {
        return Ok(high);
    }
    Ok(u64::from(first >> (more + 1)) | high << (7 - more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_query_says_of_its_session() {
        let mut status = vec![0, 1, 2, 3, 4, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 3];
        status.extend(b"std");
        status.extend([4, 45, 0, 45, 0, 8, 0, 5, 6]);
        status.extend(b"+02:00");
        status.extend([12, 2, b'a', 0, b'b', 0, 128, 0x40, 0xe2, 1, 200, 13, 0, 0, 0]);
        let mut body = vec![0; 8];
        body.push(1);
        body.extend([0, 0]);
        body.extend(u16::try_from(status.len()).unwrap_or(0).to_le_bytes());
        body.extend(&status);
        body.extend(b"s\0ALTER");
        let query = Query::read(Cursor::new(&body)).ok();
        let told = query.map(|query| (query.schema, query.sql, query.time_zone, query.micros));
        assert_eq!(told, Some(("s".to_owned(), "ALTER".to_owned(), Some("+02:00".to_owned()), 123_456)));
        body.truncate(30);
        assert!(Query::read(Cursor::new(&body)).is_err());
    }

    #[test]
    fn numbers_of_varying_length() {
        assert_eq!(varying(&mut Cursor::new(&[0b0000_0110])).ok(), Some(3));
        assert_eq!(varying(&mut Cursor::new(&[0b1111_1101, 0b1])).ok(), Some(0b111_1111));
        assert_eq!(varying(&mut Cursor::new(&[0xff, 1, 0, 0, 0, 0, 0, 0, 0])).ok(), Some(1));
        assert!(varying(&mut Cursor::new(&[0xff, 1])).is_err());
    }

    #[test]
    fn a_tagged_gtid() {
        // Version 1, size, last field to know 0; then flags, source (16 * 0x80, two bytes each), number 5, tag, immediate time.
        let mut body = vec![2, 0, 0, 0, 2, 2];
        body.extend([0b0000_0001, 0b10].repeat(16));
        body.extend([4, 5 << 2, 6, 4 << 1]);
        body.extend(b"blue");
        body.extend([12, 0b1110_1000]);
        let opening = Opening::tagged(Cursor::new(&body)).ok();
        let gtid = opening.as_ref().map(|opening| opening.gtid.to_string());
        assert_eq!(gtid.as_deref(), Some("80808080-8080-8080-8080-808080808080:blue:5"));
        let times = opening.map(|opening| (opening.immediate_commit_us, opening.original_commit_us));
        assert_eq!(times, Some((Some(116), Some(116))));
        body.pop();
        assert!(Opening::tagged(Cursor::new(&body)).is_err());
    }
}
