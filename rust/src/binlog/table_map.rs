//! `TABLE_MAP` events: what the row events behind them mean.
//!
//! ```text
//! table id u48 | flags u16 | schema (u8 length, 0) | table (u8 length, 0) | columns lenenc | types | metadata (lenenc length)
//! | nullable bitmap | optional metadata: (type u8, length lenenc, value)*
//! ```
//! The server writes one before the rows of every statement; nearly all repeat what is known, so that bytes are compared first.

use std::fmt::{self, Write};
use std::sync::Arc;

use super::charset::Charset;
use super::columns::{Shape, Traits, code, metadata_bytes};
use super::cursor::{Cursor, bit};
use super::definition::{self, Definition};
use super::event::Family;
use super::fault::{Fault, Read};
use super::json::quote;

const MAX_COLUMNS: usize = 4096;
/// Names have 64 and labels 255 characters at most. Each stands in memory again and again for few bytes of the log.
const MAX_NAME_BYTES: usize = 64 * 4;
const MAX_LABEL_BYTES: usize = 255 * 4;

/// One column of one version of a table.
pub struct Column {
    pub name: Arc<str>,
    pub nullable: bool,
    pub is_json: bool,
    pub shape: Shape,
}

/// One version of a table: the distinct content of a table map.
pub struct Table {
    pub schema: String,
    pub name: String,
    pub columns: Vec<Column>,
    /// Indexes of the columns that batches have, in order; the others are stepped over.
    pub kept: Vec<usize>,
    /// Indexes of the primary key's columns, in the key's order; empty when there is none or the log does not tell.
    pub key: Vec<usize>,
    /// False when neither the log (`binlog_row_metadata=MINIMAL`) nor a definition has names.
    pub named: bool,
}

/// The part that is read from every table map: whose it is.
pub struct Head<'a> {
    pub id: u64,
    pub schema: &'a [u8],
    pub name: &'a [u8],
    /// Everything behind the table id and the flags, the part that decides whether it is known.
    pub content: &'a [u8],
    rest: Cursor<'a>,
}

impl<'a> Head<'a> {
    pub fn read(mut cursor: Cursor<'a>) -> Read<Self> {
        let id = cursor.u48()?;
        cursor.skip(2)?;
        let mut whole = cursor;
        let schema = name(&mut cursor)?;
        let table = name(&mut cursor)?;
        Ok(Self { id, schema, name: table, content: whole.rest(), rest: cursor })
    }
}

fn name<'a>(cursor: &mut Cursor<'a>) -> Read<&'a [u8]> {
    let name = cursor.prefixed::<1>()?;
    cursor.skip(1)?;
    Ok(name)
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {}.{}", self.schema, self.name)
    }
}

impl Table {
    /// `definition` says what the log leaves out. Where nobody says it, or a definition is not that of this table, columns are
    /// `@1`, `@2`, …; an error where names are required.
    pub fn read(head: &Head<'_>, family: Family, definition: Option<&Definition>, names_required: bool) -> Read<Self> {
        let mut cursor = head.rest;
        let count = cursor.lenenc_size()?;
        if count > MAX_COLUMNS {
            return Err(Fault::corrupt(format!("a table of {count} columns")));
        }
        let types = cursor.bytes(count)?;
        let mut metadata = Cursor::new(cursor.lenenc_bytes()?);
        let mut traits = types.iter().map(|&code| base_traits(code, &mut metadata)).collect::<Read<Vec<_>>>()?;
        let nullable = cursor.bytes(count.div_ceil(8))?;
        let mut extra = Extra::read(cursor, &mut traits, family)?;
        if extra.names.is_empty() {
            let defined = definition.map_or_else(
                || Err(definition::unknown()),
                |definition| extra.define(definition, &mut traits, |index| bit(nullable, index)),
            );
            if names_required {
                defined?;
            }
        } else if let Some(definition) = definition {
            definition.mark(&extra.names, &mut traits);
        }
        let columns = traits.iter().enumerate().map(|(index, traits)| {
            let name = extra.names.get(index).cloned().unwrap_or_else(|| format!("@{}", index + 1));
            let shape = Shape::of(traits).map_err(|fault| fault.at(format!("column {name}")))?;
            Ok(Column { name: name.into(), nullable: bit(nullable, index), is_json: traits.code == code::JSON, shape })
        });
        let columns = columns.collect::<Read<Vec<_>>>()?;
        Ok(Self {
            schema: text(head.schema),
            name: text(head.name),
            kept: (0..columns.len()).collect(),
            columns,
            key: extra.key,
            named: count > 0 && extra.names.len() == count,
        })
    }

    /// Only the columns of these names and the key's; None: all.
    pub fn keep(mut self, names: Option<&[&str]>) -> Read<Self> {
        let Some(names) = names else { return Ok(self) };
        if let Some(unknown) = names.iter().find(|name| self.columns.iter().all(|column| *column.name != ***name)) {
            let there: Vec<&str> = self.columns.iter().map(|column| &*column.name).collect();
            return Err(Fault::refused(
                format!("there is no column '{unknown}' that was asked for"),
                format!("ask for columns of these: {}", there.join(", ")),
            ));
        }
        let wanted = |index: &usize| {
            let name = self.columns.get(*index).map_or("", |column| &column.name);
            self.key.contains(index) || names.contains(&name)
        };
        self.kept = (0..self.columns.len()).filter(wanted).collect();
        Ok(self)
    }

    /// The columns that batches have, with their indexes.
    pub fn kept_columns(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.kept.iter().filter_map(|&index| Some((index, self.columns.get(index)?)))
    }

    pub fn json_columns(&self) -> usize {
        self.columns.iter().filter(|column| column.is_json).count()
    }

    /// The description that Python reads.
    pub fn to_json(&self) -> String {
        let mut out = String::from("{\"schema\": ");
        quote(&self.schema, &mut out);
        out.push_str(", \"table\": ");
        quote(&self.name, &mut out);
        out.push_str(", \"columns\": [");
        for (place, (_, column)) in self.kept_columns().enumerate() {
            out.push_str(if place == 0 { "{\"name\": " } else { ", {\"name\": " });
            quote(&column.name, &mut out);
            out.push_str(", \"source_type\": ");
            quote(&column.shape.source_type, &mut out);
            let _ = write!(out, ", \"nullable\": {}}}", column.nullable);
        }
        out.push_str("], \"key\": [");
        for (index, column) in self.key.iter().filter_map(|&index| self.columns.get(index)).enumerate() {
            out.push_str(if index == 0 { "" } else { ", " });
            quote(&column.name, &mut out);
        }
        let _ = write!(out, "], \"named\": {}}}", self.named);
        out
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn base_traits(code: u8, metadata: &mut Cursor<'_>) -> Read<Traits> {
    let mut bytes = [0; 2];
    for slot in bytes.iter_mut().take(metadata_bytes(code)) {
        *slot = metadata.u8()?;
    }
    Ok(Traits { code, metadata: bytes, ..Traits::default() })
}

/// What the optional metadata adds to the whole table.
#[derive(Default)]
struct Extra {
    names: Vec<String>,
    key: Vec<usize>,
    signs_are_told: bool,
}

impl Extra {
    fn read(mut cursor: Cursor<'_>, traits: &mut [Traits], family: Family) -> Read<Self> {
        let mut extra = Self::default();
        let mut labels: Vec<(u8, Cursor<'_>)> = Vec::new();
        while !cursor.is_empty() {
            let kind = cursor.u8()?;
            let mut value = Cursor::new(cursor.lenenc_bytes()?);
            match kind {
                1 => {
                    signs(traits, value.rest());
                    extra.signs_are_told = true;
                }
                2 => collations_by_default(of(traits, |column| column.has_collation(family)), &mut value)?,
                3 => collations(of(traits, |column| column.has_collation(family)), &mut value)?,
                4 => extra.names = names(&mut value, traits.len())?,
                5 => labels.push((code::SET, value)),
                6 => labels.push((code::ENUM, value)),
                7 => numbers(of(traits, |column| column.code == code::GEOMETRY), &mut value, |column| {
                    &mut column.geometry
                })?,
                8 => extra.key = key(&mut value, traits.len(), false)?,
                9 => extra.key = key(&mut value, traits.len(), true)?,
                10 => collations_by_default(of(traits, is_labelled), &mut value)?,
                11 => collations(of(traits, is_labelled), &mut value)?,
                13 => numbers(of(traits, |column| column.code == code::VECTOR), &mut value, |column| {
                    &mut column.dimensions
                })?,
                // 12: visibility, which changes nothing here; others: of servers to come.
                _ => {}
            }
        }
        // Labels are in their column's character set, which may come behind them.
        for (code, mut value) in labels {
            for column in of(traits, |column| column.real_code() == code) {
                column.labels = Some(label_list(&mut value, column.collation)?);
            }
        }
        Ok(extra)
    }

    fn define(&mut self, definition: &Definition, traits: &mut [Traits], nullable: impl Fn(usize) -> bool) -> Read<()> {
        definition.complete(traits, self.signs_are_told)?;
        self.names = definition.names();
        self.key = definition.key(nullable);
        Ok(())
    }
}

fn of(traits: &mut [Traits], wanted: impl Fn(&Traits) -> bool) -> impl Iterator<Item = &mut Traits> {
    traits.iter_mut().filter(move |column| wanted(column))
}

fn is_labelled(column: &Traits) -> bool {
    matches!(column.real_code(), code::ENUM | code::SET)
}

/// One bit per numeric column, the highest bit of a byte first.
fn signs(traits: &mut [Traits], bitmap: &[u8]) {
    for (index, column) in of(traits, Traits::is_numeric).enumerate() {
        column.unsigned = bitmap.get(index / 8).is_some_and(|byte| byte << (index % 8) & 0x80 != 0);
    }
}

/// One collation for all, then (index, collation) of the columns that differ.
fn collations_by_default<'t>(columns: impl Iterator<Item = &'t mut Traits>, value: &mut Cursor<'_>) -> Read<()> {
    let default = value.lenenc()?;
    let mut columns: Vec<&mut Traits> = columns.collect();
    for column in &mut columns {
        column.collation = Some(default);
    }
    while !value.is_empty() {
        let (index, collation) = (value.lenenc_size()?, value.lenenc()?);
        let column =
            columns.get_mut(index).ok_or_else(|| Fault::corrupt("a collation of a column that is not there"))?;
        column.collation = Some(collation);
    }
    Ok(())
}

fn collations<'t>(columns: impl Iterator<Item = &'t mut Traits>, value: &mut Cursor<'_>) -> Read<()> {
    numbers(columns, value, |column| &mut column.collation)
}

fn numbers<'t>(
    columns: impl Iterator<Item = &'t mut Traits>,
    value: &mut Cursor<'_>,
    slot: impl Fn(&mut Traits) -> &mut Option<u64>,
) -> Read<()> {
    for column in columns {
        *slot(column) = Some(value.lenenc()?);
    }
    Ok(())
}

fn names(value: &mut Cursor<'_>, count: usize) -> Read<Vec<String>> {
    let name = |bytes| match text(bytes) {
        name if name.contains('\0') => Err(Fault::corrupt("a column's name holds a zero byte")),
        name if name.len() > MAX_NAME_BYTES => Err(Fault::corrupt(format!("a column's name of {} bytes", name.len()))),
        name => Ok(name),
    };
    (0..count).map(|_| value.lenenc_bytes().and_then(name)).collect()
}

/// Column indexes; in the second form each with the length of its prefix.
fn key(value: &mut Cursor<'_>, count: usize, with_prefixes: bool) -> Read<Vec<usize>> {
    let mut key = Vec::new();
    while !value.is_empty() {
        let index = value.lenenc_size()?;
        if with_prefixes {
            value.lenenc()?;
        }
        if index >= count {
            return Err(Fault::corrupt("a key of a column that is not there"));
        }
        key.push(index);
    }
    Ok(key)
}

fn label_list(value: &mut Cursor<'_>, collation: Option<u64>) -> Read<Arc<[String]>> {
    let charset = collation.and_then(Charset::of_collation).unwrap_or(Charset::Utf8 { max_bytes: 4 });
    let count = value.lenenc_size()?;
    let label = |bytes: &[u8]| match bytes.len() {
        0..=MAX_LABEL_BYTES => Ok(charset.decode_lossy(bytes)),
        length => Err(Fault::corrupt(format!("a label of {length} bytes"))),
    };
    (0..count).map(|_| value.lenenc_bytes().and_then(label)).collect()
}
