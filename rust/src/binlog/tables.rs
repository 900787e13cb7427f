//! The tables that a log names: versions for as long as the decoder lives, and what the table ids of one file stand for.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::cursor::Cursor;
use super::definition::Definition;
use super::event::Family;
use super::fault::{Fault, Read};
use super::include::Include;
use super::pending::Target;
use super::rows;
use super::table_map::{Head, Table};

/// The table id of a row event that only ends a statement.
const NO_TABLE: u64 = 0x00ff_ffff;

/// One version of a table that is wanted.
struct Version {
    table: Arc<Table>,
    schema: SchemaRef,
    content: Arc<[u8]>,
}

/// What a table id stands for in this file.
enum Mapped {
    Wanted(usize),
    Skipped(Vec<u8>),
}

pub struct Tables {
    include: Include,
    before_images: bool,
    names_required: bool,
    /// By schema and table.
    definitions: HashMap<(String, String), Definition>,
    versions: Vec<Version>,
    by_content: HashMap<Arc<[u8]>, usize>,
    mapped: BTreeMap<u64, Mapped>,
}

impl Tables {
    pub fn new(include: Include, before_images: bool, names_required: bool) -> Self {
        Self {
            include,
            before_images,
            names_required,
            definitions: HashMap::new(),
            versions: Vec::new(),
            by_content: HashMap::new(),
            mapped: BTreeMap::new(),
        }
    }

    /// What a table is from here on; None: not known. Table maps to come make versions of their own.
    pub fn define(&mut self, schema: String, table: String, definition: Option<Definition>) {
        let versions = &self.versions;
        let of_table = |index: usize| {
            versions.get(index).is_some_and(|known| known.table.schema == schema && known.table.name == table)
        };
        self.by_content.retain(|_, index| !of_table(*index));
        self.mapped.retain(|_, mapped| !matches!(mapped, Mapped::Wanted(index) if of_table(*index)));
        match definition {
            Some(definition) => self.definitions.insert((schema, table), definition),
            None => self.definitions.remove(&(schema, table)),
        };
    }

    pub fn wants(&self, schema: &[u8], table: &[u8]) -> bool {
        self.include.wants(schema, table)
    }

    /// Table ids mean something only up to the end of their file.
    pub fn forget_ids(&mut self) {
        self.mapped.clear();
    }

    pub fn take_map(&mut self, cursor: Cursor<'_>, family: Family) -> Read<()> {
        let head = Head::read(cursor)?;
        let known = match self.mapped.get(&head.id) {
            Some(Mapped::Wanted(index)) => {
                self.versions.get(*index).is_some_and(|known| *known.content == *head.content)
            }
            Some(Mapped::Skipped(content)) => content == head.content,
            None => false,
        };
        if !known {
            let mapped = if self.include.wants(head.schema, head.name) {
                Mapped::Wanted(self.version(&head, family)?)
            } else {
                Mapped::Skipped(head.content.to_vec())
            };
            self.mapped.insert(head.id, mapped);
        }
        Ok(())
    }

    fn version(&mut self, head: &Head<'_>, family: Family) -> Read<usize> {
        if let Some(&index) = self.by_content.get(head.content) {
            return Ok(index);
        }
        let name = |bytes| String::from_utf8_lossy(bytes).into_owned();
        let names = (name(head.schema), name(head.name));
        let columns = self.include.columns(head.schema, head.name);
        let table = Table::read(head, family, self.definitions.get(&names), self.names_required)
            .and_then(|table| table.keep(columns.as_deref()))
            .map_err(|fault| fault.at(format!("table {}.{}", names.0, names.1)))?;
        let content: Arc<[u8]> = head.content.into();
        let index = self.versions.len();
        self.by_content.insert(content.clone(), index);
        let schema = rows::schema(&table, self.before_images);
        self.versions.push(Version { table: Arc::new(table), schema, content });
        Ok(index)
    }

    /// Whether rows of this table id are to be decoded.
    pub fn wants_rows(&self, id: u64) -> Read<bool> {
        match self.mapped.get(&id) {
            Some(Mapped::Wanted(_)) => Ok(true),
            Some(Mapped::Skipped(_)) => Ok(false),
            None if id == NO_TABLE => Ok(false),
            None => Err(Fault::corrupt(format!("rows of table id {id}, which no table map names"))),
        }
    }

    /// Where rows of this table id go.
    pub fn target(&self, id: u64) -> Option<Target<'_>> {
        let Some(&Mapped::Wanted(index)) = self.mapped.get(&id) else { return None };
        self.target_at(index)
    }

    /// Where rows of the table version with this index go.
    pub fn target_at(&self, index: usize) -> Option<Target<'_>> {
        let version = self.versions.get(index)?;
        Some(Target { index, table: &version.table, schema: &version.schema, before_images: self.before_images })
    }

    pub fn get(&self, index: usize) -> Option<&Table> {
        self.versions.get(index).map(|version| &*version.table)
    }
}
