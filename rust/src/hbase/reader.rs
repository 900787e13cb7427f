//! A file of a WAL, entry by entry, into batches.

use arrow_array::RecordBatch;

use super::batch::{Cells, Entries, MOST_BYTES};
use super::cells::{packed, plain, skip_plain};
use super::compression::Compression;
use super::header::Header;
use super::key::Key;
use super::wire::{Bytes, Halt, Take, bad, whole};
use crate::binlog::fault::{Fault, Read};
use crate::binlog::include::Include;

/// An empty message, its length, and the magic.
const TRAILER: &[u8] = &[0, 0, 0, 0, b'L', b'A', b'W', b'P'];
const MAX_KEY_BYTES: usize = 16 << 20;
const DEFAULT_NAMESPACE: &[u8] = b"default";

/// When to hand out a batch.
#[derive(Clone, Copy)]
pub struct Stop {
    pub cells: usize,
    pub bytes: usize,
}

pub struct Reader {
    include: Include,
    /// Entries that begin before this offset were handed out earlier.
    start: u64,
    position: u64,
    header: Option<Header>,
    compression: Option<Compression>,
    ended: bool,
    entries: Entries,
    cells: Cells,
}

impl Reader {
    pub fn new(include: Include, start: u64) -> Self {
        Self {
            include,
            start,
            position: 0,
            header: None,
            compression: None,
            ended: false,
            entries: Entries::default(),
            cells: Cells::default(),
        }
    }

    /// The offset in the file of the byte that is wanted next.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The file was closed by its writer, and has been read to its end.
    pub fn ended(&self) -> bool {
        self.ended
    }

    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Entries that are taken and not handed out.
    pub fn entries(&self) -> usize {
        self.entries.len()
    }

    pub fn is_full(&self, stop: Stop) -> bool {
        self.entries.len() > 0 && (self.cells.len() >= stop.cells || self.cells.bytes() >= stop.bytes)
    }

    /// Takes whole entries from `position` on, up to a full batch; returns the bytes they had. Damage behind entries that
    /// have not been handed out is told by the next call.
    pub fn feed(&mut self, data: &[u8], stop: Stop) -> Read<usize> {
        let (first, mut used) = (self.position, 0);
        while !self.ended && !self.is_full(stop) {
            match self.step(data.get(used..).unwrap_or_default()) {
                Ok(bytes) => {
                    used += bytes;
                    // Behind the header of a file that is begun further on come other bytes than those at `position`.
                    if self.position != first + used as u64 {
                        break;
                    }
                }
                Err(Halt::Short) => break,
                Err(Halt::Bad(_)) if self.entries.len() > 0 => break,
                Err(Halt::Bad(fault)) => return Err(fault.at(format!("byte {}", self.position))),
            }
        }
        Ok(used)
    }

    /// The header, an entry or the trailer. Nothing has happened when it is not whole.
    fn step(&mut self, data: &[u8]) -> Take<usize> {
        let mut bytes = Bytes::new(data);
        if self.header.is_none() {
            let header = Header::read(&mut bytes)?;
            self.compression = header.is_compressed.then(Compression::new);
            self.header = Some(header);
            let used = data.len() - bytes.left();
            self.position += used as u64;
            // What is not compressed can be read from any entry on.
            if self.compression.is_none() {
                self.position = self.position.max(self.start);
            }
            return Ok(used);
        }
        let cells = self.cells.len();
        let taken = self.entry(&mut bytes);
        if taken.is_err() {
            self.cells.cut(cells);
        }
        if let Some(compression) = &mut self.compression {
            if taken.is_err() { compression.take_back() } else { compression.keep() }
        }
        let used = data.len() - bytes.left();
        match taken? {
            Some(key) => self.entries.push(self.position, self.position + used as u64, &key),
            None if self.ended => {}
            None => self.cells.cut(cells),
        }
        self.position += used as u64;
        Ok(used)
    }

    /// The key of an entry that is wanted; None when it is not, or at the trailer.
    fn entry(&mut self, bytes: &mut Bytes<'_>) -> Take<Option<Key>> {
        if bytes.rest().first() == Some(&0) {
            return self.trailer(bytes).map(|()| None);
        }
        let size = bytes.size()?;
        if size > MAX_KEY_BYTES {
            return bad(format!("a key of {size} bytes"));
        }
        let message = bytes.take(size)?;
        let key = whole("the key of an entry", Key::read(message, self.compression.as_mut()))?;
        let is_wanted = self.position >= self.start && wants(&self.include, &key.table);
        self.take_cells(bytes, &key, is_wanted)?;
        Ok(is_wanted.then_some(key))
    }

    fn take_cells(&mut self, bytes: &mut Bytes<'_>, key: &Key, is_wanted: bool) -> Take<()> {
        let entry = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let Some(header) = &self.header else { return Ok(()) };
        for _ in 0..key.cells {
            match &mut self.compression {
                None if is_wanted => plain(bytes, &mut self.cells, entry)?,
                None => skip_plain(bytes)?,
                Some(compression) => {
                    packed(bytes, &mut self.cells, entry, (header, compression))?;
                    if !is_wanted {
                        self.cells.cut(self.cells.len() - 1);
                    }
                }
            }
            if self.cells.bytes() > MOST_BYTES {
                return bad(format!("an entry of more than {MOST_BYTES} bytes"));
            }
        }
        Ok(())
    }

    /// What a writer puts at the end of a file that it closes. It may have died within it, or space may have been kept with zeros.
    fn trailer(&mut self, bytes: &mut Bytes<'_>) -> Take<()> {
        let rest = bytes.rest();
        if rest.starts_with(TRAILER) {
            bytes.take(TRAILER.len())?;
            self.ended = true;
            return Ok(());
        }
        if TRAILER.starts_with(rest) || rest.iter().take(TRAILER.len()).all(|&byte| byte == 0) {
            return Err(Halt::Short);
        }
        bad("neither an entry nor the end of the file")
    }

    /// The entries taken, and their cells.
    pub fn finish(&mut self) -> Read<(RecordBatch, RecordBatch)> {
        Ok((self.entries.finish()?, self.cells.finish()?))
    }
}

fn wants(include: &Include, table: &[u8]) -> bool {
    match table.iter().position(|&byte| byte == b':') {
        Some(colon) => {
            include.wants(table.get(..colon).unwrap_or_default(), table.get(colon + 1..).unwrap_or_default())
        }
        None => include.wants(DEFAULT_NAMESPACE, table),
    }
}

/// A fix of damage that fits files which `HBase` itself keeps in several copies.
pub const DAMAGED_FIX: &str = "check the file with `hbase wal` and the file system (hdfs fsck); when HBase cannot read it either, go on \
     behind it (`headrace skip FLOW.yaml`) and load the table again";

#[must_use]
pub fn with_fix(fault: Fault) -> Fault {
    fault.with_fix_of_damage(DAMAGED_FIX)
}
