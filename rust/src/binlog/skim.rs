//! What decompression adds up to a place in a recorded file, read off the headers: nothing is unpacked, summed up or decoded.

use super::compressed::Compressed;
use super::cursor::Cursor;
use super::event::{self, Format, kind};
use super::fault::{Fault, Read};
use super::frame::{self, Frame};
use super::payload::Fields;
use super::place::Place;

pub struct Skim {
    place: Place,
    format: Option<Format>,
}

impl Skim {
    /// Begins at the beginning of a file.
    pub fn new(file: &str) -> Read<Self> {
        Ok(Self { place: Place::new(file, 0, 0)?, format: None })
    }

    /// Takes whole events and says how many bytes they had.
    pub fn feed(&mut self, data: &[u8]) -> Read<usize> {
        let mut used = 0;
        self.feed_all(data, &mut used).map_err(|fault| fault.at(&self.place))?;
        Ok(used)
    }

    fn feed_all(&mut self, data: &[u8], used: &mut usize) -> Read<()> {
        if self.place.offset == 0 {
            let Some(magic) = data.first_chunk() else { return Ok(()) };
            event::check_magic(*magic)?;
            self.place.offset = event::MAGIC_BYTES as u64;
            *used = event::MAGIC_BYTES;
        }
        while let Some(frame) = frame::in_file(data.get(*used..).unwrap_or_default())? {
            self.place.expanded = self.place.expanded.saturating_add(self.added(&frame)?);
            self.place.offset += frame.used as u64;
            *used += frame.used;
        }
        Ok(())
    }

    fn added(&mut self, Frame { header, event, .. }: &Frame<'_>) -> Read<u64> {
        match header.kind {
            kind::FORMAT_DESCRIPTION => self.format = Some(Format::read(event, false)?),
            kind::MARIADB_START_ENCRYPTION => return Err(event::encrypted()),
            kind::TRANSACTION_PAYLOAD => return Ok(Fields::read(&mut Cursor::new(self.body(event)?))?.added()),
            kind if Compressed::is(kind) => return Ok(Compressed::read(kind, self.body(event)?)?.added()),
            _ => {}
        }
        Ok(0)
    }

    fn body<'e>(&self, event: &'e [u8]) -> Read<&'e [u8]> {
        let format = self.format.ok_or_else(|| Fault::corrupt("an event before the format description"))?;
        format.body(event)
    }

    pub fn expanded(&self) -> u64 {
        self.place.expanded
    }
}
