//! `MySQL`'s binary JSON, into the text that the server prints.
//!
//! ```text
//! value   = type (1 byte), data
//! object  = count, size, count * (key offset, key length u16), count * (type, offset or inlined scalar), keys, values
//! array   = count, size, count * (type, offset or inlined scalar), values
//! string  = length (7 bits per byte, lowest first), bytes        opaque = column type, length, bytes
//! ```
//! Counts, sizes and offsets have 2 bytes in small and 4 in large objects and arrays; offsets count from the first byte behind
//! the type. Offsets of a damaged document can point at the same bytes again and again, so depth and output are limited.

use super::cursor::Cursor;
use super::decimal::Layout;
use super::fault::{Fault, Read};
use super::temporal::{self, unpack_datetime};

/// The server allows 100 levels.
const MAX_DEPTH: usize = 100;
/// No value takes more text than this many times its bytes (a control character: 6, an inlined literal: 3, a double: 3).
const MAX_GROWTH: usize = 16;

/// One value: its type and the bytes behind it (more may follow).
#[derive(Clone, Copy, Debug)]
pub struct Value<'a> {
    kind: u8,
    data: &'a [u8],
}

mod kind {
    pub const SMALL_OBJECT: u8 = 0;
    pub const LARGE_OBJECT: u8 = 1;
    pub const SMALL_ARRAY: u8 = 2;
    pub const LARGE_ARRAY: u8 = 3;
    pub const LITERAL: u8 = 4;
    pub const INT16: u8 = 5;
    pub const UINT16: u8 = 6;
    pub const INT32: u8 = 7;
    pub const UINT32: u8 = 8;
    pub const INT64: u8 = 9;
    pub const UINT64: u8 = 10;
    pub const DOUBLE: u8 = 11;
    pub const STRING: u8 = 12;
    pub const OPAQUE: u8 = 15;
}

impl<'a> Value<'a> {
    /// The document of a JSON column; an empty one is the value null, as the server reads it.
    pub fn document(bytes: &'a [u8]) -> Self {
        match bytes.split_first() {
            Some((&kind, data)) => Self { kind, data },
            None => Self { kind: kind::LITERAL, data: &[0] },
        }
    }

    pub fn is_object(&self) -> bool {
        matches!(self.kind, kind::SMALL_OBJECT | kind::LARGE_OBJECT)
    }

    pub fn is_array(&self) -> bool {
        matches!(self.kind, kind::SMALL_ARRAY | kind::LARGE_ARRAY)
    }

    /// Keys and values of an object, values of an array (their keys empty).
    pub fn children(&self) -> Read<Children<'a>> {
        let large = matches!(self.kind, kind::LARGE_OBJECT | kind::LARGE_ARRAY);
        let width = if large { 4 } else { 2 };
        let mut head = Cursor::new(self.data);
        let count = index(head.le(width)?)?;
        let size = index(head.le(width)?)?;
        let Some(whole) = self.data.get(..size) else {
            return Err(Fault::corrupt(format!("a JSON value of {size} bytes where {} are left", self.data.len())));
        };
        let keys = if self.is_object() { count } else { 0 };
        let keys = head.bytes(keys.saturating_mul(width + 2))?;
        let values = head.bytes(count.saturating_mul(width + 1))?;
        Ok(Children { whole, width, large, keys: Cursor::new(keys), values: Cursor::new(values) })
    }

    fn print(&self, out: &mut Printer<'_>) -> Read<()> {
        let mut data = Cursor::new(self.data);
        match self.kind {
            kind::SMALL_OBJECT | kind::LARGE_OBJECT | kind::SMALL_ARRAY | kind::LARGE_ARRAY => {
                return self.print_children(out);
            }
            kind::LITERAL => out.put(literal(data.u8()?)?),
            kind::INT16 => out.number(data.u16()?.cast_signed()),
            kind::UINT16 => out.number(data.u16()?),
            kind::INT32 => out.number(data.u32()?.cast_signed()),
            kind::UINT32 => out.number(data.u32()?),
            kind::INT64 => out.number(data.u64()?.cast_signed()),
            kind::UINT64 => out.number(data.u64()?),
            kind::DOUBLE => out.double(f64::from_le_bytes(data.array()?))?,
            kind::STRING => quote_bytes(sized(&mut data)?, out.text),
            kind::OPAQUE => out.put(&opaque(&mut data)?),
            other => return Err(Fault::corrupt(format!("JSON has no type {other}"))),
        }
        out.check()
    }

    fn print_children(&self, out: &mut Printer<'_>) -> Read<()> {
        let (open, close) = if self.is_object() { (b'{', b'}') } else { (b'[', b']') };
        out.descend()?;
        out.text.push(open);
        let mut children = self.children()?;
        let mut first = true;
        while let Some((key, value)) = children.next()? {
            if !std::mem::take(&mut first) {
                out.put(", ");
            }
            if let Some(key) = key {
                quote_bytes(key, out.text);
                out.put(": ");
            }
            value.print(out)?;
        }
        out.text.push(close);
        out.depth -= 1;
        out.check()
    }
}

/// The key (None in arrays) and the value.
type Child<'a> = (Option<&'a [u8]>, Value<'a>);

pub struct Children<'a> {
    whole: &'a [u8],
    width: usize,
    large: bool,
    keys: Cursor<'a>,
    values: Cursor<'a>,
}

impl<'a> Children<'a> {
    pub fn next(&mut self) -> Read<Option<Child<'a>>> {
        if self.values.is_empty() {
            return Ok(None);
        }
        let key = if self.keys.is_empty() { None } else { Some(self.key()?) };
        Ok(Some((key, self.value()?)))
    }

    fn key(&mut self) -> Read<&'a [u8]> {
        let offset = index(self.keys.le(self.width)?)?;
        let length = usize::from(self.keys.u16()?);
        Cursor::new(self.at(offset)?).bytes(length)
    }

    fn value(&mut self) -> Read<Value<'a>> {
        let kind = self.values.u8()?;
        let slot = self.values.bytes(self.width)?;
        let inlined = matches!(kind, kind::LITERAL | kind::INT16 | kind::UINT16)
            || self.large && matches!(kind, kind::INT32 | kind::UINT32);
        let data = if inlined { slot } else { self.at(index(Cursor::new(slot).le(self.width)?)?)? };
        Ok(Value { kind, data })
    }

    fn at(&self, offset: usize) -> Read<&'a [u8]> {
        self.whole
            .get(offset..)
            .ok_or_else(|| Fault::corrupt(format!("a JSON offset of {offset} leads out of its value")))
    }
}

/// The text of one document under way, with its limits. Whether it is UTF-8 is checked when it is whole.
struct Printer<'t> {
    text: &'t mut Vec<u8>,
    start: usize,
    depth: usize,
    document_bytes: usize,
}

impl Printer<'_> {
    fn put(&mut self, text: &str) {
        self.text.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, number: impl itoa::Integer) {
        self.put(itoa::Buffer::new().format(number));
    }

    /// The shortest digits that read back as the same number, as the server prints them: whole numbers keep a `.0`, an exponent
    /// comes below 10^-15 and from 10^15 on, but not before a fraction.
    fn double(&mut self, number: f64) -> Read<()> {
        if !number.is_finite() {
            return Err(Fault::corrupt("a JSON number that is not finite"));
        }
        let size = number.abs();
        let is_plain = (1e-5..1e15).contains(&size) || (1e15..1e16).contains(&size) && size.fract() != 0.0;
        if is_plain || size == 0.0 {
            // Of two shortest texts that are equally near, the server takes the one with an even digit, as this does.
            self.put(zmij::Buffer::new().format_finite(number));
        } else if (1e-15..1.0).contains(&size) {
            self.put(&number.to_string());
        } else {
            self.put(&format!("{number:e}"));
        }
        Ok(())
    }

    fn descend(&mut self) -> Read<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Fault::corrupt("JSON nested deeper than 100 levels"));
        }
        Ok(())
    }

    fn check(&self) -> Read<()> {
        check_growth(self.text.len() - self.start, self.document_bytes)
    }
}

/// A fault when a document has become more text than its bytes can mean.
pub fn check_growth(text_bytes: usize, document_bytes: usize) -> Read<()> {
    if text_bytes > document_bytes.saturating_mul(MAX_GROWTH).saturating_add(64) {
        return Err(overlapping());
    }
    Ok(())
}

pub fn overlapping() -> Fault {
    Fault::corrupt("JSON whose parts overlap")
}

/// Appends the text of a value out of a document of `document_bytes` bytes. Only `check_text` knows whether its strings are UTF-8.
pub fn print(value: Value<'_>, document_bytes: usize, text: &mut Vec<u8>) -> Read<()> {
    let start = text.len();
    value.print(&mut Printer { text, start, depth: 0, document_bytes })
}

/// Each string of a text stands between quotes: the whole is UTF-8 when, and only when, each of them is.
pub fn check_text(text: &[u8]) -> Read<()> {
    simdutf8::basic::from_utf8(text).map(|_| ()).map_err(|_| Fault::corrupt("a JSON string that is not UTF-8"))
}

fn index(value: u64) -> Read<usize> {
    usize::try_from(value).map_err(|_| Fault::corrupt("a JSON size out of range"))
}

fn literal(byte: u8) -> Read<&'static str> {
    match byte {
        0 => Ok("null"),
        1 => Ok("true"),
        2 => Ok("false"),
        other => Err(Fault::corrupt(format!("JSON has no literal {other}"))),
    }
}

/// Bytes behind a length of 7 bits per byte.
fn sized<'a>(data: &mut Cursor<'a>) -> Read<&'a [u8]> {
    let mut length = 0_usize;
    for shift in [0, 7, 14, 21, 28] {
        let byte = usize::from(data.u8()?);
        length |= (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return data.bytes(length);
        }
    }
    Err(Fault::corrupt("a JSON length of more than five bytes"))
}

/// The string in quotes, escaped as the server does it: only what must be.
pub fn quote_bytes(string: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = string;
    while let Some(at) = first_escaped(rest) {
        let (plain, tail) = rest.split_at(at);
        out.extend_from_slice(plain);
        let Some((&escaped, tail)) = tail.split_first() else { break };
        let short = match escaped {
            b'"' | b'\\' => escaped,
            b'\n' => b'n',
            b'\r' => b'r',
            b'\t' => b't',
            8 => b'b',
            12 => b'f',
            _ => {
                out.extend_from_slice(format!("\\u{escaped:04x}").as_bytes());
                rest = tail;
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
        rest = tail;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

/// Where the first byte stands that has to be escaped. Most strings have none, which is seen in steps of a fixed size.
#[inline]
fn first_escaped(string: &[u8]) -> Option<usize> {
    const STEP: usize = 8;
    let is_escaped = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    let (steps, _) = string.as_chunks::<STEP>();
    let escaped = |step: &[u8; STEP]| step.iter().fold(0, |found, &byte| found | u8::from(is_escaped(byte)));
    let checked = steps.iter().take_while(|step| escaped(step) == 0).count() * STEP;
    let rest = string.get(checked..).unwrap_or_default();
    rest.iter().position(|&byte| is_escaped(byte)).map(|at| checked + at)
}

/// As `quote_bytes`, of what is UTF-8.
pub fn quote(string: &str, out: &mut String) {
    let mut quoted = Vec::with_capacity(string.len() + 2);
    quote_bytes(string.as_bytes(), &mut quoted);
    out.push_str(&String::from_utf8_lossy(&quoted));
}

/// A value of a column type that JSON does not have: decimals as numbers, dates and times as strings, others in base64.
fn opaque(data: &mut Cursor<'_>) -> Read<String> {
    let column_type = data.u8()?;
    let mut bytes = Cursor::new(sized(data)?);
    Ok(match column_type {
        246 => Layout::new(bytes.u8()?, bytes.u8()?)?.read_text(&mut bytes)?,
        10 => format!("\"{}\"", moment(&mut bytes)?.date_text()),
        7 | 12 => format!("\"{}\"", moment(&mut bytes)?.text(6)),
        11 => format!("\"{}\"", time_text(bytes.u64()?.cast_signed())),
        other => format!("\"base64:type{other}:{}\"", base64(bytes.rest())),
    })
}

fn moment(bytes: &mut Cursor<'_>) -> Read<temporal::Civil> {
    let packed = bytes.u64()?.cast_signed();
    Ok(unpack_datetime(packed >> 24, packed & 0xff_ffff))
}

fn time_text(packed: i64) -> String {
    let size = packed.unsigned_abs();
    let whole = size >> 24;
    let sign = if packed < 0 { "-" } else { "" };
    let (hour, minute, second) = (whole >> 12 & 0x3ff, whole >> 6 & 63, whole & 63);
    format!("{sign}{hour:02}:{minute:02}:{second:02}.{:06}", size & 0xff_ffff)
}

pub fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, &byte| group << 8 | u32::from(byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = ALPHABET.get((group >> (18 - 6 * place) & 63) as usize).copied().unwrap_or(b'=');
            text.push(if place > chunk.len() { '=' } else { char::from(letter) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn print(bytes: &[u8]) -> Option<String> {
        let mut text = Vec::new();
        super::print(Value::document(bytes), bytes.len(), &mut text).and_then(|()| check_text(&text)).ok()?;
        String::from_utf8(text).ok()
    }

    #[test]
    fn scalars_and_an_empty_document() {
        assert_eq!(print(&[]).as_deref(), Some("null"));
        assert_eq!(print(&[4, 1]).as_deref(), Some("true"));
        assert_eq!(print(&[5, 0xff, 0xff]).as_deref(), Some("-1"));
        assert_eq!(print(&[10, 255, 255, 255, 255, 255, 255, 255, 255]).as_deref(), Some("18446744073709551615"));
        assert_eq!(print(&[11, 0, 0, 0, 0, 0, 0, 8, 64]).as_deref(), Some("3.0"));
        assert_eq!(print(b"\x0c\x03a\"\n").as_deref(), Some(r#""a\"\n""#));
    }

    #[test]
    fn doubles_get_an_exponent_where_the_server_gives_them_one() {
        for (number, printed) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1e-15, "0.000000000000001"),
            (4.42e-5, "0.0000442"),
            (-1.5e-7, "-0.00000015"),
            (9.99e-16, "9.99e-16"),
            (5e-324, "5e-324"),
            (999_999_999_999_999.9, "999999999999999.9"),
            (1e15, "1e15"),
            (7_601_405_886_615_689.0 / 4.0, "1900351471653922.2"),
            (-900_158_590_106_983.8, "-900158590106983.8"),
            (-4_206_038_222_181_113.5, "-4206038222181113.5"),
            (1.5e300, "1.5e300"),
        ] {
            let mut document = vec![11];
            document.extend(f64::to_le_bytes(number));
            assert_eq!(print(&document).as_deref(), Some(printed));
        }
    }

    #[test]
    fn an_object_with_an_array() {
        // {"a": [1, "x"]}: one key at 11, its value (small array) at 12.
        let array = [2, 0, 12, 0, 5, 1, 0, 12, 10, 0, 1, b'x'];
        let mut object = vec![0, 1, 0, 24, 0, 11, 0, 1, 0, 2, 12, 0, b'a'];
        object.extend(array);
        assert_eq!(print(&object).as_deref(), Some(r#"{"a": [1, "x"]}"#));
    }

    #[test]
    fn a_value_that_contains_itself_is_corrupt() {
        // An array of three elements that each lead back to the array.
        let array = [2, 3, 0, 13, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0];
        assert_eq!(print(&array), None);
    }

    #[test]
    fn base64_pads() {
        assert_eq!(base64(b"\x00\xff\x10"), "AP8Q");
        assert_eq!(base64(b"ab"), "YWI=");
        assert_eq!(base64(b"a"), "YQ==");
        assert_eq!(base64(b""), "");
    }
}
