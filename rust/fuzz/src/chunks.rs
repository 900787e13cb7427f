//! Logs out of parts that can be damaged without their frame.
//!
//! ```text
//! chunk = kind u8 | flags u8 | bytes u16 | body             a length beyond the end means: to the end
//! kind 0 (no server writes it) is a table's definition:     schema 0 table 0 lines as `fuzzing::definition` wants them
//! kind 40 whose body begins with 0 holds chunks:            they become the events of a transaction that is not compressed
//! ```

use _native::fuzzing::Cursor;

pub const FORMAT_DESCRIPTION: u8 = 15;
pub const ROTATE: u8 = 4;
const DEFINITION: u8 = 0;
const TRANSACTION_PAYLOAD: u8 = 40;
const ARTIFICIAL_FLAG: u8 = 0x20;
const HEADER_BYTES: usize = 19;
const MAGIC: [u8; 4] = [0xfe, b'b', b'i', b'n'];

pub struct Chunk<'d> {
    pub kind: u8,
    flags: u8,
    body: &'d [u8],
}

impl Chunk<'_> {
    /// A server makes such an event for a connection; its position does not count.
    pub fn is_artificial(&self) -> bool {
        self.flags & ARTIFICIAL_FLAG != 0
    }
}

/// The chunks of an input; what is too short to be one is left out.
pub fn split(data: &[u8]) -> Vec<Chunk<'_>> {
    let mut cursor = Cursor::new(data);
    let mut chunks = Vec::new();
    while let (Ok(kind), Ok(flags), Ok(bytes)) = (cursor.u8(), cursor.u8(), cursor.u16()) {
        let bytes = usize::from(bytes).min(cursor.left());
        chunks.push(Chunk { kind, flags, body: cursor.bytes(bytes).unwrap_or_default() });
    }
    chunks
}

/// Schema, table and text of the definitions among the chunks.
pub fn definitions(chunks: &[Chunk<'_>]) -> Vec<(String, String, String)> {
    let read = |chunk: &Chunk<'_>| {
        let mut parts = chunk.body.splitn(3, |&byte| byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
        Some((parts.next()?, parts.next()?, parts.next()?))
    };
    chunks.iter().filter(|chunk| chunk.kind == DEFINITION).filter_map(read).collect()
}

/// A file of these events. The format description comes first, with `checksums` or without.
pub fn file(chunks: &[Chunk<'_>], checksums: bool) -> Vec<u8> {
    let mut file = MAGIC.to_vec();
    for event in events(chunks, checksums, MAGIC.len()) {
        file.extend(event);
    }
    file
}

/// The packets in which a server sends these events.
pub fn packets(chunks: &[Chunk<'_>], checksums: bool) -> Vec<u8> {
    let mut rotate = (MAGIC.len() as u64).to_le_bytes().to_vec();
    rotate.extend(b"binlog.000001");
    let named = event(ROTATE, u16::from(ARTIFICIAL_FLAG), 0, &rotate, 0, checksums);
    let mut packets = Vec::new();
    for event in std::iter::once(named).chain(events(chunks, checksums, MAGIC.len())) {
        packets.extend(((event.len() + 1) as u32).to_le_bytes().iter().take(3));
        packets.extend([0, 0]);
        packets.extend(event);
    }
    packets
}

fn events(chunks: &[Chunk<'_>], checksums: bool, mut offset: usize) -> Vec<Vec<u8>> {
    let format = format_description(checksums);
    let first = Chunk { kind: FORMAT_DESCRIPTION, flags: 0, body: &format };
    let mut events = Vec::new();
    for chunk in std::iter::once(&first).chain(chunks).filter(|chunk| chunk.kind != DEFINITION) {
        let seconds = 1_700_000_000 + events.len() as u32;
        let unpacked = if chunk.kind == TRANSACTION_PAYLOAD { payload(chunk.body) } else { None };
        let body = unpacked.as_deref().unwrap_or(chunk.body);
        let signed = checksums || chunk.kind == FORMAT_DESCRIPTION;
        let event = event(chunk.kind, u16::from(chunk.flags), seconds, body, offset, signed);
        offset += event.len();
        events.push(event);
    }
    events
}

/// An event that begins at `offset`; at 0 it has no position.
fn event(kind: u8, flags: u16, seconds: u32, body: &[u8], offset: usize, checksum: bool) -> Vec<u8> {
    let length = HEADER_BYTES + body.len() + if checksum { 4 } else { 0 };
    let end = if offset == 0 { 0 } else { offset + length };
    let mut event = seconds.to_le_bytes().to_vec();
    event.push(kind);
    event.extend(1_u32.to_le_bytes());
    event.extend((length as u32).to_le_bytes());
    event.extend((end as u32).to_le_bytes());
    event.extend(flags.to_le_bytes());
    event.extend(body);
    if checksum {
        event.extend(crc32fast::hash(&event).to_le_bytes());
    }
    event
}

fn format_description(checksums: bool) -> Vec<u8> {
    let mut body = 4_u16.to_le_bytes().to_vec();
    body.extend([0; 50 + 4]);
    body.push(HEADER_BYTES as u8);
    body.push(u8::from(checksums));
    body
}

/// The fields and the stream of a transaction that is not compressed; None when the body does not hold chunks.
fn payload(body: &[u8]) -> Option<Vec<u8>> {
    const NOT_COMPRESSED: [u8; 6] = [2, 3, 0xfc, 255, 0, 0];
    let inner = body.strip_prefix(&[0])?;
    let mut payload = NOT_COMPRESSED.to_vec();
    for chunk in split(inner) {
        payload.extend(event(chunk.kind, u16::from(chunk.flags), 1_700_000_000, chunk.body, 0, false));
    }
    Some(payload)
}
