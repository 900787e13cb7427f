//! Rows as lines. What a line of CSV cannot hold is said here, for each of the ways in which Doris reads one:
//!
//! - without enclosures there are no escapes at all: a value with the separator or the end of a line in it has no form;
//! - `\N` is NULL, also between enclosures, so that the text `\N` has a form only where the backslash escapes itself: `"\\N"`;
//! - an empty line is no row, so one empty value alone has a form only as `""`;
//! - a carriage return before a newline that ends a line is taken off.

use memchr::memmem::Finder;

/// Why a row has no line.
#[derive(Clone, Copy)]
pub enum Unfit {
    Separator,
    Null,
    Empty,
}

impl Unfit {
    pub fn reason(self) -> &'static str {
        match self {
            Self::Separator => "a value has the separator or the end of a line in it, and nothing encloses it",
            Self::Null => "a value is the text \\N, which is NULL in CSV unless `escape` is the backslash",
            Self::Empty => "the only value is empty, and an empty line is no row",
        }
    }
}

pub enum Lines {
    Json(Vec<String>),
    Csv(Box<Csv>),
}

pub struct Csv {
    separator: Finder<'static>,
    end: Finder<'static>,
    enclosed: Option<Enclosed>,
    /// Where separators stand in the line that is being written.
    separators: Vec<usize>,
}

#[derive(Clone, Copy)]
pub struct Enclosed {
    pub by: u8,
    pub escape: u8,
}

impl Lines {
    pub fn json(names: &[String]) -> Self {
        let mut before = Vec::with_capacity(names.len());
        for (number, name) in names.iter().enumerate() {
            let mut text = vec![if number == 0 { b'{' } else { b',' }];
            push_json(&mut text, name);
            text.push(b':');
            before.push(String::from_utf8_lossy(&text).into_owned());
        }
        Self::Json(before)
    }

    pub fn csv(separator: &str, end: &str, enclosed: Option<Enclosed>) -> Self {
        let finder = |text: &str| Finder::new(text).into_owned();
        let separators = Vec::new();
        Self::Csv(Box::new(Csv { separator: finder(separator), end: finder(end), enclosed, separators }))
    }

    /// Appends a row, or nothing.
    pub fn push<'a>(&mut self, out: &mut Vec<u8>, cells: impl Iterator<Item = Option<&'a str>>) -> Result<(), Unfit> {
        match self {
            Self::Json(before) => {
                push_object(out, before, cells);
                Ok(())
            }
            Self::Csv(csv) => {
                let begin = out.len();
                csv.push(out, cells).inspect_err(|_| out.truncate(begin))
            }
        }
    }
}

fn push_object<'a>(out: &mut Vec<u8>, before: &[String], cells: impl Iterator<Item = Option<&'a str>>) {
    for (name, cell) in before.iter().zip(cells) {
        out.extend_from_slice(name.as_bytes());
        match cell {
            Some(text) => push_json(out, text),
            None => out.extend_from_slice(b"null"),
        }
    }
    out.extend_from_slice(b"}\n");
}

/// A text as JSON has it.
fn push_json(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        let (run, marked) = rest.split_at(at);
        out.extend_from_slice(run);
        let Some((&mark, behind)) = marked.split_first() else { break };
        match mark {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..0x20 => {
                let digits = [mark >> 4, mark & 15].map(|half| HEX.get(usize::from(half)).copied().unwrap_or(b'0'));
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
            _ => out.extend_from_slice(&[b'\\', mark]),
        }
        rest = behind;
    }
    out.extend_from_slice(rest);
    out.push(b'"');
}

const NULL: &str = "\\N";

impl Csv {
    fn push<'a>(&mut self, out: &mut Vec<u8>, cells: impl Iterator<Item = Option<&'a str>>) -> Result<(), Unfit> {
        let begin = out.len();
        let mut is_bare = true;
        self.separators.clear();
        for (number, cell) in cells.enumerate() {
            if number > 0 {
                self.separators.push(out.len() - begin);
                out.extend_from_slice(self.separator.needle());
            }
            is_bare &= self.push_cell(out, cell)?;
        }
        if self.separators.is_empty() && out.len() == begin {
            self.enclosed.map(|with| out.extend_from_slice(&[with.by, with.by])).ok_or(Unfit::Empty)?;
        }
        let line = out.len();
        out.extend_from_slice(self.end.needle());
        // A line without enclosures must be taken apart where it was put together: separators of several characters may overlap with values.
        if is_bare && !out.get(begin..).is_some_and(|written| self.is_read_as_written(written, line - begin)) {
            return Err(Unfit::Separator);
        }
        Ok(())
    }

    /// False when it stands between enclosures.
    fn push_cell(&self, out: &mut Vec<u8>, cell: Option<&str>) -> Result<bool, Unfit> {
        let Some(text) = cell else {
            out.extend_from_slice(NULL.as_bytes());
            return Ok(true);
        };
        if text == NULL && !self.enclosed.is_some_and(|with| NULL.as_bytes().contains(&with.escape)) {
            return Err(Unfit::Null);
        }
        let Some(with) = self.enclosed.filter(|&with| !self.is_plain(text, with)) else {
            out.extend_from_slice(text.as_bytes());
            return Ok(true);
        };
        out.push(with.by);
        for &byte in text.as_bytes() {
            if byte == with.by || byte == with.escape {
                out.push(with.escape);
            }
            out.push(byte);
        }
        out.push(with.by);
        Ok(false)
    }

    /// Whether a value means itself without enclosures, whatever its neighbours are.
    fn is_plain(&self, text: &str, with: Enclosed) -> bool {
        let marks = [self.separator.needle(), self.end.needle()];
        !text.bytes().any(|byte| {
            byte == with.by || byte == with.escape || byte == b'\r' || marks.iter().any(|mark| mark.contains(&byte))
        })
    }

    fn is_read_as_written(&self, written: &[u8], line: usize) -> bool {
        let is_one_line = self.end.find(written) == Some(line);
        let line = written.get(..line).unwrap_or_default();
        let loses_return = self.end.needle() == b"\n" && line.last() == Some(&b'\r');
        is_one_line && !loses_return && self.separator.find_iter(line).eq(self.separators.iter().copied())
    }
}
