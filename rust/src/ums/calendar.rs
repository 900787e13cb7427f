//! Dates and times between numbers and the text of UMS.
//!
//! ```text
//! date      [-]YYYY-MM-DD                 the year has four digits or more; a reader takes `/` for `-`
//! datetime  date HH:MM:SS[.f…]            one to nine digits; a reader takes `T` for the space
//! time      [-]HH:MM:SS[.f…]              hours may exceed 24 (`MySQL`'s TIME is a duration)
//! ```

use crate::binlog::temporal::Civil;

pub const DAY_SECONDS: i64 = 86_400;
const MAX_YEAR_DIGITS: usize = 7;
const NANO_DIGITS: u32 = 9;

/// Whole seconds since 1970 and the nanoseconds above them, or a duration's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub seconds: i64,
    pub nanos: u32,
}

/// Year, month and day of a number of days since 1970-01-01 (the inverse of `Civil::days`; years begin in March there too).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

/// The digits of a number below 100.
fn two(value: i64) -> [u8; 2] {
    let digits = u8::try_from(value).unwrap_or(0);
    [b'0' + digits / 10 % 10, b'0' + digits % 10]
}

/// The digits of a fraction of a second.
fn nine(nanos: u32) -> [u8; NANO_DIGITS as usize] {
    let mut text = [b'0'; NANO_DIGITS as usize];
    let mut rest = nanos;
    for digit in text.iter_mut().rev() {
        *digit += u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    text
}

pub fn write_date(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = civil(days);
    let (month, day) = (two(month), two(day));
    let rest = [b'-', month[0], month[1], b'-', day[0], day[1]];
    if let Ok(short @ 0..=9999) = i16::try_from(year) {
        let text = [two(i64::from(short / 100)), two(i64::from(short % 100))];
        out.extend_from_slice(text.as_flattened());
        out.extend_from_slice(&rest);
        return;
    }
    out.extend_from_slice(if year < 0 { b"-" } else { b"" });
    out.extend_from_slice(format!("{:04}", year.abs()).as_bytes());
    out.extend_from_slice(&rest);
}

pub fn write_datetime(out: &mut Vec<u8>, moment: Moment, digits: u32) {
    write_date(out, moment.seconds.div_euclid(DAY_SECONDS));
    out.push(b' ');
    write_clock(out, Moment { seconds: moment.seconds.rem_euclid(DAY_SECONDS), ..moment }, digits);
}

/// `HH:MM:SS[.f…]` of a size of time.
pub fn write_clock(out: &mut Vec<u8>, size: Moment, digits: u32) {
    let hours = size.seconds / 3600;
    let (minutes, seconds) = (two(size.seconds / 60 % 60), two(size.seconds % 60));
    if hours < 100 {
        out.extend_from_slice(&two(hours));
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(hours).as_bytes());
    }
    out.extend_from_slice(&[b':', minutes[0], minutes[1], b':', seconds[0], seconds[1]]);
    if digits > 0 {
        out.push(b'.');
        out.extend_from_slice(nine(size.nanos).get(..digits.min(NANO_DIGITS) as usize).unwrap_or_default());
    }
}

/// Reads from the left; every method gives None when what it wants is not there.
struct Text<'a>(&'a [u8]);

impl Text<'_> {
    fn byte(&mut self, wanted: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        if !wanted.contains(first) {
            return None;
        }
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self, min_digits: usize, max_digits: usize) -> Option<i64> {
        let digits = self.0.iter().take(max_digits).take_while(|byte| byte.is_ascii_digit()).count();
        if digits < min_digits {
            return None;
        }
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        Some(number.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0')))
    }

    fn date(&mut self) -> Option<i64> {
        let sign = if self.byte(b"-").is_some() { -1 } else { 1 };
        let year = sign * self.number(4, MAX_YEAR_DIGITS)?;
        let separator = self.byte(b"-/")?;
        let month = self.number(1, 2)?;
        self.byte(&[separator])?;
        let day = self.number(1, 2)?;
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let days = Civil { year, month, day, ..Civil::default() }.days();
        (day <= 28 || civil(days) == (year, month, day)).then_some(days)
    }

    fn clock(&mut self, max_hour_digits: usize) -> Option<Moment> {
        let hours = self.number(1, max_hour_digits)?;
        self.byte(b":")?;
        let minutes = self.number(2, 2)?;
        self.byte(b":")?;
        let seconds = self.number(2, 2)?;
        if minutes > 59 || seconds > 59 {
            return None;
        }
        let mut nanos = 0;
        if self.byte(b".").is_some() {
            let before = self.0.len();
            let fraction = u32::try_from(self.number(1, NANO_DIGITS as usize)?).ok()?;
            let digits = u32::try_from(before - self.0.len()).ok()?;
            nanos = fraction * 10_u32.pow(NANO_DIGITS - digits);
        }
        Some(Moment { seconds: hours * 3600 + minutes * 60 + seconds, nanos })
    }

    fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

pub fn read_datetime(text: &str) -> Option<Moment> {
    let mut text = Text(text.as_bytes());
    let day = text.date()? * DAY_SECONDS;
    if text.0.is_empty() {
        return Some(Moment { seconds: day, nanos: 0 });
    }
    text.byte(b" T")?;
    let clock = text.clock(2)?;
    if clock.seconds >= DAY_SECONDS {
        return None;
    }
    text.end(Moment { seconds: day + clock.seconds, ..clock })
}

/// Days since 1970; also of a text with a time, if that is midnight.
pub fn read_date(text: &str) -> Option<i64> {
    let moment = read_datetime(text)?;
    (moment.nanos == 0 && moment.seconds % DAY_SECONDS == 0).then_some(moment.seconds / DAY_SECONDS)
}

/// A size of time and whether it is negative.
pub fn read_time(text: &str) -> Option<(bool, Moment)> {
    let mut text = Text(text.as_bytes());
    let negative = text.byte(b"-").is_some();
    let size = text.clock(10)?;
    text.end((negative, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date_text(days: i64) -> String {
        let mut out = Vec::new();
        write_date(&mut out, days);
        String::from_utf8(out).unwrap_or_default()
    }

    #[test]
    fn every_day_of_a_long_time_comes_back() {
        for days in (-1_000_000..3_000_000).step_by(7) {
            assert_eq!(read_date(&date_text(days)), Some(days));
        }
        assert_eq!(date_text(0), "1970-01-01");
        assert_eq!(date_text(11_016), "2000-02-29");
        for days in [i64::from(i32::MIN), i64::from(i32::MAX)] {
            assert_eq!(read_date(&date_text(days)), Some(days));
        }
    }

    #[test]
    fn what_no_calendar_has_is_none() {
        for text in ["", "2024-02-30", "0000-00-00", "2024-13-01", "24-01-01", "2024-01-01 24:00:00", "2024-01-01x"] {
            assert_eq!(read_datetime(text), None, "{text}");
        }
        assert_eq!(read_date("2024-01-01 00:00:01"), None);
        assert_eq!(read_date("2024/1/2 00:00:00.000"), Some(19_724));
        assert_eq!(read_datetime("1970-01-01T00:00:01.5"), Some(Moment { seconds: 1, nanos: 500_000_000 }));
    }

    #[test]
    fn times_beyond_a_day() {
        assert_eq!(read_time("-838:59:59.000001"), Some((true, Moment { seconds: 3_020_399, nanos: 1000 })));
        assert_eq!(read_time("1:60:00"), None);
        let mut out = Vec::new();
        write_clock(&mut out, Moment { seconds: 3_020_399, nanos: 1000 }, 6);
        assert_eq!(out, b"838:59:59.000001");
    }
}
