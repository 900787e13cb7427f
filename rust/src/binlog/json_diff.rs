//! Differences of a JSON document, as `PARTIAL_UPDATE_ROWS` events carry them.
//!
//! ```text
//! differences = (operation, path, value?)*       operation = 0 replace, 1 insert, 2 remove (without value)
//! path        = length (lenenc), text such as $.a."b c"[3]        value = length (lenenc), binary JSON
//! ```
//! The document is opened only along the paths: parts that no difference touches stay binary and are printed as they are.
//! Parts of a damaged document can overlap, so what is opened is limited too: no child takes fewer than `CHILD_BYTES` of its own.

use std::borrow::Cow;

use super::cursor::Cursor;
use super::fault::{Fault, Read};
use super::json::{self, Value};

/// Its type and its offset or inlined value, in a small array.
const CHILD_BYTES: usize = 3;

enum Node<'a> {
    Stored(Value<'a>),
    Object(Vec<(Cow<'a, [u8]>, Node<'a>)>),
    Array(Vec<Node<'a>>),
}

#[derive(Debug, PartialEq)]
enum Leg {
    Member(String),
    Element(usize),
}

struct Difference<'a> {
    operation: Operation,
    path: &'a str,
    value: Option<Value<'a>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Operation {
    Replace,
    Insert,
    Remove,
}

fn next_difference<'a>(cursor: &mut Cursor<'a>) -> Read<Difference<'a>> {
    let operation = match cursor.u8()? {
        0 => Operation::Replace,
        1 => Operation::Insert,
        2 => Operation::Remove,
        other => return Err(Fault::corrupt(format!("JSON differences have no operation {other}"))),
    };
    let path = cursor.lenenc_bytes()?;
    let path = std::str::from_utf8(path).map_err(|_| Fault::corrupt("a JSON path that is not UTF-8"))?;
    let value = if operation == Operation::Remove { None } else { Some(Value::document(cursor.lenenc_bytes()?)) };
    Ok(Difference { operation, path, value })
}

/// Appends the text of the document with all differences applied, as `json::print` does.
pub fn apply(document: &[u8], differences: &[u8], text: &mut Vec<u8>) -> Read<()> {
    let mut root = Node::Stored(Value::document(document));
    let mut cursor = Cursor::new(differences);
    let mut children_left = (document.len() + differences.len()) / CHILD_BYTES;
    while !cursor.is_empty() {
        let difference = next_difference(&mut cursor)?;
        let legs = legs(difference.path)?;
        root.change(&legs, difference.operation, difference.value.map(Node::Stored), &mut children_left)
            .ok_or_else(|| Fault::corrupt(format!("the JSON document has nothing at {}", difference.path)))??;
    }
    let limit = Limit { start: text.len(), document_bytes: document.len() + differences.len() };
    root.print(text, limit)
}

/// Appends the differences themselves, for a log that does not have the document they belong to.
pub fn describe(differences: &[u8], text: &mut Vec<u8>) -> Read<()> {
    let limit = Limit { start: text.len(), document_bytes: differences.len() };
    text.extend_from_slice(b"{\"_json_diff\": [");
    let mut cursor = Cursor::new(differences);
    while !cursor.is_empty() {
        let difference = next_difference(&mut cursor)?;
        if !text.ends_with(b"[") {
            text.extend_from_slice(b", ");
        }
        text.extend_from_slice(match difference.operation {
            Operation::Replace => b"[\"replace\", ",
            Operation::Insert => b"[\"insert\", ",
            Operation::Remove => b"[\"remove\", ",
        });
        json::quote_bytes(difference.path.as_bytes(), text);
        if let Some(value) = difference.value {
            text.extend_from_slice(b", ");
            limit.print(value, text)?;
        }
        text.push(b']');
    }
    text.extend_from_slice(b"]}");
    Ok(())
}

/// What a text under way may become.
#[derive(Clone, Copy)]
struct Limit {
    start: usize,
    document_bytes: usize,
}

impl Limit {
    fn print(self, value: Value<'_>, text: &mut Vec<u8>) -> Read<()> {
        json::print(value, self.document_bytes, text)?;
        json::check_growth(text.len() - self.start, self.document_bytes)
    }
}

impl<'a> Node<'a> {
    /// Opens an object or array by one level.
    fn open(&mut self, children_left: &mut usize) -> Read<()> {
        let Node::Stored(value) = self else { return Ok(()) };
        if !value.is_object() && !value.is_array() {
            return Ok(());
        }
        let object = value.is_object();
        let mut children = value.children()?;
        let (mut members, mut elements) = (Vec::new(), Vec::new());
        while let Some((key, child)) = children.next()? {
            *children_left = children_left.checked_sub(1).ok_or_else(json::overlapping)?;
            match key {
                Some(key) => members.push((key.into(), Node::Stored(child))),
                None => elements.push(Node::Stored(child)),
            }
        }
        *self = if object { Node::Object(members) } else { Node::Array(elements) };
        Ok(())
    }

    /// None when the path leads nowhere.
    fn change(
        &mut self,
        legs: &[Leg],
        operation: Operation,
        value: Option<Node<'a>>,
        children_left: &mut usize,
    ) -> Option<Read<()>> {
        let Some((leg, rest)) = legs.split_first() else {
            *self = value?;
            return Some(Ok(()));
        };
        if let Err(fault) = self.open(children_left) {
            return Some(Err(fault));
        }
        if !rest.is_empty() {
            return self.child(leg)?.change(rest, operation, value, children_left);
        }
        match operation {
            Operation::Replace => *self.child(leg)? = value?,
            Operation::Insert => self.insert(leg, value?)?,
            Operation::Remove => self.remove(leg)?,
        }
        Some(Ok(()))
    }

    fn child(&mut self, leg: &Leg) -> Option<&mut Node<'a>> {
        match (self, leg) {
            (Node::Object(members), Leg::Member(key)) => {
                members.iter_mut().find(|(name, _)| **name == *key.as_bytes()).map(|(_, node)| node)
            }
            (Node::Array(elements), Leg::Element(index)) => elements.get_mut(*index),
            _ => None,
        }
    }

    fn insert(&mut self, leg: &Leg, value: Node<'a>) -> Option<()> {
        match (self, leg) {
            (Node::Object(members), Leg::Member(key)) => {
                // The server keeps members by length of their key, then by its bytes.
                let key = key.as_bytes();
                let place = members.partition_point(|(name, _)| (name.len(), &**name) < (key.len(), key));
                if members.get(place).is_some_and(|(name, _)| **name == *key) {
                    return None;
                }
                members.insert(place, (key.to_vec().into(), value));
            }
            (Node::Array(elements), Leg::Element(index)) => elements.insert((*index).min(elements.len()), value),
            _ => return None,
        }
        Some(())
    }

    fn remove(&mut self, leg: &Leg) -> Option<()> {
        match (self, leg) {
            (Node::Object(members), Leg::Member(key)) => {
                let place = members.iter().position(|(name, _)| **name == *key.as_bytes())?;
                members.remove(place);
            }
            (Node::Array(elements), Leg::Element(index)) if *index < elements.len() => {
                elements.remove(*index);
            }
            _ => return None,
        }
        Some(())
    }

    fn print(&self, text: &mut Vec<u8>, limit: Limit) -> Read<()> {
        match self {
            Node::Stored(value) => limit.print(*value, text)?,
            Node::Object(members) => {
                text.push(b'{');
                for (index, (key, node)) in members.iter().enumerate() {
                    text.extend_from_slice(if index == 0 { b"" } else { b", " });
                    json::quote_bytes(key, text);
                    text.extend_from_slice(b": ");
                    node.print(text, limit)?;
                }
                text.push(b'}');
            }
            Node::Array(elements) => {
                text.push(b'[');
                for (index, node) in elements.iter().enumerate() {
                    text.extend_from_slice(if index == 0 { b"" } else { b", " });
                    node.print(text, limit)?;
                }
                text.push(b']');
            }
        }
        Ok(())
    }
}

/// The legs of a path: `$`, then `.name`, `."quoted name"` and `[number]`.
fn legs(path: &str) -> Read<Vec<Leg>> {
    const MAX_LEGS: usize = 100;
    let bad = || Fault::corrupt(format!("'{path}' is not a JSON path"));
    let mut rest = path.strip_prefix('$').ok_or_else(bad)?;
    let mut legs = Vec::new();
    while !rest.is_empty() && legs.len() < MAX_LEGS {
        let (leg, behind) = if let Some(inside) = rest.strip_prefix('[') {
            let (number, behind) = inside.split_once(']').ok_or_else(bad)?;
            (Leg::Element(number.trim().parse().map_err(|_| bad())?), behind)
        } else {
            let name = rest.strip_prefix('.').ok_or_else(bad)?;
            let (name, behind) = if let Some(quoted) = name.strip_prefix('"') {
                unquote(quoted).ok_or_else(bad)?
            } else {
                let end = name.find(['.', '[']).unwrap_or(name.len());
                let (name, behind) = name.split_at(end);
                (name.to_owned(), behind)
            };
            (Leg::Member(name), behind)
        };
        legs.push(leg);
        rest = behind;
    }
    if rest.is_empty() { Ok(legs) } else { Err(bad()) }
}

/// A name with JSON escapes up to its closing quote, and what follows that.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut chars = text.chars();
    loop {
        match chars.next()? {
            '"' => return Some((name, chars.as_str())),
            '\\' => name.push(match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => {
                    let code = chars.as_str().get(..4)?;
                    chars = chars.as_str().get(4..)?.chars();
                    char::from_u32(u32::from_str_radix(code, 16).ok()?)?
                }
                other => other,
            }),
            other => name.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `[1, 2]` as a small array.
    const ARRAY: [u8; 11] = [2, 2, 0, 10, 0, 5, 1, 0, 5, 2, 0];

    fn difference(operation: u8, path: &str, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![operation, u8::try_from(path.len()).unwrap_or(0)];
        bytes.extend(path.as_bytes());
        if operation != 2 {
            bytes.push(u8::try_from(value.len()).unwrap_or(0));
            bytes.extend(value);
        }
        bytes
    }

    fn text(write: impl FnOnce(&mut Vec<u8>) -> Read<()>) -> Option<String> {
        let mut text = Vec::new();
        write(&mut text).ok()?;
        String::from_utf8(text).ok()
    }

    #[test]
    fn paths() {
        let member = |name: &str| Leg::Member(name.to_owned());
        assert_eq!(legs("$").ok(), Some(vec![]));
        assert_eq!(legs("$.a[3].\"b \\\"c\"").ok(), Some(vec![member("a"), Leg::Element(3), member("b \"c")]));
        assert!(legs("$.a[x]").is_err());
        assert!(legs("a").is_err());
    }

    #[test]
    fn replace_insert_remove() {
        let seven = [5, 7, 0];
        let text = |differences: &[Vec<u8>]| text(|text| apply(&ARRAY, &differences.concat(), text));
        assert_eq!(text(&[]).as_deref(), Some("[1, 2]"));
        assert_eq!(text(&[difference(0, "$[1]", &seven)]).as_deref(), Some("[1, 7]"));
        assert_eq!(text(&[difference(1, "$[0]", &seven), difference(2, "$[2]", &[])]).as_deref(), Some("[7, 1]"));
        assert_eq!(text(&[difference(0, "$[1]", &ARRAY), difference(2, "$[1][0]", &[])]).as_deref(), Some("[1, [2]]"));
        assert_eq!(text(&[difference(0, "$[5]", &seven)]), None);
        assert_eq!(text(&[difference(0, "$.a", &seven)]), None);
    }

    #[test]
    fn overlapping_parts_are_not_opened_again_and_again() {
        // An array of two elements that both are the array itself: each leg opens it anew. In the end all of it is gone.
        let array = [2, 2, 0, 10, 0, 2, 0, 0, 2, 0, 0];
        let gone = difference(0, "$", &[4, 1]);
        let deep = |legs: usize| [difference(0, &format!("${}", "[0]".repeat(legs)), &[4, 1]), gone.clone()].concat();
        assert_eq!(text(|text| apply(&array, &deep(5), text)).as_deref(), Some("true"));
        assert_eq!(text(|text| apply(&array, &deep(60), text)), None);
    }

    #[test]
    fn without_the_document_the_differences_are_shown() {
        let differences = [difference(0, "$.a", &[4, 1]), difference(2, "$.b", &[])].concat();
        let shown = text(|text| describe(&differences, text));
        assert_eq!(shown.as_deref(), Some(r#"{"_json_diff": [["replace", "$.a", true], ["remove", "$.b"]]}"#));
    }
}
