//! The dictionaries of a compressed file.

use super::dictionary::Dictionary;
use super::wire::{Bytes, Take, whole};

/// A byte that no number of a value begins with: the value itself follows, behind its length.
const NOT_KNOWN: u8 = 0xff;
const MANY: u16 = 32_767;
const FEW: u16 = 127;

pub struct Compression {
    regions: Dictionary,
    tables: Dictionary,
    pub rows: Dictionary,
    pub families: Dictionary,
    pub qualifiers: Dictionary,
    pub tags: Dictionary,
}

impl Compression {
    pub fn new() -> Self {
        Self {
            regions: Dictionary::new(MANY),
            tables: Dictionary::new(MANY),
            rows: Dictionary::new(MANY),
            families: Dictionary::new(FEW),
            qualifiers: Dictionary::new(FEW),
            tags: Dictionary::new(MANY),
        }
    }

    pub fn region(&mut self, named: &[u8]) -> Take<Vec<u8>> {
        whole("the name of a region", text(&mut Bytes::new(named), &mut self.regions).map(<[u8]>::to_vec))
    }

    pub fn table(&mut self, named: &[u8]) -> Take<Vec<u8>> {
        whole("the name of a table", text(&mut Bytes::new(named), &mut self.tables).map(<[u8]>::to_vec))
    }

    /// The family of a scope, which only the dictionary needs to know.
    pub fn scope(&mut self, named: &[u8]) -> Take<()> {
        whole("the family of a scope", text(&mut Bytes::new(named), &mut self.families).map(|_| ()))
    }

    pub fn keep(&mut self) {
        self.all().into_iter().for_each(Dictionary::keep);
    }

    pub fn take_back(&mut self) {
        self.all().into_iter().for_each(Dictionary::take_back);
    }

    fn all(&mut self) -> [&mut Dictionary; 6] {
        let Self { regions, tables, rows, families, qualifiers, tags } = self;
        [regions, tables, rows, families, qualifiers, tags]
    }
}

/// A text that is in the dictionary by number, or goes into it.
#[inline]
pub fn text<'a, 'b: 'a>(bytes: &mut Bytes<'b>, dictionary: &'a mut Dictionary) -> Take<&'a [u8]> {
    let first = bytes.u8()?;
    if first == NOT_KNOWN {
        let size = bytes.size()?;
        let value = bytes.take(size)?;
        dictionary.add(value);
        return Ok(value);
    }
    let second = bytes.u8()?;
    dictionary.get(u16::from_be_bytes([first, second]))
}
