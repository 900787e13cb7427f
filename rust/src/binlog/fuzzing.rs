//! What the fuzz targets (`rust/fuzz`) drive. No other build has this.

pub use super::cursor::Cursor;
pub use super::decoder::{Before, Boundary, Decoder, Stop};
use super::definition::DefinedColumn;
pub use super::definition::Definition;
pub use super::fault::{Fault, Read};
pub use super::gtid::GtidSet;
pub use super::include::Include;
pub use super::pending::Item;
pub use super::skim::Skim;

/// A definition out of lines `name kind sign charset label…`, one per column, `-` for none; the first column is the key.
pub fn definition(text: &str) -> Definition {
    let columns: Vec<_> = text.lines().map(column).collect();
    let keys = columns.first().map(|column| vec![column.name.clone()]).into_iter().collect();
    Definition { columns, keys }
}

fn column(line: &str) -> DefinedColumn {
    let mut words = line.split(' ');
    let mut word = || words.next().unwrap_or_default().to_owned();
    let (name, kind, sign, charset) = (word(), word(), word(), word());
    DefinedColumn {
        name,
        kind,
        unsigned: sign == "unsigned",
        charset: (charset != "-").then_some(charset),
        labels: words.map(str::to_owned).collect(),
    }
}
