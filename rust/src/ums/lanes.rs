//! Lanes carry values of messages into Arrow builders, one lane per column.
//!
//! A lane takes the text of a value, whether it stood in quotes or not: so numbers may come as strings and strings as numbers. What
//! the column's type cannot hold, the lane refuses; the row then has null there and the text in `_ums_raw_`.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, GenericByteBuilder, PrimitiveBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, Float32Type, Float64Type,
    GenericBinaryType, GenericStringType, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow_array::{ArrayRef, OffsetSizeTrait};
use arrow_schema::{DataType, TimeUnit};

use super::calendar::{self, Moment};
use super::decimal;

pub trait Lane: Send + Sync {
    /// Appends the value that the text is; false (and nothing appended) when it is none of this column's type.
    fn take(&mut self, text: &str) -> bool;

    fn null(&mut self);

    fn finish(&mut self) -> ArrayRef;
}

/// Units of a timestamp in a second.
pub fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

/// A lane of the type; None when UMS has no form for it.
pub fn new_lane(data_type: &DataType) -> Option<Box<dyn Lane>> {
    let primitive = data_type.clone();
    Some(match data_type {
        DataType::Boolean => Box::new(Bits(BooleanBuilder::new())),
        DataType::Int8 => whole::<Int8Type>(),
        DataType::Int16 => whole::<Int16Type>(),
        DataType::Int32 => whole::<Int32Type>(),
        DataType::Int64 => whole::<Int64Type>(),
        DataType::UInt8 => whole::<UInt8Type>(),
        DataType::UInt16 => whole::<UInt16Type>(),
        DataType::UInt32 => whole::<UInt32Type>(),
        DataType::UInt64 => whole::<UInt64Type>(),
        DataType::Float32 => values::<Float32Type>(primitive, |text| text.parse().ok()),
        DataType::Float64 => values::<Float64Type>(primitive, |text| text.parse().ok()),
        DataType::Decimal128(precision, scale) => {
            let (precision, scale) = (*precision, *scale);
            values::<Decimal128Type>(primitive, move |text| decimal::read_i128(text, precision, scale))
        }
        DataType::Decimal256(precision, scale) => {
            let (precision, scale) = (*precision, *scale);
            values::<Decimal256Type>(primitive, move |text| decimal::read_i256(text, precision, scale))
        }
        DataType::Utf8 => Box::new(Text::<i32>::new()),
        DataType::LargeUtf8 => Box::new(Text::<i64>::new()),
        DataType::Binary => Box::new(Bytes::<i32>::new()),
        DataType::LargeBinary => Box::new(Bytes::<i64>::new()),
        DataType::Date32 => {
            values::<Date32Type>(primitive, |text| calendar::read_date(text).and_then(|days| i32::try_from(days).ok()))
        }
        DataType::Timestamp(TimeUnit::Second, _) => timestamp::<TimestampSecondType>(primitive, TimeUnit::Second),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            timestamp::<TimestampMillisecondType>(primitive, TimeUnit::Millisecond)
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            timestamp::<TimestampMicrosecondType>(primitive, TimeUnit::Microsecond)
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            timestamp::<TimestampNanosecondType>(primitive, TimeUnit::Nanosecond)
        }
        DataType::Duration(TimeUnit::Microsecond) => values::<DurationMicrosecondType>(primitive, duration_us),
        _ => return None,
    })
}

/// A timestamp in units of which a second has `per_second`; None when it is no timestamp, is finer, or is out of range.
pub fn timestamp_value(text: &str, per_second: i64) -> Option<i64> {
    units(calendar::read_datetime(text)?, per_second)
}

fn units(moment: Moment, per_second: i64) -> Option<i64> {
    let nanos_per_unit = 1_000_000_000 / per_second;
    let nanos = i64::from(moment.nanos);
    if nanos % nanos_per_unit != 0 {
        return None;
    }
    // In 128 bits, because the seconds alone may be below what the sum reaches.
    let value = i128::from(moment.seconds) * i128::from(per_second) + i128::from(nanos / nanos_per_unit);
    i64::try_from(value).ok()
}

fn duration_us(text: &str) -> Option<i64> {
    let (negative, size) = calendar::read_time(text)?;
    let (sign, nanos) = if negative { (-1, -i128::from(size.nanos)) } else { (1, i128::from(size.nanos)) };
    if nanos % 1000 != 0 {
        return None;
    }
    i64::try_from(sign * i128::from(size.seconds) * 1_000_000 + nanos / 1000).ok()
}

fn timestamp<T: ArrowPrimitiveType<Native = i64>>(data_type: DataType, unit: TimeUnit) -> Box<dyn Lane> {
    let per_second = per_second(unit);
    values::<T>(data_type, move |text| timestamp_value(text, per_second))
}

fn whole<T: ArrowPrimitiveType>() -> Box<dyn Lane>
where
    T::Native: TryFrom<i128>,
{
    values::<T>(T::DATA_TYPE, |text| T::Native::try_from(whole_value(text)?).ok())
}

/// An integer, also when it is written as a decimal number without fraction.
pub fn whole_value(text: &str) -> Option<i128> {
    decimal::read_i128(text, 38, 0)
}

/// Numbers, dates and times: whatever a function makes of text.
struct Values<T: ArrowPrimitiveType, F> {
    builder: PrimitiveBuilder<T>,
    read: F,
}

fn values<T: ArrowPrimitiveType>(
    data_type: DataType,
    read: impl Fn(&str) -> Option<T::Native> + Send + Sync + 'static,
) -> Box<dyn Lane> {
    Box::new(Values { builder: PrimitiveBuilder::<T>::with_capacity(0).with_data_type(data_type), read })
}

impl<T: ArrowPrimitiveType, F: Fn(&str) -> Option<T::Native> + Send + Sync> Lane for Values<T, F> {
    fn take(&mut self, text: &str) -> bool {
        let value = (self.read)(text);
        if let Some(value) = value {
            self.builder.append_value(value);
        }
        value.is_some()
    }

    fn null(&mut self) {
        self.builder.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.builder.finish())
    }
}

struct Bits(BooleanBuilder);

impl Lane for Bits {
    fn take(&mut self, text: &str) -> bool {
        let value = match text {
            "1" => true,
            "0" => false,
            text if text.eq_ignore_ascii_case("true") => true,
            text if text.eq_ignore_ascii_case("false") => false,
            _ => return false,
        };
        self.0.append_value(value);
        true
    }

    fn null(&mut self) {
        self.0.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

struct Text<O: OffsetSizeTrait>(GenericByteBuilder<GenericStringType<O>>);

impl<O: OffsetSizeTrait> Text<O> {
    fn new() -> Self {
        Self(GenericByteBuilder::with_capacity(0, 0))
    }
}

impl<O: OffsetSizeTrait> Lane for Text<O> {
    fn take(&mut self, text: &str) -> bool {
        self.0.append_value(text);
        true
    }

    fn null(&mut self) {
        self.0.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.0.finish())
    }
}

struct Bytes<O: OffsetSizeTrait> {
    builder: GenericByteBuilder<GenericBinaryType<O>>,
    decoded: Vec<u8>,
}

impl<O: OffsetSizeTrait> Bytes<O> {
    fn new() -> Self {
        Self { builder: GenericByteBuilder::with_capacity(0, 0), decoded: Vec::new() }
    }
}

impl<O: OffsetSizeTrait> Lane for Bytes<O> {
    fn take(&mut self, text: &str) -> bool {
        self.decoded.clear();
        let read = base64_simd::STANDARD.decode_append(text, &mut self.decoded).is_ok();
        if read {
            self.builder.append_value(&self.decoded);
        }
        read
    }

    fn null(&mut self) {
        self.builder.append_null();
    }

    fn finish(&mut self) -> ArrayRef {
        Arc::new(self.builder.finish())
    }
}
