//! Steps through one message, each with the byte at which it failed.

use std::fmt::Display;

use jiter::{Jiter, JiterError, Peek};

/// Why a message is refused, and the byte at which it stops making sense.
#[derive(Debug)]
pub struct Fault {
    pub at: usize,
    pub reason: String,
}

pub type Read<T> = Result<T, Fault>;

#[cold]
pub fn fault<T>(at: usize, reason: impl Display) -> Read<T> {
    Err(Fault { at, reason: reason.to_string() })
}

/// A member of the envelope.
pub enum Member {
    Protocol,
    Schema,
    Payload,
    Other,
}

fn member(key: &str) -> Member {
    match key {
        "protocol" => Member::Protocol,
        "schema" => Member::Schema,
        "payload" => Member::Payload,
        _ => Member::Other,
    }
}

/// A place in a message. The pull parser cannot jump, so a jump makes a new one for the rest (it has no memory but its place).
pub struct Walk<'a> {
    pub data: &'a [u8],
    base: usize,
    jiter: Jiter<'a>,
}

impl<'a> Walk<'a> {
    /// `tape` is memory to work in, given back by `into_tape`.
    pub fn new(data: &'a [u8], tape: Vec<u8>) -> Self {
        Self { data, base: 0, jiter: Jiter::with_tape(data, tape) }
    }

    pub fn into_tape(self) -> Vec<u8> {
        self.jiter.into_tape()
    }

    pub fn peek(&mut self) -> Read<Peek> {
        self.jiter.peek().map_err(|error| self.fault(&error))
    }

    pub fn at(&self) -> usize {
        self.base + self.jiter.current_index()
    }

    fn fault(&self, error: &JiterError) -> Fault {
        Fault { at: self.base + error.index, reason: error.error_type.to_string() }
    }

    pub fn rest_from(&self, at: usize) -> &'a [u8] {
        self.data.get(at..).unwrap_or_default()
    }

    pub fn jump(&mut self, to: usize) {
        let tape = std::mem::replace(&mut self.jiter, Jiter::new(&[])).into_tape();
        self.base = to;
        self.jiter = Jiter::with_tape(self.rest_from(to), tape);
    }

    pub fn enter_object(&mut self) -> Read<Option<Member>> {
        let base = self.base;
        let key = self.jiter.next_object().map_err(|error| at_base(base, &error))?;
        Ok(key.map(member))
    }

    pub fn next_member(&mut self) -> Read<Option<Member>> {
        let base = self.base;
        let key = self.jiter.next_key().map_err(|error| at_base(base, &error))?;
        Ok(key.map(member))
    }

    pub fn object_key(&mut self) -> Read<Option<&str>> {
        let base = self.base;
        self.jiter.next_object().map_err(|error| at_base(base, &error))
    }

    pub fn next_key(&mut self) -> Read<Option<&str>> {
        let base = self.base;
        self.jiter.next_key().map_err(|error| at_base(base, &error))
    }

    /// Where the next value begins.
    pub fn value_start(&mut self) -> Read<usize> {
        self.peek()?;
        Ok(self.at())
    }

    pub fn skip(&mut self) -> Read<()> {
        self.jiter.next_skip().map_err(|error| self.fault(&error))
    }

    pub fn skip_known(&mut self, peek: Peek) -> Read<()> {
        self.jiter.known_skip(peek).map_err(|error| self.fault(&error))
    }

    pub fn text(&mut self) -> Read<&str> {
        let base = self.base;
        self.jiter.next_str().map_err(|error| at_base(base, &error))
    }

    pub fn enter_array(&mut self, what: &str) -> Read<Option<Peek>> {
        match self.peek()? {
            Peek::Array => self.jiter.known_array().map_err(|error| self.fault(&error)),
            // A payload of null is one without rows.
            Peek::Null if what == "payload" => {
                self.jiter.known_null().map_err(|error| self.fault(&error))?;
                Ok(None)
            }
            _ => fault(self.at(), format!("{what} is no array")),
        }
    }

    pub fn array_step(&mut self) -> Read<Option<Peek>> {
        self.jiter.array_step().map_err(|error| self.fault(&error))
    }

    pub fn finish(&mut self) -> Read<()> {
        self.jiter.finish().map_err(|error| self.fault(&error))
    }

    /// A value as text: what is in the quotes, a number's digits, or the JSON of an object or array; None for null.
    pub fn scalar(&mut self, peek: Peek) -> Read<Option<&str>> {
        let base = self.base;
        let failed = |error: JiterError| at_base(base, &error);
        match peek {
            Peek::String => self.jiter.known_str().map(Some).map_err(failed),
            Peek::Null => self.jiter.known_null().map(|()| None).map_err(failed),
            Peek::True | Peek::False => {
                self.jiter.known_bool(peek).map(|value| Some(if value { "true" } else { "false" })).map_err(failed)
            }
            Peek::Array | Peek::Object => {
                let start = self.jiter.current_index();
                self.jiter.known_skip(peek).map_err(failed)?;
                utf8(self.jiter.slice_to_current(start), base + start)
            }
            _ => {
                let at = base + self.jiter.current_index();
                utf8(self.jiter.known_number_bytes(peek).map_err(failed)?, at)
            }
        }
    }
}

#[cold]
fn at_base(base: usize, error: &JiterError) -> Fault {
    Fault { at: base + error.index, reason: error.error_type.to_string() }
}

fn utf8(bytes: &[u8], at: usize) -> Read<Option<&str>> {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => fault(at, "text that is not UTF-8"),
    }
}
