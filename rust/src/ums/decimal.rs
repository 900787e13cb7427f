//! Decimal numbers between text and integers of a fixed scale. Text may have an exponent (Java writes `1E+3`).

use arrow_buffer::i256;

const MAX_DIGITS: usize = 76;
const FAST_DIGITS: usize = 18;
/// Of ten: a power made anew for each number takes longer than all else.
const POWERS: [i128; 39] = powers();

#[allow(clippy::indexing_slicing, reason = "checked when it is compiled")]
const fn powers() -> [i128; 39] {
    let mut powers = [1; 39];
    let mut at = 1;
    while at < powers.len() {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
}

/// A number in units of its last place.
#[derive(Debug)]
struct Scaled {
    negative: bool,
    /// ASCII digits without leading zeros; empty is zero.
    digits: Vec<u8>,
}

/// A number as an integer of `scale` decimal places; None when it is no number, has more places, or too many digits.
pub fn read_i128(text: &str, precision: u8, scale: i8) -> Option<i128> {
    if let Some(value) = read_short(text.as_bytes(), precision, scale) {
        return Some(value);
    }
    let scaled = scale_text(text.as_bytes(), scale)?;
    if scaled.digits.len() > usize::from(precision.min(38)) {
        return None;
    }
    let size = scaled.digits.iter().fold(0_i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    Some(if scaled.negative { -size } else { size })
}

pub fn read_i256(text: &str, precision: u8, scale: i8) -> Option<i256> {
    let scaled = scale_text(text.as_bytes(), scale)?;
    if scaled.digits.len() > usize::from(precision).min(MAX_DIGITS) {
        return None;
    }
    let ten = i256::from_i128(10);
    let size = scaled.digits.iter().try_fold(i256::ZERO, |value, digit| {
        value.checked_mul(ten)?.checked_add(i256::from_i128(i128::from(digit - b'0')))
    })?;
    Some(if scaled.negative { size.checked_neg()? } else { size })
}

/// Plain numbers of few digits, which most are.
fn read_short(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, text),
    };
    if digits.len() > FAST_DIGITS {
        return None;
    }
    let mut value: i64 = 0;
    let mut places: Option<usize> = None;
    for byte in digits {
        match byte {
            b'0'..=b'9' => {
                value = value * 10 + i64::from(byte - b'0');
                places = places.map(|places| places + 1);
            }
            b'.' if places.is_none() => places = Some(0),
            _ => return None,
        }
    }
    let missing = usize::try_from(scale).ok()?.checked_sub(places.unwrap_or(0))?;
    if digits.is_empty() || digits.first() == Some(&b'.') || missing > FAST_DIGITS {
        return None;
    }
    let value = i128::from(value) * POWERS.get(missing)?;
    if value >= *POWERS.get(usize::from(precision.min(38)))? {
        return None;
    }
    Some(if negative { -value } else { value })
}

fn scale_text(text: &[u8], scale: i8) -> Option<Scaled> {
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let at = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match at {
        Some(at) => (text.get(..at)?, std::str::from_utf8(text.get(at + 1..)?).ok()?.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.');
    let (whole, fraction) = match point {
        Some(at) => (mantissa.get(..at)?, mantissa.get(at + 1..)?),
        None => (mantissa, &[][..]),
    };
    if whole.len() + fraction.len() == 0 || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let mut digits: Vec<u8> = whole.iter().chain(fraction).copied().skip_while(|digit| *digit == b'0').collect();
    if digits.is_empty() {
        return Some(Scaled { negative: false, digits });
    }
    // The number is digits * 10^shift in units of its last place.
    let shift = i64::from(exponent) - i64::try_from(fraction.len()).ok()? + i64::from(scale);
    if shift >= 0 {
        let zeros = usize::try_from(shift).ok().filter(|zeros| digits.len() + zeros <= MAX_DIGITS)?;
        digits.resize(digits.len() + zeros, b'0');
    } else {
        let dropped = usize::try_from(-shift).ok().filter(|dropped| *dropped < digits.len())?;
        let kept = digits.len() - dropped;
        if digits.get(kept..)?.iter().any(|digit| *digit != b'0') {
            return None;
        }
        digits.truncate(kept);
    }
    Some(Scaled { negative, digits })
}

/// Writes an integer's digits with a point `scale` places from the right.
pub fn write(out: &mut Vec<u8>, digits: &str, scale: i8) {
    let digits = match digits.strip_prefix('-') {
        Some(rest) => {
            out.push(b'-');
            rest.as_bytes()
        }
        None => digits.as_bytes(),
    };
    let Ok(places) = usize::try_from(scale) else {
        out.extend_from_slice(digits);
        let zeros = if digits == b"0" { 0 } else { usize::from(scale.unsigned_abs()) };
        out.resize(out.len() + zeros, b'0');
        return;
    };
    let whole = digits.len().saturating_sub(places);
    if whole == 0 {
        out.push(b'0');
    }
    out.extend_from_slice(digits.get(..whole).unwrap_or_default());
    if places > 0 {
        out.push(b'.');
        out.resize(out.len() + (places + whole - digits.len()), b'0');
        out.extend_from_slice(digits.get(whole..).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_what_they_are() {
        for (text, precision, scale, value) in [
            ("12.50", 10, 2, Some(1250)),
            ("-0.5", 3, 1, Some(-5)),
            ("12.5000", 10, 2, Some(1250)),
            ("12.501", 10, 2, None),
            ("1.25E+3", 10, 2, Some(125_000)),
            ("125e-1", 10, 2, Some(1250)),
            ("+7", 10, 0, Some(7)),
            ("0E-999999999", 10, 2, Some(0)),
            ("1E999999999", 38, 2, None),
            ("1E99999999999", 38, 2, None),
            ("99999999", 10, 2, Some(9_999_999_900)),
            ("100000000", 10, 2, None),
            ("100000000000000000000000000000000000000", 38, 0, None),
            ("99999999999999999999999999999999999999", 38, 0, Some(10_i128.pow(38) - 1)),
            (".5", 3, 1, Some(5)),
            ("5.", 3, 1, Some(50)),
            ("", 3, 1, None),
            (".", 3, 1, None),
            ("1.2.3", 9, 4, None),
            ("1200", 4, -2, Some(12)),
            ("abc", 9, 4, None),
        ] {
            assert_eq!(read_i128(text, precision, scale), value, "{text}");
            assert_eq!(read_i256(text, precision, scale), value.map(i256::from_i128), "{text}");
        }
    }

    #[test]
    fn digits_with_a_point() {
        for (digits, scale, text) in
            [("0", 2, "0.00"), ("-5", 3, "-0.005"), ("1250", 2, "12.50"), ("7", 0, "7"), ("12", -2, "1200")]
        {
            let mut out = Vec::new();
            write(&mut out, digits, scale);
            assert_eq!(String::from_utf8(out).unwrap_or_default(), text);
        }
    }
}
