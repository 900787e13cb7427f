//! Images of row events until there are enough of them for a block.

use std::ops::Range;

use super::cells::Block;

/// Images gathered up to here are decoded: about what the processor's second cache holds beside the lanes.
pub const GATHERED_BYTES: usize = 64 << 10;

/// Images of several events: what the cells of a block point into. Nothing is copied as long as the images are part of the bytes
/// that the decoder was fed, which stay where they are until the block is carried. Those of unpacked events are copied.
#[derive(Default)]
pub struct Gathered {
    /// From the first image to the end of the newest, in the bytes fed; None: the images are in `copies`.
    stretch: Option<Range<usize>>,
    copies: Vec<u8>,
    /// Bytes of all images.
    pub taken: usize,
    /// For each event its first row in the block and its place in the file.
    pub events: Vec<(usize, i64)>,
}

impl Gathered {
    /// Copies that are kept as room for the next ones.
    const KEPT_BYTES: usize = 4 * GATHERED_BYTES;

    pub fn bytes<'b>(&'b self, fed: &'b [u8]) -> &'b [u8] {
        match &self.stretch {
            Some(stretch) => fed.get(stretch.clone()).unwrap_or_default(),
            None => &self.copies,
        }
    }

    /// Whether cells can point both into what is there and into these images, which begin at byte `place` of those fed.
    pub fn goes_with(&self, images: &[u8], place: Option<usize>) -> bool {
        let begin = self.stretch.as_ref().map(|stretch| stretch.start);
        match (begin, place) {
            (Some(begin), Some(place)) => begin <= place && place + images.len() - begin < Block::TOO_MANY_BYTES,
            (None, None) => self.copies.len() + images.len() < Block::TOO_MANY_BYTES,
            _ => false,
        }
    }

    /// Takes the images of an event; returns where they begin in `bytes`, whose end is theirs.
    pub fn add(&mut self, images: &[u8], place: Option<usize>) -> usize {
        self.taken += images.len();
        let Some(place) = place else {
            self.copies.extend_from_slice(images);
            return self.copies.len() - images.len();
        };
        let begin = self.stretch.as_ref().map_or(place, |stretch| stretch.start);
        self.stretch = Some(begin..place + images.len());
        place - begin
    }

    pub fn clear(&mut self) {
        self.stretch = None;
        self.copies.clear();
        self.copies.shrink_to(Self::KEPT_BYTES);
        self.taken = 0;
    }

    /// The place of the event that a row of the block came with.
    pub fn event_of(&self, row: usize) -> i64 {
        let event = self.part_of(row).and_then(|part| self.events.get(part));
        event.map_or(0, |(_, offset)| *offset)
    }

    /// Which of the events a row of the block came with.
    pub fn part_of(&self, row: usize) -> Option<usize> {
        self.events.iter().rposition(|(first, _)| *first <= row)
    }
}

/// Where a part begins in the whole, when it is one.
pub fn place_in(whole: &[u8], part: &[u8]) -> Option<usize> {
    let place = part.as_ptr().addr().checked_sub(whole.as_ptr().addr())?;
    (place + part.len() <= whole.len()).then_some(place)
}
