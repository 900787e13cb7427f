//! A table as the server's catalogue defines it, described as its own log would describe it.
//!
//! Names and Arrow types come from the one table of types (`binlog::columns`), to which a definition is shown as a table map
//! would show it.

use arrow_array::RecordBatch;
use arrow_schema::Schema;
use pyo3::FromPyObject;
use std::sync::Arc;

use crate::binlog::charset::Charset;
use crate::binlog::columns::{Shape, Traits, code};
use crate::binlog::definition::{DefinedColumn, Definition};
use crate::binlog::fault::{Fault, Read};
use crate::binlog::rows::column_fields;
use crate::binlog::table_map::{Column, Table};

/// What a definition says of a column beside what the decoder needs.
#[derive(FromPyObject)]
pub struct Stored {
    /// The numbers in the parentheses behind the type: length, precision and scale, digits of a second.
    arguments: Vec<usize>,
    nullable: bool,
    /// `MariaDB`'s COMPRESSED.
    compressed: bool,
}

/// The table, and a batch of its columns without rows.
pub fn described(
    schema: String,
    name: String,
    definition: &Definition,
    stored: &[Stored],
) -> Read<(Table, RecordBatch)> {
    let columns = definition.columns.iter().zip(stored).map(|(defined, stored)| {
        let shape = stored.traits(defined).and_then(|traits| Shape::of(&traits));
        let shape = shape.map_err(|fault| fault.at(format!("table {schema}.{name}: column {}", defined.name)))?;
        let is_json = defined.kind == "json";
        Ok(Column { name: defined.name.as_str().into(), nullable: stored.nullable, is_json, shape })
    });
    let columns = columns.collect::<Read<Vec<_>>>()?;
    let table = Table {
        kept: (0..columns.len()).collect(),
        key: definition.key(|index| columns.get(index).is_none_or(|column| column.nullable)),
        columns,
        schema,
        name,
        named: true,
    };
    let empty = RecordBatch::new_empty(Arc::new(Schema::new(column_fields(&table))));
    Ok((table, empty))
}

impl Stored {
    fn argument(&self, place: usize, default: usize) -> usize {
        self.arguments.get(place).copied().unwrap_or(default)
    }

    /// What a table map says of such a column. Sizes of values do not matter here, but for those that stand in names.
    fn traits(&self, defined: &DefinedColumn) -> Read<Traits> {
        let byte = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
        let first = self.argument(0, 0);
        let (code, metadata) = match defined.kind.as_str() {
            "tinyint" => (code::TINY, [0, 0]),
            "smallint" => (code::SHORT, [0, 0]),
            "mediumint" => (code::INT24, [0, 0]),
            "int" => (code::LONG, [0, 0]),
            "bigint" => (code::LONGLONG, [0, 0]),
            "float" => (code::FLOAT, [4, 0]),
            "double" => (code::DOUBLE, [8, 0]),
            "decimal" => (code::NEWDECIMAL, [byte(self.argument(0, 10)), byte(self.argument(1, 0))]),
            "bit" => (code::BIT, [byte(self.argument(0, 1) % 8), byte(self.argument(0, 1) / 8)]),
            "year" => (code::YEAR, [0, 0]),
            "date" => (code::DATE, [0, 0]),
            "time" => (code::TIME2, [byte(first), 0]),
            "datetime" => (code::DATETIME2, [byte(first), 0]),
            "timestamp" => (code::TIMESTAMP2, [byte(first), 0]),
            "char" | "binary" => (code::STRING, char_metadata(self.bytes(defined, 1))),
            "uuid" | "inet6" => (code::STRING, char_metadata(16)),
            "inet4" => (code::STRING, char_metadata(4)),
            "varchar" | "varbinary" if self.compressed => (code::VARCHAR_COMPRESSED, word(self.bytes(defined, 0) + 1)),
            "varchar" | "varbinary" => (code::VARCHAR, word(self.bytes(defined, 0))),
            "tinytext" | "tinyblob" => self.blob(1),
            "text" | "blob" => self.blob(2),
            "mediumtext" | "mediumblob" => self.blob(3),
            "longtext" | "longblob" => self.blob(4),
            "enum" => (code::ENUM, [0, 2]),
            "set" => (code::SET, [0, 8]),
            "json" => (code::JSON, [4, 0]),
            "vector" => (code::VECTOR, [4, 0]),
            // A kind of geometry, or none that is known; `complete` finds its number.
            _ => (code::GEOMETRY, [4, 0]),
        };
        let mut traits = Traits { code, metadata, ..Traits::default() };
        defined.complete(&mut traits)?;
        if code == code::VECTOR {
            traits.dimensions = Some(self.argument(0, DEFAULT_DIMENSIONS) as u64);
        }
        if code == code::GEOMETRY && traits.geometry.is_none() {
            return Err(Fault::refused(
                format!("its type {} is not known to headrace", defined.kind),
                "leave the table out of the capture, or tell the project about the type",
            ));
        }
        Ok(traits)
    }

    fn blob(&self, width: u8) -> (u8, [u8; 2]) {
        (if self.compressed { code::BLOB_COMPRESSED } else { code::BLOB }, [width, 0])
    }

    /// The most bytes that as many characters as the argument says take.
    fn bytes(&self, defined: &DefinedColumn, default: usize) -> usize {
        let charset = defined.charset.as_deref().and_then(Charset::collation_of).and_then(Charset::of_collation);
        self.argument(0, default) * charset.map_or(1, Charset::max_bytes)
    }
}

/// A VECTOR without argument has room for so many numbers.
const DEFAULT_DIMENSIONS: usize = 2048;

fn word(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes()
}

/// CHAR's length borrows two bits of its type where it is above 255.
fn char_metadata(bytes: usize) -> [u8; 2] {
    let [low, high] = word(bytes);
    [code::STRING ^ (high & 3) << 4, low]
}
