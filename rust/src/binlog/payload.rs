//! A transaction whose events are one compressed stream inside one event (`MySQL`: `binlog_transaction_compression=ON`).
//!
//! ```text
//! TRANSACTION_PAYLOAD = header (19 bytes) | field, field, … 0 | stream | CRC32
//! field               = type | length | value (all lenenc)        1: bytes of the stream
//!                                                                 2: compression, 0 zstd, 255 none
//!                                                                 3: bytes of the events (not with compression 255)
//! stream, unpacked    = event, event, …        event = header (19 bytes) | body, without a checksum of its own
//! ```
//! Events come out one at a time, so that memory holds the packed stream, zstd's window and the largest event, however much comes
//! out. Their ids count on from where the stream begins, as if it stood in the file unpacked (`place`).
//!
//! Crash story: the checksum over the packed bytes is verified before the first event comes out. A stream that is damaged all the
//! same, or says a wrong size, is an error before the transaction's end: no boundary lies behind any part of it.

use std::borrow::Cow;
use std::io::{self, BufReader, Cursor as Stream, Read as _};

use zstd::stream::read::Decoder as Zstd;

use super::compressed::Compressed;
use super::cursor::Cursor;
use super::event::{HEADER_BYTES, Header, kind};
use super::fault::{Fault, Read};
use super::place::Place;

/// The largest window of zstd's levels (128 MiB, level 22): what a server can have used.
const WINDOW_LOG: u32 = 27;
const CHUNK_BYTES: usize = 128 << 10;
/// No server writes or accepts a larger one (`replica_max_allowed_packet`).
const MAX_EVENT_BYTES: usize = 1 << 30;

/// What stands before the stream.
pub struct Fields {
    zstd: bool,
    packed_bytes: u64,
    plain_bytes: u64,
}

impl Fields {
    /// Reads the fields; `body` is at the stream then, and ends with it.
    pub fn read(body: &mut Cursor<'_>) -> Read<Self> {
        const END: u64 = 0;
        const PACKED_BYTES: u64 = 1;
        const COMPRESSION: u64 = 2;
        const PLAIN_BYTES: u64 = 3;
        let (mut packed, mut compression, mut plain) = (None, None, None);
        loop {
            let field = body.lenenc()?;
            if field == END {
                break;
            }
            let mut value = Cursor::new(body.lenenc_bytes()?);
            match field {
                PACKED_BYTES => packed = Some(value.lenenc()?),
                COMPRESSION => compression = Some(value.lenenc()?),
                PLAIN_BYTES => plain = Some(value.lenenc()?),
                _ => {}
            }
        }
        let packed_bytes = body.left() as u64;
        if packed.is_some_and(|packed| packed != packed_bytes) {
            return Err(Fault::corrupt(format!(
                "a compressed transaction of {} bytes in an event with {packed_bytes}",
                packed.unwrap_or(0)
            )));
        }
        match (compression, plain) {
            (Some(0), Some(plain_bytes)) => Ok(Self { zstd: true, packed_bytes, plain_bytes }),
            (Some(255), None) => Ok(Self { zstd: false, packed_bytes, plain_bytes: packed_bytes }),
            (Some(255), Some(plain_bytes)) if plain_bytes == packed_bytes => {
                Ok(Self { zstd: false, packed_bytes, plain_bytes })
            }
            (Some(0 | 255), _) => Err(Fault::corrupt("a compressed transaction does not say its size")),
            (Some(other), _) => Err(Fault::refused(
                format!("a transaction in compression {other}, which this version does not know"),
                "use a version of headrace that knows the server's version",
            )),
            (None, _) => Err(Fault::corrupt("a compressed transaction does not say its compression")),
        }
    }

    /// How many bytes unpacking adds to the file.
    pub fn added(&self) -> u64 {
        self.plain_bytes.saturating_sub(self.packed_bytes)
    }
}

/// A transaction under way.
pub struct Payload {
    events: Box<dyn io::Read + Send + Sync>,
    /// Bytes that the events still to come have.
    left: u64,
    /// Where the next event begins, counted from the file's beginning as if the stream stood there unpacked.
    next_at: u64,
    event: Vec<u8>,
    /// How many bytes unpacking adds to the file.
    pub added: u64,
    /// The place behind the event.
    pub end: u64,
}

impl Payload {
    /// `event` is whole and begins at `place`; its body ends at `body_end` and the event itself at position `end`.
    pub fn open(event: Cow<'_, [u8]>, body_end: usize, place: &Place, end: u64) -> Read<Self> {
        let mut body = Cursor::new(event.get(HEADER_BYTES..body_end).unwrap_or_default());
        let fields = Fields::read(&mut body)?;
        let begin = body_end - body.left();
        let next_at = place.offset + begin as u64;
        place.id(next_at.saturating_add(fields.plain_bytes))?;
        let mut bytes = event.into_owned();
        bytes.truncate(body_end);
        let mut stream = Stream::new(bytes);
        stream.set_position(begin as u64);
        let events: Box<dyn io::Read + Send + Sync> = if fields.zstd {
            let mut zstd = Zstd::with_buffer(stream).map_err(damaged)?;
            zstd.window_log_max(WINDOW_LOG).map_err(damaged)?;
            let chunk_bytes = usize::try_from(fields.plain_bytes).map_or(CHUNK_BYTES, |bytes| bytes.min(CHUNK_BYTES));
            Box::new(BufReader::with_capacity(chunk_bytes, zstd))
        } else {
            Box::new(stream)
        };
        Ok(Self { events, left: fields.plain_bytes, next_at, event: Vec::new(), added: fields.added(), end })
    }

    /// The next event and where it begins; None behind the last one, when the stream has turned out to be whole.
    pub fn next(&mut self) -> Read<Option<(&[u8], u64)>> {
        self.event.clear();
        if self.left == 0 {
            let more = self.events.by_ref().take(1).read_to_end(&mut self.event).map_err(damaged)?;
            return if more == 0 {
                Ok(None)
            } else {
                Err(Fault::corrupt("a compressed transaction longer than it says"))
            };
        }
        self.fill(HEADER_BYTES)?;
        let header = Header::read(&self.event)?;
        if header.length as u64 > self.left || header.length > MAX_EVENT_BYTES {
            return Err(Fault::corrupt(format!(
                "an event of {} bytes where a compressed transaction has {} left",
                header.length, self.left
            )));
        }
        let outer =
            matches!(header.kind, kind::TRANSACTION_PAYLOAD | kind::FORMAT_DESCRIPTION | kind::ROTATE | kind::STOP);
        if outer || Compressed::is(header.kind) {
            return Err(Fault::corrupt(format!("an event of type {} inside a compressed transaction", header.kind)));
        }
        self.fill(header.length)?;
        let at = self.next_at;
        self.next_at += header.length as u64;
        self.left -= header.length as u64;
        Ok(Some((&self.event, at)))
    }

    /// Brings the event to `length` bytes; memory grows only as bytes really come out.
    fn fill(&mut self, length: usize) -> Read<()> {
        let wanted = length - self.event.len();
        let came = self.events.by_ref().take(wanted as u64).read_to_end(&mut self.event).map_err(damaged)?;
        if came == wanted { Ok(()) } else { Err(Fault::corrupt("a compressed transaction shorter than it says")) }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn damaged(error: io::Error) -> Fault {
    Fault::corrupt(format!("a compressed transaction cannot be unpacked: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binlog::fault::Blame;

    /// An event of `length` bytes with a query's type and an empty body.
    fn inner(length: u8) -> Vec<u8> {
        let mut event = vec![0; usize::from(length)];
        event.splice(4..5, [kind::QUERY]);
        event.splice(9..10, [length]);
        event
    }

    fn open(fields: &[u8], stream: &[u8]) -> Read<Payload> {
        let event = [&[0; HEADER_BYTES], fields, stream].concat();
        let place = Place::new("binlog.000001", 100, 7)?;
        let end = event.len();
        Payload::open(Cow::Owned(event), end, &place, 100 + end as u64)
    }

    fn blame<T>(result: Read<T>) -> Option<Blame> {
        result.err().map(|fault| fault.blame())
    }

    #[test]
    fn events_come_out_with_their_places() {
        let plain = [inner(20), inner(30)].concat();
        let packed = zstd::bulk::compress(&plain, 3).unwrap_or_default();
        let length = u8::try_from(packed.len()).unwrap_or(0);
        let fields = [9, 1, 5, 2, 1, 0, 1, 1, length, 3, 1, 50, 0];
        let come_out = |mut payload: Payload| {
            let mut found = vec![];
            while let Some((event, at)) = payload.next()? {
                found.push((event.to_vec(), at));
            }
            Ok((payload.added, found))
        };
        let begin = 100 + (HEADER_BYTES + fields.len()) as u64;
        let expected = (50 - u64::from(length), vec![(inner(20), begin), (inner(30), begin + 20)]);
        assert_eq!(open(&fields, &packed).and_then(come_out).ok(), Some(expected));
    }

    #[test]
    fn fields_that_say_too_little_or_too_much() {
        let stored = |fields: &[u8]| blame(open(fields, &inner(19)));
        assert_eq!(stored(&[2, 2, 255, 1, 0]), Some(Blame::Corrupt));
        assert_eq!(stored(&[2, 3, 252, 255, 0, 1, 1, 19, 0]), None);
        assert_eq!(stored(&[2, 3, 252, 255, 0, 1, 1, 18, 0]), Some(Blame::Corrupt));
        assert_eq!(stored(&[2, 3, 252, 255, 0, 3, 1, 18, 0]), Some(Blame::Corrupt));
        assert_eq!(stored(&[2, 1, 0, 0]), Some(Blame::Corrupt));
        assert_eq!(stored(&[2, 1, 1, 3, 1, 19, 0]), Some(Blame::Refused));
        assert_eq!(stored(&[1, 1, 19, 0]), Some(Blame::Corrupt));
        assert_eq!(stored(&[1, 200, 19, 0]), Some(Blame::Corrupt));
        assert_eq!(stored(&[2, 1, 0, 3, 9, 254, 255, 255, 255, 255, 255, 255, 255, 255, 0]), Some(Blame::Refused));
        assert_eq!(stored(&[]), Some(Blame::Corrupt));
    }

    #[test]
    fn a_stream_that_is_not_what_the_fields_say() {
        let none = |said: u8, stream: &[u8]| {
            let mut payload = open(&[2, 3, 252, 255, 0, 3, 1, said, 0], stream)?;
            while payload.next()?.is_some() {}
            Ok(())
        };
        assert_eq!(blame(none(38, &[inner(19), inner(19)].concat())), None);
        assert_eq!(blame(none(19, &inner(20))), Some(Blame::Corrupt));
        assert_eq!(blame(none(25, &[inner(20), vec![0; 5]].concat())), Some(Blame::Corrupt));
        assert_eq!(blame(none(19, inner(40).get(..19).unwrap_or_default())), Some(Blame::Corrupt));
        let zstd = |said: u8, stream: &[u8]| {
            let mut payload = open(&[2, 1, 0, 3, 1, said, 0], stream)?;
            while payload.next()?.is_some() {}
            Ok(())
        };
        let packed = zstd::bulk::compress(&inner(19), 3).unwrap_or_default();
        assert_eq!(blame(zstd(19, &packed)), None);
        assert_eq!(blame(zstd(20, &packed)), Some(Blame::Corrupt));
        assert_eq!(blame(zstd(0, &packed)), Some(Blame::Corrupt));
        assert_eq!(blame(zstd(19, &[&*packed, b"x"].concat())), Some(Blame::Corrupt));
        for end in 0..packed.len() {
            assert_eq!(packed.get(..end).and_then(|cut| blame(zstd(19, cut))), Some(Blame::Corrupt), "cut at {end}");
        }
    }
}
