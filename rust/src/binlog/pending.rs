//! What has been decoded and not been taken: batches under way, closed batches and DDL in their order.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use super::fault::{Fault, Read};
use super::row_event::{Rows, Stamp};
use super::rows::TableRows;
use super::table_map::Table;

/// A batch of one table is closed at this size, so that no column comes near the 2 GiB that its offsets can count.
const BATCH_BYTES: usize = 256 << 20;

#[derive(Clone)]
pub struct Ddl {
    pub schema: String,
    pub sql: String,
    pub file: Arc<str>,
    pub offset: u64,
    pub id: i64,
    pub ts_us: i64,
    /// When the statement began at the server: what `CURRENT_TIMESTAMP` is in it.
    pub started_us: i64,
    pub time_zone: Option<String>,
    /// The character set that a schema gets without one of its own.
    pub server_charset: Option<&'static str>,
}

pub enum Item {
    Rows { table: usize, file: Arc<str>, batch: RecordBatch },
    Ddl(Ddl),
}

/// Where rows of a table go, and what their batches look like.
pub struct Target<'t> {
    pub index: usize,
    pub table: &'t Arc<Table>,
    pub schema: &'t SchemaRef,
    pub before_images: bool,
}

#[derive(Default)]
pub struct Pending {
    /// The log file that the rows under way come from.
    file: Arc<str>,
    items: Vec<Item>,
    /// By table index; empty between batches, so that the next one knows how large it may become.
    open: Vec<Option<TableRows>>,
    /// Indexes of the batches under way, in the order of their first rows.
    order: Vec<usize>,
    pub rows: usize,
    pub bytes: usize,
}

impl Pending {
    pub fn of(file: Arc<str>) -> Self {
        Self { file, ..Self::default() }
    }

    /// What comes now is of another file.
    pub fn enter(&mut self, file: Arc<str>, fed: &[u8]) -> Read<()> {
        self.close(fed)?;
        self.file = file;
        Ok(())
    }

    /// Adds the rows of an event; after a fault, those before the broken one are kept. `fed` are the bytes that the decoder was
    /// fed, the same ones until `carry`. When rows are left, returns how many bytes of the event's images were taken.
    pub fn add(&mut self, target: &Target<'_>, event: &Rows<'_>, stamp: &Stamp, fed: &[u8]) -> Read<Option<usize>> {
        if self.open.len() <= target.index {
            self.open.resize_with(target.index + 1, || None);
        }
        let Some(slot) = self.open.get_mut(target.index) else { return Ok(None) };
        let rows = slot
            .get_or_insert_with(|| TableRows::new(target.table.clone(), target.schema.clone(), target.before_images));
        let before = rows.len();
        let result = rows.take(target.table, event, stamp, fed).map_err(|fault| fault.at(&**target.table));
        if before == 0 && rows.len() > 0 {
            self.order.push(target.index);
        }
        self.rows += rows.len().saturating_sub(before);
        let taken = result?;
        // The event's bytes are what its texts need.
        let bytes = taken.bytes.max(if taken.until.is_none() { stamp.event_bytes } else { 0 });
        self.bytes += bytes;
        rows.bytes += bytes;
        if rows.bytes >= BATCH_BYTES {
            self.close(fed)?;
        }
        Ok(taken.until)
    }

    /// Decodes the values of all rows; of several that are broken the first one is told.
    pub fn carry(&mut self, fed: &[u8]) -> Read<()> {
        let faults = self.open.iter_mut().flatten().filter_map(|rows| rows.carry(fed).err());
        Fault::first(faults).map_or(Ok(()), Err)
    }

    /// Takes away the rows from `id` on, of all batches under way.
    pub fn cut(&mut self, id: i64) {
        self.open.iter_mut().flatten().for_each(|rows| rows.cut(id));
    }

    /// Ends all batches, so that what comes now stands behind them.
    fn close(&mut self, fed: &[u8]) -> Read<()> {
        self.carry(fed)?;
        self.finish()
    }

    /// Ends all batches, whose rows have been carried.
    fn finish(&mut self) -> Read<()> {
        for table in std::mem::take(&mut self.order) {
            let rows = self.open.get_mut(table).and_then(Option::as_mut);
            if let Some(rows) = rows.filter(|rows| rows.len() > 0) {
                self.items.push(Item::Rows { table, file: self.file.clone(), batch: rows.finish()? });
            }
        }
        Ok(())
    }

    pub fn add_ddl(&mut self, ddl: Ddl, fed: &[u8]) -> Read<()> {
        self.close(fed)?;
        self.bytes += ddl.sql.len();
        self.items.push(Item::Ddl(ddl));
        Ok(())
    }

    /// A statement is the newest that there is.
    pub fn ends_with_ddl(&self) -> bool {
        self.order.is_empty() && matches!(self.items.last(), Some(Item::Ddl(_)))
    }

    /// Everything, which has been carried.
    pub fn take(&mut self) -> Read<Vec<Item>> {
        self.finish()?;
        self.rows = 0;
        self.bytes = 0;
        Ok(std::mem::take(&mut self.items))
    }
}
