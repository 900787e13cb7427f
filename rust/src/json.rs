//! Members and elements of JSON texts, whole columns at a time: what the steps `json` and `flatten` of rules for lines do.
//!
//! ```text
//! places       a list of keys (of objects) and numbers (of arrays) each: user.name is ["user", "name"], tags[0] is ["tags", 0]
//! tree         all places of one call together, so that a text is walked once; what no place goes through is skipped
//! values       texts without quotes and escapes; numbers with the digits that they have; true, false; null and what is not there as null;
//!              objects and arrays as they stand, without the blanks between their tokens
//! ```
//! A text is one object or array and nothing else, else none of its members are there. Of members with one key the last one counts.
//! jiter's limits are ours: a text is not read when it is nested some 200 deep, or has an integer of more than 4,300 digits.
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Int64Builder, StringBuilder};
use arrow_array::{Array, ArrayRef, RecordBatch, StringArray};
use arrow_schema::ArrowError;
use jiter::{Jiter, JiterError, Peek};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::border::{self, Batch};

/// A step of a place: into an object, or into an array.
#[derive(FromPyObject)]
pub enum Step {
    Key(String),
    Number(usize),
}

/// The rows of a batch with one column of text: whether each one is an object or array, and a column for each place.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "the form in which Python hands them over")]
pub fn json_members(py: Python<'_>, texts: &Bound<'_, PyAny>, places: Vec<Vec<Step>>) -> PyResult<Batch> {
    let texts = text_column(texts)?;
    py.detach(|| members(&texts, &places)).map(Batch).map_err(border::arrow_error)
}

/// The elements of the array at one place: for each the number of its row, and its value.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "the form in which Python hands them over")]
pub fn json_elements(py: Python<'_>, texts: &Bound<'_, PyAny>, place: Vec<Step>) -> PyResult<Batch> {
    let texts = text_column(texts)?;
    py.detach(|| elements(&texts, &place)).map(Batch).map_err(border::arrow_error)
}

fn text_column(batch: &Bound<'_, PyAny>) -> PyResult<StringArray> {
    let batch = border::import_batch(batch)?;
    match batch.child_data() {
        [column] if *column.data_type() == arrow_schema::DataType::Utf8 => Ok(StringArray::from(column.clone())),
        _ => Err(PyTypeError::new_err("one column of text is wanted")),
    }
}

pub fn members(texts: &StringArray, places: &[Vec<Step>]) -> Result<RecordBatch, ArrowError> {
    let tree = Node::of(places);
    let mut walk = Walk::new(places.len());
    let mut fits = BooleanBuilder::with_capacity(texts.len());
    let mut columns: Vec<StringBuilder> = places.iter().map(|_| StringBuilder::new()).collect();
    for text in texts {
        fits.append_value(text.is_some_and(|text| walk.through(text, &tree)));
        for (column, found) in columns.iter_mut().zip(&walk.members) {
            column.append_option(walk.text(found.as_ref()));
        }
    }
    let mut named: Vec<(String, ArrayRef)> = vec![("fits".to_owned(), Arc::new(fits.finish()))];
    let numbered = columns.iter_mut().enumerate();
    named.extend(numbered.map(|(number, column)| (number.to_string(), Arc::new(column.finish()) as ArrayRef)));
    RecordBatch::try_from_iter(named)
}

pub fn elements(texts: &StringArray, place: &[Step]) -> Result<RecordBatch, ArrowError> {
    let mut tree = Node::default();
    tree.at(place).has_elements = true;
    let mut walk = Walk::new(0);
    let (mut rows, mut values) = (Int64Builder::new(), StringBuilder::new());
    for (row, text) in (0..).zip(texts) {
        if text.is_some_and(|text| walk.through(text, &tree)) {
            for found in &walk.elements {
                rows.append_value(row);
                values.append_option(walk.text(found.as_ref()));
            }
        }
    }
    RecordBatch::try_from_iter_with_nullable([
        ("row", Arc::new(rows.finish()) as ArrayRef, false),
        ("element", Arc::new(values.finish()) as ArrayRef, true),
    ])
}

/// What is wanted of a value: its own text in some columns, its elements, and what is in it.
#[derive(Default)]
pub struct Node {
    columns: Vec<usize>,
    has_elements: bool,
    keys: Keys,
    numbers: BTreeMap<usize, Node>,
}

/// Members of objects. Most objects of one place are written by one program, with their keys in one order: what was found for the key at each
/// place in the object before is tried first, so that a key costs one comparison and no search.
#[derive(Default)]
struct Keys {
    nodes: Vec<(String, Node)>,
    before: RefCell<Vec<(String, Option<usize>)>>,
}

const REMEMBERED_KEYS: usize = 256;

impl Keys {
    #[allow(clippy::indexing_slicing, reason = "the place was just found, or just added")]
    fn at(&mut self, key: &str) -> &mut Node {
        let found = self.nodes.iter().position(|(name, _)| name == key).unwrap_or_else(|| {
            self.nodes.push((key.to_owned(), Node::default()));
            self.nodes.len() - 1
        });
        &mut self.nodes[found].1
    }

    fn find(&self, place: usize, key: &str) -> Option<&Node> {
        let mut before = self.before.borrow_mut();
        let found = match before.get_mut(place) {
            Some((known, found)) if known == key => *found,
            other => {
                let found = self.nodes.iter().position(|(name, _)| name == key);
                match other {
                    Some((known, was)) => {
                        known.clear();
                        known.push_str(key);
                        *was = found;
                    }
                    None if place < REMEMBERED_KEYS => before.push((key.to_owned(), found)),
                    None => {}
                }
                found
            }
        };
        self.nodes.get(found?).map(|(_, node)| node)
    }
}

impl Node {
    /// Of a column for each place.
    pub fn of(places: &[Vec<Step>]) -> Self {
        let mut tree = Self::default();
        for (column, place) in places.iter().enumerate() {
            tree.at(place).columns.push(column);
        }
        tree
    }

    fn at(&mut self, place: &[Step]) -> &mut Node {
        let Some((step, rest)) = place.split_first() else { return self };
        match step {
            Step::Key(key) => self.keys.at(key).at(rest),
            Step::Number(number) => self.numbers.entry(*number).or_default().at(rest),
        }
    }
}

/// What was found in one text: places in `values`.
pub struct Walk {
    values: String,
    pub members: Vec<Option<Range<usize>>>,
    elements: Vec<Option<Range<usize>>>,
    tape: Vec<u8>,
}

impl Walk {
    pub fn new(columns: usize) -> Self {
        Self { values: String::new(), members: vec![None; columns], elements: Vec::new(), tape: Vec::new() }
    }

    /// What was found, as text.
    pub fn text(&self, found: Option<&Range<usize>>) -> Option<&str> {
        self.values.get(found?.clone())
    }

    /// Finds what is wanted; false, and nothing is found, when the text is no object or array.
    pub fn through(&mut self, text: &str, tree: &Node) -> bool {
        self.clear();
        let mut jiter = Jiter::with_tape(text.as_bytes(), std::mem::take(&mut self.tape)).with_allow_inf_nan();
        let is_read = match jiter.peek() {
            Ok(peek @ (Peek::Object | Peek::Array)) => {
                self.value(&mut jiter, text, tree, peek).is_ok() && jiter.finish().is_ok()
            }
            _ => false,
        };
        self.tape = jiter.into_tape();
        if !is_read {
            self.clear();
        }
        is_read
    }

    fn clear(&mut self) {
        self.values.clear();
        self.members.fill(None);
        self.elements.clear();
    }

    fn value(&mut self, jiter: &mut Jiter<'_>, text: &str, node: &Node, peek: Peek) -> Result<(), JiterError> {
        let start = jiter.current_index();
        match peek {
            Peek::Object if !node.keys.nodes.is_empty() => self.object(jiter, text, node)?,
            Peek::Array if node.has_elements || !node.numbers.is_empty() => self.array(jiter, text, node)?,
            _ if node.columns.is_empty() => return jiter.known_skip(peek),
            Peek::Object | Peek::Array => jiter.known_skip(peek)?,
            _ => {
                let found = self.scalar(jiter, text, peek)?;
                self.note(node, found.as_ref());
                return Ok(());
            }
        }
        if !node.columns.is_empty() {
            let found = self.structure(text.get(start..jiter.current_index()).unwrap_or_default());
            self.note(node, Some(&found));
        }
        Ok(())
    }

    fn object(&mut self, jiter: &mut Jiter<'_>, text: &str, node: &Node) -> Result<(), JiterError> {
        let mut place = 0;
        let mut key = jiter.known_object()?.map(|key| node.keys.find(place, key));
        while let Some(wanted) = key {
            let peek = jiter.peek()?;
            if let Some(child) = wanted {
                self.forget(child); // an earlier member of the same key
                self.value(jiter, text, child, peek)?;
            } else {
                jiter.known_skip(peek)?;
            }
            place += 1;
            key = jiter.next_key()?.map(|key| node.keys.find(place, key));
        }
        Ok(())
    }

    fn array(&mut self, jiter: &mut Jiter<'_>, text: &str, node: &Node) -> Result<(), JiterError> {
        let mut next = jiter.known_array()?;
        let mut number = 0;
        while let Some(peek) = next {
            if node.has_elements {
                let element = self.whole(jiter, text, peek)?;
                self.elements.push(element);
            } else if let Some(child) = node.numbers.get(&number) {
                self.value(jiter, text, child, peek)?;
            } else {
                jiter.known_skip(peek)?;
            }
            number += 1;
            next = jiter.array_step()?;
        }
        Ok(())
    }

    fn note(&mut self, node: &Node, found: Option<&Range<usize>>) {
        for column in &node.columns {
            if let Some(member) = self.members.get_mut(*column) {
                *member = found.cloned();
            }
        }
    }

    fn forget(&mut self, node: &Node) {
        self.note(node, None);
        if node.has_elements {
            self.elements.clear();
        }
        for inner in node.keys.nodes.iter().map(|(_, node)| node).chain(node.numbers.values()) {
            self.forget(inner);
        }
    }

    fn whole(&mut self, jiter: &mut Jiter<'_>, text: &str, peek: Peek) -> Result<Option<Range<usize>>, JiterError> {
        if !matches!(peek, Peek::Object | Peek::Array) {
            return self.scalar(jiter, text, peek);
        }
        let start = jiter.current_index();
        jiter.known_skip(peek)?;
        Ok(Some(self.structure(text.get(start..jiter.current_index()).unwrap_or_default())))
    }

    fn scalar(&mut self, jiter: &mut Jiter<'_>, text: &str, peek: Peek) -> Result<Option<Range<usize>>, JiterError> {
        let (start, begin) = (jiter.current_index(), self.values.len());
        match peek {
            Peek::Null => return jiter.known_null().map(|()| None),
            Peek::String => self.values.push_str(jiter.known_str()?),
            _ => {
                jiter.known_skip(peek)?;
                self.values.push_str(text.get(start..jiter.current_index()).unwrap_or_default());
            }
        }
        Ok(Some(begin..self.values.len()))
    }

    /// An object or array, without the blanks between its tokens.
    fn structure(&mut self, mut text: &str) -> Range<usize> {
        let begin = self.values.len();
        let mut within = false;
        while let Some(end) = text.find(if within { is_in_string } else { is_between }) {
            let (run, rest) = text.split_at(end);
            self.values.push_str(run);
            let mark = rest.chars().next().unwrap_or_default();
            // A mark is one byte; what is behind a backslash may be more.
            let escaped = if mark == '\\' { rest.chars().nth(1).map_or(0, char::len_utf8) } else { 0 };
            let (taken, rest) = rest.split_at(1 + escaped);
            if within || mark == '"' {
                self.values.push_str(taken);
            }
            within ^= mark == '"';
            text = rest;
        }
        self.values.push_str(text);
        begin..self.values.len()
    }
}

fn is_in_string(character: char) -> bool {
    matches!(character, '"' | '\\')
}

fn is_between(character: char) -> bool {
    matches!(character, '"' | ' ' | '\t' | '\n' | '\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, place: &[Step]) -> Option<String> {
        let mut tree = Node::default();
        tree.at(place).columns.push(0);
        let mut walk = Walk::new(1);
        walk.through(text, &tree).then_some(())?;
        walk.members.first().cloned().flatten().and_then(|range| walk.values.get(range).map(str::to_owned))
    }

    fn key(name: &str) -> Step {
        Step::Key(name.to_owned())
    }

    #[test]
    fn values_are_text() {
        for (value, text) in [
            ("\"a\\u00e4\\n\"", Some("aä\n")),
            ("-0", Some("-0")),
            ("1.50e3", Some("1.50e3")),
            ("123456789012345678901234567890", Some("123456789012345678901234567890")),
            ("true", Some("true")),
            ("null", None),
            ("{ \"x\" : [ 1 , \" \\\" ä \" ] }", Some("{\"x\":[1,\" \\\" ä \"]}")),
            ("NaN", Some("NaN")),
        ] {
            assert_eq!(found(&format!(" {{ \"a\" : {value} }} "), &[key("a")]).as_deref(), text, "{value}");
            assert_eq!(found(&format!("[0, {value}]"), &[Step::Number(1)]).as_deref(), text, "{value}");
        }
    }

    #[test]
    fn the_last_member_of_a_key_counts() {
        let place = [key("a"), key("b")];
        assert_eq!(found(r#"{"a":{"b":1},"a":{"b":2}}"#, &place).as_deref(), Some("2"));
        assert_eq!(found(r#"{"a":{"b":1},"a":3}"#, &place), None);
    }

    #[test]
    fn what_is_no_object_or_array_has_nothing() {
        for text in ["", "1", "\"a\"", "{\"a\":1", "{\"a\":1} x", "{\"a\":01}", "{\"a\":\"\\ud800\"}"] {
            assert_eq!(found(text, &[key("a")]), None, "{text}");
        }
        assert_eq!(found(&"[".repeat(100_000), &[Step::Number(0)]), None);
    }
}
