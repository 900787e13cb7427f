//! `MariaDB`'s UUID, INET4 and INET6: fixed bytes in the log, which looks like BINARY there, and text for everybody else.

use std::fmt::Write;
use std::net::Ipv4Addr;

use super::columns::{Traits, code};
use super::fault::{Fault, Read};
use super::lanes::Text;
use super::notes::Notes;
use super::strings::Strings;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    Uuid,
    Inet4,
    Inet6,
}

impl Address {
    /// By the type's name in lower case.
    pub fn named(kind: &str) -> Option<Self> {
        Some(match kind {
            "uuid" => Self::Uuid,
            "inet4" => Self::Inet4,
            "inet6" => Self::Inet6,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Uuid => "uuid",
            Self::Inet4 => "inet4",
            Self::Inet6 => "inet6",
        }
    }

    fn bytes(self) -> usize {
        if self == Self::Inet4 { 4 } else { 16 }
    }

    /// Whether a column looks as this type does: BINARY of its length.
    pub fn fits(self, traits: &Traits) -> bool {
        traits.real_code() == code::STRING && traits.char_bytes() == self.bytes()
    }

    /// The text of bytes whose trailing zeros are cut.
    fn text(self, stored: &[u8]) -> Read<String> {
        let mut bytes = [0; 16];
        bytes.get_mut(..stored.len()).filter(|_| stored.len() <= self.bytes()).map_or_else(
            || Err(Fault::corrupt(format!("an {} of {} bytes", self.name(), stored.len()))),
            |place| {
                place.copy_from_slice(stored);
                Ok(())
            },
        )?;
        Ok(match self {
            Self::Uuid => uuid(u128::from_be_bytes(bytes)),
            Self::Inet4 => {
                let [a, b, c, d, ..] = bytes;
                Ipv4Addr::new(a, b, c, d).to_string()
            }
            Self::Inet6 => inet6(bytes),
        })
    }
}

impl Text for Address {
    fn read(&mut self, bytes: &[u8], into: &mut Strings, _column: usize, _notes: &mut Notes) -> Read<()> {
        into.push(self.text(bytes)?.as_bytes())
    }
}

fn uuid(value: u128) -> String {
    let digits = format!("{value:032x}");
    let mut text = String::with_capacity(36);
    for (index, digit) in digits.char_indices() {
        if matches!(index, 8 | 12 | 16 | 20) {
            text.push('-');
        }
        text.push(digit);
    }
    text
}

/// As the server writes it: the first longest run of zeros is `::` (a run of one too), and an IPv4 address at the end stays one.
fn inet6(bytes: [u8; 16]) -> String {
    let words: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|&word| u16::from_be_bytes(word)).collect();
    let (gap, length) = longest_gap(&words);
    let mut text = String::new();
    let mut index = 0;
    while let Some(&word) = words.get(index) {
        if index == gap && length > 0 {
            text.push_str(if index == 0 { "::" } else { ":" });
            index += length;
            continue;
        }
        if index == 6 && gap == 0 && (length == 6 || (length == 5 && words.get(5) == Some(&0xffff))) {
            let [.., a, b, c, d] = bytes;
            return text + &Ipv4Addr::new(a, b, c, d).to_string();
        }
        let _ = write!(text, "{word:x}");
        if index < 7 {
            text.push(':');
        }
        index += 1;
    }
    text
}

/// Where the first of the longest runs of zeros begins, and how long it is.
fn longest_gap(words: &[u16]) -> (usize, usize) {
    let (mut best, mut run) = ((0, 0), 0);
    for (index, &word) in words.iter().enumerate() {
        run = if word == 0 { run + 1 } else { 0 };
        if run > best.1 {
            best = (index + 1 - run, run);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_as_the_server_writes_them() {
        for (address, stored, text) in [
            (Address::Inet4, &[10, 0, 0, 1][..], "10.0.0.1"),
            (Address::Inet4, &[], "0.0.0.0"),
            (Address::Inet6, &[], "::"),
            (Address::Inet6, &[0xfe, 0x80], "fe80::"),
            (Address::Inet6, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], "::1"),
            (Address::Inet6, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 1, 2, 3, 4], "::ffff:1.2.3.4"),
            (Address::Inet6, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4], "::1.2.3.4"),
            (Address::Inet6, &[0, 1, 0, 0, 0, 2, 0, 3, 0, 0, 0, 4, 0, 5, 0, 6], "1::2:3:0:4:5:6"),
            (Address::Uuid, &[0xad, 0x94, 0x68], "ad946800-0000-0000-0000-000000000000"),
        ] {
            assert_eq!(address.text(stored).ok().as_deref(), Some(text));
        }
        assert!(Address::Inet4.text(&[1, 2, 3, 4, 5]).is_err());
        assert!(Address::Uuid.text(&[0; 17]).is_err());
    }
}
