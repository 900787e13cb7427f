//! Records of separated fields, in a message one or more: `7,"a ""b""",\N<end>8,…`.
//!
//! ```text
//! message    record (end record)* [end]        an empty record is none
//! record     field (separator field)*
//! field      by text by                        in it `by by` is `by`, and what stands behind the escape means itself
//!            text                              up to a separator or an end; NULL when it is the null text; the escape as above
//! ```

use pyo3::prelude::*;

/// How fields are separated. `null`: the text that is NULL where nothing encloses it; `width`: how many fields a record has.
#[pyclass(module = "headrace._native", frozen)]
pub struct Separated {
    separator: String,
    end: String,
    by: Option<char>,
    escape: Option<char>,
    null: String,
    pub width: usize,
}

#[pymethods]
impl Separated {
    #[new]
    pub fn new(
        separator: String,
        end: String,
        by: Option<char>,
        escape: Option<char>,
        null: String,
        width: usize,
    ) -> Self {
        Self { separator, end, by, escape, null, width }
    }
}

/// The fields of one record, in `text`; None is NULL.
#[derive(Default)]
pub struct Record {
    text: String,
    fields: Vec<Option<(usize, usize)>>,
}

impl Record {
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    pub fn field(&self, number: usize) -> Option<&str> {
        let (first, stop) = (*self.fields.get(number)?)?;
        self.text.get(first..stop)
    }

    fn clear(&mut self) {
        self.text.clear();
        self.fields.clear();
    }
}

impl Separated {
    /// Reads a record off the front; None: there is no more. An error says why the rest makes no sense.
    pub fn next(&self, text: &mut &str, record: &mut Record) -> Result<Option<()>, &'static str> {
        record.clear();
        while let Some(rest) = text.strip_prefix(self.end.as_str()) {
            *text = rest;
        }
        if text.is_empty() {
            return Ok(None);
        }
        loop {
            self.field(text, record)?;
            if let Some(rest) = text.strip_prefix(self.separator.as_str()) {
                *text = rest;
            } else {
                *text = text.strip_prefix(self.end.as_str()).unwrap_or(text);
                return Ok(Some(()));
            }
        }
    }

    /// One field; `text` then begins with a separator or an end, or is empty.
    fn field(&self, text: &mut &str, record: &mut Record) -> Result<(), &'static str> {
        let begin = record.text.len();
        if let Some(inner) = self.by.and_then(|by| text.strip_prefix(by)) {
            *text = self.enclosed(inner, &mut record.text)?;
            if !(text.is_empty() || text.starts_with(&self.separator) || text.starts_with(&self.end)) {
                return Err("something stands behind an enclosure");
            }
        } else {
            let whole = *text;
            self.bare(text, &mut record.text)?;
            if whole.strip_suffix(*text) == Some(&self.null) {
                record.text.truncate(begin);
                record.fields.push(None);
                return Ok(());
            }
        }
        record.fields.push(Some((begin, record.text.len())));
        Ok(())
    }

    fn enclosed<'a>(&self, text: &'a str, out: &mut String) -> Result<&'a str, &'static str> {
        let mut signs = text.chars();
        while let Some(sign) = signs.next() {
            if Some(sign) == self.escape && self.escape != self.by {
                out.push(signs.next().ok_or("it ends behind an escape")?);
            } else if Some(sign) == self.by {
                match signs.as_str().strip_prefix(sign) {
                    Some(rest) => {
                        out.push(sign);
                        signs = rest.chars();
                    }
                    None => return Ok(signs.as_str()),
                }
            } else {
                out.push(sign);
            }
        }
        Err("an enclosure is not closed")
    }

    fn bare(&self, text: &mut &str, out: &mut String) -> Result<(), &'static str> {
        let is_null = |rest: &str| rest.is_empty() || rest.starts_with(&self.separator) || rest.starts_with(&self.end);
        if let Some(rest) = text.strip_prefix(self.null.as_str()).filter(|rest| is_null(rest)) {
            *text = rest; // its signs are no escapes
            return Ok(());
        }
        while let Some(sign) = text.chars().next() {
            if text.starts_with(&self.separator) || text.starts_with(&self.end) {
                break;
            }
            let mut rest = text.chars();
            rest.next();
            let meant = if Some(sign) == self.escape { rest.next().ok_or("it ends behind an escape")? } else { sign };
            out.push(meant);
            *text = rest.as_str();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(format: &Separated, mut text: &str) -> Result<Vec<Vec<Option<String>>>, &'static str> {
        let (mut record, mut found) = (Record::default(), Vec::new());
        while format.next(&mut text, &mut record)?.is_some() {
            found.push((0..record.len()).map(|number| record.field(number).map(str::to_owned)).collect());
        }
        Ok(found)
    }

    fn format(separator: &str, end: &str, by: Option<char>, escape: Option<char>) -> Separated {
        Separated::new(separator.into(), end.into(), by, escape, "\\N".into(), 0)
    }

    fn rows(rows: &[&[Option<&str>]]) -> Vec<Vec<Option<String>>> {
        rows.iter().map(|row| row.iter().map(|field| field.map(str::to_owned)).collect()).collect()
    }

    #[test]
    fn fields_are_what_was_written() {
        let plain = format("\t", "\n", None, None);
        assert_eq!(
            read(&plain, "a\t\t\\N\n\nä\\\t\"b\"\t"),
            Ok(rows(&[&[Some("a"), Some(""), None], &[Some("ä\\"), Some("\"b\""), Some("")]]))
        );
        let quoted = format("||", "\r\n", Some('"'), Some('\\'));
        let found = read(&quoted, "\"a\"\"b\\\"||\r\n\"||\\N||\"\\\\N\"\r\nx\\||y||z");
        assert_eq!(found, Ok(rows(&[&[Some("a\"b\"||\r\n"), None, Some("\\N")], &[Some("x||y"), Some("z")]])));
        assert_eq!(read(&quoted, ""), Ok(rows(&[])));
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let quoted = format(",", "\n", Some('"'), Some('\\'));
        for text in ["\"a", "\"a\"b,c", "a\\", "\"a\\"] {
            assert!(read(&quoted, text).is_err(), "{text}");
        }
    }
}
