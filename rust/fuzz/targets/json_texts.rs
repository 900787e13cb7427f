//! Members and elements of JSON texts: all places of each text, together and one by one, are what serde_json finds there.
#![no_main]

use _native::json_fuzzing::{Step, elements, members};
use arrow_array::{Array, BooleanArray, Int64Array, RecordBatch, StringArray};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const MAX_TEXTS: usize = 4;
const MAX_PLACES: usize = 24;
/// What both read: how deep a text is nested, and the digits of an integer. How far each one goes beyond is its own.
const MAX_DEPTH: usize = 100;
const MAX_DIGITS: usize = 4000;

#[derive(Clone)]
enum Name {
    Key(String),
    Number(usize),
}

type Place = Vec<Name>;

fuzz_target!(|data: &[u8]| {
    let data = String::from_utf8_lossy(data);
    // One column of several texts, as what is kept from one to the next is a part of it.
    let texts: Vec<&str> = data.split('\0').take(MAX_TEXTS).collect();
    let trees: Vec<Option<Value>> = texts.iter().map(|text| structure(text)).collect();
    let mut places = vec![vec![], vec![Name::Key("a".into()), Name::Number(1)]];
    for tree in trees.iter().flatten() {
        find_places(tree, &mut vec![], &mut places);
    }
    let column = StringArray::from(texts.clone());
    let found = read_members(&column, &places);
    let is_told = |row: usize| !is_beyond_either(texts[row]);
    for row in (0..texts.len()).filter(|&row| is_told(row)) {
        let fits = found.column(0).as_any().downcast_ref::<BooleanArray>().expect("truths");
        assert_eq!(fits.value(row), trees[row].is_some(), "{}", texts[row]);
    }
    for (number, place) in places.iter().enumerate() {
        let together = text_column(&found, number + 1);
        let alone = read_members(&column, std::slice::from_ref(place));
        for row in (0..texts.len()).filter(|&row| is_told(row)) {
            let value = trees[row].as_ref().and_then(|tree| at(tree, place));
            assert_is(text_at(together, row), value);
            assert_is(text_at(text_column(&alone, 1), row), value);
        }
        check_elements(&column, &trees, place, &is_told);
    }
});

/// A text that is an object or array, as the peer reads it.
fn structure(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok().filter(|value: &Value| value.is_object() || value.is_array())
}

/// Whether one of the two may refuse what the other reads.
fn is_beyond_either(text: &str) -> bool {
    let is_long = |digits: &str| digits.len() > MAX_DIGITS;
    text.matches(['[', '{']).count() > MAX_DEPTH
        || text.contains("NaN")
        || text.contains("Infinity")
        || text.split(|character: char| !character.is_ascii_digit()).any(is_long)
}

fn find_places(value: &Value, place: &mut Place, found: &mut Vec<Place>) {
    let inner: Vec<(Name, &Value)> = match value {
        Value::Object(members) => members.iter().map(|(key, value)| (Name::Key(key.clone()), value)).collect(),
        Value::Array(elements) => elements.iter().enumerate().map(|(at, value)| (Name::Number(at), value)).collect(),
        _ => return,
    };
    for (name, value) in inner {
        if found.len() >= MAX_PLACES {
            return;
        }
        place.push(name);
        found.push(place.clone());
        find_places(value, place, found);
        place.pop();
    }
}

fn at<'v>(value: &'v Value, place: &[Name]) -> Option<&'v Value> {
    place.iter().try_fold(value, |value, name| match name {
        Name::Key(key) => value.as_object()?.get(key),
        Name::Number(number) => value.as_array()?.get(*number),
    })
}

fn check_elements(column: &StringArray, trees: &[Option<Value>], place: &Place, is_told: &dyn Fn(usize) -> bool) {
    let batch = elements(column, &steps(place)).expect("columns that fit");
    check_whole(&batch);
    let rows = batch.column(0).as_any().downcast_ref::<Int64Array>().expect("numbers");
    let values = text_column(&batch, 1);
    for (row, tree) in trees.iter().enumerate().filter(|&(row, _)| is_told(row)) {
        let mine = (0..rows.len()).filter(|&at| usize::try_from(rows.value(at)) == Ok(row));
        let found: Vec<Option<&str>> = mine.map(|at| text_at(values, at)).collect();
        let wanted = tree.as_ref().and_then(|tree| at(tree, place)).and_then(Value::as_array);
        let wanted = wanted.map(Vec::as_slice).unwrap_or_default();
        assert_eq!(found.len(), wanted.len());
        for (found, wanted) in found.into_iter().zip(wanted) {
            assert_is(found, Some(wanted));
        }
    }
}

fn assert_is(found: Option<&str>, wanted: Option<&Value>) {
    match wanted {
        None | Some(Value::Null) => assert_eq!(found, None),
        Some(Value::Bool(truth)) => assert_eq!(found, Some(if *truth { "true" } else { "false" })),
        Some(Value::String(text)) => assert_eq!(found, Some(text.as_str())),
        // Numbers too: the peer keeps their digits, and writes each exponent in one way.
        Some(value) => {
            let found = found.expect("a text of its own");
            assert_eq!(serde_json::from_str::<Value>(found).as_ref().ok(), Some(value), "{found}");
            assert!(is_without_blanks(found), "{found}");
        }
    }
}

/// Whether all blanks of a text that is JSON stand in its strings.
fn is_without_blanks(text: &str) -> bool {
    let (mut within, mut escaped) = (false, false);
    text.bytes().all(|byte| {
        within ^= byte == b'"' && !escaped;
        escaped = within && byte == b'\\' && !escaped;
        within || !byte.is_ascii_whitespace()
    })
}

fn read_members(column: &StringArray, places: &[Place]) -> RecordBatch {
    let places: Vec<Vec<Step>> = places.iter().map(|place| steps(place)).collect();
    let batch = members(column, &places).expect("columns that fit");
    check_whole(&batch);
    assert_eq!((batch.num_rows(), batch.num_columns()), (column.len(), places.len() + 1));
    batch
}

fn steps(place: &[Name]) -> Vec<Step> {
    let step = |name: &Name| match name {
        Name::Key(key) => Step::Key(key.clone()),
        Name::Number(number) => Step::Number(*number),
    };
    place.iter().map(step).collect()
}

fn text_column(batch: &RecordBatch, number: usize) -> &StringArray {
    batch.column(number).as_any().downcast_ref().expect("texts")
}

fn text_at(column: &StringArray, row: usize) -> Option<&str> {
    column.is_valid(row).then(|| column.value(row))
}

fn check_whole(batch: &RecordBatch) {
    for column in batch.columns() {
        column.to_data().validate_full().expect("an array that is whole");
    }
}
