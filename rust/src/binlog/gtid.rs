//! Names of transactions, and sets of them: what a source has executed, whichever server tells it.
//!
//! ```text
//! MySQL     source uuid[:tag]:number          set: 3e11fa47-…:1-23:30,3e11fa47-…:blue:1      any numbers, as runs
//! MariaDB   domain-server-sequence            set: 0-1-23,1-2-7                              the last of each domain: all before it are in
//!
//! on the wire (`PREVIOUS_GTIDS`, `COM_BINLOG_DUMP_GTID`), numbers u64:
//!   count | (uuid 16 | runs | (first, behind the last)*)*
//!   with tags: the count is 1 << 56 | count << 8 | 1, and between uuid and runs stands the tag: length << 1 (u8), characters
//! ```

use std::collections::BTreeMap;
use std::fmt;

use super::cursor::Cursor;
use super::fault::{Fault, Read};

/// `MySQL` counts with 63 bits.
const LAST_NUMBER: u64 = i64::MAX.cast_unsigned();
const MAX_TAG_BYTES: usize = 32;

/// The name of a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Gtid {
    #[default]
    None,
    MySql {
        origin: Origin,
        number: u64,
    },
    MariaDb {
        domain: u32,
        server: u32,
        sequence: u64,
    },
}

/// Whose numbers they are in `MySQL`: a server, and a tag (empty for none).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    pub source: [u8; 16],
    pub tag: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.source.iter().enumerate() {
            write!(f, "{}{byte:02x}", if matches!(place, 4 | 6 | 8 | 10) { "-" } else { "" })?;
        }
        write!(f, "{}{}", if self.tag.is_empty() { "" } else { ":" }, self.tag)
    }
}

impl fmt::Display for Gtid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::MariaDb { domain, server, sequence } => write!(f, "{domain}-{server}-{sequence}"),
            Self::MySql { origin, number } => write!(f, "{origin}:{number}"),
        }
    }
}

impl Gtid {
    /// An error when no server writes this tag or number, so that what is kept of it reads back.
    pub fn mysql(source: [u8; 16], tag: String, number: u64) -> Read<Self> {
        if !(1..=LAST_NUMBER).contains(&number) {
            return Err(Fault::corrupt(format!("a GTID cannot have the number {number}")));
        }
        Ok(Self::MySql { origin: Origin { source, tag: written_tag(tag)? }, number })
    }
}

/// Numbers as runs (first, last), ascending, never touching each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Runs(Vec<(u64, u64)>);

impl Runs {
    /// Adds first..=last.
    fn add(&mut self, first: u64, last: u64) {
        // Nearly always the number behind the newest.
        if let Some(newest) =
            self.0.last_mut().filter(|newest| newest.0 <= first && first <= newest.1.saturating_add(1))
        {
            newest.1 = newest.1.max(last);
            return;
        }
        let from = self.0.partition_point(|run| run.1.saturating_add(1) < first);
        let to = self.0.partition_point(|run| run.0 <= last.saturating_add(1));
        let touched = self.0.get(from..to).unwrap_or_default();
        let merged = touched.iter().fold((first, last), |all, run| (all.0.min(run.0), all.1.max(run.1)));
        self.0.splice(from..to, [merged]);
    }

    fn remove(&mut self, first: u64, last: u64) {
        let mut left = Vec::with_capacity(self.0.len() + 1);
        for &(start, end) in &self.0 {
            if end < first || last < start {
                left.push((start, end));
                continue;
            }
            if start < first {
                left.push((start, first - 1));
            }
            if end > last {
                left.push((last + 1, end));
            }
        }
        self.0 = left;
    }

    fn covers(&self, first: u64, last: u64) -> bool {
        let place = self.0.partition_point(|run| run.1 < first);
        self.0.get(place).is_some_and(|run| run.0 <= first && last <= run.1)
    }
}

/// A set of transactions. The empty set belongs to both families.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GtidSet {
    origins: BTreeMap<Origin, Runs>,
    domains: BTreeMap<u32, (u32, u64)>,
}

impl GtidSet {
    /// The set of a text as servers write it (`@@gtid_executed`, `@@gtid_current_pos`), spaces and line ends aside.
    pub fn parse(text: &str) -> Read<Self> {
        let mut set = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            set.parse_part(part).ok_or_else(|| Fault::corrupt(format!("'{part}' is not a GTID or a set of them")))?;
        }
        if !set.origins.is_empty() && !set.domains.is_empty() {
            return Err(Fault::corrupt(format!("'{text}' mixes the GTIDs of MySQL and MariaDB")));
        }
        Ok(set)
    }

    fn parse_part(&mut self, part: &str) -> Option<()> {
        let mut pieces = part.split(':').map(str::trim);
        let first = pieces.next()?;
        if let Some(source) = uuid(first) {
            let mut origin = Origin { source, tag: String::new() };
            let mut numbered = false;
            for piece in pieces {
                numbered = !is_tag(piece);
                if !numbered {
                    origin.tag = piece.to_ascii_lowercase();
                    continue;
                }
                let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
                let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
                if first == 0 || last < first || last > LAST_NUMBER {
                    return None;
                }
                self.origins.entry(origin.clone()).or_default().add(first, last);
            }
            return numbered.then_some(());
        }
        let mut numbers = first.split('-').map(str::trim);
        let (domain, server) = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
        let sequence = numbers.next()?.parse().ok()?;
        if numbers.next().is_some() || pieces.next().is_some() {
            return None;
        }
        self.add(&Gtid::MariaDb { domain, server, sequence });
        Some(())
    }

    /// The set of a `PREVIOUS_GTIDS` event's body.
    pub fn read_mysql(mut body: Cursor<'_>) -> Read<Self> {
        const TAGGED: u64 = 1;
        let mut set = Self::default();
        let count = body.u64()?;
        let tagged = count >> 56 == TAGGED;
        let count = if tagged { count << 8 >> 16 } else { count };
        for _ in 0..count {
            let source = body.array()?;
            let tag = if tagged { tag(&mut body)? } else { String::new() };
            let runs = body.u64()?;
            let mut known = Runs::default();
            for _ in 0..runs {
                let (first, behind) = (body.u64()?, body.u64()?);
                let last = behind.checked_sub(1).filter(|last| first > 0 && (first..=LAST_NUMBER).contains(last));
                known.add(first, last.ok_or_else(|| Fault::corrupt("a run of GTIDs without a member"))?);
            }
            if runs == 0 {
                return Err(Fault::corrupt("a source of GTIDs without one"));
            }
            set.origins.insert(Origin { source, tag }, known);
        }
        Ok(set)
    }

    /// The set of a `MariaDB` `GTID_LIST` event's body.
    pub fn read_mariadb(mut body: Cursor<'_>) -> Read<Self> {
        const COUNT_BITS: u32 = 0x0fff_ffff;
        let mut set = Self::default();
        for _ in 0..body.u32()? & COUNT_BITS {
            let (domain, server, sequence) = (body.u32()?, body.u32()?, body.u64()?);
            set.add(&Gtid::MariaDb { domain, server, sequence });
        }
        Ok(set)
    }

    /// As `COM_BINLOG_DUMP_GTID` wants it, of `MySQL`'s family.
    pub fn to_wire(&self) -> Vec<u8> {
        let count = self.origins.len() as u64;
        let tagged = self.origins.keys().any(|origin| !origin.tag.is_empty());
        let mut out = (if tagged { 1 << 56 | count << 8 | 1 } else { count }).to_le_bytes().to_vec();
        for (origin, runs) in &self.origins {
            out.extend(origin.source);
            if tagged {
                // A tag has `MAX_TAG_BYTES` at most.
                out.push(u8::try_from(origin.tag.len() << 1).unwrap_or(0));
                out.extend(origin.tag.bytes());
            }
            out.extend((runs.0.len() as u64).to_le_bytes());
            for &(first, last) in &runs.0 {
                out.extend(first.to_le_bytes());
                out.extend((last + 1).to_le_bytes());
            }
        }
        out
    }

    /// Puts in one transaction. Of a `MariaDB` domain the newest stands for all before it, even when its number is smaller (a
    /// server that was set back): the order in the log decides.
    pub fn add(&mut self, gtid: &Gtid) {
        match gtid {
            Gtid::None => {}
            Gtid::MySql { origin, number } => match self.origins.get_mut(origin) {
                Some(runs) => runs.add(*number, *number),
                None => self.origins.entry(origin.clone()).or_default().add(*number, *number),
            },
            Gtid::MariaDb { domain, server, sequence } => {
                self.domains.insert(*domain, (*server, *sequence));
            }
        }
    }

    /// All that is in either. Of a `MariaDB` domain the larger sequence counts.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut all = self.clone();
        for (origin, runs) in &other.origins {
            let known = all.origins.entry(origin.clone()).or_default();
            runs.0.iter().for_each(|&(first, last)| known.add(first, last));
        }
        for (&domain, &newest) in &other.domains {
            let known = all.domains.entry(domain).or_insert(newest);
            if known.1 < newest.1 {
                *known = newest;
            }
        }
        all
    }

    /// What is here and not in the other. Of `MariaDB`: the domains in which this one is further.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut left = self.clone();
        for (origin, runs) in &other.origins {
            if let Some(known) = left.origins.get_mut(origin) {
                runs.0.iter().for_each(|&(first, last)| known.remove(first, last));
            }
        }
        left.origins.retain(|_, runs| !runs.0.is_empty());
        left.domains.retain(|domain, newest| other.domains.get(domain).is_none_or(|known| known.1 < newest.1));
        left
    }

    /// True when nothing is here that the other does not have.
    pub fn is_subset(&self, other: &Self) -> bool {
        let has = |(origin, runs): (&Origin, &Runs)| {
            let known = other.origins.get(origin);
            runs.0.iter().all(|&(first, last)| known.is_some_and(|known| known.covers(first, last)))
        };
        self.origins.iter().all(has) && self.difference(other).domains.is_empty()
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (origin, runs) in &self.origins {
            write!(f, "{separator}{origin}")?;
            for (first, last) in &runs.0 {
                if first == last { write!(f, ":{first}") } else { write!(f, ":{first}-{last}") }?;
            }
            separator = ",";
        }
        for (domain, (server, sequence)) in &self.domains {
            write!(f, "{separator}{domain}-{server}-{sequence}")?;
            separator = ",";
        }
        Ok(())
    }
}

/// With four dashes or without any: a name of `MariaDB` can have as many digits, and has two.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let digits: String = text.chars().filter(|letter| *letter != '-').collect();
    let dashes = text.len() - digits.len();
    if digits.len() != 32 || ![0, 4].contains(&dashes) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut source = [0; 16];
    for (place, byte) in source.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(place * 2..place * 2 + 2)?, 16).ok()?;
    }
    Some(source)
}

fn is_tag(piece: &str) -> bool {
    piece.len() <= MAX_TAG_BYTES
        && piece.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_')
        && piece.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn tag(body: &mut Cursor<'_>) -> Read<String> {
    let length = usize::from(body.u8()? >> 1);
    written_tag(String::from_utf8_lossy(body.bytes(length)?).into_owned())
}

/// A tag as servers write it, in lower case; empty for none.
fn written_tag(tag: String) -> Read<String> {
    if tag.is_empty() || is_tag(&tag) && !tag.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Ok(tag);
    }
    Err(Fault::corrupt(format!("'{tag}' is not a GTID's tag")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";

    fn set(text: &str) -> GtidSet {
        GtidSet::parse(&text.replace('A', A)).unwrap_or_default()
    }

    fn text(set: &GtidSet) -> String {
        set.to_string().replace(A, "A")
    }

    #[test]
    fn names_of_transactions() {
        let origin = Origin { source: uuid(A).unwrap_or_default(), tag: String::new() };
        assert_eq!(Gtid::MySql { origin: origin.clone(), number: 23 }.to_string(), format!("{A}:23"));
        let tagged = Origin { tag: "blue".to_owned(), ..origin };
        assert_eq!(Gtid::MySql { origin: tagged, number: 23 }.to_string(), format!("{A}:blue:23"));
        assert_eq!(Gtid::MariaDb { domain: 0, server: 10, sequence: 7 }.to_string(), "0-10-7");
        assert_eq!(Gtid::None.to_string(), "");
        assert!(Gtid::mysql([0; 16], String::new(), 0).is_err());
        assert!(Gtid::mysql([0; 16], String::new(), LAST_NUMBER + 1).is_err());
        assert!(Gtid::mysql([0; 16], "a".repeat(MAX_TAG_BYTES + 1), 1).is_err());
    }

    #[test]
    fn texts_of_servers() {
        for (written, normal) in [
            ("", ""),
            ("A:1-5:7,\nA:Blue:1", "A:1-5:7,A:blue:1"),
            ("A:6:1-5:9-10", "A:1-6:9-10"),
            ("A:1-3:blue:2:4-5", "A:1-3,A:blue:2:4-5"),
            ("1-2-3, 0-1-5", "0-1-5,1-2-3"),
            ("1885486720-31706-27021627912814592", "1885486720-31706-27021627912814592"),
        ] {
            assert_eq!(text(&set(written)), normal);
        }
        for bad in ["x", "1-2", "1-2-3-4", "A:0", "A:9223372036854775808", "A:5-4", "A:x-1-", "A", "A:x", "1-2-3,A:1"] {
            assert!(GtidSet::parse(&bad.replace('A', A)).is_err(), "{bad}");
        }
    }

    #[test]
    fn algebra() {
        assert_eq!(text(&set("A:1-5").union(&set("A:7:blue:1"))), "A:1-5:7,A:blue:1");
        assert_eq!(text(&set("A:1-5").union(&set("A:6"))), "A:1-6");
        assert_eq!(text(&set("A:1-9").difference(&set("A:3-4:9"))), "A:1-2:5-8");
        assert_eq!(text(&set("0-1-9,1-1-1").difference(&set("0-2-10"))), "1-1-1");
        assert!(set("A:2-3").is_subset(&set("A:1-5")));
        assert!(!set("A:2-6").is_subset(&set("A:1-5")));
        assert!(set("0-1-4").is_subset(&set("0-2-5")));
        assert!(set("").is_subset(&set("")));
    }

    #[test]
    fn wire_forms() {
        for written in ["", "A:1-5:7", "A:1-5:7,A:blue:1-2"] {
            assert_eq!(GtidSet::read_mysql(Cursor::new(&set(written).to_wire())).ok(), Some(set(written)));
        }
        assert!(GtidSet::read_mysql(Cursor::new(&[255; 8])).is_err());
        assert!(GtidSet::read_mysql(Cursor::new(&[&[1, 0, 0, 0, 0, 0, 0, 0], [0; 24].as_slice()].concat())).is_err());
        let mut tagged = set("A:blue:1-2").to_wire();
        assert_eq!(tagged.get(25), Some(&b'b'));
        tagged.splice(25..26, *b"B");
        assert!(GtidSet::read_mysql(Cursor::new(&tagged)).is_err());
        let list = [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        assert!(GtidSet::read_mariadb(Cursor::new(&list)).is_err());
    }
}
