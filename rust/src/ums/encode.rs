//! Messages out of a record batch: a head that is the same for all, tuples up to the limits, a tail.

use super::writers::Writer;

const BEFORE_TUPLE: &[u8] = b"{\"tuple\":[";
const AFTER_TUPLE: &[u8] = b"]}";
const TAIL: &[u8] = b"]}";

/// How much goes into one message. A row that is larger alone still gets its message.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub rows: usize,
    pub bytes: usize,
}

/// Messages one behind the other.
pub struct Messages {
    pub bytes: Vec<u8>,
    /// Where each message ends, and the number of its first row.
    pub ends: Vec<(usize, usize)>,
}

/// `head` goes up to and with the `[` of the payload.
pub fn encode(head: &[u8], writers: &[Box<dyn Writer>], rows: usize, limits: Limits) -> Messages {
    let mut messages = Messages { bytes: Vec::with_capacity(head.len() + rows * writers.len() * 12), ends: Vec::new() };
    let out = &mut messages.bytes;
    let mut tuple = Vec::new();
    let (mut message_at, mut first_row) = (0, 0);
    for row in 0..rows {
        tuple.clear();
        write_tuple(&mut tuple, writers, row);
        let started = row > first_row;
        let full =
            row - first_row >= limits.rows || out.len() - message_at + tuple.len() + 1 + TAIL.len() > limits.bytes;
        if started && full {
            out.extend_from_slice(TAIL);
            messages.ends.push((out.len(), first_row));
            (message_at, first_row) = (out.len(), row);
        }
        out.extend_from_slice(if row == first_row { head } else { b"," });
        out.extend_from_slice(&tuple);
    }
    if rows > 0 {
        out.extend_from_slice(TAIL);
        messages.ends.push((out.len(), first_row));
    }
    messages
}

fn write_tuple(out: &mut Vec<u8>, writers: &[Box<dyn Writer>], row: usize) {
    out.extend_from_slice(BEFORE_TUPLE);
    for (field, writer) in writers.iter().enumerate() {
        if field > 0 {
            out.push(b',');
        }
        writer.write(row, out);
    }
    out.extend_from_slice(AFTER_TUPLE);
}
