//! What a table is where the log itself does not say it: names, signs, character sets, labels and keys by the columns' places.
//!
//! A log without full metadata has only storage types. `UUID`, `INET4` and `INET6` of `MariaDB` are never marked: they look like
//! BINARY. Who feeds the decoder knows both from DDL, from the server or from a dump. What the log says itself goes before.

use pyo3::FromPyObject;

use super::addresses::Address;
use super::charset::Charset;
use super::columns::{Traits, code, geometry_number};
use super::fault::{Fault, Read};

const FIX: &str = "give a dump of the tables' definitions (mysqldump --no-data) as they were where the log begins, as `schema` of \
     the source; or let the source's user read the table (GRANT SELECT) and start behind its last ALTER; or set \
     binlog_row_metadata=FULL at the source and start behind that";

#[derive(FromPyObject)]
pub struct DefinedColumn {
    pub(crate) name: String,
    /// The type's name in lower case without synonyms, arguments and sign: `int`, `varchar`, `mediumtext`, `inet6`.
    pub(crate) kind: String,
    pub(crate) unsigned: bool,
    /// The name of the character set of a character column; None: not known.
    pub(crate) charset: Option<String>,
    /// Of ENUM and SET.
    pub(crate) labels: Vec<String>,
}

#[derive(FromPyObject)]
pub struct Definition {
    pub(crate) columns: Vec<DefinedColumn>,
    /// The columns of the primary key, then of the other unique keys, in the order in which the server looks at them.
    pub(crate) keys: Vec<Vec<String>>,
}

/// The error for a table whose columns nobody names.
pub fn unknown() -> Fault {
    Fault::refused("the log does not say the names of its columns, and no definition of it is known here", FIX)
}

impl Definition {
    pub fn names(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.name.clone()).collect()
    }

    /// What UUID and INET columns of a log with names are.
    pub fn mark(&self, names: &[String], traits: &mut [Traits]) {
        for (name, traits) in names.iter().zip(traits) {
            let defined = self.columns.iter().find(|column| column.name == *name);
            traits.address = defined.and_then(DefinedColumn::address).filter(|address| address.fits(traits));
        }
    }

    /// Fills in what the log leaves out; an error, and nothing filled in, when the definition is not that of this table.
    pub fn complete(&self, traits: &mut [Traits], signs_are_told: bool) -> Read<()> {
        if self.columns.len() != traits.len() {
            let (defined, there) = (self.columns.len(), traits.len());
            return Err(Fault::refused(
                format!("it has {there} columns in the log, and {defined} in its definition that is known here"),
                FIX,
            ));
        }
        for (defined, traits) in self.columns.iter().zip(traits.iter()) {
            let signs_differ = signs_are_told
                && traits.is_numeric()
                && traits.code != code::YEAR
                && defined.unsigned != traits.unsigned;
            if !defined.fits(traits) || signs_differ {
                let sign = if defined.unsigned { " unsigned" } else { "" };
                let (name, kind) = (&defined.name, &defined.kind);
                return Err(Fault::refused(
                    format!("column {name} is {kind}{sign} in the definition that is known here, and not in the log"),
                    FIX,
                ));
            }
        }
        for (defined, traits) in self.columns.iter().zip(traits) {
            defined.complete(traits)?;
        }
        Ok(())
    }

    /// The key that the server takes: the first that is unique and cannot be null.
    pub fn key(&self, nullable: impl Fn(usize) -> bool) -> Vec<usize> {
        let place = |name: &String| self.columns.iter().position(|column| column.name == *name);
        let places = |key: &Vec<String>| key.iter().map(place).collect::<Option<Vec<usize>>>();
        let mut keys = self.keys.iter().filter_map(places);
        keys.find(|key| !key.iter().any(|&index| nullable(index))).unwrap_or_default()
    }
}

impl DefinedColumn {
    fn address(&self) -> Option<Address> {
        Address::named(&self.kind)
    }

    pub(crate) fn complete(&self, traits: &mut Traits) -> Read<()> {
        if traits.is_numeric() {
            traits.unsigned = self.unsigned;
        }
        traits.address = self.address();
        traits.geometry = traits.geometry.or_else(|| geometry_number(&self.kind));
        if traits.labels.is_none() && !self.labels.is_empty() {
            traits.labels = Some(self.labels.as_slice().into());
        }
        if traits.is_character() && traits.collation.is_none() && traits.address.is_none() {
            traits.collation = Some(self.collation()?);
        }
        Ok(())
    }

    fn collation(&self) -> Read<u64> {
        let name = &self.name;
        let Some(charset) = &self.charset else {
            return Err(Fault::refused(format!("the character set of column {name} is not known"), FIX));
        };
        Charset::collation_of(charset).ok_or_else(|| {
            Fault::refused(
                format!("the character set {charset} of column {name} is not known to headrace"),
                "convert the column to utf8mb4, or leave the table out of the capture",
            )
        })
    }

    /// Whether the log's type can be this type's. Lengths are not looked at: the log has them.
    fn fits(&self, traits: &Traits) -> bool {
        use code::{
            BIT, BLOB, BLOB_COMPRESSED, DATE, DATETIME, DATETIME2, DOUBLE, ENUM, FLOAT, GEOMETRY, INT24, JSON, LONG,
            LONGLONG, NEWDECIMAL, SET, SHORT, STRING, TIME, TIME2, TIMESTAMP, TIMESTAMP2, TINY, TINY_BLOB, VAR_STRING,
            VARCHAR, VARCHAR_COMPRESSED, VECTOR, YEAR,
        };
        if let Some(address) = self.address() {
            return address.fits(traits);
        }
        let code = traits.real_code();
        match self.kind.as_str() {
            "tinyint" => code == TINY,
            "smallint" => code == SHORT,
            "mediumint" => code == INT24,
            "int" => code == LONG,
            "bigint" => code == LONGLONG,
            "float" | "double" => matches!(code, FLOAT | DOUBLE),
            "decimal" => code == NEWDECIMAL,
            "bit" => code == BIT,
            "year" => code == YEAR,
            "date" => code == DATE,
            "time" => matches!(code, TIME | TIME2),
            "datetime" => matches!(code, DATETIME | DATETIME2),
            "timestamp" => matches!(code, TIMESTAMP | TIMESTAMP2),
            "char" | "binary" => code == STRING,
            // A VARCHAR that is too long becomes a TEXT, where the server's mode allows it.
            "varchar" | "varbinary" => {
                matches!(code, VARCHAR | VAR_STRING | VARCHAR_COMPRESSED | TINY_BLOB..=BLOB)
            }
            "tinytext" | "text" | "mediumtext" | "longtext" | "tinyblob" | "blob" | "mediumblob" | "longblob" => {
                matches!(code, TINY_BLOB..=BLOB | BLOB_COMPRESSED)
            }
            "enum" => code == ENUM,
            "set" => code == SET,
            // MariaDB keeps JSON as text.
            "json" => matches!(code, JSON | TINY_BLOB..=BLOB),
            // MariaDB keeps a VECTOR as bytes.
            "vector" => matches!(code, VECTOR | VARCHAR),
            other => code == GEOMETRY && geometry_number(other).is_some(),
        }
    }
}
