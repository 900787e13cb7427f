//! What can be wrong with a log, sorted by who must act: the bytes (`Corrupt`) or the source's settings (`Refused`).

use std::fmt::Display;

/// Result of reading bytes. The error is one pointer wide, so that `Read<()>` costs nothing in the value loop.
pub type Read<T> = Result<T, Fault>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The bytes are not what was written.
    Corrupt,
    /// The log cannot be captured as it is; a setting has to change.
    Refused,
    /// Nobody: the server went away and will be back.
    Away,
}

/// The id of a row, and where the event begins that it came with.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace {
    pub id: i64,
    pub event_offset: u64,
}

#[derive(Clone, Debug)]
pub struct Fault(Box<Detail>);

#[derive(Clone, Debug)]
struct Detail {
    blame: Blame,
    message: String,
    fix: String,
    row: Option<RowPlace>,
}

const CORRUPT_FIX: &str =
    "fetch the file from the server again; if it is damaged there too, check that disk and restore from a backup";

impl Fault {
    #[cold]
    pub fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Blame::Corrupt, message.into(), CORRUPT_FIX.to_owned())
    }

    #[cold]
    pub fn refused(message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::new(Blame::Refused, message.into(), fix.into())
    }

    #[cold]
    pub fn away(message: impl Into<String>) -> Self {
        Self::new(Blame::Away, message.into(), "start the server; capture then goes on where it stopped".to_owned())
    }

    #[cold]
    pub fn short(wanted: usize, there: usize) -> Self {
        Self::corrupt(format!("{wanted} bytes are needed where {there} are left"))
    }

    fn new(blame: Blame, message: String, fix: String) -> Self {
        Self(Box::new(Detail { blame, message, fix, row: None }))
    }

    /// The same fault with its place in front of the message.
    #[must_use]
    pub fn at(mut self, place: impl Display) -> Self {
        self.0.message = format!("{place}: {}", self.0.message);
        self
    }

    /// The same fault with another fix, when bytes are damaged: that of the log is to fetch its file again.
    #[must_use]
    pub fn with_fix_of_damage(mut self, fix: &str) -> Self {
        if self.0.blame == Blame::Corrupt {
            fix.clone_into(&mut self.0.fix);
        }
        self
    }

    /// The same fault, found in a row that was taken before the event under way.
    #[must_use]
    pub fn of_row(mut self, row: RowPlace) -> Self {
        self.0.row = Some(row);
        self
    }

    /// The row that the fault was found in; None: it is in the event under way.
    pub fn row(&self) -> Option<RowPlace> {
        self.0.row
    }

    /// Of several faults the one that comes first in the log.
    pub fn first(faults: impl IntoIterator<Item = Self>) -> Option<Self> {
        faults.into_iter().min_by_key(|fault| fault.row().map_or(i64::MAX, |row| row.id))
    }

    pub fn blame(&self) -> Blame {
        self.0.blame
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn fix(&self) -> &str {
        &self.0.fix
    }
}
