//! Dates and times as the log stores them, into microseconds or days since 1970.
//!
//! ```text
//! DATE       3 bytes LE   year << 9 | month << 5 | day
//! DATETIME2  5 bytes BE   1 << 39 | (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second, then the fraction
//! TIMESTAMP2 4 bytes BE   seconds since 1970 UTC, then the fraction
//! TIME2      3 bytes BE   1 << 23 + (hour << 12 | minute << 6 | second), then the fraction; a negative time is the
//!                         complement of the number that value *and fraction* form together
//! fraction   (digits + 1) / 2 bytes BE, in units of 10^-(2 * bytes)
//! ```
//! What no calendar holds (zero, partial and impossible dates) becomes text, `Held::Beyond`, and never another date.

use super::cursor::Cursor;
use super::fault::{Fault, Read};

/// A value, or the text of one that the column's type cannot hold.
#[derive(Debug, PartialEq)]
pub enum Held<T> {
    Value(T),
    Beyond(String),
}

pub const MICROS: i64 = 1_000_000;
const DAY_SECONDS: i64 = 86_400;

/// Calendar fields as stored, valid or not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Civil {
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    pub micro: i64,
}

impl Civil {
    fn date_is_valid(&self) -> bool {
        const DAYS: [i64; 13] = [0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let leap = || self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let month = usize::try_from(self.month).ok().and_then(|month| DAYS.get(month)).copied().unwrap_or(0);
        let days = month + i64::from(self.month == 2 && leap());
        (1..=9999).contains(&self.year) && self.day >= 1 && self.day <= days
    }

    fn is_valid(&self) -> bool {
        self.date_is_valid() && self.hour < 24 && self.minute < 60 && self.second < 60 && self.micro < MICROS
    }

    /// Days since 1970-01-01 in the proleptic Gregorian calendar (years of March begin, so that leap days end them).
    #[inline]
    pub fn days(&self) -> i64 {
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let day_of_year = (153 * ((self.month + 9) % 12) + 2) / 5 + self.day - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
    }

    fn micros(&self) -> i64 {
        let seconds = self.days() * DAY_SECONDS + self.hour * 3600 + self.minute * 60 + self.second;
        seconds * MICROS + self.micro
    }

    pub fn date_text(&self) -> String {
        let mut text = String::with_capacity(TEXT_BYTES);
        for (before, value, width) in [("", self.year, 4), ("-", self.month, 2), ("-", self.day, 2)] {
            push_number(&mut text, before, value, width);
        }
        text
    }

    pub fn text(&self, digits: u8) -> String {
        let mut text = self.date_text();
        for (before, value) in [(" ", self.hour), (":", self.minute), (":", self.second)] {
            push_number(&mut text, before, value, 2);
        }
        let whole = text.len();
        push_number(&mut text, ".", self.micro, 6);
        text.truncate(if digits == 0 { whole } else { whole + 1 + usize::from(digits) });
        text
    }

    #[inline]
    pub fn held(self, digits: u8) -> Held<i64> {
        if self.is_valid() { Held::Value(self.micros()) } else { Held::Beyond(self.text(digits)) }
    }

    #[inline]
    pub fn held_date(self) -> Held<i32> {
        let days = if self.date_is_valid() { i32::try_from(self.days()).ok() } else { None };
        days.map_or_else(|| Held::Beyond(self.date_text()), Held::Value)
    }
}

/// Bytes of the longest moment that servers write.
const TEXT_BYTES: usize = 26;

/// Zeros fill it up in front; zero dates are many in some tables, and `format!` is slow.
fn push_number(text: &mut String, before: &str, value: i64, width: usize) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value);
    text.push_str(before);
    for _ in digits.len()..width {
        text.push('0');
    }
    text.push_str(digits);
}

pub fn fraction_bytes(digits: u8) -> usize {
    usize::from(digits).div_ceil(2)
}

fn fraction_scale(bytes: usize) -> i64 {
    match bytes {
        0 => 0,
        1 => 10_000,
        2 => 100,
        _ => 1,
    }
}

fn number(value: u64) -> Read<i64> {
    i64::try_from(value).map_err(|_| Fault::corrupt("a date or time out of range"))
}

fn fraction(cursor: &mut Cursor<'_>, digits: u8) -> Read<i64> {
    let bytes = fraction_bytes(digits);
    Ok(number(cursor.be(bytes)?)? * fraction_scale(bytes))
}

#[inline]
pub fn date(cursor: &mut Cursor<'_>) -> Read<Held<i32>> {
    let packed = i64::from(cursor.u24()?);
    let civil = Civil { year: packed >> 9, month: packed >> 5 & 15, day: packed & 31, ..Civil::default() };
    Ok(civil.held_date())
}

#[inline]
pub fn datetime(cursor: &mut Cursor<'_>, digits: u8) -> Read<Held<i64>> {
    let (high, low) = (cursor.u8()?, u32::from_be_bytes(cursor.array()?));
    let packed = (i64::from(high) << 32 | i64::from(low)) - (1 << 39);
    let micro = fraction(cursor, digits)?;
    if packed < 0 {
        return Err(Fault::corrupt("a DATETIME before the year 0"));
    }
    Ok(unpack_datetime(packed, micro).held(digits))
}

/// The packed form that DATETIME2 and JSON share, without fraction.
pub fn unpack_datetime(packed: i64, micro: i64) -> Civil {
    let months = packed >> 22;
    Civil {
        year: months / 13,
        month: months % 13,
        day: packed >> 17 & 31,
        hour: packed >> 12 & 31,
        minute: packed >> 6 & 63,
        second: packed & 63,
        micro,
    }
}

/// DATETIME before `MySQL` 5.6: the decimal number `YYYYMMDDhhmmss`.
pub fn datetime_decimal(cursor: &mut Cursor<'_>) -> Read<Held<i64>> {
    let value = number(cursor.u64()?)?;
    let (date, time) = (value / 1_000_000, value % 1_000_000);
    let civil = Civil {
        year: date / 10_000,
        month: date / 100 % 100,
        day: date % 100,
        hour: time / 10_000,
        minute: time / 100 % 100,
        second: time % 100,
        micro: 0,
    };
    Ok(civil.held(0))
}

#[inline]
pub fn timestamp(cursor: &mut Cursor<'_>, digits: u8) -> Read<Held<i64>> {
    let seconds = i64::from(u32::from_be_bytes(cursor.array()?));
    let micro = fraction(cursor, digits)?;
    Ok(instant(seconds, micro, digits))
}

/// TIMESTAMP before `MySQL` 5.6.
pub fn timestamp_plain(cursor: &mut Cursor<'_>) -> Read<Held<i64>> {
    Ok(instant(i64::from(cursor.u32()?), 0, 0))
}

fn instant(seconds: i64, micro: i64, digits: u8) -> Held<i64> {
    if seconds == 0 && micro == 0 {
        return Held::Beyond(Civil::default().text(digits));
    }
    Held::Value(seconds * MICROS + micro)
}

#[inline]
pub fn time(cursor: &mut Cursor<'_>, digits: u8) -> Read<Held<i64>> {
    let bytes = fraction_bytes(digits);
    let shift = 8 * bytes;
    let packed = number(cursor.be(3 + bytes)?)? - (1 << (23 + shift));
    let size = packed.abs();
    let whole = size >> shift;
    let micro = (size & ((1 << shift) - 1)) * fraction_scale(bytes);
    let value = clock(whole >> 12 & 0x3ff, whole >> 6 & 63, whole & 63) + micro;
    Ok(Held::Value(if packed < 0 { -value } else { value }))
}

/// TIME before `MySQL` 5.6: the signed decimal number `hhhmmss` in three bytes.
pub fn time_decimal(cursor: &mut Cursor<'_>) -> Read<Held<i64>> {
    let value = i64::from((cursor.u24()? << 8).cast_signed() >> 8);
    let size = value.abs();
    let micros = clock(size / 10_000, size / 100 % 100, size % 100);
    Ok(Held::Value(if value < 0 { -micros } else { micros }))
}

pub fn clock(hour: i64, minute: i64, second: i64) -> i64 {
    (hour * 3600 + minute * 60 + second) * MICROS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date_bytes(year: u32, month: u32, day: u32) -> [u8; 3] {
        let [a, b, c, _] = (year << 9 | month << 5 | day).to_le_bytes();
        [a, b, c]
    }

    #[test]
    fn dates_and_what_is_none() {
        let read = |y, m, d| date(&mut Cursor::new(&date_bytes(y, m, d))).ok();
        assert_eq!(read(1970, 1, 1), Some(Held::Value(0)));
        assert_eq!(read(2000, 3, 1), Some(Held::Value(11_017)));
        assert_eq!(read(9999, 12, 31), Some(Held::Value(2_932_896)));
        assert_eq!(read(2024, 2, 29), Some(Held::Value(19_782)));
        assert_eq!(read(2023, 2, 29), Some(Held::Beyond("2023-02-29".into())));
        assert_eq!(read(0, 0, 0), Some(Held::Beyond("0000-00-00".into())));
        assert_eq!(read(2024, 0, 15), Some(Held::Beyond("2024-00-15".into())));
    }

    #[test]
    fn dates_out_of_range_are_kept_as_text() {
        let held = datetime_decimal(&mut Cursor::new(&i64::MAX.to_le_bytes())).ok();
        assert_eq!(held, Some(Held::Beyond("922337203-68-54 77:58:07".into())));
        assert!(datetime_decimal(&mut Cursor::new(&u64::MAX.to_le_bytes())).is_err());
    }

    #[test]
    fn negative_times_with_fractions() {
        // -00:00:00.1 as TIME(1): the complement of 0x800000_0a.
        let read = |bytes: &[u8], digits| time(&mut Cursor::new(bytes), digits).ok();
        assert_eq!(read(&[0x7f, 0xff, 0xff, 0xf6], 1), Some(Held::Value(-100_000)));
        assert_eq!(read(&[0x80, 0x00, 0x01], 0), Some(Held::Value(MICROS)));
        assert_eq!(read(&[0x7f, 0xff, 0xff], 0), Some(Held::Value(-MICROS)));
        assert_eq!(read(&[0x80, 0x10, 0x00, 0, 0, 1], 6), Some(Held::Value(3600 * MICROS + 1)));
    }

    #[test]
    fn zero_timestamp_keeps_its_declared_digits() {
        let zero = timestamp(&mut Cursor::new(&[0; 6]), 3).ok();
        assert_eq!(zero, Some(Held::Beyond("0000-00-00 00:00:00.000".into())));
        let second = timestamp(&mut Cursor::new(&[0, 0, 0, 1, 50]), 2).ok();
        assert_eq!(second, Some(Held::Value(1_500_000)));
    }
}
