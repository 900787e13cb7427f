//! DECIMAL(p, s) as the log stores it.
//!
//! ```text
//! integer part: p - s digits, in groups of nine (4 bytes BE each), the incomplete group first
//! fraction:     s digits, in groups of nine, the incomplete group last
//! the first bit is inverted; in a negative number all other bits too
//! ```

use std::fmt::Write;

use arrow_buffer::i256;

use super::cursor::Cursor;
use super::fault::{Fault, Read};

const GROUP_DIGITS: u8 = 9;
const GROUP_BYTES: [u8; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
/// One more than the largest group of so many digits.
const GROUP_LIMIT: [u32; 10] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000];
/// A u64 holds as many bytes, and what they hold, 18 digits; it is much quicker than a u128.
const SHORT_BYTES: usize = 8;
/// A u128 holds 38 digits; the rest of up to 65 goes before them.
const LOW_DIGITS: u32 = 38;

/// Precision and scale, and with them the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub precision: u8,
    pub scale: u8,
    /// The incomplete group in front, the full ones and the incomplete one at the end.
    first: Group,
    full: u8,
    last: Group,
    /// Of all groups.
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    digits: u8,
    bytes: u8,
    limit: u32,
}

impl Group {
    /// The group that `digits` leave when full ones are taken away.
    fn rest_of(digits: u8) -> Self {
        let digits = digits % GROUP_DIGITS;
        let of = usize::from(digits);
        Self {
            digits,
            bytes: GROUP_BYTES.get(of).copied().unwrap_or(0),
            limit: GROUP_LIMIT.get(of).copied().unwrap_or(1),
        }
    }

    const FULL: Self = Self { digits: GROUP_DIGITS, bytes: 4, limit: 1_000_000_000 };

    /// `flip` holds the bits to invert, those of the group lowest.
    #[inline]
    fn read(self, cursor: &mut Cursor<'_>, flip: u32) -> Read<u32> {
        let stored = match self.bytes {
            0 => return Ok(0),
            1 => u32::from(cursor.u8()?),
            2 => u32::from(u16::from_be_bytes(cursor.array()?)),
            3 => {
                let [high, middle, low] = cursor.array()?;
                u32::from_be_bytes([0, high, middle, low])
            }
            _ => u32::from_be_bytes(cursor.array()?),
        };
        let value = stored ^ flip >> (32 - 8 * u32::from(self.bytes));
        if value < self.limit {
            Ok(value)
        } else {
            Err(Fault::corrupt("a DECIMAL with a group of more than its digits"))
        }
    }
}

/// The digits without point: `high * 10^low_places + low`.
#[derive(Default)]
struct Digits {
    high: u128,
    low: u128,
    low_places: u32,
}

impl Layout {
    pub fn new(precision: u8, scale: u8) -> Read<Self> {
        if precision == 0 || precision > 65 || scale > precision || scale > 38 {
            return Err(Fault::corrupt(format!("a DECIMAL({precision},{scale})")));
        }
        let integer = precision - scale;
        let full = integer / GROUP_DIGITS + scale / GROUP_DIGITS;
        let (first, last) = (Group::rest_of(integer), Group::rest_of(scale));
        let bytes = usize::from(first.bytes) + 4 * usize::from(full) + usize::from(last.bytes);
        Ok(Self { precision, scale, first, full, last, bytes })
    }

    pub fn bytes(self) -> usize {
        self.bytes
    }

    /// Gives `take` each group with its layout, the highest first; true when the number is negative.
    #[inline]
    fn read(self, cursor: &mut Cursor<'_>, mut take: impl FnMut(u32, Group)) -> Read<bool> {
        let mut stored = Cursor::new(cursor.bytes(self.bytes())?);
        let negative = { stored }.u8()? & 0x80 == 0;
        let flip = if negative { u32::MAX } else { 0 };
        // Only the first bit of all is inverted once more.
        let mut first_flip = flip ^ 0x8000_0000;
        let groups = std::iter::once(self.first).filter(|group| group.bytes > 0);
        let groups = groups.chain(std::iter::repeat_n(Group::FULL, usize::from(self.full)));
        for group in groups.chain(std::iter::once(self.last)) {
            take(group.read(&mut stored, std::mem::replace(&mut first_flip, flip))?, group);
        }
        Ok(negative)
    }

    /// The value that eight bytes or fewer begin with, taken as one number; None when a group is beyond its digits.
    #[inline]
    fn short(self, stored: [u8; SHORT_BYTES]) -> Option<i64> {
        // The first bit is that of numbers that are not negative.
        let number = u64::from_be_bytes(stored) ^ 1 << 63;
        let negative = number >> 63 == 1;
        let mut left = (if negative { !number } else { number }) >> (8 * (SHORT_BYTES - self.bytes));
        let (mut size, mut unit) = (0_u64, 1_u64);
        let mut take = |bits: u32, limit: u32| {
            let value = left & ((1 << bits) - 1);
            left >>= bits;
            // Wraps only when a group is beyond its digits, and then it does not count.
            size = value.wrapping_mul(unit).wrapping_add(size);
            unit = unit.wrapping_mul(u64::from(limit));
            value < u64::from(limit)
        };
        let mut whole = take(8 * u32::from(self.last.bytes), self.last.limit);
        for _ in 0..self.full {
            whole &= take(32, Group::FULL.limit);
        }
        whole &= take(8 * u32::from(self.first.bytes), self.first.limit);
        let size = i64::try_from(size).ok().filter(|_| whole)?;
        Some(if negative { -size } else { size })
    }

    fn read_digits(self, cursor: &mut Cursor<'_>) -> Read<(bool, Digits)> {
        let mut digits = Digits::default();
        let negative = self.read(cursor, |value, group| digits.push(value, group))?;
        Ok((negative, digits))
    }

    /// The unscaled value, for precisions up to 38.
    #[inline]
    pub fn read_i128(self, cursor: &mut Cursor<'_>) -> Read<i128> {
        let short = { *cursor }.rest().first_chunk().filter(|_| self.bytes <= SHORT_BYTES);
        if let Some(value) = short.and_then(|stored| self.short(*stored)) {
            cursor.skip(self.bytes)?;
            return Ok(i128::from(value));
        }
        let mut size = 0_i128;
        let negative = self.read(cursor, |value, group| size = size * i128::from(group.limit) + i128::from(value))?;
        Ok(if negative { -size } else { size })
    }

    /// The unscaled value, for every precision.
    pub fn read_i256(self, cursor: &mut Cursor<'_>) -> Read<i256> {
        let (negative, digits) = self.read_digits(cursor)?;
        let wide = |part: u128| i256::from_parts(part, 0);
        let size = wide(digits.high)
            .checked_mul(wide(10_u128.pow(digits.low_places)))
            .and_then(|high| high.checked_add(wide(digits.low)))
            .ok_or_else(|| Fault::corrupt("a DECIMAL out of range"))?;
        Ok(if negative { size.wrapping_neg() } else { size })
    }

    /// The value as text with all digits of its scale.
    pub fn read_text(self, cursor: &mut Cursor<'_>) -> Read<String> {
        let (negative, digits) = self.read_digits(cursor)?;
        let mut text = String::new();
        if digits.high > 0 {
            let _ = write!(text, "{}{:0width$}", digits.high, digits.low, width = digits.low_places as usize);
        } else {
            let _ = write!(text, "{:0width$}", digits.low, width = usize::from(self.scale) + 1);
        }
        let scale = usize::from(self.scale);
        if scale > 0 {
            text.insert(text.len().saturating_sub(scale), '.');
        }
        if negative {
            text.insert(0, '-');
        }
        Ok(text)
    }
}

impl Digits {
    #[inline]
    fn push(&mut self, value: u32, group: Group) {
        if self.low_places + u32::from(group.digits) > LOW_DIGITS {
            self.high = std::mem::take(&mut self.low);
            self.low_places = 0;
        }
        self.low = self.low * u128::from(group.limit) + u128::from(value);
        self.low_places += u32::from(group.digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T>(precision: u8, scale: u8, bytes: &[u8], by: impl Fn(Layout, &mut Cursor<'_>) -> Read<T>) -> Option<T> {
        let mut cursor = Cursor::new(bytes);
        let value = by(Layout::new(precision, scale).ok()?, &mut cursor).ok();
        value.filter(|_| cursor.is_empty())
    }

    #[test]
    fn the_manual_s_example_and_its_negative() {
        // 1234567890.1234 as DECIMAL(14,4), from the comment in MySQL's decimal.c.
        let bytes = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        let negative = bytes.map(|byte: u8| !byte);
        assert_eq!(read(14, 4, &bytes, Layout::read_i128), Some(12_345_678_901_234));
        assert_eq!(read(14, 4, &negative, Layout::read_i128), Some(-12_345_678_901_234));
        assert_eq!(read(14, 4, &negative, Layout::read_text).as_deref(), Some("-1234567890.1234"));
    }

    #[test]
    fn short_ones_are_read_alike_with_and_without_more_behind_them() {
        for (precision, scale, stored, value) in [
            (6, 2, &[0x84, 0xd2, 0x38][..], Some(123_456)),
            (6, 2, &[0x7b, 0x2d, 0xc7], Some(-123_456)),
            (2, 2, &[0xe3], Some(99)),
            (18, 9, &[0xbb, 0x9a, 0xc9, 0xff, 0x3b, 0x9a, 0xc9, 0xff], Some(999_999_999_999_999_999)),
            (18, 9, &[0x44, 0x65, 0x36, 0x00, 0xc4, 0x65, 0x36, 0x00], Some(-999_999_999_999_999_999)),
            (6, 2, &[0x84, 0xd2, 0x64], None),
            (6, 2, &[0xa7, 0x10, 0x00], None),
            (18, 9, &[0xbb, 0x9a, 0xca, 0x00, 0, 0, 0, 0], None),
        ] {
            assert_eq!(read(precision, scale, stored, Layout::read_i128), value);
            let more = [stored, &[0xff; 8]].concat();
            let mut cursor = Cursor::new(&more);
            let found = Layout::new(precision, scale).and_then(|layout| layout.read_i128(&mut cursor)).ok();
            assert_eq!((found, found.map(|_| cursor.left())), (value, value.map(|_| 8)));
        }
    }

    #[test]
    fn fractions_only_and_more_digits_than_64_bits_hold() {
        assert_eq!(read(4, 4, &[0x84, 0xd2], Layout::read_i128), Some(1234));
        let bytes = [0x80 | 0x63, 0x3b, 0x9a, 0xc9, 0xff, 0x3b, 0x9a, 0xc9, 0xff];
        assert_eq!(read(20, 9, &bytes, Layout::read_i128), Some(10_i128.pow(20) - 1));
        assert_eq!(read(20, 9, &bytes.map(|byte: u8| !byte), Layout::read_i128), Some(1 - 10_i128.pow(20)));
    }

    #[test]
    fn sixty_five_digits() {
        let mut bytes = vec![0x80 | 5, 0xf5, 0xe0, 0xff];
        for _ in 0..6 {
            bytes.extend([0x3b, 0x9a, 0xc9, 0xff]);
        }
        bytes.extend([0x03, 0xe7]);
        let text = read(65, 30, &bytes, Layout::read_text);
        assert_eq!(text, Some(format!("{}.{}", "9".repeat(35), "9".repeat(30))));
        let value = read(65, 30, &bytes, Layout::read_i256).map(|value| value.to_string());
        assert_eq!(value, Some("9".repeat(65)));
    }

    #[test]
    fn a_group_beyond_its_digits_is_corrupt() {
        assert_eq!(read(9, 0, &[0xff, 0xff, 0xff, 0xff], Layout::read_i128), None);
    }
}
