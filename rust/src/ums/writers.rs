//! Writers put the values of one Arrow column into messages, one writer per field.
//!
//! Numbers are written with `itoa` and `zmij` (the shortest digits that come back), bytes with `base64-simd`. Every value is valid
//! JSON whatever it holds; what is no JSON number (not a number, the infinities) is written as a string.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, Float32Type, Float64Type,
    Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, GenericBinaryArray, GenericStringArray, OffsetSizeTrait, PrimitiveArray,
};
use arrow_schema::{DataType, TimeUnit};

use super::calendar::{self, Moment};
use super::decimal;
use super::lanes::per_second;
use super::text;

/// How a field is written where its Arrow type leaves a choice.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    /// Integers and booleans in quotes.
    pub quoted: bool,
    /// Digits of a second's fraction at least; more are written when the value has them.
    pub digits: u32,
    /// `_ums_id_` as the original `DBus` has it: 13 digits of offset instead of 12.
    pub dbus_id: bool,
}

pub trait Writer: Send + Sync {
    fn write(&self, row: usize, out: &mut Vec<u8>);
}

/// Whole offsets of a file in headrace's id.
const ID_OFFSETS: i128 = 1_000_000_000_000;

/// A writer of the column; None when UMS has no form for its type.
pub fn new_writer(column: &ArrayRef, form: Form) -> Option<Box<dyn Writer>> {
    Some(match column.data_type() {
        DataType::Boolean => nullable(column, Bits(column.as_boolean().clone(), form.quoted)),
        DataType::Int8 => whole::<Int8Type>(column, form),
        DataType::Int16 => whole::<Int16Type>(column, form),
        DataType::Int32 => whole::<Int32Type>(column, form),
        DataType::Int64 if form.dbus_id => primitive::<Int64Type, _>(column, |id, out| {
            let id = i128::from(id);
            let files = if id < 0 { 0 } else { id / ID_OFFSETS };
            quoted(out, itoa::Buffer::new().format(id + files * 9 * ID_OFFSETS).as_bytes());
        }),
        DataType::Int64 => whole::<Int64Type>(column, form),
        DataType::UInt8 => whole::<UInt8Type>(column, form),
        DataType::UInt16 => whole::<UInt16Type>(column, form),
        DataType::UInt32 => whole::<UInt32Type>(column, form),
        DataType::UInt64 => whole::<UInt64Type>(column, form),
        DataType::Float32 => primitive::<Float32Type, _>(column, |value, out| float(out, value)),
        DataType::Float64 => primitive::<Float64Type, _>(column, |value, out| float(out, value)),
        DataType::Decimal128(_, scale) => {
            let scale = *scale;
            primitive::<Decimal128Type, _>(column, move |value, out| {
                decimal_text(out, itoa::Buffer::new().format(value), scale);
            })
        }
        DataType::Decimal256(_, scale) => {
            let scale = *scale;
            primitive::<Decimal256Type, _>(column, move |value, out| decimal_text(out, &value.to_string(), scale))
        }
        DataType::Utf8 => nullable(column, Text(column.as_string::<i32>().clone())),
        DataType::LargeUtf8 => nullable(column, Text(column.as_string::<i64>().clone())),
        DataType::Binary => nullable(column, Bytes(column.as_binary::<i32>().clone())),
        DataType::LargeBinary => nullable(column, Bytes(column.as_binary::<i64>().clone())),
        DataType::Date32 => primitive::<Date32Type, _>(column, |days, out| {
            out.push(b'"');
            calendar::write_date(out, i64::from(days));
            out.push(b'"');
        }),
        DataType::Timestamp(TimeUnit::Second, _) => datetime::<TimestampSecondType>(column, TimeUnit::Second, form),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            datetime::<TimestampMillisecondType>(column, TimeUnit::Millisecond, form)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            datetime::<TimestampMicrosecondType>(column, TimeUnit::Microsecond, form)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            datetime::<TimestampNanosecondType>(column, TimeUnit::Nanosecond, form)
        }
        DataType::Duration(TimeUnit::Microsecond) => {
            primitive::<DurationMicrosecondType, _>(column, move |value, out| time_us(out, value, form.digits))
        }
        _ => return None,
    })
}

fn quoted(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

fn decimal_text(out: &mut Vec<u8>, digits: &str, scale: i8) {
    out.push(b'"');
    decimal::write(out, digits, scale);
    out.push(b'"');
}

/// A number, or the name that Java and Python know for what is none.
fn float<F: zmij::Float + Into<f64> + Copy>(out: &mut Vec<u8>, value: F) {
    let wide: f64 = value.into();
    if wide.is_finite() {
        out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes());
        return;
    }
    let infinity: &[u8] = if wide > 0.0 { b"Infinity" } else { b"-Infinity" };
    quoted(out, if wide.is_nan() { b"NaN" } else { infinity });
}

fn datetime<T: ArrowPrimitiveType<Native = i64>>(column: &ArrayRef, unit: TimeUnit, form: Form) -> Box<dyn Writer> {
    let units = per_second(unit);
    primitive::<T, _>(column, move |value, out| {
        let nanos = nanos(value.rem_euclid(units), units);
        out.push(b'"');
        calendar::write_datetime(out, Moment { seconds: value.div_euclid(units), nanos }, digits(nanos, form.digits));
        out.push(b'"');
    })
}

fn time_us(out: &mut Vec<u8>, value: i64, least: u32) {
    let size = value.unsigned_abs();
    let nanos = nanos(i64::try_from(size % 1_000_000).unwrap_or(0), 1_000_000);
    let seconds = i64::try_from(size / 1_000_000).unwrap_or(0);
    out.extend_from_slice(if value < 0 { b"\"-" } else { b"\"" });
    calendar::write_clock(out, Moment { seconds, nanos }, digits(nanos, least));
    out.push(b'"');
}

/// A fraction of a second in nanoseconds.
fn nanos(fraction: i64, per_second: i64) -> u32 {
    u32::try_from(fraction * (1_000_000_000 / per_second)).unwrap_or(0)
}

/// Digits that show the whole fraction: the declared ones, else three, six or nine.
fn digits(nanos: u32, least: u32) -> u32 {
    if nanos == 0 || nanos.is_multiple_of(10_u32.pow(9 - least.min(9))) {
        return least;
    }
    if nanos.is_multiple_of(1_000_000) {
        3
    } else if nanos.is_multiple_of(1000) {
        6
    } else {
        9
    }
}

/// A writer that has only to do with rows that are not null.
struct Nullable<W> {
    nulls: Option<arrow_buffer::NullBuffer>,
    present: W,
}

fn nullable<W: Writer + 'static>(column: &ArrayRef, present: W) -> Box<dyn Writer> {
    Box::new(Nullable { nulls: column.nulls().cloned(), present })
}

impl<W: Writer> Writer for Nullable<W> {
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        match &self.nulls {
            Some(nulls) if nulls.is_null(row) => out.extend_from_slice(b"null"),
            _ => self.present.write(row, out),
        }
    }
}

struct Primitive<T: ArrowPrimitiveType, F> {
    array: PrimitiveArray<T>,
    write: F,
}

fn primitive<T: ArrowPrimitiveType, F: Fn(T::Native, &mut Vec<u8>) + Send + Sync + 'static>(
    column: &ArrayRef,
    write: F,
) -> Box<dyn Writer> {
    nullable(column, Primitive { array: column.as_primitive::<T>().clone(), write })
}

impl<T: ArrowPrimitiveType, F: Fn(T::Native, &mut Vec<u8>) + Send + Sync> Writer for Primitive<T, F> {
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        (self.write)(self.array.value(row), out);
    }
}

fn whole<T: ArrowPrimitiveType>(column: &ArrayRef, form: Form) -> Box<dyn Writer>
where
    T::Native: itoa::Integer,
{
    if form.quoted {
        primitive::<T, _>(column, |value, out| quoted(out, itoa::Buffer::new().format(value).as_bytes()))
    } else {
        primitive::<T, _>(column, |value, out| out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes()))
    }
}

struct Bits(BooleanArray, bool);

impl Writer for Bits {
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        let text: &[u8] = if self.0.value(row) { b"true" } else { b"false" };
        if self.1 { quoted(out, text) } else { out.extend_from_slice(text) }
    }
}

struct Bytes<O: OffsetSizeTrait>(GenericBinaryArray<O>);

impl<O: OffsetSizeTrait> Writer for Bytes<O> {
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        out.push(b'"');
        base64_simd::STANDARD.encode_append(self.0.value(row), out);
        out.push(b'"');
    }
}

struct Text<O: OffsetSizeTrait>(GenericStringArray<O>);

impl<O: OffsetSizeTrait> Writer for Text<O> {
    fn write(&self, row: usize, out: &mut Vec<u8>) {
        text::quoted(out, self.0.value(row).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_keep_what_they_have() {
        assert_eq!(digits(0, 0), 0);
        assert_eq!(digits(500_000_000, 0), 3);
        assert_eq!(digits(500_000_000, 1), 1);
        assert_eq!(digits(123_456_000, 3), 6);
        assert_eq!(digits(123_456_789, 6), 9);
    }
}
