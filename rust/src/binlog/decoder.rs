//! The decoder: bytes of a log in, batches and transaction boundaries out. No connection, no clock, no files.

use std::sync::Arc;

use super::cursor::Cursor;
use super::event::{self, Format, Gtid, Header, Opening, Query, Rotate, kind};
use super::fault::{Fault, Read};
use super::frame;
use super::include::Include;
use super::pending::{Ddl, Item, Pending};
use super::place::Place;
use super::refusals;
use super::rows::{Layout, Rows, Stamp};
use super::statement::{self, Statement};
use super::table_map::Table;
use super::tables::Tables;

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
    tables: Tables,
    network: bool,
    place: Place,
    expects_magic: bool,
    format: Option<Format>,
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
            tables: Tables::new(include, before_images),
            network,
            place: Place::none(),
            expects_magic: false,
            format: None,
            transaction: Transaction::default(),
            commit_ts_us: i64::MIN,
            gtid: Gtid::None,
            complete: None,
            pending: Pending::default(),
            failed: None,
            incomplete_at: None,
        }
    }

    /// Begins afresh at a place: what is pending, and a transaction under way, are forgotten; tables keep their indexes.
    pub fn start(&mut self, file: &str, offset: u64, commit_ts_us: i64) -> Read<()> {
        self.place = Place::new(file, offset)?;
        self.place.id(offset)?;
        self.expects_magic = offset == 0 && !self.network;
        self.format = None;
        self.tables.forget_ids();
        self.transaction = Transaction::default();
        self.commit_ts_us = commit_ts_us;
        self.complete = None;
        self.pending = Pending::default();
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
        if let Some(fault) = Fault::first(result.err().into_iter().chain(self.pending.carry().err())) {
            let mut place = self.place.clone();
            if let Some(row) = fault.row() {
                // More has been taken since, which must neither be handed out nor counted as complete.
                self.pending.cut(row.id);
                self.complete = None;
                place.offset = row.event_offset;
            }
            let fault = fault.at(place);
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
            Some(next) => {
                self.pending.carry()?;
                self.place = next;
            }
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
            kind::TABLE_MAP => self.tables.take_map(cursor)?,
            kind::QUERY => self.query(header, &Query::read(cursor)?)?,
            kind::XID | kind::XA_PREPARE => self.end_transaction(),
            kind::GTID => self.open_transaction(Opening::mysql(cursor, false)?)?,
            kind::ANONYMOUS_GTID => self.open_transaction(Opening::mysql(cursor, true)?)?,
            kind::GTID_TAGGED => self.open_transaction(Opening::tagged(cursor)?)?,
            kind::MARIADB_GTID => self.open_transaction(Opening::mariadb(cursor, header)?)?,
            kind::FORMAT_DESCRIPTION => {
                self.require_no_open_rows()?;
                self.tables.forget_ids();
                self.format = Some(Format::read(event, self.network)?);
            }
            kind::ROTATE if self.network => {
                let rotate = Rotate::read(cursor)?;
                return Place::new(&rotate.file, rotate.offset).map(Some);
            }
            _ => refusals::check_harmless(header, self.network)?,
        }
        Ok(None)
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
            Statement::Rollback | Statement::RollbackTo if self.transaction.rows => return Err(refusals::rolled_back()),
            Statement::Commit | Statement::Rollback => self.end_transaction(),
            Statement::Inside | Statement::RollbackTo => {}
            Statement::XaRollback => return Err(refusals::rolled_back()),
            Statement::Dml if statement::writes_only_system_tables(&query.sql) && !self.tables.wants(b"mysql", b"") => {
                self.end_statement();
            }
            Statement::Dml => return Err(refusals::statement(query)),
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
            started_us: header.ts_us() + i64::from(query.micros),
            time_zone: query.time_zone.clone(),
        };
        self.advance_commit_ts(header);
        self.pending.add_ddl(ddl)
    }

    /// Commit time never goes back, whatever the servers' clocks do.
    fn advance_commit_ts(&mut self, header: &Header) {
        let commit_ts_us = *self.transaction.commit_ts_us.get_or_insert(header.ts_us());
        self.commit_ts_us = self.commit_ts_us.max(commit_ts_us);
    }

    fn rows(&mut self, header: &Header, rows: &Rows<'_>, event_bytes: usize) -> Read<()> {
        self.transaction.open = true;
        if !self.tables.wants_rows(rows.table_id)? {
            return Ok(());
        }
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
        let Some(target) = self.tables.target(rows.table_id) else { return Ok(()) };
        self.transaction.rows = true;
        self.pending.add(&target, rows, &stamp)
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
        self.tables.get(index)
    }
}
