//! Messages out of a record batch: a head that is the same for all, tuples up to the limits, a tail.

use std::ops::Range;

use arrow_buffer::NullBuffer;

use super::writers::Writer;

const BEFORE_TUPLE: &[u8] = b"{\"tuple\":[";
const AFTER_TUPLE: &[u8] = b"]";
const AFTER_ROW: &[u8] = b"}";
const TAIL: &[u8] = b"]}";

/// How much goes into one message. A row that is larger alone still gets its message.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub rows: usize,
    pub bytes: usize,
}

/// The tuples of all rows with commas between those of one message. Head and tail are added when a message is put together, so
/// that the head, often the longest part, is copied once.
pub struct Messages {
    head: Vec<u8>,
    tuples: Vec<u8>,
    cuts: Vec<Cut>,
}

struct Cut {
    first_row: usize,
    tuples: Range<usize>,
}

impl Messages {
    /// The first row of each message.
    pub fn first_rows(&self) -> impl Iterator<Item = usize> {
        self.cuts.iter().map(|cut| cut.first_row)
    }

    pub fn get(&self, number: usize) -> Option<Message<'_>> {
        let tuples = self.tuples.get(self.cuts.get(number)?.tuples.clone())?;
        Some(Message { parts: [&self.head, tuples, TAIL] })
    }
}

pub struct Message<'a> {
    parts: [&'a [u8]; 3],
}

impl Message<'_> {
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }

    /// Fills memory of this message's length.
    pub fn copy_to(&self, mut memory: &mut [u8]) {
        for part in self.parts {
            let Some((here, rest)) = memory.split_at_mut_checked(part.len()) else { return };
            here.copy_from_slice(part);
            memory = rest;
        }
    }
}

/// What a row has besides its tuple: a member of this name, where the value is not null.
pub struct Beside {
    /// The member's name as JSON, with the comma before it and the colon behind it.
    pub name: Vec<u8>,
    pub nulls: Option<NullBuffer>,
    pub writer: Box<dyn Writer>,
}

/// The values of a row: those of its tuple, and those beside it.
pub struct Writers {
    pub tuple: Vec<Box<dyn Writer>>,
    pub beside: Vec<Beside>,
}

/// `head` goes up to and with the `[` of the payload.
pub fn encode(head: &[u8], writers: &Writers, rows: usize, limits: Limits) -> Messages {
    let mut tuples = Vec::with_capacity(rows * writers.tuple.len() * 12);
    let mut cuts = Vec::new();
    let (mut first_row, mut start) = (0, 0);
    for row in 0..rows {
        let before = tuples.len();
        if row > first_row {
            tuples.push(b',');
        }
        let tuple = tuples.len();
        write_row(&mut tuples, writers, row);
        let too_long = head.len() + tuples.len() - start + TAIL.len() > limits.bytes;
        if row > first_row && (row - first_row >= limits.rows || too_long) {
            cuts.push(Cut { first_row, tuples: start..before });
            // The comma before this tuple stays between the two messages, in neither.
            (first_row, start) = (row, tuple);
        }
    }
    if rows > 0 {
        cuts.push(Cut { first_row, tuples: start..tuples.len() });
    }
    Messages { head: head.to_vec(), tuples, cuts }
}

fn write_row(out: &mut Vec<u8>, writers: &Writers, row: usize) {
    out.extend_from_slice(BEFORE_TUPLE);
    for (field, writer) in writers.tuple.iter().enumerate() {
        if field > 0 {
            out.push(b',');
        }
        writer.write(row, out);
    }
    out.extend_from_slice(AFTER_TUPLE);
    for member in &writers.beside {
        if member.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
            out.extend_from_slice(&member.name);
            member.writer.write(row, out);
        }
    }
    out.extend_from_slice(AFTER_ROW);
}
