//! Zlib and deflate streams: `MariaDB`'s COMPRESSED columns, and what `compressed` needs of them.
//!
//! ```text
//! stored value = header (1 byte), length (BE), deflated bytes           header: method << 4 | raw << 3 | bytes of the length
//! method 0: not compressed, the value follows the header                method 8: zlib; raw: without zlib's head and checksum
//! ```
//! The output is never larger than the length says, and memory grows only as bytes really come out.

use std::io::Read as _;

use flate2::bufread::{DeflateDecoder, ZlibDecoder};

use super::charset::Charset;
use super::columns::{Shape, Size, bytes_by, string_width, text};
use super::cursor::Cursor;
use super::fault::{Fault, Read};
use super::lanes::Text;
use super::notes::Notes;
use super::strings::Strings;
use super::texts::push_decoded;

const MAX_BYTES: u64 = 1 << 30;
/// What is made room for before anything has come out.
const TRUSTED_BYTES: u64 = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// With zlib's head and checksum.
    Zlib,
    Deflate,
}

/// The value of a COMPRESSED column.
pub fn value(stored: &[u8]) -> Read<Vec<u8>> {
    let Some((&header, rest)) = stored.split_first() else { return Ok(Vec::new()) };
    match header >> 4 {
        0 => Ok(rest.to_vec()),
        8 => {
            let mut cursor = Cursor::new(rest);
            let length = cursor.be(usize::from(header & 7))?;
            let form = if header & 8 == 0 { Form::Zlib } else { Form::Deflate };
            let mut value = Vec::new();
            inflate_into(&mut value, cursor.rest(), form, length)?;
            Ok(value)
        }
        other => Err(Fault::corrupt(format!("compression method {other} is not known"))),
    }
}

/// Appends what comes out of a stream, which must be `length` bytes.
pub fn inflate_into(out: &mut Vec<u8>, stream: &[u8], form: Form, length: u64) -> Read<()> {
    if length > MAX_BYTES {
        return Err(Fault::corrupt(format!("a compressed value of {length} bytes")));
    }
    out.reserve(usize::try_from(length.min(TRUSTED_BYTES)).unwrap_or(0));
    // One byte more than wanted, so that a longer stream shows and a checksum at its end is read.
    let came = match form {
        Form::Zlib => ZlibDecoder::new(stream).take(length + 1).read_to_end(out),
        Form::Deflate => DeflateDecoder::new(stream).take(length + 1).read_to_end(out),
    };
    let came = came.map_err(|error| Fault::corrupt(format!("a compressed value cannot be unpacked: {error}")))?;
    if came as u64 == length {
        return Ok(());
    }
    let what = if came as u64 > length { "longer" } else { "shorter" };
    Err(Fault::corrupt(format!("a compressed value {what} than the {length} bytes it says")))
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

    fn inflate(stream: &[u8], form: Form, length: u64) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        inflate_into(&mut out, stream, form, length).ok().map(|()| out)
    }

    #[test]
    fn a_stream_has_the_length_that_it_says() {
        let stored = [1, 3, 0, 0xfc, 0xff, b'a', b'b', b'c'];
        assert_eq!(inflate(&stored, Form::Deflate, 3), Some(b"abc".to_vec()));
        assert_eq!(inflate(&stored, Form::Deflate, 2), None);
        assert_eq!(inflate(&stored, Form::Deflate, 4), None);
        assert_eq!(inflate(&[7], Form::Deflate, 10), None);
        assert_eq!(inflate(&[0x4b], Form::Deflate, 10), None);
        assert_eq!(inflate(&stored, Form::Deflate, u64::MAX), None);
    }

    #[test]
    fn a_zlib_stream_is_whole() {
        let stream = [0x78, 0x9c, 0x4b, 0x4c, 0x4a, 0x06, 0x00, 0x02, 0x4d, 0x01, 0x27];
        assert_eq!(inflate(&stream, Form::Zlib, 3), Some(b"abc".to_vec()));
        for end in 0..stream.len() {
            assert_eq!(stream.get(..end).and_then(|cut| inflate(cut, Form::Zlib, 3)), None, "cut at {end}");
        }
        let mut wrong_sum = stream;
        wrong_sum[10] ^= 1;
        assert_eq!(inflate(&wrong_sum, Form::Zlib, 3), None);
    }
}
