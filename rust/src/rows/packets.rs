//! Packets out of the bytes of a connection: length and number are checked, and long payloads put together.

use std::ops::Range;

use crate::binlog::cursor::Cursor;
use crate::binlog::fault::{Fault, Read};

const HEADER_BYTES: usize = 4;
/// A payload of this length goes on in the next packet.
const FULL_BYTES: usize = (1 << 24) - 1;
/// A server's `max_allowed_packet` is 1 GiB at most.
const MAX_PAYLOAD_BYTES: usize = (1 << 30) + FULL_BYTES;

/// Where a payload is.
pub enum Payload {
    /// A range of the bytes given.
    Here(Range<usize>),
    /// It came in several packets.
    Joined(Vec<u8>),
}

#[derive(Default)]
pub struct Packets {
    /// The number of the newest packet; they count on from that of the question, which is 0.
    number: u8,
    /// The beginning of a payload that goes on; empty when none does.
    begun: Vec<u8>,
}

impl Packets {
    /// The payload that begins at byte `at`, and `at` moved behind it; None when its end is not there yet.
    ///
    /// What is there of a payload of several packets is taken nevertheless.
    #[inline]
    pub fn next(&mut self, data: &[u8], at: &mut usize) -> Read<Option<Payload>> {
        loop {
            let mut rest = Cursor::new(data.get(*at..).unwrap_or_default());
            if rest.left() < HEADER_BYTES {
                return Ok(None);
            }
            let (length, number) = (rest.length(3)?, rest.u8()?);
            if number != self.number.wrapping_add(1) {
                return Err(Fault::corrupt(format!("packet {number} came behind packet {}", self.number)));
            }
            if rest.left() < length {
                return Ok(None);
            }
            self.number = number;
            let start = *at + HEADER_BYTES;
            *at = start + length;
            if length < FULL_BYTES && self.begun.is_empty() {
                return Ok(Some(Payload::Here(start..*at)));
            }
            self.begun.extend_from_slice(rest.bytes(length)?);
            if self.begun.len() > MAX_PAYLOAD_BYTES {
                return Err(Fault::corrupt("a row of more than 1 GiB"));
            }
            if length < FULL_BYTES {
                return Ok(Some(Payload::Joined(std::mem::take(&mut self.begun))));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u8, payload: &[u8]) -> Vec<u8> {
        let [a, b, c, ..] = payload.len().to_le_bytes();
        [&[a, b, c, number], payload].concat()
    }

    fn payloads(packets: &mut Packets, data: &[u8]) -> Read<(Vec<Vec<u8>>, usize)> {
        let (mut found, mut at) = (Vec::new(), 0);
        while let Some(payload) = packets.next(data, &mut at)? {
            found.push(match payload {
                Payload::Here(range) => data.get(range).unwrap_or_default().to_vec(),
                Payload::Joined(bytes) => bytes,
            });
        }
        Ok((found, at))
    }

    #[test]
    fn packets_that_are_whole_are_taken() {
        let data = [packet(1, b"one"), packet(2, b""), packet(3, b"three")].concat();
        let (found, used) =
            payloads(&mut Packets::default(), data.strip_suffix(b"e").unwrap_or_default()).unwrap_or_default();
        assert_eq!(found, [b"one".to_vec(), Vec::new()]);
        assert_eq!(used, 11);
    }

    #[test]
    fn a_long_payload_is_put_together_also_when_its_rest_is_empty() {
        for rest in [&b"rest"[..], b""] {
            let long = vec![7; FULL_BYTES];
            let mut packets = Packets::default();
            assert_eq!(payloads(&mut packets, &packet(1, &long)).ok(), Some((Vec::new(), FULL_BYTES + 4)));
            let (found, _) = payloads(&mut packets, &[packet(2, rest), packet(3, b"x")].concat()).unwrap_or_default();
            assert_eq!(found, [[&long, rest].concat(), b"x".to_vec()]);
        }
    }

    #[test]
    fn a_packet_that_is_missing_shows() {
        assert!(payloads(&mut Packets::default(), &packet(2, b"")).is_err());
        let mut packets = Packets { number: 255, ..Packets::default() };
        assert!(payloads(&mut packets, &packet(0, b"around")).is_ok());
    }
}
