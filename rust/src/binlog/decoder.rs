//! The decoder: bytes of a log in, batches and transaction boundaries out. No connection, no clock, no files.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::SchemaRef;

use super::cursor::Cursor;
use super::event::{self, Format, Gtid, Header, Opening, Query, Rotate, kind};
use super::fault::{Fault, Read};
use super::frame;
use super::include::Include;
use super::pending::{Ddl, Item, Pending, Target};
use super::place::Place;
use super::rows::{self, Layout, Rows, Stamp};
use super::statement::{self, Statement};
use super::table_map::{Head, Table};

/// The table id of a row event that only ends a statement.
const NO_TABLE: u64 = 0x00ff_ffff;
const ROW_FORMAT_FIX: &str = "set binlog_format=ROW at the source (and let no session change it), \
     load the table again, and start from a position behind this one";

/// When to hand over: at the first end of a transaction with this much pending.
#[derive(Clone, Copy)]
pub struct Stop {
    pub rows: usize,
    pub bytes: usize,
}

/// A position between transactions.
pub struct Boundary {
    pub file: Arc<str>,
    pub offset: u64,
    pub gtid: String,
    pub id: i64,
    pub commit_ts_us: i64,
}

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

#[derive(Default)]
struct Transaction {
    open: bool,
    /// COMMIT or XID will end it; else one statement does.
    began: bool,
    /// Rows of it have been decoded.
    rows: bool,
    ts_us: Option<i64>,
    commit_ts_us: Option<i64>,
    gtid: Gtid,
}

pub struct Decoder {
    include: Include,
    before_images: bool,
    network: bool,
    place: Place,
    expects_magic: bool,
    format: Option<Format>,
    versions: Vec<Version>,
    by_content: HashMap<Arc<[u8]>, usize>,
    mapped: HashMap<u64, Mapped>,
    transaction: Transaction,
    commit_ts_us: i64,
    gtid: Gtid,
    /// The newest place between two transactions that was reached since the last `take`.
    complete: Option<Place>,
    pending: Pending,
    failed: Option<Fault>,
    incomplete_at: Option<u64>,
}

impl Decoder {
    pub fn new(include: Include, before_images: bool, network: bool) -> Self {
        Self {
            include,
            before_images,
            network,
            place: Place::none(),
            expects_magic: false,
            format: None,
            versions: Vec::new(),
            by_content: HashMap::new(),
            mapped: HashMap::new(),
            transaction: Transaction::default(),
            commit_ts_us: i64::MIN,
            gtid: Gtid::None,
            complete: None,
            pending: Pending::default(),
            failed: None,
            incomplete_at: None,
        }
    }

    pub fn start(&mut self, file: &str, offset: u64, commit_ts_us: i64) -> Read<()> {
        self.require_no_open_rows()?;
        self.place = Place::new(file, offset)?;
        self.place.id(offset)?;
        self.expects_magic = offset == 0 && !self.network;
        self.format = None;
        self.mapped.clear();
        self.transaction = Transaction::default();
        self.commit_ts_us = self.commit_ts_us.max(commit_ts_us);
        self.complete = None;
        self.failed = None;
        self.incomplete_at = None;
        Ok(())
    }

    /// Reads the format of a file out of its beginning, for a start in its middle.
    pub fn prime(&mut self, head: &[u8]) -> Read<()> {
        let place = format!("{} at {}", self.place.file, event::MAGIC_BYTES);
        let mut cursor = Cursor::new(head);
        cursor.array().and_then(event::check_magic).map_err(|fault| fault.at(&self.place.file))?;
        while !cursor.is_empty() {
            let rest = cursor.rest();
            let Some(frame) = frame::in_file(rest).map_err(|fault| fault.at(&place))? else { break };
            let header = Header::read(&frame.event).map_err(|fault| fault.at(&place))?;
            match header.kind {
                kind::FORMAT_DESCRIPTION => {
                    self.format = Some(Format::read(&frame.event, false).map_err(|fault| fault.at(&place))?);
                }
                kind::MARIADB_START_ENCRYPTION => return Err(event::encrypted().at(&self.place.file)),
                _ => break,
            }
            cursor = Cursor::new(rest.get(frame.used..).unwrap_or_default());
        }
        if self.format.is_none() {
            return Err(Fault::corrupt("no format description follows the file's magic number").at(&place));
        }
        Ok(())
    }

    /// Takes whole events and says how many bytes they had.
    pub fn feed(&mut self, data: &[u8], stop: Stop) -> Read<usize> {
        if let Some(fault) = &self.failed {
            return Err(fault.clone());
        }
        self.incomplete_at = None;
        let mut used = 0;
        let result = self.feed_until(data, stop, &mut used);
        if let Err(fault) = result {
            let fault = fault.at(&self.place);
            self.failed = Some(fault.clone());
            return Err(fault);
        }
        Ok(used)
    }

    fn feed_until(&mut self, data: &[u8], stop: Stop, used: &mut usize) -> Read<()> {
        loop {
            let rest = data.get(*used..).unwrap_or_default();
            if self.expects_magic {
                let Some(magic) = rest.first_chunk() else { break };
                event::check_magic(*magic)?;
                self.expects_magic = false;
                self.place.offset = event::MAGIC_BYTES as u64;
                *used += event::MAGIC_BYTES;
                continue;
            }
            let frame = if self.network { frame::in_packets(rest)? } else { frame::in_file(rest)? };
            let Some(frame) = frame else {
                if !rest.is_empty() {
                    self.incomplete_at = Some(self.place.offset);
                }
                break;
            };
            self.take_event(&frame.event)?;
            *used += frame.used;
            if self.at_boundary() && (self.pending.rows >= stop.rows || self.pending.bytes >= stop.bytes) {
                break;
            }
        }
        Ok(())
    }

    fn take_event(&mut self, event: &[u8]) -> Read<()> {
        let header = Header::read(event)?;
        let length = event.len() as u64;
        let end = if !self.network {
            let end = self.place.offset + length;
            if header.end != 0 && u64::from(header.end) != end & 0xffff_ffff {
                return Err(Fault::corrupt(format!(
                    "the event says that it ends at {}, and it ends at {end}",
                    header.end
                )));
            }
            end
        } else if header.is_artificial() {
            self.place.offset
        } else if matches!(header.kind, kind::HEARTBEAT | kind::HEARTBEAT_V2) {
            self.place.extend(header.end)
        } else {
            let end = self.place.extend(header.end);
            // What lies between was left out by the server.
            self.place.offset = end.checked_sub(length).ok_or_else(|| Fault::corrupt("an event before its file"))?;
            end
        };
        let body = self.body(event, &header)?;
        let next = self.dispatch(&header, event, body)?;
        match next {
            Some(next) => self.place = next,
            None => self.place.offset = end,
        }
        if !self.transaction.open {
            self.complete = Some(self.place.clone());
        }
        Ok(())
    }

    /// What is between header and checksum; the checksum is verified.
    fn body<'e>(&self, event: &'e [u8], header: &Header) -> Read<&'e [u8]> {
        let body = |end: usize| event.get(event::HEADER_BYTES..end).ok_or_else(|| Fault::short(end, event.len()));
        let without = event.len() - event::CHECKSUM_BYTES;
        match self.format {
            _ if header.kind == kind::FORMAT_DESCRIPTION => body(event.len()),
            Some(Format { checksums: false }) => body(event.len()),
            Some(Format { checksums: true }) if event::checksum_fits(event) => body(without),
            Some(Format { checksums: true }) => Err(Fault::corrupt("the checksum of the event is wrong")),
            // A server begins with an artificial event, before anything says whether there are checksums.
            None if self.network && event::checksum_fits(event) => body(without),
            None if self.network => body(event.len()),
            None => Err(Fault::corrupt("an event before the format description")),
        }
    }

    /// Does what the event says; returns the place that follows it when that is in another file.
    fn dispatch(&mut self, header: &Header, event: &[u8], body: &[u8]) -> Read<Option<Place>> {
        let cursor = Cursor::new(body);
        if let Some(layout) = Layout::of(header.kind) {
            self.rows(header, &Rows::read(cursor, layout)?, event::HEADER_BYTES + body.len())?;
            return Ok(None);
        }
        match header.kind {
            kind::TABLE_MAP => self.table_map(cursor)?,
            kind::QUERY => self.query(header, &Query::read(cursor)?)?,
            kind::XID | kind::XA_PREPARE => self.end_transaction(),
            kind::GTID => self.open_transaction(Opening::mysql(cursor, false)?)?,
            kind::ANONYMOUS_GTID => self.open_transaction(Opening::mysql(cursor, true)?)?,
            kind::GTID_TAGGED => self.open_transaction(Opening::tagged(cursor)?)?,
            kind::MARIADB_GTID => self.open_transaction(Opening::mariadb(cursor, header)?)?,
            kind::FORMAT_DESCRIPTION => {
                self.require_no_open_rows()?;
                self.mapped.clear();
                self.format = Some(Format::read(event, self.network)?);
            }
            kind::ROTATE if self.network => {
                let rotate = Rotate::read(cursor)?;
                return Place::new(&rotate.file, rotate.offset).map(Some);
            }
            other => self.check_harmless(other, header)?,
        }
        Ok(None)
    }

    /// Events that mean nothing here pass; those that hide rows do not.
    fn check_harmless(&self, event_kind: u8, header: &Header) -> Read<()> {
        match event_kind {
            kind::STOP
            | kind::ROTATE
            | kind::INTVAR
            | kind::RAND
            | kind::USER_VAR
            | kind::SLAVE
            | kind::HEARTBEAT
            | kind::HEARTBEAT_V2
            | kind::IGNORABLE
            | kind::ROWS_QUERY
            | kind::PREVIOUS_GTIDS
            | kind::TRANSACTION_CONTEXT
            | kind::VIEW_CHANGE
            | kind::MARIADB_ANNOTATE..=kind::MARIADB_CHECKPOINT
            | kind::MARIADB_GTID_LIST => Ok(()),
            kind::MARIADB_START_ENCRYPTION if self.network => Ok(()),
            kind::MARIADB_START_ENCRYPTION => Err(event::encrypted()),
            kind::APPEND_BLOCK..=kind::DELETE_FILE | kind::BEGIN_LOAD_QUERY | kind::EXECUTE_LOAD_QUERY => {
                Err(Fault::refused("LOAD DATA is in the log as a statement, without its rows", ROW_FORMAT_FIX))
            }
            kind::INCIDENT => Err(Fault::refused(
                "the server reports that changes are missing in its log (an incident event)",
                "load the tables again and start from a position behind this one",
            )),
            kind::TRANSACTION_PAYLOAD => Err(Fault::refused(
                "a compressed transaction, which is not supported yet",
                "set binlog_transaction_compression=OFF at the source, load the tables again, and start behind it",
            )),
            kind::MARIADB_QUERY_COMPRESSED..=kind::MARIADB_DELETE_ROWS_COMPRESSED => Err(Fault::refused(
                "a compressed event, which is not supported yet",
                "set log_bin_compress=OFF at the source, load the tables again, and start behind it",
            )),
            _ if header.is_ignorable() => Ok(()),
            other => Err(Fault::refused(
                format!("an event of type {other}, which this version does not know"),
                "use a version of headrace that knows the server's version",
            )),
        }
    }

    fn open_transaction(&mut self, opening: Opening) -> Read<()> {
        self.require_no_open_rows()?;
        self.transaction = Transaction {
            open: true,
            began: opening.begins,
            rows: false,
            ts_us: opening.original_commit_us,
            commit_ts_us: opening.immediate_commit_us,
            gtid: opening.gtid,
        };
        Ok(())
    }

    fn end_transaction(&mut self) {
        let ended = std::mem::take(&mut self.transaction);
        if ended.gtid != Gtid::None {
            self.gtid = ended.gtid;
        }
    }

    /// One statement was the whole transaction, unless it stands between BEGIN and COMMIT.
    fn end_statement(&mut self) {
        if !self.transaction.began {
            self.end_transaction();
        }
    }

    fn require_no_open_rows(&self) -> Read<()> {
        if !self.transaction.rows {
            return Ok(());
        }
        Err(Fault::corrupt("the transaction before has no end"))
    }

    fn begin(&mut self, header: &Header) {
        self.transaction.open = true;
        self.transaction.began = true;
        self.transaction.commit_ts_us.get_or_insert(header.ts_us());
    }

    fn query(&mut self, header: &Header, query: &Query) -> Read<()> {
        let Some(statement) = statement::classify(&query.sql) else { return Ok(()) };
        match statement {
            Statement::Begin | Statement::XaStart => self.begin(header),
            Statement::Alone => self.end_statement(),
            Statement::Ddl => {
                self.add_ddl(header, query)?;
                self.end_statement();
            }
            Statement::Rollback | Statement::RollbackTo if self.transaction.rows => return Err(rolled_back()),
            Statement::Commit | Statement::Rollback => self.end_transaction(),
            Statement::Inside | Statement::RollbackTo => {}
            Statement::XaRollback => return Err(rolled_back()),
            Statement::Dml
                if statement::writes_only_system_tables(&query.sql) && !self.include.wants(b"mysql", b"") =>
            {
                self.end_statement();
            }
            Statement::Dml => {
                let kind = statement::kind(&query.sql);
                let message =
                    format!("{kind} in schema '{}' is in the log as a statement, without its rows", query.schema);
                return Err(Fault::refused(message, ROW_FORMAT_FIX));
            }
        }
        Ok(())
    }

    fn add_ddl(&mut self, header: &Header, query: &Query) -> Read<()> {
        let ddl = Ddl {
            schema: query.schema.clone(),
            sql: query.sql.clone(),
            file: self.place.file.clone(),
            offset: self.place.offset,
            id: self.place.id(self.place.offset)?,
            ts_us: self.transaction.ts_us.unwrap_or(header.ts_us()),
        };
        self.advance_commit_ts(header);
        self.pending.add_ddl(ddl)
    }

    /// Commit time never goes back, whatever the servers' clocks do.
    fn advance_commit_ts(&mut self, header: &Header) {
        let commit_ts_us = *self.transaction.commit_ts_us.get_or_insert(header.ts_us());
        self.commit_ts_us = self.commit_ts_us.max(commit_ts_us);
    }

    fn table_map(&mut self, cursor: Cursor<'_>) -> Read<()> {
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
                Mapped::Wanted(self.version(&head)?)
            } else {
                Mapped::Skipped(head.content.to_vec())
            };
            self.mapped.insert(head.id, mapped);
        }
        Ok(())
    }

    fn version(&mut self, head: &Head<'_>) -> Read<usize> {
        if let Some(&index) = self.by_content.get(head.content) {
            return Ok(index);
        }
        let table = Table::read(head).map_err(|fault| {
            fault.at(format!("table {}.{}", String::from_utf8_lossy(head.schema), String::from_utf8_lossy(head.name)))
        })?;
        let content: Arc<[u8]> = head.content.into();
        let index = self.versions.len();
        self.by_content.insert(content.clone(), index);
        let schema = rows::schema(&table, self.before_images);
        self.versions.push(Version { table: Arc::new(table), schema, content });
        Ok(index)
    }

    fn rows(&mut self, header: &Header, rows: &Rows<'_>, event_bytes: usize) -> Read<()> {
        self.transaction.open = true;
        let index = match self.mapped.get(&rows.table_id) {
            Some(Mapped::Wanted(index)) => *index,
            Some(Mapped::Skipped(_)) => return Ok(()),
            None if rows.table_id == NO_TABLE => return Ok(()),
            None => {
                return Err(Fault::corrupt(format!("rows of table id {}, which no table map names", rows.table_id)));
            }
        };
        self.advance_commit_ts(header);
        let offset = self.place.offset;
        let stamp = Stamp {
            event_id: self.place.id(offset)?,
            event_offset: i64::try_from(offset).unwrap_or(i64::MAX),
            event_bytes,
            ts_us: self.transaction.ts_us.unwrap_or(header.ts_us()),
            commit_ts_us: self.commit_ts_us,
        };
        self.place.id(offset + event_bytes as u64)?;
        let Some(version) = self.versions.get(index) else { return Ok(()) };
        let before_images = self.before_images;
        let target = Target { index, table: &version.table, schema: &version.schema, before_images };
        self.transaction.rows = true;
        self.pending
            .add(&target, rows, &stamp)
            .map_err(|fault| fault.at(format!("table {}.{}", version.table.schema, version.table.name)))
    }

    pub fn take(&mut self) -> Read<(Vec<Item>, Option<Boundary>)> {
        let items = self.pending.take()?;
        let complete = self.complete.take().filter(|_| !self.transaction.rows);
        Ok((items, complete.map(|place| self.boundary(place)).transpose()?))
    }

    fn boundary(&self, place: Place) -> Read<Boundary> {
        Ok(Boundary {
            id: place.id(place.offset)?,
            file: place.file,
            offset: place.offset,
            gtid: self.gtid.to_string(),
            commit_ts_us: self.commit_ts_us,
        })
    }

    pub fn finish(&self) -> Read<()> {
        if let Some(fault) = &self.failed {
            return Err(fault.clone());
        }
        if self.incomplete_at.is_some() || self.expects_magic {
            return Err(Fault::corrupt("the file ends in the middle of an event").at(&self.place));
        }
        if self.transaction.rows {
            return Err(Fault::corrupt("the file ends in the middle of a transaction").at(&self.place));
        }
        Ok(())
    }

    pub fn pending_rows(&self) -> usize {
        self.pending.rows
    }

    pub fn pending_bytes(&self) -> usize {
        self.pending.bytes
    }

    pub fn at_boundary(&self) -> bool {
        !self.transaction.open
    }

    pub fn incomplete_at(&self) -> Option<u64> {
        self.incomplete_at
    }

    pub fn table(&self, index: usize) -> Option<&Table> {
        self.versions.get(index).map(|version| &*version.table)
    }
}

fn rolled_back() -> Fault {
    Fault::refused(
        "a transaction was rolled back after its rows were written to the log, which does not say which of them stayed",
        "load its tables again and start from a position behind it",
    )
}
