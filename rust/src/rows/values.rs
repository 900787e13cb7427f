//! Values whose form on the connection is another than in the log: DECIMAL, BIT, dates and times.

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Decimal256Type, DurationMicrosecondType, TimestampMicrosecondType,
    UInt64Type,
};
use arrow_buffer::i256;

use crate::binlog::cursor::Cursor;
use crate::binlog::fault::{Fault, Read};
use crate::binlog::lanes::Scalar;
use crate::binlog::temporal::{Civil, Held, clock};

type Native<S> = <<S as Scalar>::Arrow as ArrowPrimitiveType>::Native;

/// BIT: its bytes, the highest first.
pub struct Bits;

impl Scalar for Bits {
    type Arrow = UInt64Type;

    fn read(&self, cursor: &mut Cursor<'_>) -> Read<Held<u64>> {
        match cursor.left() {
            bytes @ 0..=8 => Ok(Held::Value(cursor.be(bytes)?)),
            bytes => Err(Fault::corrupt(format!("a BIT of {bytes} bytes"))),
        }
    }
}

pub struct Date;

impl Scalar for Date {
    type Arrow = Date32Type;

    #[inline]
    fn read(&self, cursor: &mut Cursor<'_>) -> Read<Held<i32>> {
        Ok(moment(cursor)?.held_date())
    }
}

/// DATETIME, and TIMESTAMP in UTC, with the digits of its second that the column has.
pub struct Moment(pub u8);

impl Scalar for Moment {
    type Arrow = TimestampMicrosecondType;

    #[inline]
    fn read(&self, cursor: &mut Cursor<'_>) -> Read<Held<i64>> {
        Ok(moment(cursor)?.held(self.0))
    }
}

/// Zeros at the end are left out.
#[inline]
fn moment(cursor: &mut Cursor<'_>) -> Read<Civil> {
    let parts = cursor.left();
    let mut civil = Civil::default();
    if !matches!(parts, 0 | 4 | 7 | 11) {
        return Err(Fault::corrupt(format!("a date of {parts} bytes")));
    }
    if parts >= 4 {
        civil.year = i64::from(cursor.u16()?);
        civil.month = i64::from(cursor.u8()?);
        civil.day = i64::from(cursor.u8()?);
    }
    if parts >= 7 {
        civil.hour = i64::from(cursor.u8()?);
        civil.minute = i64::from(cursor.u8()?);
        civil.second = i64::from(cursor.u8()?);
    }
    if parts == 11 {
        civil.micro = i64::from(cursor.u32()?);
    }
    Ok(civil)
}

/// A TIME has 838 hours at most.
const MAX_TIME_DAYS: i64 = 34;

pub struct Time;

impl Scalar for Time {
    type Arrow = DurationMicrosecondType;

    fn read(&self, cursor: &mut Cursor<'_>) -> Read<Held<i64>> {
        let parts = cursor.left();
        if parts == 0 {
            return Ok(Held::Value(0));
        }
        if !matches!(parts, 8 | 12) {
            return Err(Fault::corrupt(format!("a time of {parts} bytes")));
        }
        let (negative, days) = (cursor.u8()? != 0, i64::from(cursor.u32()?));
        if days > MAX_TIME_DAYS {
            return Err(Fault::corrupt(format!("a time of {days} days")));
        }
        let (hour, minute, second) = (cursor.u8()?, cursor.u8()?, cursor.u8()?);
        let micro = if parts == 12 { i64::from(cursor.u32()?) } else { 0 };
        let value = clock(days * 24 + i64::from(hour), i64::from(minute), i64::from(second)) + micro;
        Ok(Held::Value(if negative { -value } else { value }))
    }
}

/// DECIMAL of at most 38 digits.
pub struct Decimal {
    pub scale: usize,
}

impl Scalar for Decimal {
    type Arrow = Decimal128Type;

    #[inline]
    fn read(&self, cursor: &mut Cursor<'_>) -> Read<Held<Native<Self>>> {
        let digits = Digits::read(cursor, self.scale)?;
        let number = digits.as_i128().ok_or_else(|| digits.broken())?;
        Ok(Held::Value(number))
    }
}

/// DECIMAL of up to 65 digits.
pub struct WideDecimal {
    pub scale: usize,
}

impl Scalar for WideDecimal {
    type Arrow = Decimal256Type;

    fn read(&self, cursor: &mut Cursor<'_>) -> Read<Held<Native<Self>>> {
        let digits = Digits::read(cursor, self.scale)?;
        let number = digits.as_i256().ok_or_else(|| digits.broken())?;
        Ok(Held::Value(number))
    }
}

/// A decimal number as text, with all digits of its scale: `-12.50`.
struct Digits<'a> {
    text: &'a [u8],
    negative: bool,
    whole: &'a [u8],
    fraction: &'a [u8],
}

/// A u64 holds as many digits and is much quicker than a u128.
const QUICK_DIGITS: usize = 19;

impl<'a> Digits<'a> {
    #[inline]
    fn read(cursor: &mut Cursor<'a>, scale: usize) -> Read<Self> {
        let text = cursor.rest();
        let (negative, size) = match text.split_first() {
            Some((b'-', size)) => (true, size),
            _ => (false, text),
        };
        // The point is no digit, so that it is found where the digits are read when it is not here.
        let split = if scale == 0 { Some((size, &[][..])) } else { point(size, scale) };
        let (whole, fraction) = split.unwrap_or_default();
        let digits = Self { text, negative, whole, fraction };
        if whole.is_empty() && fraction.is_empty() { Err(digits.broken()) } else { Ok(digits) }
    }

    #[inline]
    fn as_i128(&self) -> Option<i128> {
        let mut digits = self.whole.iter().chain(self.fraction).map(|byte| byte.wrapping_sub(b'0'));
        let size = if self.whole.len() + self.fraction.len() <= QUICK_DIGITS {
            i128::from(digits.try_fold(0_u64, |size, digit| (digit < 10).then(|| size * 10 + u64::from(digit)))?)
        } else {
            digits.try_fold(0_i128, |size, digit| {
                size.checked_mul(10).filter(|_| digit < 10)?.checked_add(i128::from(digit))
            })?
        };
        Some(if self.negative { -size } else { size })
    }

    fn as_i256(&self) -> Option<i256> {
        let text = String::from_utf8([self.whole, self.fraction].concat()).ok()?;
        let size = i256::from_string(&text).filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))?;
        Some(if self.negative { size.wrapping_neg() } else { size })
    }

    #[cold]
    fn broken(&self) -> Fault {
        Fault::corrupt(format!("'{}' is not a DECIMAL of this column", String::from_utf8_lossy(self.text)))
    }
}

/// What is before and behind a point with `scale` digits behind it.
#[inline]
fn point(size: &[u8], scale: usize) -> Option<(&[u8], &[u8])> {
    let (whole, rest) = size.split_at_checked(size.len().checked_sub(scale + 1)?)?;
    let (b'.', fraction) = rest.split_first()? else { return None };
    Some((whole, fraction))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<S: Scalar>(scalar: &S, bytes: &[u8]) -> Option<Held<Native<S>>> {
        scalar.read(&mut Cursor::new(bytes)).ok()
    }

    #[test]
    fn decimals() {
        for (text, scale, value) in [
            ("0.00", 2, 0),
            ("-12.50", 2, -1250),
            ("000123", 0, 123),
            (".5", 1, 5),
            ("9999999999999999999", 0, 9_999_999_999_999_999_999),
            ("-99999999999999999999999999999999999999", 0, -(10_i128.pow(38) - 1)),
        ] {
            assert_eq!(read(&Decimal { scale }, text.as_bytes()), Some(Held::Value(value)));
            let wide = read(&WideDecimal { scale }, text.as_bytes());
            assert_eq!(wide, Some(Held::Value(i256::from_i128(value))));
        }
        let nines = format!("-{}.{}", "9".repeat(35), "9".repeat(30));
        let wide = read(&WideDecimal { scale: 30 }, nines.as_bytes());
        assert!(matches!(wide, Some(Held::Value(value)) if value.to_string() == nines.replace('.', "")));
    }

    #[test]
    fn texts_that_are_no_decimals_of_the_column() {
        let long = "9".repeat(90);
        for (text, scale) in
            [("", 0), ("-", 0), ("1.5", 0), ("1", 1), ("1.50", 1), ("1.5", 2), ("+1", 0), ("1é", 0), (&long, 0)]
        {
            assert_eq!(read(&Decimal { scale }, text.as_bytes()), None, "{text}");
            assert_eq!(read(&WideDecimal { scale }, text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn dates_and_times_without_their_zeros() {
        assert_eq!(read(&Date, &[0xe8, 0x07, 2, 29]), Some(Held::Value(19_782)));
        assert_eq!(read(&Date, &[]), Some(Held::Beyond("0000-00-00".into())));
        assert_eq!(read(&Moment(3), &[]), Some(Held::Beyond("0000-00-00 00:00:00.000".into())));
        assert_eq!(read(&Moment(0), &[0xb2, 0x07, 1, 1]), Some(Held::Value(0)));
        assert_eq!(read(&Moment(6), &[0xb2, 0x07, 1, 1, 0, 0, 1, 5, 0, 0, 0]), Some(Held::Value(1_000_005)));
        assert_eq!(read(&Time, &[]), Some(Held::Value(0)));
        assert_eq!(read(&Time, &[1, 1, 0, 0, 0, 1, 0, 0]), Some(Held::Value(-25 * 3_600_000_000)));
        assert_eq!(read(&Time, &[0, 0, 0, 0, 0, 0, 0, 1, 9, 0, 0, 0]), Some(Held::Value(1_000_009)));
        assert_eq!(read(&Time, &[0, 35, 0, 0, 0, 0, 0, 0]), None);
        for bytes in [&[1][..], &[0; 5], &[0; 9], &[0; 13]] {
            assert!(read(&Date, bytes).is_none() && read(&Moment(0), bytes).is_none() && read(&Time, bytes).is_none());
        }
    }

    #[test]
    fn bits() {
        assert_eq!(read(&Bits, &[1, 0]), Some(Held::Value(256)));
        assert_eq!(read(&Bits, &[0xff; 8]), Some(Held::Value(u64::MAX)));
        assert_eq!(read(&Bits, &[0; 9]), None);
    }
}
