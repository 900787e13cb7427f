//! Values of fixed width: numbers, dates, times.

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use super::cursor::Cursor;
use super::decimal::Layout;
use super::fault::Read;
use super::lanes::Scalar;
use super::temporal::{self, Held};

type Native<A> = <A as ArrowPrimitiveType>::Native;

/// A scalar without parameters, and the expression that reads it.
macro_rules! plain {
    ($($name:ident: $arrow:ty = |$cursor:ident| $read:expr;)*) => {$(
        pub struct $name;

        impl Scalar for $name {
            type Arrow = $arrow;

            #[inline]
            fn read(&self, $cursor: &mut Cursor<'_>) -> Read<Held<Native<$arrow>>> {
                Ok(Held::Value($read))
            }
        }
    )*};
}

plain! {
    I8: Int8Type = |cursor| cursor.u8()?.cast_signed();
    U8: UInt8Type = |cursor| cursor.u8()?;
    I16: Int16Type = |cursor| cursor.u16()?.cast_signed();
    U16: UInt16Type = |cursor| cursor.u16()?;
    // 24 bits, moved up so that their sign is the sign of 32.
    I24: Int32Type = |cursor| (cursor.u24()? << 8).cast_signed() >> 8;
    U24: UInt32Type = |cursor| cursor.u24()?;
    I32: Int32Type = |cursor| cursor.u32()?.cast_signed();
    U32: UInt32Type = |cursor| cursor.u32()?;
    I64: Int64Type = |cursor| cursor.u64()?.cast_signed();
    U64: UInt64Type = |cursor| cursor.u64()?;
    F32: Float32Type = |cursor| f32::from_le_bytes(cursor.array()?);
    F64: Float64Type = |cursor| f64::from_le_bytes(cursor.array()?);
    Year: UInt16Type = |cursor| match cursor.u8()? {
        0 => 0,
        years => 1900 + u16::from(years),
    };
}

/// A scalar with one parameter, and the expression that reads it.
macro_rules! with {
    ($($name:ident($parameter:ty): $arrow:ty = |$value:ident, $cursor:ident| $read:expr;)*) => {$(
        pub struct $name(pub $parameter);

        impl Scalar for $name {
            type Arrow = $arrow;

            #[inline]
            fn read(&self, $cursor: &mut Cursor<'_>) -> Read<Held<Native<$arrow>>> {
                let $value = self.0;
                $read
            }
        }
    )*};
}

with! {
    Bit(usize): UInt64Type = |bytes, cursor| Ok(Held::Value(cursor.be(bytes)?));
    IndexOf(usize): UInt64Type = |bytes, cursor| Ok(Held::Value(cursor.le(bytes)?));
    Decimal(Layout): Decimal128Type = |layout, cursor| Ok(Held::Value(layout.read_i128(cursor)?));
    WideDecimal(Layout): Decimal256Type = |layout, cursor| Ok(Held::Value(layout.read_i256(cursor)?));
    Datetime(u8): TimestampMicrosecondType = |digits, cursor| temporal::datetime(cursor, digits);
    Timestamp(u8): TimestampMicrosecondType = |digits, cursor| temporal::timestamp(cursor, digits);
    Time(u8): DurationMicrosecondType = |digits, cursor| temporal::time(cursor, digits);
}

/// A scalar that a function of `temporal` reads.
macro_rules! by {
    ($($name:ident: $arrow:ty = $read:path;)*) => {$(
        pub struct $name;

        impl Scalar for $name {
            type Arrow = $arrow;

            #[inline]
            fn read(&self, cursor: &mut Cursor<'_>) -> Read<Held<Native<$arrow>>> {
                $read(cursor)
            }
        }
    )*};
}

by! {
    Date: Date32Type = temporal::date;
    DatetimeDecimal: TimestampMicrosecondType = temporal::datetime_decimal;
    TimestampPlain: TimestampMicrosecondType = temporal::timestamp_plain;
    TimeDecimal: DurationMicrosecondType = temporal::time_decimal;
}
