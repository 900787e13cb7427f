//! The decoder: bytes of a log in, batches and transaction boundaries out. No connection, no clock, no files.

use std::sync::Arc;

use super::compressed::Compressed;
use super::cursor::Cursor;
use super::definition::Definition;
use super::event::{self, Family, Format, Header, Opening, Query, Rotate, kind};
use super::fault::{Fault, Read, RowPlace};
use super::frame::{self, Frame};
use super::gtid::{Gtid, GtidSet};
use super::include::Include;
use super::payload::Payload;
use super::pending::{Ddl, Item, Pending};
use super::place::Place;
use super::refusals;
use super::row_event::{Layout, Rows, RowsLeft, Stamp};
use super::statement::{self, Statement};
use super::table_map::Table;
use super::tables::Tables;

/// When to hand over: at the first end of a transaction with this much pending, within one only with `WITHIN` at least.
#[derive(Clone, Copy)]
pub struct Stop {
    pub rows: usize,
    pub bytes: usize,
    /// Also behind each statement that changes what tables are.
    pub at_ddl: bool,
}

/// What is known of the log before the place at which decoding starts.
pub struct Before<'s> {
    /// Bytes that decompression has added before the offset.
    pub expanded: u64,
    /// All transactions; empty when they are not known.
    pub gtids: &'s str,
    /// What is added to the numbers of files in ids.
    pub renumbered: i64,
    /// The newest commit time: later ones do not go below it.
    pub commit_ts_us: i64,
    /// Rows are passed over up to the first transaction that was committed at this time or later.
    pub skip_until_us: i64,
}

/// A transaction can be larger than memory, and a few bytes of it can hold millions of rows.
const WITHIN: Stop = Stop { rows: 1 << 16, bytes: 16 << 20, at_ddl: false };

/// A position between transactions.
pub struct Boundary {
    pub file: Arc<str>,
    pub offset: u64,
    pub expanded: u64,
    /// All transactions up to here; empty when that is not known, or transactions have no names.
    pub gtids: String,
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
    /// Where decoding started. A server that is asked by GTIDs begins at the start of that file, and sends nothing that it counted as
    /// executed when it told the place. `MySQL` counts a transaction a moment after it has logged it, so the newest before this place may
    /// come all the same: of those only the names are taken, and no boundary is handed out.
    started: Place,
    expects_magic: bool,
    format: Option<Format>,
    transaction: Transaction,
    /// The compressed transaction whose events are coming out; `place` stays where its event begins.
    payload: Option<Payload>,
    /// The row event that is taken in parts.
    rows_left: Option<RowsLeft>,
    commit_ts_us: i64,
    skip_until_us: i64,
    /// All transactions so far; None until the start or the log tells which came before.
    executed: Option<GtidSet>,
    /// The newest place between two transactions that was reached since the last `take`.
    complete: Option<Place>,
    pending: Pending,
    failed: Option<Fault>,
    incomplete_at: Option<u64>,
}

impl Decoder {
    pub fn new(include: Include, before_images: bool, network: bool, names_required: bool) -> Self {
        Self {
            tables: Tables::new(include, before_images, names_required),
            network,
            place: Place::none(),
            started: Place::none(),
            expects_magic: false,
            format: None,
            transaction: Transaction::default(),
            payload: None,
            rows_left: None,
            commit_ts_us: i64::MIN,
            skip_until_us: i64::MIN,
            executed: None,
            complete: None,
            pending: Pending::default(),
            failed: None,
            incomplete_at: None,
        }
    }

    /// Begins afresh at a place: what is pending, and a transaction under way, are forgotten; tables keep their indexes.
    pub fn start(&mut self, file: &str, offset: u64, before: &Before<'_>) -> Read<()> {
        self.executed = if before.gtids.is_empty() { None } else { Some(GtidSet::parse(before.gtids)?) };
        self.place = Place::new(file, offset, before.renumbered)?.expanded_by(before.expanded);
        self.place.id(offset)?;
        self.started = self.place.clone();
        self.expects_magic = offset == 0 && !self.network;
        self.format = None;
        self.tables.forget_ids();
        self.transaction = Transaction::default();
        self.payload = None;
        self.rows_left = None;
        self.commit_ts_us = before.commit_ts_us;
        self.skip_until_us = before.skip_until_us;
        self.complete = None;
        self.pending = Pending::of(self.place.file.clone());
        self.failed = None;
        self.incomplete_at = None;
        Ok(())
    }

    /// Reads the format of a file out of its beginning, for a start in its middle.
    pub fn prime(&mut self, head: &[u8]) -> Read<()> {
        let mut cursor = Cursor::new(head);
        cursor.array().and_then(event::check_magic).map_err(|fault| fault.at(&self.place.file))?;
        while !cursor.is_empty() {
            let place = format!("{} at {}", self.place.file, head.len() - cursor.left());
            let rest = cursor.rest();
            let Some(frame) = frame::in_file(rest).map_err(|fault| fault.at(&place))? else { break };
            match frame.header.kind {
                kind::FORMAT_DESCRIPTION => {
                    self.format = Some(Format::read(&frame.event, false).map_err(|fault| fault.at(&place))?);
                }
                kind::MARIADB_START_ENCRYPTION => return Err(event::encrypted().at(&self.place.file)),
                _ => break,
            }
            cursor = Cursor::new(rest.get(frame.used..).unwrap_or_default());
        }
        if self.format.is_none() {
            let place = format!("{} at {}", self.place.file, event::MAGIC_BYTES);
            return Err(Fault::corrupt("no format description follows the file's magic number").at(place));
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
        if let Some(fault) = Fault::first(result.err().into_iter().chain(self.pending.carry(data).err())) {
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
            if self.in_payload() {
                if let Some(left) = self.rows_left.take() {
                    self.take_rows_left(left, data)?;
                } else if let Some(payload) = self.payload.take() {
                    self.take_inner_event(payload, data)?;
                }
                if self.is_enough(stop) {
                    break;
                }
                continue;
            }
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
            let frame_bytes = frame.used;
            self.take_event(frame, data)?;
            *used += frame_bytes;
            if self.is_enough(stop) {
                break;
            }
        }
        Ok(())
    }

    fn is_enough(&self, stop: Stop) -> bool {
        if stop.at_ddl && self.behind_ddl() {
            return true;
        }
        let (rows, bytes) = (self.pending.rows, self.pending.bytes);
        (rows >= stop.rows || bytes >= stop.bytes)
            && (self.at_boundary() || rows >= stop.rows.max(WITHIN.rows) || bytes >= stop.bytes.max(WITHIN.bytes))
    }

    fn take_event(&mut self, Frame { header, event, .. }: Frame<'_>, fed: &[u8]) -> Read<()> {
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
            let end = if header.opens_transaction() && self.place.is_before(&self.started) {
                // The server left out what is known, perhaps more than 4 GiB. The first that it sends follows where decoding
                // started, or stands just before.
                self.started.nearest(header.end)
            } else {
                self.place.extend(header.end)
            };
            // What lies between was left out by the server.
            self.place.offset = end.checked_sub(length).ok_or_else(|| Fault::corrupt("an event before its file"))?;
            end
        };
        let body = self.body(&event, &header)?;
        if header.kind == kind::TRANSACTION_PAYLOAD {
            let body_end = event::HEADER_BYTES + body.len();
            self.payload = Some(Payload::open(event, body_end, &self.place, end)?);
            return Ok(());
        }
        let next = self.dispatch(&header, &event, body, self.place.offset, fed)?;
        match next {
            Some(next) => {
                self.pending.enter(next.file.clone(), fed)?;
                self.place = next;
            }
            None => self.place.offset = end,
        }
        self.note_complete();
        Ok(())
    }

    /// Takes one event out of a compressed transaction; behind the last one, its place is passed.
    fn take_inner_event(&mut self, mut payload: Payload, fed: &[u8]) -> Read<()> {
        let Some((event, at)) = payload.next()? else {
            self.place.offset = payload.end;
            self.place.expanded += payload.added;
            self.note_complete();
            return Ok(());
        };
        let body = event.get(event::HEADER_BYTES..).unwrap_or_default();
        self.dispatch(&Header::read(event)?, event, body, at, fed)?;
        self.payload = Some(payload);
        Ok(())
    }

    fn note_complete(&mut self) {
        if !self.transaction.open && !self.place.precedes(&self.started) {
            self.complete = Some(self.place.clone());
        }
    }

    /// What is between header and checksum; the checksum is verified.
    fn body<'e>(&self, event: &'e [u8], header: &Header) -> Read<&'e [u8]> {
        const UNSIGNED: Format = Format { checksums: false, family: Family::MySql };
        const SIGNED: Format = Format { checksums: true, family: Family::MySql };
        match self.format {
            _ if header.kind == kind::FORMAT_DESCRIPTION => UNSIGNED.body(event),
            Some(format) if !format.checksums || event::checksum_fits(event) => format.body(event),
            Some(_) => Err(Fault::corrupt("the checksum of the event is wrong")),
            // A server begins with an artificial event, before anything says whether there are checksums.
            None if self.network && event::checksum_fits(event) => SIGNED.body(event),
            None if self.network => UNSIGNED.body(event),
            None => Err(Fault::corrupt("an event before the format description")),
        }
    }

    /// Does what the event says, whose ids count from `at` and which is one of those `fed` or comes out of one; returns the place that follows it when that is in another file.
    fn dispatch(&mut self, header: &Header, event: &[u8], body: &[u8], at: u64, fed: &[u8]) -> Read<Option<Place>> {
        let cursor = Cursor::new(body);
        if let Some(layout) = Layout::of(header.kind) {
            self.rows(header, &Rows::read(cursor, layout)?, event::HEADER_BYTES + body.len(), at, fed)?;
            return Ok(None);
        }
        match header.kind {
            kind::TABLE_MAP => {
                let family = self.format.map_or(Family::MySql, |format| format.family);
                self.tables.take_map(cursor, family)?;
            }
            kind::QUERY if Query::is_begin(cursor)? => self.begin(header),
            kind::QUERY => self.query(header, &Query::read(cursor)?, at, fed)?,
            kind::XID | kind::XA_PREPARE => self.end_transaction(),
            kind::GTID => self.open_transaction(Opening::mysql(cursor, false)?)?,
            kind::ANONYMOUS_GTID => self.open_transaction(Opening::mysql(cursor, true)?)?,
            kind::GTID_TAGGED => self.open_transaction(Opening::tagged(cursor)?)?,
            kind::MARIADB_GTID => self.open_transaction(Opening::mariadb(cursor, header)?)?,
            kind::PREVIOUS_GTIDS => self.came_before(&GtidSet::read_mysql(cursor)?),
            kind::MARIADB_GTID_LIST => self.came_before(&GtidSet::read_mariadb(cursor)?),
            kind::FORMAT_DESCRIPTION => {
                self.require_no_open_rows()?;
                self.tables.forget_ids();
                self.format = Some(Format::read(event, self.network)?);
            }
            kind::ROTATE if self.network => return self.rotated(header, &Rotate::read(cursor)?).map(Some),
            kind if Compressed::is(kind) => self.compressed(header, &Compressed::read(kind, body)?, fed)?,
            _ => refusals::check_harmless(header, self.network)?,
        }
        Ok(None)
    }

    /// Where the log goes on. A server begins with an artificial event, which can lead to a place before the one asked for.
    fn rotated(&self, header: &Header, rotate: &Rotate) -> Read<Place> {
        let next = self.place.in_file(&rotate.file, rotate.offset)?;
        if !header.is_artificial() && next.id(next.offset)? < self.place.id(self.place.offset)? {
            return Err(Fault::corrupt(format!("the log goes on at {next}, before this place")));
        }
        Ok(next)
    }

    /// Does what the event says when it is unpacked; rows that nobody wants are not.
    fn compressed(&mut self, header: &Header, packed: &Compressed<'_>, fed: &[u8]) -> Read<()> {
        let at = self.place.offset;
        let rows = Layout::of(packed.kind).map(|layout| Rows::read(Cursor::new(packed.front), layout)).transpose()?;
        if rows.map_or(Ok(true), |rows| self.tables.wants_rows(rows.table_id))? {
            self.dispatch(&header.with_kind(packed.kind), &[], &packed.unpack()?, at, fed)?;
        } else {
            self.require_transaction()?;
        }
        self.place.expanded += packed.added();
        Ok(())
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

    /// What a file says of the transactions before it. They may be fewer than those known: another server's log begins elsewhere.
    fn came_before(&mut self, gtids: &GtidSet) {
        self.executed = Some(self.executed.take().map_or_else(|| gtids.clone(), |known| known.union(gtids)));
    }

    fn end_transaction(&mut self) {
        let ended = std::mem::take(&mut self.transaction);
        if let Some(executed) = &mut self.executed {
            executed.add(&ended.gtid);
        }
    }

    /// One statement was the whole transaction, unless it stands between BEGIN and COMMIT.
    fn end_statement(&mut self) {
        if !self.transaction.began {
            self.end_transaction();
        }
    }

    fn require_transaction(&self) -> Read<()> {
        if self.transaction.open {
            return Ok(());
        }
        Err(Fault::refused(
            "rows without the beginning of their transaction: decoding began in its middle",
            "start at a place where a transaction begins",
        ))
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

    fn query(&mut self, header: &Header, query: &Query, at: u64, fed: &[u8]) -> Read<()> {
        let Some(statement) = statement::classify(&query.sql) else { return Ok(()) };
        match statement {
            Statement::Begin | Statement::XaStart => self.begin(header),
            Statement::Alone => self.end_statement(),
            Statement::Ddl => {
                self.add_ddl(header, query, at, fed)?;
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

    fn add_ddl(&mut self, header: &Header, query: &Query, at: u64, fed: &[u8]) -> Read<()> {
        if self.place.precedes(&self.started) {
            return Ok(());
        }
        let ddl = Ddl {
            schema: query.schema.clone(),
            sql: query.sql.clone(),
            file: self.place.file.clone(),
            offset: self.place.offset,
            id: self.place.id(at)?,
            ts_us: self.transaction.ts_us.unwrap_or(header.ts_us()),
            started_us: header.ts_us() + i64::from(query.micros),
            time_zone: query.time_zone.clone(),
            server_charset: query.server_charset,
        };
        self.advance_commit_ts(header);
        self.pending.add_ddl(ddl, fed)
    }

    /// Once a transaction is young enough, all that follow are taken, whatever the servers' clocks do.
    fn is_too_old(&mut self, header: &Header) -> bool {
        let too_old = self.transaction.commit_ts_us.unwrap_or(header.ts_us()) < self.skip_until_us;
        if !too_old {
            self.skip_until_us = i64::MIN;
        }
        too_old
    }

    /// Commit time never goes back, whatever the servers' clocks do.
    fn advance_commit_ts(&mut self, header: &Header) {
        let commit_ts_us = *self.transaction.commit_ts_us.get_or_insert(header.ts_us());
        self.commit_ts_us = self.commit_ts_us.max(commit_ts_us);
    }

    fn rows(&mut self, header: &Header, rows: &Rows<'_>, event_bytes: usize, at: u64, fed: &[u8]) -> Read<()> {
        self.require_transaction()?;
        if !self.tables.wants_rows(rows.table_id)? || self.place.precedes(&self.started) || self.is_too_old(header) {
            return Ok(());
        }
        self.advance_commit_ts(header);
        let stamp = Stamp {
            event_id: self.place.id(at)?,
            event_offset: i64::try_from(self.place.offset).unwrap_or(i64::MAX),
            event_bytes,
            ts_us: self.transaction.ts_us.unwrap_or(header.ts_us()),
            commit_ts_us: self.commit_ts_us,
        };
        self.place.id(at + event_bytes as u64)?;
        let Some(target) = self.tables.target(rows.table_id) else { return Ok(()) };
        self.transaction.rows = true;
        if let Some(taken) = self.pending.add(&target, rows, &stamp, fed)? {
            self.rows_left = Some(RowsLeft::of(rows, target.index, stamp, taken));
        }
        Ok(())
    }

    /// Goes on with an event whose place has been passed.
    fn take_rows_left(&mut self, mut left: RowsLeft, fed: &[u8]) -> Read<()> {
        let Some(target) = self.tables.target_at(left.table) else { return Ok(()) };
        let event_offset = u64::try_from(left.stamp.event_offset).unwrap_or(0);
        // Its own bytes are those fed until its rows are carried, so that no other rows may wait for it.
        self.pending.carry(fed)?;
        let taken = self.pending.add(&target, &left.rows(), &left.stamp, left.body());
        let carried = self.pending.carry(left.body());
        let taken = taken.and_then(|taken| carried.map(|()| taken)).map_err(|fault| {
            let broken = fault.row().unwrap_or(RowPlace { id: i64::MAX, event_offset });
            fault.of_row(broken)
        })?;
        if let Some(taken) = taken {
            left.taken = taken;
            self.rows_left = Some(left);
        }
        Ok(())
    }

    pub fn take(&mut self) -> Read<(Vec<Item>, Option<Boundary>)> {
        let items = self.pending.take()?;
        let complete = self.complete.take().filter(|_| !self.transaction.rows && !self.in_payload());
        Ok((items, complete.map(|place| self.boundary(place)).transpose()?))
    }

    fn boundary(&self, place: Place) -> Read<Boundary> {
        Ok(Boundary {
            id: place.id(place.offset)?,
            file: place.file,
            offset: place.offset,
            expanded: place.expanded,
            gtids: self.executed.as_ref().map(GtidSet::to_string).unwrap_or_default(),
            commit_ts_us: self.commit_ts_us,
        })
    }

    pub fn finish(&self) -> Read<()> {
        if let Some(fault) = &self.failed {
            return Err(fault.clone());
        }
        if self.incomplete_at.is_some() || self.expects_magic || self.in_payload() {
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
        !self.transaction.open && !self.in_payload()
    }

    /// An event has been taken from the bytes fed, and not all that is in it has come out.
    pub fn in_payload(&self) -> bool {
        self.payload.is_some() || self.rows_left.is_some()
    }

    /// The newest that was decoded and not taken is a statement.
    pub fn behind_ddl(&self) -> bool {
        self.pending.ends_with_ddl()
    }

    pub fn define(&mut self, schema: String, table: String, definition: Option<Definition>) {
        self.tables.define(schema, table, definition);
    }

    pub fn incomplete_at(&self) -> Option<u64> {
        self.incomplete_at
    }

    pub fn table(&self, index: usize) -> Option<&Table> {
        self.tables.get(index)
    }
}
