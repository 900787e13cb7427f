//! Records of separated fields and the lines of loads: what a record says is what is read again, in each form that can hold it.
//!
//! ```text
//! input = form u8 | text          bits 0-2: separators, bits 3-4: enclosure and escape, bit 5: what NULL is
//! ```
#![no_main]

use _native::body_fuzzing::{Enclosed, Lines, Record, Separated};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

const SEPARATORS: [(&str, &str); 6] =
    [("\t", "\n"), (",", "\n"), ("||", "\r\n"), ("\u{1}", "\u{2}"), (";", "|"), ("ä", "€")];
const MARKS: [(Option<char>, Option<char>); 4] =
    [(None, None), (Some('"'), None), (Some('"'), Some('\\')), (Some('\''), Some('"'))];
const NULLS: [&str; 2] = ["\\N", ""];
const MAX_RECORDS: usize = 50;

type Cells = Vec<Option<String>>;

fuzz_target!(|data: &[u8]| {
    let Some((&form, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    let (separator, end) = SEPARATORS[usize::from(form & 7) % SEPARATORS.len()];
    let (by, escape) = MARKS[usize::from(form >> 3 & 3)];
    let null = NULLS[usize::from(form >> 5 & 1)];
    let written = read(&separated(separator, end, by, escape, null), &text);
    for cells in &written {
        check_json(cells);
        for (separator, end) in SEPARATORS {
            check_csv(cells, separator, end, None);
            for (by, escape) in [('"', '\\'), ('\'', '"')] {
                check_csv(cells, separator, end, Some((by, escape)));
            }
        }
    }
});

fn separated(separator: &str, end: &str, by: Option<char>, escape: Option<char>, null: &str) -> Separated {
    Separated::new(separator.into(), end.into(), by, escape, null.into(), 1)
}

/// The records up to the first that makes no sense. Each takes something off the text.
fn read(form: &Separated, text: &str) -> Vec<Cells> {
    let (mut rest, mut record, mut found) = (text, Record::default(), Vec::new());
    while found.len() < MAX_RECORDS {
        let before = rest.len();
        if !matches!(form.next(&mut rest, &mut record), Ok(Some(()))) {
            break;
        }
        assert!(rest.len() < before && text.ends_with(rest), "{text:?}");
        assert!(record.len() > 0, "{text:?}");
        assert!(record.field(record.len()).is_none());
        found.push((0..record.len()).map(|number| record.field(number).map(str::to_owned)).collect());
    }
    found
}

/// A line is read as the cells that it was made of; or there is none, and nothing of it stands in the body.
fn check_csv(cells: &Cells, separator: &str, end: &str, marks: Option<(char, char)>) {
    let byte = |sign: char| u8::try_from(sign).expect("a sign of ASCII");
    let enclosed = marks.map(|(by, escape)| Enclosed { by: byte(by), escape: byte(escape) });
    let mut lines = Lines::csv(separator, end, enclosed);
    let mut out = b"before".to_vec();
    let made = lines.push(&mut out, cells.iter().map(Option::as_deref));
    let body = out.strip_prefix(b"before").expect("what was there stays");
    let line = std::str::from_utf8(body).expect("whole signs");
    if made.is_err() {
        assert_eq!(line, "");
        let is_plain = marks.is_some() && !cells.iter().flatten().any(|cell| cell == "\\N");
        assert!(!is_plain, "{cells:?} has a form between {marks:?}");
        return;
    }
    let form = separated(separator, end, marks.map(|one| one.0), marks.map(|one| one.1), "\\N");
    assert_eq!(read(&form, line), [cells.clone()], "{line:?}");
}

fn check_json(cells: &Cells) {
    let names: Vec<String> = (0..cells.len()).map(|number| format!("\"{number}\\")).collect();
    let mut out = Vec::new();
    assert!(Lines::json(&names).push(&mut out, cells.iter().map(Option::as_deref)).is_ok());
    let line = out.strip_suffix(b"\n").expect("a line");
    assert!(!line.contains(&b'\n'));
    let found: Value = serde_json::from_slice(line).expect("JSON");
    for (name, cell) in names.iter().zip(cells) {
        assert_eq!(found[name].as_str(), cell.as_deref());
    }
    assert_eq!(found.as_object().map(serde_json::Map::len), Some(cells.len()));
}
