//! Deflate (RFC 1951), for `MariaDB`'s COMPRESSED columns.
//!
//! ```text
//! stored value = header (1 byte), length (BE), deflated bytes           header: method << 4 | raw << 3 | bytes of the length
//! method 0: not compressed, the value follows the header                method 8: zlib; raw: without zlib's head and checksum
//! ```
//! The output is never larger than the length says, and memory grows only as bytes really come out.

use super::charset::Charset;
use super::columns::{Shape, Size, bytes_by, string_width, text};
use super::cursor::Cursor;
use super::fault::{Fault, Read};
use super::lanes::Text;
use super::notes::Notes;
use super::strings::Strings;
use super::texts::push_decoded;

const MAX_VALUE_BYTES: usize = 1 << 30;
const MAX_BITS: usize = 15;

/// The value of a COMPRESSED column.
pub fn value(stored: &[u8]) -> Read<Vec<u8>> {
    let Some((&header, rest)) = stored.split_first() else { return Ok(Vec::new()) };
    match header >> 4 {
        0 => Ok(rest.to_vec()),
        8 => {
            let mut cursor = Cursor::new(rest);
            let length = cursor.be(usize::from(header & 7))?;
            let raw = header & 8 != 0;
            let deflated = if raw { cursor.rest() } else { zlib_body(cursor.rest())? };
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if length > MAX_VALUE_BYTES {
                return Err(Fault::corrupt(format!("a compressed value of {length} bytes")));
            }
            let value = inflate(deflated, length)?;
            if value.len() == length {
                Ok(value)
            } else {
                Err(Fault::corrupt("a compressed value shorter than it says"))
            }
        }
        other => Err(Fault::corrupt(format!("compression method {other} is not known"))),
    }
}

fn zlib_body(bytes: &[u8]) -> Read<&[u8]> {
    bytes.get(2..bytes.len().saturating_sub(4)).ok_or_else(|| Fault::corrupt("a zlib stream of less than six bytes"))
}

/// At most `limit` bytes out of a deflate stream.
pub fn inflate(deflated: &[u8], limit: usize) -> Read<Vec<u8>> {
    let mut bits = Bits { bytes: Cursor::new(deflated), hold: 0, count: 0 };
    let mut out = Vec::new();
    loop {
        let last = bits.take(1)? == 1;
        match bits.take(2)? {
            0 => stored(&mut bits, &mut out, limit)?,
            1 => {
                let (lengths, distances) = fixed_codes();
                block(&mut bits, &mut out, limit, &lengths, &distances)?;
            }
            2 => {
                let (lengths, distances) = dynamic_codes(&mut bits)?;
                block(&mut bits, &mut out, limit, &lengths, &distances)?;
            }
            _ => return Err(Fault::corrupt("a deflate block of type 3")),
        }
        if last {
            return Ok(out);
        }
    }
}

struct Bits<'a> {
    bytes: Cursor<'a>,
    hold: u32,
    count: u32,
}

impl Bits<'_> {
    fn take(&mut self, count: u32) -> Read<usize> {
        while self.count < count {
            self.hold |= u32::from(self.bytes.u8()?) << self.count;
            self.count += 8;
        }
        let value = self.hold & ((1 << count) - 1);
        self.hold >>= count;
        self.count -= count;
        Ok(value as usize)
    }
}

/// A canonical Huffman code: how many codes each length has, and the symbols in order of their codes.
struct Huffman {
    counts: [usize; MAX_BITS + 1],
    symbols: Vec<u16>,
}

impl Huffman {
    fn new(lengths: &[u8]) -> Self {
        let mut counts = [0; MAX_BITS + 1];
        let mut symbols = Vec::new();
        for (bits, count) in counts.iter_mut().enumerate().skip(1) {
            for (symbol, _) in (0_u16..).zip(lengths).filter(|(_, length)| usize::from(**length) == bits) {
                symbols.push(symbol);
                *count += 1;
            }
        }
        Self { counts, symbols }
    }

    fn symbol(&self, bits: &mut Bits<'_>) -> Read<usize> {
        let (mut code, mut first, mut index) = (0, 0, 0);
        for &count in self.counts.iter().skip(1) {
            code |= bits.take(1)?;
            if code < first + count {
                let symbol = self.symbols.get(index + code - first).copied();
                return symbol.map(usize::from).ok_or_else(|| Fault::corrupt("a deflate code without symbol"));
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err(Fault::corrupt("a deflate code of more than 15 bits"))
    }
}

fn fixed_codes() -> (Huffman, Huffman) {
    let mut lengths = [8_u8; 288];
    for (symbol, length) in lengths.iter_mut().enumerate() {
        *length = match symbol {
            144..=255 => 9,
            256..=279 => 7,
            _ => 8,
        };
    }
    (Huffman::new(&lengths), Huffman::new(&[5; 30]))
}

fn dynamic_codes(bits: &mut Bits<'_>) -> Read<(Huffman, Huffman)> {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let (literals, distances, codes) = (bits.take(5)? + 257, bits.take(5)? + 1, bits.take(4)? + 4);
    let mut lengths = [0_u8; 19];
    for &place in ORDER.iter().take(codes) {
        let length = bits.take(3)?;
        if let Some(slot) = lengths.get_mut(place) {
            *slot = u8::try_from(length).unwrap_or(0);
        }
    }
    let code = Huffman::new(&lengths);
    let mut lengths: Vec<u8> = Vec::with_capacity(320);
    while lengths.len() < literals + distances {
        let (value, count) = match code.symbol(bits)? {
            16 => {
                let last = lengths.last().copied().ok_or_else(|| Fault::corrupt("a deflate block repeats nothing"))?;
                (last, 3 + bits.take(2)?)
            }
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (u8::try_from(length).unwrap_or(0), 1),
        };
        lengths.resize(lengths.len() + count, value);
    }
    let (literal, rest) = lengths.split_at(literals);
    Ok((Huffman::new(literal), Huffman::new(rest.get(..distances).unwrap_or(rest))))
}

fn stored(bits: &mut Bits<'_>, out: &mut Vec<u8>, limit: usize) -> Read<()> {
    // A stored block begins at the next whole byte; `take` never holds a whole byte back.
    bits.hold = 0;
    bits.count = 0;
    let length = bits.bytes.u16()?;
    if bits.bytes.u16()? != !length {
        return Err(Fault::corrupt("a stored deflate block with a wrong length"));
    }
    let bytes = bits.bytes.bytes(usize::from(length))?;
    check_room(out, bytes.len(), limit)?;
    out.extend_from_slice(bytes);
    Ok(())
}

fn check_room(out: &[u8], more: usize, limit: usize) -> Read<()> {
    if out.len() + more > limit {
        return Err(Fault::corrupt(format!("a compressed value longer than its {limit} bytes")));
    }
    Ok(())
}

fn block(bits: &mut Bits<'_>, out: &mut Vec<u8>, limit: usize, lengths: &Huffman, distances: &Huffman) -> Read<()> {
    loop {
        match lengths.symbol(bits)? {
            literal @ 0..=255 => {
                check_room(out, 1, limit)?;
                out.push(u8::try_from(literal).unwrap_or(0));
            }
            256 => return Ok(()),
            symbol => {
                let length = match_length(symbol, bits)?;
                let distance = match_distance(distances.symbol(bits)?, bits)?;
                let start = out.len().checked_sub(distance);
                let start = start.ok_or_else(|| Fault::corrupt("a deflate match before its beginning"))?;
                check_room(out, length, limit)?;
                for index in start..start + length {
                    out.push(out.get(index).copied().unwrap_or(0));
                }
            }
        }
    }
}

/// Codes in groups of four share a number of extra bits, which grows by one per group.
fn match_length(symbol: usize, bits: &mut Bits<'_>) -> Read<usize> {
    match symbol - 257 {
        code @ 0..=7 => Ok(code + 3),
        28 => Ok(258),
        code @ 8..=27 => extended(code, 4, bits).map(|length| length + 3),
        _ => Err(Fault::corrupt("a deflate length that is none")),
    }
}

/// As lengths, in groups of two.
fn match_distance(code: usize, bits: &mut Bits<'_>) -> Read<usize> {
    match code {
        0..=3 => Ok(code + 1),
        4..=29 => extended(code, 2, bits).map(|distance| distance + 1),
        _ => Err(Fault::corrupt("a deflate distance that is none")),
    }
}

fn extended(code: usize, group: usize, bits: &mut Bits<'_>) -> Read<usize> {
    let extra = code / group - 1;
    let base = (group + code % group) << extra;
    Ok(base + bits.take(u32::try_from(extra).unwrap_or(0))?)
}

/// Compressed characters.
struct Inflated(Charset);

impl Text for Inflated {
    fn read(&mut self, bytes: &[u8], into: &mut Strings, column: usize, notes: &mut Notes) -> Read<()> {
        push_decoded(self.0, &value(bytes)?, into, column, notes)
    }
}

/// TEXT … COMPRESSED and BLOB … COMPRESSED.
pub fn blob(width: usize, charset: Option<Charset>) -> Shape {
    let size = ["tiny", "", "medium", "long"].get(width - 1).copied().unwrap_or("");
    inflated(&format!("{size}text"), &format!("{size}blob"), width, charset)
}

/// VARCHAR(n) COMPRESSED and VARBINARY(n) COMPRESSED; `max_bytes` counts the header.
pub fn varchar(max_bytes: usize, charset: Option<Charset>) -> Shape {
    let length = max_bytes.saturating_sub(1);
    let characters = length / charset.map_or(1, Charset::max_bytes);
    let (name, binary_name) = (format!("varchar({characters})"), format!("varbinary({length})"));
    inflated(&name, &binary_name, string_width(max_bytes), charset)
}

fn inflated(name: &str, binary_name: &str, width: usize, charset: Option<Charset>) -> Shape {
    match charset {
        Some(Charset::Binary) | None => bytes_by(format!("{binary_name} compressed"), width, value),
        Some(charset) => text(format!("{name} compressed"), Size::Prefixed(width), move || Inflated(charset)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_as_mariadb_stores_them() {
        let repeated = value(&[0x89, 0x96, 0x4b, 0x4c, 0x1c, 0x8c, 0, 0]).ok();
        assert_eq!(repeated, Some(vec![b'a'; 150]));
        let repeated = value(&[0x8a, 0x01, 0xf4, 0x4b, 0x4a, 0x1a, 0x05, 0x23, 0x0d, 0, 0]).ok();
        assert_eq!(repeated, Some(vec![b'b'; 500]));
        assert_eq!(value(b"\x00x").ok(), Some(b"x".to_vec()));
        assert_eq!(value(b"").ok(), Some(Vec::new()));
    }

    #[test]
    fn stored_and_dynamic_blocks() {
        let stored = [1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c'];
        assert_eq!(inflate(&stored, 3).ok(), Some(b"abc".to_vec()));
        assert!(inflate(&stored, 2).is_err());
        assert!(inflate(&[7], 10).is_err());
        assert!(inflate(&[0x4b], 10).is_err());
    }
}
