//! The one table of column types: for each, the source's name for it, its Arrow type, its size in the log and its lane.
//!
//! To support a type, add an arm to `Shape::of` (and its metadata's size to `metadata_bytes`).

use std::sync::Arc;

use arrow_schema::{DataType, TimeUnit};

use super::addresses::Address;
use super::charset::Charset;
use super::decimal::Layout;
use super::event::Family;
use super::fault::{Fault, Read};
use super::inflate;
use super::lanes::{BytesLane, DecodedBytesLane, Lane, Scalar, ScalarLane, Text, TextLane};
use super::scalars as s;
use super::temporal::fraction_bytes;
use super::texts as t;
use super::utf8::Utf8Lane;

pub mod code {
    pub const TINY: u8 = 1;
    pub const SHORT: u8 = 2;
    pub const LONG: u8 = 3;
    pub const FLOAT: u8 = 4;
    pub const DOUBLE: u8 = 5;
    pub const TIMESTAMP: u8 = 7;
    pub const LONGLONG: u8 = 8;
    pub const INT24: u8 = 9;
    pub const DATE: u8 = 10;
    pub const TIME: u8 = 11;
    pub const DATETIME: u8 = 12;
    pub const YEAR: u8 = 13;
    pub const VARCHAR: u8 = 15;
    pub const BIT: u8 = 16;
    pub const TIMESTAMP2: u8 = 17;
    pub const DATETIME2: u8 = 18;
    pub const TIME2: u8 = 19;
    pub const BLOB_COMPRESSED: u8 = 140;
    pub const VARCHAR_COMPRESSED: u8 = 141;
    pub const VECTOR: u8 = 242;
    pub const JSON: u8 = 245;
    pub const NEWDECIMAL: u8 = 246;
    pub const ENUM: u8 = 247;
    pub const SET: u8 = 248;
    pub const TINY_BLOB: u8 = 249;
    pub const BLOB: u8 = 252;
    pub const VAR_STRING: u8 = 253;
    pub const STRING: u8 = 254;
    pub const GEOMETRY: u8 = 255;
}

/// How many bytes a value takes, for stepping over it.
#[derive(Clone, Copy, Debug)]
pub enum Size {
    Fixed(usize),
    /// As many as the little-endian number of this width in front says.
    Prefixed(usize),
}

impl Size {
    /// The value at the beginning of `rest`, without the length in front of it; None when not all of it is there.
    #[inline]
    pub fn value(self, rest: &[u8]) -> Option<&[u8]> {
        match self {
            Self::Fixed(bytes) => rest.get(..bytes),
            Self::Prefixed(width) => {
                let end = width + prefix_of(rest, width)?;
                rest.get(width..end)
            }
        }
    }
}

/// The little-endian number of `width` bytes, 4 at most, that `rest` begins with; None when it is shorter.
#[inline]
pub fn prefix_of(rest: &[u8], width: usize) -> Option<usize> {
    // Nearly always more follows, and four bytes are read as quickly as one.
    if let Some(bytes) = rest.first_chunk() {
        let unused = 32_usize.wrapping_sub(8 * width) & 31;
        return Some((u32::from_le_bytes(*bytes) << unused >> unused) as usize);
    }
    let bytes = rest.get(..width)?;
    Some(bytes.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte)))
}

/// What a table map says about one column.
#[derive(Clone, Debug, Default)]
pub struct Traits {
    pub code: u8,
    pub metadata: [u8; 2],
    pub unsigned: bool,
    /// None: the log does not say.
    pub collation: Option<u64>,
    /// Of ENUM and SET; None: the log does not say.
    pub labels: Option<Arc<[String]>>,
    pub geometry: Option<u64>,
    pub dimensions: Option<u64>,
    /// What BINARY really is, known only from a definition.
    pub address: Option<Address>,
}

impl Traits {
    /// The type and length that the metadata of CHAR, BINARY, ENUM and SET hide: lengths above 255 borrow two bits of the type.
    fn unpacked(&self) -> (u8, usize) {
        let [high, low] = self.metadata;
        if high & 0x30 == 0x30 {
            return (high, usize::from(low));
        }
        (high | 0x30, usize::from(low) | usize::from((high & 0x30) ^ 0x30) << 4)
    }

    /// The bytes that a CHAR or BINARY can have.
    pub fn char_bytes(&self) -> usize {
        self.unpacked().1
    }

    /// The real type: CHAR's code also stands for ENUM and SET.
    pub fn real_code(&self) -> u8 {
        match self.code {
            code::STRING => match self.unpacked().0 {
                real @ (code::ENUM | code::SET) => real,
                _ => code::STRING,
            },
            other => other,
        }
    }

    /// Columns that the list of signs in the metadata counts.
    pub fn is_numeric(&self) -> bool {
        use code::{DOUBLE, FLOAT, INT24, LONG, LONGLONG, NEWDECIMAL, SHORT, TINY, YEAR};
        matches!(self.code, TINY | SHORT | INT24 | LONG | LONGLONG | FLOAT | DOUBLE | NEWDECIMAL | YEAR)
    }

    /// Columns that may hold characters.
    pub fn is_character(&self) -> bool {
        use code::{BLOB, BLOB_COMPRESSED, STRING, TINY_BLOB, VAR_STRING, VARCHAR, VARCHAR_COMPRESSED};
        matches!(
            self.real_code(),
            STRING | VAR_STRING | VARCHAR | TINY_BLOB..=BLOB | BLOB_COMPRESSED | VARCHAR_COMPRESSED
        )
    }

    /// Columns that the list of character sets in the metadata counts; some as bytes without characters.
    pub fn has_collation(&self, family: Family) -> bool {
        self.is_character()
            || (self.code == code::GEOMETRY && family == Family::MariaDb)
            || (self.code == code::VECTOR && family == Family::MySql)
    }

    fn word(&self) -> usize {
        usize::from(u16::from_le_bytes(self.metadata))
    }

    fn charset(&self) -> Read<Option<Charset>> {
        let Some(id) = self.collation else { return Ok(None) };
        Charset::of_collation(id).map(Some).ok_or_else(|| {
            Fault::refused(
                format!("its collation (number {id}) is not known"),
                "convert the column to utf8mb4, or leave the table out of the capture",
            )
        })
    }
}

/// Bytes of metadata that a table map holds for a type.
pub fn metadata_bytes(code: u8) -> usize {
    match code {
        code::FLOAT
        | code::DOUBLE
        | code::TINY_BLOB..=code::BLOB
        | code::GEOMETRY
        | code::JSON
        | code::VECTOR
        | code::BLOB_COMPRESSED
        | code::TIMESTAMP2..=code::TIME2 => 1,
        code::VARCHAR
        | code::VARCHAR_COMPRESSED
        | code::BIT
        | code::NEWDECIMAL
        | code::ENUM
        | code::SET
        | code::VAR_STRING
        | code::STRING => 2,
        _ => 0,
    }
}

/// Makes the lane of the column with this number.
type NewLane = Box<dyn Fn(usize) -> Box<dyn Lane> + Send + Sync>;

/// What a column's values are in the log, in Arrow, and how they get from one to the other.
pub struct Shape {
    pub source_type: String,
    pub data_type: DataType,
    pub size: Size,
    pub new_lane: NewLane,
}

fn micros(zone: Option<&str>) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into))
}

fn with_digits(name: &str, digits: u8) -> String {
    if digits == 0 { name.to_owned() } else { format!("{name}({digits})") }
}

impl Shape {
    /// The table.
    pub fn of(traits: &Traits) -> Read<Self> {
        let [first, second] = traits.metadata;
        let signed = !traits.unsigned;
        let digits = first.min(6);
        let temporal = |bytes: usize| bytes + fraction_bytes(digits);
        let duration = DataType::Duration(TimeUnit::Microsecond);
        let shape = match traits.code {
            code::TINY if signed => scalar("tinyint", DataType::Int8, 1, || s::I8),
            code::TINY => scalar("tinyint", DataType::UInt8, 1, || s::U8),
            code::SHORT if signed => scalar("smallint", DataType::Int16, 2, || s::I16),
            code::SHORT => scalar("smallint", DataType::UInt16, 2, || s::U16),
            code::INT24 if signed => scalar("mediumint", DataType::Int32, 3, || s::I24),
            code::INT24 => scalar("mediumint", DataType::UInt32, 3, || s::U24),
            code::LONG if signed => scalar("int", DataType::Int32, 4, || s::I32),
            code::LONG => scalar("int", DataType::UInt32, 4, || s::U32),
            code::LONGLONG if signed => scalar("bigint", DataType::Int64, 8, || s::I64),
            code::LONGLONG => scalar("bigint", DataType::UInt64, 8, || s::U64),
            code::FLOAT => scalar("float", DataType::Float32, 4, || s::F32),
            code::DOUBLE => scalar("double", DataType::Float64, 8, || s::F64),
            code::NEWDECIMAL => decimal(Layout::new(first, second)?),
            code::BIT => bits(usize::from(second) * 8 + usize::from(first))?,
            code::YEAR => return Ok(scalar("year", DataType::UInt16, 1, || s::Year)),
            code::DATE => scalar("date", DataType::Date32, 3, || s::Date),
            code::TIME => scalar("time", duration, 3, || s::TimeDecimal),
            code::DATETIME => scalar("datetime", micros(None), 8, || s::DatetimeDecimal),
            code::TIMESTAMP => scalar("timestamp", micros(Some("UTC")), 4, || s::TimestampPlain),
            code::TIME2 => scalar(&with_digits("time", digits), duration, temporal(3), move || s::Time(digits)),
            code::DATETIME2 => {
                scalar(&with_digits("datetime", digits), micros(None), temporal(5), move || s::Datetime(digits))
            }
            code::TIMESTAMP2 => {
                scalar(&with_digits("timestamp", digits), micros(Some("UTC")), temporal(4), move || {
                    s::Timestamp(digits)
                })
            }
            code::VARCHAR | code::VAR_STRING => characters("varchar", "varbinary", traits.word(), 0, traits.charset()?),
            code::STRING => match (traits.unpacked(), traits.address) {
                ((code::ENUM, bytes), _) => labels(traits, "enum", bytes)?,
                ((code::SET, bytes), _) => labels(traits, "set", bytes)?,
                (_, Some(address)) => text(address.name(), Size::Prefixed(1), move || address),
                ((_, length), None) => characters("char", "binary", length, length, traits.charset()?),
            },
            code::ENUM | code::SET => {
                let name = if traits.code == code::ENUM { "enum" } else { "set" };
                labels(traits, name, usize::from(second))?
            }
            code::TINY_BLOB..=code::BLOB => blob(usize::from(first), traits.charset()?)?,
            code::JSON => text("json", Size::Prefixed(prefix(usize::from(first))?), || t::Json),
            code::GEOMETRY => bytes(geometry(traits.geometry), prefix(usize::from(first))?, 0),
            code::VECTOR => {
                let dimensions = traits.dimensions.map_or(String::new(), |count| format!("({count})"));
                bytes(format!("vector{dimensions}"), prefix(usize::from(first))?, 0)
            }
            code::BLOB_COMPRESSED => inflate::blob(prefix(usize::from(first))?, traits.charset()?),
            code::VARCHAR_COMPRESSED => inflate::varchar(traits.word(), traits.charset()?),
            other => return Err(Fault::corrupt(format!("there is no column type {other}"))),
        };
        Ok(if traits.unsigned && traits.is_numeric() { shape.unsigned() } else { shape })
    }

    fn unsigned(mut self) -> Self {
        self.source_type.push_str(" unsigned");
        self
    }
}

fn scalar<S: Scalar + 'static>(
    name: &str,
    data_type: DataType,
    bytes: usize,
    new: impl Fn() -> S + Send + Sync + 'static,
) -> Shape {
    let lane_type = data_type.clone();
    Shape {
        source_type: name.to_owned(),
        data_type,
        size: Size::Fixed(bytes),
        new_lane: Box::new(move |column| Box::new(ScalarLane::new(new(), column, lane_type.clone()))),
    }
}

pub fn text<T: Text + 'static>(
    name: impl Into<String>,
    size: Size,
    new: impl Fn() -> T + Send + Sync + 'static,
) -> Shape {
    Shape {
        source_type: name.into(),
        data_type: DataType::Utf8,
        size,
        new_lane: Box::new(move |column| Box::new(TextLane::new(new(), column))),
    }
}

pub fn bytes(name: impl Into<String>, width: usize, pad_to: usize) -> Shape {
    Shape {
        source_type: name.into(),
        data_type: DataType::Binary,
        size: Size::Prefixed(width),
        new_lane: Box::new(move |_| Box::new(BytesLane::new(pad_to))),
    }
}

/// Bytes that `decode` makes out of the stored ones.
pub fn bytes_by(name: impl Into<String>, width: usize, decode: fn(&[u8]) -> Read<Vec<u8>>) -> Shape {
    Shape {
        source_type: name.into(),
        data_type: DataType::Binary,
        size: Size::Prefixed(width),
        new_lane: Box::new(move |_| Box::new(DecodedBytesLane::new(decode))),
    }
}

/// Characters of a known set behind a length of `width` bytes.
fn coded(name: String, width: usize, charset: Charset) -> Shape {
    let size = Size::Prefixed(width);
    if matches!(charset, Charset::Utf8 { .. }) {
        let new_lane: NewLane = Box::new(|column| Box::new(Utf8Lane::new(column)));
        return Shape { source_type: name, data_type: DataType::Utf8, size, new_lane };
    }
    text(name, size, move || t::Coded::new(charset))
}

/// Width of the length in front of strings of at most `max_bytes` bytes.
pub fn string_width(max_bytes: usize) -> usize {
    if max_bytes < 256 { 1 } else { 2 }
}

fn prefix(width: usize) -> Read<usize> {
    if (1..=4).contains(&width) { Ok(width) } else { Err(Fault::corrupt(format!("a length of {width} bytes"))) }
}

/// CHAR and VARCHAR, or BINARY and VARBINARY. A log that does not tell the character set is taken as UTF-8; what is none shows.
fn characters(name: &str, binary_name: &str, max_bytes: usize, pad_to: usize, charset: Option<Charset>) -> Shape {
    let width = string_width(max_bytes);
    match charset {
        Some(Charset::Binary) => bytes(format!("{binary_name}({max_bytes})"), width, pad_to),
        Some(charset) => coded(format!("{name}({})", max_bytes / charset.max_bytes()), width, charset),
        None => coded(name.to_owned(), width, Charset::Utf8 { max_bytes: 4 }),
    }
}

fn blob(width: usize, charset: Option<Charset>) -> Read<Shape> {
    let size = ["tiny", "", "medium", "long"].get(width.wrapping_sub(1)).copied();
    let size = size.ok_or_else(|| Fault::corrupt(format!("a BLOB with a length of {width} bytes")))?;
    Ok(match charset {
        Some(Charset::Binary) | None => bytes(format!("{size}blob"), width, 0),
        Some(charset) => coded(format!("{size}text"), width, charset),
    })
}

fn decimal(layout: Layout) -> Shape {
    let name = format!("decimal({},{})", layout.precision, layout.scale);
    let scale = layout.scale.cast_signed();
    if layout.precision <= 38 {
        let data_type = DataType::Decimal128(layout.precision, scale);
        return scalar(&name, data_type, layout.bytes(), move || s::Decimal(layout));
    }
    let data_type = DataType::Decimal256(layout.precision, scale);
    scalar(&name, data_type, layout.bytes(), move || s::WideDecimal(layout))
}

fn bits(count: usize) -> Read<Shape> {
    if !(1..=64).contains(&count) {
        return Err(Fault::corrupt(format!("a BIT({count})")));
    }
    let bytes = count.div_ceil(8);
    Ok(scalar(&format!("bit({count})"), DataType::UInt64, bytes, move || s::Bit(bytes)))
}

/// ENUM and SET: their labels where the log has them, else the number itself.
fn labels(traits: &Traits, name: &str, bytes: usize) -> Read<Shape> {
    if !(1..=8).contains(&bytes) {
        return Err(Fault::corrupt(format!("an {name} of {bytes} bytes")));
    }
    let Some(labels) = traits.labels.clone() else {
        return Ok(scalar(name, DataType::UInt64, bytes, move || s::IndexOf(bytes)));
    };
    let listed: Vec<String> = labels.iter().map(|label| format!("'{}'", label.replace('\'', "''"))).collect();
    let name_with_labels = format!("{name}({})", listed.join(","));
    let size = Size::Fixed(bytes);
    Ok(if name == "enum" {
        text(name_with_labels, size, move || t::Enum { labels: labels.clone() })
    } else {
        text(name_with_labels, size, move || t::Set::new(labels.clone()))
    })
}

/// Kinds of geometry by their numbers.
const GEOMETRIES: [&str; 8] = [
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
];

fn geometry(kind: Option<u64>) -> &'static str {
    let name = kind.and_then(|kind| usize::try_from(kind).ok()).and_then(|kind| GEOMETRIES.get(kind));
    name.copied().unwrap_or("geometry")
}

/// The number of a kind of geometry.
pub fn geometry_number(name: &str) -> Option<u64> {
    GEOMETRIES.iter().zip(0..).find(|(known, _)| **known == name).map(|(_, number)| number)
}
