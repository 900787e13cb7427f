//! Columns of an answer: what their values look like on the connection, and which lane takes them.

use arrow_array::types::ArrowPrimitiveType;
use arrow_schema::{DataType, TimeUnit};

use super::values as v;
use crate::binlog::cells::Extent;
use crate::binlog::charset::Charset;
use crate::binlog::columns::{Size, code};
use crate::binlog::cursor::Cursor;
use crate::binlog::fault::Read;
use crate::binlog::lanes::{BytesLane, Lane, Scalar, ScalarLane, TextLane};
use crate::binlog::scalars as s;
use crate::binlog::texts::Coded;
use crate::binlog::utf8::Utf8Lane;

const UNSIGNED: u16 = 0x20;

/// How many bytes a value takes.
#[derive(Clone, Copy)]
pub enum Width {
    Fixed(usize),
    /// As many as the byte in front says.
    Byte,
    /// As many as the length-encoded number in front says.
    LengthEncoded,
}

impl Width {
    pub fn extent(self) -> Extent {
        match self {
            Self::Fixed(bytes) => Extent::Sized(Size::Fixed(bytes)),
            Self::Byte => Extent::Sized(Size::Prefixed(1)),
            Self::LengthEncoded => Extent::LengthEncoded,
        }
    }
}

/// What the server says of a column.
pub struct Column {
    collation: u16,
    code: u8,
    unsigned: bool,
    decimals: u8,
}

impl Column {
    pub fn read(mut packet: Cursor<'_>) -> Read<Self> {
        for _catalog_schema_tables_and_names in 0..6 {
            packet.lenenc_bytes()?;
        }
        packet.skip(1)?;
        let (collation, _length) = (packet.u16()?, packet.u32()?);
        let (code, flags, decimals) = (packet.u8()?, packet.u16()?, packet.u8()?);
        Ok(Self { collation, code, unsigned: flags & UNSIGNED != 0, decimals })
    }

    /// How the column with this number becomes an array of a type; None when its values do not.
    pub fn lane(&self, data_type: &DataType, index: usize) -> Option<(Width, Box<dyn Lane>)> {
        use Width::Fixed;
        let column = NewLane { data_type, index };
        let digits = self.decimals.min(6);
        let utc = |zone: &str| zone == "UTC";
        match (self.code, data_type) {
            (code::TINY, DataType::Int8) if !self.unsigned => column.scalar(Fixed(1), s::I8),
            (code::TINY, DataType::UInt8) if self.unsigned => column.scalar(Fixed(1), s::U8),
            (code::SHORT, DataType::Int16) if !self.unsigned => column.scalar(Fixed(2), s::I16),
            (code::SHORT, DataType::UInt16) if self.unsigned => column.scalar(Fixed(2), s::U16),
            (code::YEAR, DataType::UInt16) => column.scalar(Fixed(2), s::U16),
            // As wide as INT here; the highest byte repeats the sign.
            (code::INT24 | code::LONG, DataType::Int32) if !self.unsigned => column.scalar(Fixed(4), s::I32),
            (code::INT24 | code::LONG, DataType::UInt32) if self.unsigned => column.scalar(Fixed(4), s::U32),
            (code::LONGLONG, DataType::Int64) if !self.unsigned => column.scalar(Fixed(8), s::I64),
            (code::LONGLONG, DataType::UInt64) if self.unsigned => column.scalar(Fixed(8), s::U64),
            (code::FLOAT, DataType::Float32) => column.scalar(Fixed(4), s::F32),
            (code::DOUBLE, DataType::Float64) => column.scalar(Fixed(8), s::F64),
            (code::NEWDECIMAL, DataType::Decimal128(_, scale)) if self.has_scale(*scale) => {
                column.scalar(Width::LengthEncoded, v::Decimal { scale: usize::from(self.decimals) })
            }
            (code::NEWDECIMAL, DataType::Decimal256(_, scale)) if self.has_scale(*scale) => {
                column.scalar(Width::LengthEncoded, v::WideDecimal { scale: usize::from(self.decimals) })
            }
            (code::BIT, DataType::UInt64) => column.scalar(Width::LengthEncoded, v::Bits),
            (code::DATE, DataType::Date32) => column.scalar(Width::Byte, v::Date),
            (code::DATETIME, DataType::Timestamp(TimeUnit::Microsecond, None)) => {
                column.scalar(Width::Byte, v::Moment(digits))
            }
            (code::TIMESTAMP, DataType::Timestamp(TimeUnit::Microsecond, Some(zone))) if utc(zone) => {
                column.scalar(Width::Byte, v::Moment(digits))
            }
            (code::TIME, DataType::Duration(TimeUnit::Microsecond)) => column.scalar(Width::Byte, v::Time),
            (_, DataType::Binary) if self.is_bytes() => Some((Width::LengthEncoded, Box::new(BytesLane::new(0)))),
            (_, DataType::Utf8) => Some((Width::LengthEncoded, text_lane(self.charset()?, index))),
            _ => None,
        }
    }

    fn has_scale(&self, scale: i8) -> bool {
        u8::try_from(scale) == Ok(self.decimals)
    }

    fn is_string(&self) -> bool {
        use code::{BLOB, ENUM, SET, STRING, TINY_BLOB, VAR_STRING, VARCHAR};
        matches!(self.code, VARCHAR | ENUM | SET | TINY_BLOB..=BLOB | VAR_STRING | STRING)
    }

    fn is_bytes(&self) -> bool {
        let binary = Charset::of_collation(u64::from(self.collation)) == Some(Charset::Binary);
        matches!(self.code, code::GEOMETRY | code::VECTOR) || self.is_string() && binary
    }

    /// The set that texts are in; None when this is no text, or in a set that is not known.
    fn charset(&self) -> Option<Charset> {
        if self.code == code::JSON {
            return Some(Charset::Utf8 { max_bytes: 4 });
        }
        let charset = Charset::of_collation(u64::from(self.collation)).filter(|_| self.is_string());
        charset.filter(|charset| *charset != Charset::Binary)
    }
}

fn text_lane(charset: Charset, index: usize) -> Box<dyn Lane> {
    match charset {
        Charset::Utf8 { .. } => Box::new(Utf8Lane::new(index)),
        charset => Box::new(TextLane::new(Coded::new(charset), index)),
    }
}

struct NewLane<'a> {
    data_type: &'a DataType,
    index: usize,
}

impl NewLane<'_> {
    #[allow(clippy::unnecessary_wraps, reason = "an arm of a match whose other arms have none")]
    fn scalar<S: Scalar + 'static>(&self, width: Width, scalar: S) -> Option<(Width, Box<dyn Lane>)>
    where
        S::Arrow: ArrowPrimitiveType,
    {
        Some((width, Box::new(ScalarLane::new(scalar, self.index, self.data_type.clone()))))
    }
}
