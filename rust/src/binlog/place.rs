//! Where in which log file; and the ids that are made of it.
//!
//! ```text
//! id = file number * 10^12 + offset + expanded         expanded: what decompression has added before the offset in this file
//! ```
//! A compressed event can hold more rows than it has bytes. So its inner bytes are counted as if it stood in the file unpacked,
//! and what follows is moved back by the difference. Ids are unique and ordered then, and equal when the file is read again from
//! an offset with its difference. Offsets themselves are always real.

use std::fmt;
use std::sync::Arc;

use super::fault::{Fault, Read};

const FILE_BYTES: u64 = 1_000_000_000_000;
/// The last file number whose ids fit 63 bits.
const LAST_FILE: i64 = 9_223_371;

#[derive(Clone, Debug)]
pub struct Place {
    pub file: Arc<str>,
    /// The id of position 0: (number in the file's name + `renumbered`) * 10^12.
    base: i64,
    /// What is added to the numbers of files, so that ids go on growing where another server's files begin at smaller ones.
    renumbered: i64,
    pub offset: u64,
    /// Bytes that decompression has added before the offset.
    pub expanded: u64,
}

impl Place {
    pub fn new(file: &str, offset: u64, renumbered: i64) -> Read<Self> {
        let digits = file.rsplit_once('.').map_or("", |(_, digits)| digits);
        let number: i64 = digits.parse().ok().filter(|number| *number >= 0).ok_or_else(|| {
            Fault::refused(
                format!("the name '{file}' does not end in a number"),
                "give the file its name on the server, such as binlog.000123",
            )
        })?;
        let number = number.saturating_add(renumbered);
        if !(0..=LAST_FILE).contains(&number) {
            return Err(Fault::refused(
                format!("file number {number} is above {LAST_FILE}, the last that ids can hold"),
                "reset the server's binary logs and load the tables again as a new source",
            ));
        }
        Ok(Self { file: file.into(), base: number * 1_000_000_000_000, renumbered, offset, expanded: 0 })
    }

    pub fn none() -> Self {
        Self { file: "".into(), base: 0, renumbered: 0, offset: 0, expanded: 0 }
    }

    pub fn expanded_by(self, bytes: u64) -> Self {
        Self { expanded: bytes, ..self }
    }

    /// Where another file of the same log goes on. At the beginning of a connection the server names the file that was asked for.
    pub fn in_file(&self, file: &str, offset: u64) -> Read<Self> {
        let expanded = if *file == *self.file { self.expanded } else { 0 };
        Ok(Self::new(file, offset, self.renumbered)?.expanded_by(expanded))
    }

    /// The id of what begins at `offset`, which is the place's own or inside the event that begins there.
    pub fn id(&self, offset: u64) -> Read<i64> {
        let position = offset.saturating_add(self.expanded);
        if position >= FILE_BYTES {
            return Err(Fault::refused(
                "a log file of more than 10^12 bytes, compressed events counted unpacked",
                "set max_binlog_size to 1 GiB; if that is set, change fewer rows in one transaction",
            ));
        }
        Ok(self.base + i64::try_from(position).unwrap_or(0))
    }

    /// True within the same file at a smaller offset.
    pub fn is_before(&self, other: &Self) -> bool {
        self.offset < other.offset && self.file == other.file
    }

    /// True for any earlier place of the same log.
    pub fn precedes(&self, other: &Self) -> bool {
        (self.base, self.offset) < (other.base, other.offset)
    }

    /// The 64 bits of a position of which a header holds the low 32: the first such position from here on.
    pub fn extend(&self, low: u32) -> u64 {
        let position = self.offset & !0xffff_ffff | u64::from(low);
        if position < self.offset { position + (1 << 32) } else { position }
    }

    /// The 64 bits of a position of which a header holds the low 32: the one within 2 GiB of here.
    pub fn nearest(&self, low: u32) -> u64 {
        Self { offset: self.offset.saturating_sub(1 << 31), ..self.clone() }.extend(low)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.file, self.offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_out_of_names_and_positions() {
        let place = Place::new("mysql-bin.000123", 4, 0).ok();
        assert_eq!(place.as_ref().and_then(|place| place.id(4).ok()), Some(123_000_000_000_004));
        assert!(place.is_some_and(|place| place.id(FILE_BYTES).is_err()));
        assert!(Place::new("binlog.9223371", 4, 0).is_ok_and(|place| place.id(FILE_BYTES - 1).is_ok()));
        assert!(Place::new("binlog.9223372", 4, 0).is_err());
        let expanded = Place::new("binlog.000002", 4, 0).map(|place| place.expanded_by(700)).ok();
        assert_eq!(expanded.as_ref().and_then(|place| place.id(40).ok()), Some(2_000_000_000_740));
        assert!(expanded.as_ref().is_some_and(|place| place.id(FILE_BYTES - 701).is_ok()));
        assert!(expanded.as_ref().is_some_and(|place| place.id(FILE_BYTES - 700).is_err()));
        assert!(expanded.is_some_and(|place| place.id(u64::MAX).is_err()));
        assert!(Place::new("binlog", 4, 0).is_err());
        assert!(Place::new("binlog.-1", 4, 0).is_err());
        let renumbered = Place::new("other.000001", 4, 200).and_then(|place| place.in_file("other.000002", 4));
        assert_eq!(renumbered.and_then(|place| place.id(4)).ok(), Some(202_000_000_000_004));
    }

    #[test]
    fn places_before_others() {
        let at = |file, offset| Place::new(file, offset, 0).unwrap_or_else(|_| Place::none());
        assert!(at("binlog.000009", 900).precedes(&at("binlog.000010", 4)));
        assert!(at("binlog.000010", 4).precedes(&at("binlog.000010", 5)));
        assert!(!at("binlog.000010", 5).precedes(&at("binlog.000010", 5)));
        assert!(!at("binlog.000010", 4).precedes(&at("binlog.000009", 900)));
        assert!(!at("binlog.000010", 4).precedes(&Place::none()));
    }

    #[test]
    fn positions_beyond_4_gib() {
        let at = |offset| Place { offset, ..Place::none() };
        assert_eq!(at(4).extend(126), 126);
        assert_eq!(at(0xffff_ff00).extend(16), 0x1_0000_0010);
        assert_eq!(at(0x2_0000_0010).extend(0x20), 0x2_0000_0020);
        assert_eq!(at(0x2_0000_0010).nearest(0x20), 0x2_0000_0020);
        assert_eq!(at(0x2_0000_0010).nearest(8), 0x2_0000_0008);
        assert_eq!(at(0x2_0000_0010).nearest(0xffff_fff0), 0x1_ffff_fff0);
        assert_eq!(at(0x1_ffff_fff0).nearest(0x10), 0x2_0000_0010);
        assert_eq!(at(120).nearest(80), 80);
    }
}
