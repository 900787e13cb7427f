//! A dictionary of a compressed WAL: values by number; when it is full, the one that was used least lately gives its number up.
//!
//! The writer keeps the same list and moves values in it as it names them, so the reader must do each move in the same order: one use
//! too many, and from the next eviction on numbers stand for other values. An entry whose end has not been written yet is read in part and
//! then again, so each move is noted and can be taken back.
//!
//! Taking back is exact: moves are undone newest first, so each finds the list as it left it. A move to the front noted the neighbour
//! that the value had stood behind, which then stands where it stood; a replacement was of the last value, so the one in front goes
//! back to the end, with its old bytes; an addition was the newest number, so it is the last of the table.

use super::wire::{Take, bad};

const NONE: u16 = u16::MAX;

struct Node {
    value: Box<[u8]>,
    /// Towards the front, where the value used last is.
    before: u16,
    after: u16,
}

enum Done {
    Added,
    Moved { number: u16, stood_behind: u16 },
    Replaced { old: Box<[u8]> },
}

pub struct Dictionary {
    nodes: Vec<Node>,
    capacity: u16,
    front: u16,
    back: u16,
    journal: Vec<Done>,
}

impl Dictionary {
    pub fn new(capacity: u16) -> Self {
        Self { nodes: Vec::new(), capacity, front: NONE, back: NONE, journal: Vec::new() }
    }

    /// A value that was written out: it gets a number, unless it is empty.
    pub fn add(&mut self, value: &[u8]) {
        if value.is_empty() {
            return;
        }
        match u16::try_from(self.nodes.len()) {
            Ok(number) if number < self.capacity => {
                self.nodes.push(Node { value: value.into(), before: NONE, after: NONE });
                self.put_first(number);
                self.journal.push(Done::Added);
            }
            _ => {
                let number = self.back;
                let Some(node) = self.nodes.get_mut(usize::from(number)) else { return };
                let old = std::mem::replace(&mut node.value, value.into());
                self.unlink(number);
                self.put_first(number);
                self.journal.push(Done::Replaced { old });
            }
        }
    }

    /// The value of a number, which so becomes the one used last.
    pub fn get(&mut self, number: u16) -> Take<&[u8]> {
        let Some(node) = self.nodes.get(usize::from(number)) else {
            return bad(format!("value {number} of a dictionary that has {}", self.nodes.len()));
        };
        if self.front != number {
            self.journal.push(Done::Moved { number, stood_behind: node.before });
            self.unlink(number);
            self.put_first(number);
        }
        Ok(self.nodes.get(usize::from(number)).map_or(&[], |node| &node.value))
    }

    /// What was done since the last time stays.
    pub fn keep(&mut self) {
        self.journal.clear();
    }

    /// What was done since the last time is taken back.
    pub fn take_back(&mut self) {
        while let Some(done) = self.journal.pop() {
            match done {
                Done::Added => {
                    self.unlink(self.front);
                    self.nodes.pop();
                }
                Done::Moved { number, stood_behind } => {
                    self.unlink(number);
                    self.link(stood_behind, number, self.after(stood_behind));
                }
                Done::Replaced { old } => {
                    let number = self.front;
                    self.unlink(number);
                    self.link(self.back, number, NONE);
                    if let Some(node) = self.nodes.get_mut(usize::from(number)) {
                        node.value = old;
                    }
                }
            }
        }
    }

    fn put_first(&mut self, number: u16) {
        self.link(NONE, number, self.front);
    }

    fn link(&mut self, before: u16, number: u16, after: u16) {
        if let Some(node) = self.nodes.get_mut(usize::from(number)) {
            (node.before, node.after) = (before, after);
        }
        match self.nodes.get_mut(usize::from(before)) {
            Some(node) => node.after = number,
            None => self.front = number,
        }
        match self.nodes.get_mut(usize::from(after)) {
            Some(node) => node.before = number,
            None => self.back = number,
        }
    }

    fn unlink(&mut self, number: u16) {
        let Some((before, after)) = self.nodes.get(usize::from(number)).map(|node| (node.before, node.after)) else {
            return;
        };
        match self.nodes.get_mut(usize::from(before)) {
            Some(node) => node.after = after,
            None => self.front = after,
        }
        match self.nodes.get_mut(usize::from(after)) {
            Some(node) => node.before = before,
            None => self.back = before,
        }
    }

    fn after(&self, number: u16) -> u16 {
        self.nodes.get(usize::from(number)).map_or(self.front, |node| node.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(dictionary: &Dictionary) -> Vec<(u16, Vec<u8>)> {
        let (mut found, mut number) = (Vec::new(), dictionary.front);
        while let Some(node) = dictionary.nodes.get(usize::from(number)) {
            found.push((number, node.value.to_vec()));
            number = node.after;
        }
        assert_eq!(found.last().map_or(NONE, |(number, _)| *number), dictionary.back);
        found
    }

    /// A fixed sequence of numbers that looks random.
    fn numbers() -> impl Iterator<Item = u32> {
        std::iter::successors(Some(7_u32), |last| Some(last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223)))
            .map(|number| number >> 16)
    }

    fn step(dictionary: &mut Dictionary, number: u32) {
        let has = u32::try_from(dictionary.nodes.len()).unwrap_or_default();
        if has == 0 || number.is_multiple_of(3) {
            dictionary.add(&number.to_be_bytes());
        } else {
            let number = u16::try_from(number % has).unwrap_or_default();
            assert!(dictionary.get(number).is_ok());
        }
    }

    /// The list as the writer keeps it, in the plainest way.
    #[test]
    fn evicts_what_was_used_least_lately() {
        let mut dictionary = Dictionary::new(5);
        let (mut values, mut order): (Vec<Vec<u8>>, Vec<u16>) = (Vec::new(), Vec::new());
        for number in numbers().take(5000) {
            let at = u16::try_from(values.len()).unwrap_or_default();
            if at == 0 || number.is_multiple_of(3) {
                let value = number.to_be_bytes().to_vec();
                dictionary.add(&value);
                if at < 5 {
                    values.push(value);
                    order.insert(0, at);
                } else {
                    let oldest = order.pop().unwrap_or_default();
                    values.splice(usize::from(oldest)..=usize::from(oldest), [value]);
                    order.insert(0, oldest);
                }
            } else {
                let used = u16::try_from(number % u32::from(at)).unwrap_or_default();
                assert_eq!(dictionary.get(used).ok(), values.get(usize::from(used)).map(Vec::as_slice));
                order.retain(|&other| other != used);
                order.insert(0, used);
            }
            let expected: Vec<_> =
                order.iter().filter_map(|&n| Some((n, values.get(usize::from(n))?.clone()))).collect();
            assert_eq!(state(&dictionary), expected);
        }
    }

    #[test]
    fn what_is_taken_back_was_never_there() {
        for capacity in [1, 2, 3, 7] {
            let mut dictionary = Dictionary::new(capacity);
            let mut random = numbers();
            for length in 0..200 {
                let before = state(&dictionary);
                for number in random.by_ref().take(length % 17) {
                    step(&mut dictionary, number);
                }
                dictionary.take_back();
                assert_eq!(state(&dictionary), before);
                for number in random.by_ref().take(length % 5) {
                    step(&mut dictionary, number);
                }
                dictionary.keep();
            }
        }
    }

    #[test]
    fn numbers_that_stand_for_nothing() {
        let mut dictionary = Dictionary::new(2);
        assert!(dictionary.get(0).is_err());
        dictionary.add(b"");
        assert!(dictionary.get(0).is_err());
    }
}
