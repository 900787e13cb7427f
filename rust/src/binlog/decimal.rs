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

const GROUP_DIGITS: u32 = 9;
const GROUP_BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
const MAX_BYTES: usize = 32;
/// A u128 holds 38 digits; the rest of up to 65 goes before them.
const LOW_DIGITS: u32 = 38;

/// Precision and scale, and with them the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub precision: u8,
    pub scale: u8,
}

/// The digits without point: `high * 10^low_places + low`, with a sign.
struct Digits {
    negative: bool,
    high: u128,
    low: u128,
    low_places: u32,
}

impl Layout {
    pub fn new(precision: u8, scale: u8) -> Read<Self> {
        if precision == 0 || precision > 65 || scale > precision || scale > 38 {
            return Err(Fault::corrupt(format!("a DECIMAL({precision},{scale})")));
        }
        Ok(Self { precision, scale })
    }

    fn part_bytes(digits: u32) -> usize {
        let rest = GROUP_BYTES.get((digits % GROUP_DIGITS) as usize).copied().unwrap_or(0);
        (digits / GROUP_DIGITS) as usize * 4 + rest
    }

    fn integer_digits(self) -> u32 {
        u32::from(self.precision - self.scale)
    }

    pub fn bytes(self) -> usize {
        Self::part_bytes(self.integer_digits()) + Self::part_bytes(u32::from(self.scale))
    }

    fn read(self, cursor: &mut Cursor<'_>) -> Read<Digits> {
        let mut buffer = [0_u8; MAX_BYTES];
        let stored = cursor.bytes(self.bytes())?;
        let negative = stored.first().is_some_and(|byte| byte & 0x80 == 0);
        let mask = if negative { 0xff } else { 0 };
        for (to, from) in buffer.iter_mut().zip(stored) {
            *to = from ^ mask;
        }
        if let Some(first) = buffer.first_mut() {
            *first ^= 0x80;
        }
        let mut groups = Cursor::new(&buffer);
        let mut digits = Digits { negative, high: 0, low: 0, low_places: 0 };
        let integer = self.integer_digits();
        digits.push(&mut groups, integer % GROUP_DIGITS)?;
        for _ in 0..integer / GROUP_DIGITS + u32::from(self.scale) / GROUP_DIGITS {
            digits.push(&mut groups, GROUP_DIGITS)?;
        }
        digits.push(&mut groups, u32::from(self.scale) % GROUP_DIGITS)?;
        Ok(digits)
    }

    /// The unscaled value, for precisions up to 38.
    pub fn read_i128(self, cursor: &mut Cursor<'_>) -> Read<i128> {
        let digits = self.read(cursor)?;
        let size = i128::try_from(digits.low).map_err(|_| Fault::corrupt("a DECIMAL out of range"))?;
        Ok(if digits.negative { -size } else { size })
    }

    /// The unscaled value, for every precision.
    pub fn read_i256(self, cursor: &mut Cursor<'_>) -> Read<i256> {
        let digits = self.read(cursor)?;
        let wide = |part: u128| i256::from_parts(part, 0);
        let size = wide(digits.high)
            .checked_mul(wide(10_u128.pow(digits.low_places)))
            .and_then(|high| high.checked_add(wide(digits.low)))
            .ok_or_else(|| Fault::corrupt("a DECIMAL out of range"))?;
        Ok(if digits.negative { size.wrapping_neg() } else { size })
    }

    /// The value as text with all digits of its scale.
    pub fn read_text(self, cursor: &mut Cursor<'_>) -> Read<String> {
        let digits = self.read(cursor)?;
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
        if digits.negative {
            text.insert(0, '-');
        }
        Ok(text)
    }
}

impl Digits {
    #[inline]
    fn push(&mut self, groups: &mut Cursor<'_>, count: u32) -> Read<()> {
        let bytes = GROUP_BYTES.get(count as usize).copied().unwrap_or(4);
        let group = groups.be(bytes)?;
        if group >= 10_u64.pow(count) {
            return Err(Fault::corrupt("a DECIMAL with a group of more than its digits"));
        }
        if self.low_places + count > LOW_DIGITS {
            self.high = std::mem::take(&mut self.low);
            self.low_places = 0;
        }
        self.low = self.low * u128::from(10_u64.pow(count)) + u128::from(group);
        self.low_places += count;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_s_example_and_its_negative() {
        // 1234567890.1234 as DECIMAL(14,4), from the comment in MySQL's decimal.c.
        let bytes = [0x81, 0x0d, 0xfb, 0x38, 0xd2, 0x04, 0xd2];
        let negative = bytes.map(|byte: u8| !byte);
        let layout = Layout { precision: 14, scale: 4 };
        assert_eq!(layout.bytes(), 7);
        assert_eq!(layout.read_i128(&mut Cursor::new(&bytes)).ok(), Some(12_345_678_901_234));
        assert_eq!(layout.read_i128(&mut Cursor::new(&negative)).ok(), Some(-12_345_678_901_234));
        assert_eq!(layout.read_text(&mut Cursor::new(&negative)).ok().as_deref(), Some("-1234567890.1234"));
    }

    #[test]
    fn sixty_five_digits() {
        let layout = Layout { precision: 65, scale: 30 };
        let mut bytes = vec![0x80 | 5, 0xf5, 0xe0, 0xff];
        for _ in 0..3 {
            bytes.extend([0x3b, 0x9a, 0xc9, 0xff]);
        }
        for _ in 0..3 {
            bytes.extend([0x3b, 0x9a, 0xc9, 0xff]);
        }
        bytes.extend([0x03, 0xe7]);
        assert_eq!(layout.bytes(), bytes.len());
        let text = layout.read_text(&mut Cursor::new(&bytes)).ok();
        assert_eq!(text, Some(format!("{}.{}", "9".repeat(35), "9".repeat(30))));
        let value = layout.read_i256(&mut Cursor::new(&bytes)).ok().map(|value| value.to_string());
        assert_eq!(value, Some("9".repeat(65)));
    }

    #[test]
    fn a_group_beyond_its_digits_is_corrupt() {
        let layout = Layout { precision: 9, scale: 0 };
        assert!(layout.read_i128(&mut Cursor::new(&[0xff, 0xff, 0xff, 0xff])).is_err());
    }
}
