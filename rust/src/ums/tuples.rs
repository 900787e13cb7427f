//! Tuples into rows: each value goes where the plan of its schema says.

use std::sync::Arc;

use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{ArrowError, SchemaRef};
use jiter::Peek;

use super::lanes::{Lane, new_lane, timestamp_value, whole_value};
use super::text;
use super::walk::{Read, Walk, fault};

const MAX_TEXT_BYTES: usize = i32::MAX as usize;
const MICROS: i64 = 1_000_000;
/// Offsets of a file in the original's ids and in headrace's.
const DBUS_OFFSETS: i128 = 10_000_000_000_000;
const ID_OFFSETS: i128 = 1_000_000_000_000;
/// `_ums_id_`, `_ums_ts_`, `_ums_op_`, `_ums_commit_ts_`, `_ums_raw_`.
pub const SYSTEM_COLUMNS: usize = 5;

/// Members that a row may have besides its tuple, where the dialect has no field for them.
const COMMIT_TS: &str = "_ums_commit_ts_";
const RAW: &str = "_ums_raw_";

/// Where a field's values go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Skip,
    Id,
    Ts,
    Op,
    CommitTs,
    Raw,
    /// The user's columns, counted from 0.
    Column(usize),
}

/// What the schema of messages means. `schema` begins with the system columns.
pub struct Plan {
    pub schema: SchemaRef,
    pub targets: Vec<Target>,
    /// Names of the fields, for `_ums_raw_` and for errors.
    pub names: Vec<String>,
    /// `_ums_id_` has 13 digits of offset and must become 12.
    pub dbus_id: bool,
}

/// Rows of one plan and kind.
pub struct Group {
    pub plan: usize,
    pub kind: usize,
    system: System,
    lanes: Vec<Box<dyn Lane>>,
    /// Bytes of text taken so far: no column can hold more than its offsets reach.
    text_bytes: usize,
}

/// The columns that every batch begins with. The last row of each is at hand while its tuple is read.
#[derive(Default)]
struct System {
    id: Int64Builder,
    ts: Vec<i64>,
    op: StringBuilder,
    commit_ts: Vec<i64>,
    raw: StringBuilder,
}

impl Group {
    /// An empty group; the reason when the schema has a type that no lane takes.
    pub fn new(plan: usize, kind: usize, schema: &SchemaRef) -> Result<Self, String> {
        let fields = schema.fields().iter().skip(SYSTEM_COLUMNS);
        let lanes = fields.map(|field| {
            new_lane(field.data_type()).ok_or_else(|| format!("no values of type {} are read", field.data_type()))
        });
        Ok(Self { plan, kind, system: System::default(), lanes: lanes.collect::<Result<_, _>>()?, text_bytes: 0 })
    }

    pub fn is_empty(&self) -> bool {
        self.system.ts.is_empty()
    }

    pub fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
        let instants = |values: Vec<i64>| TimestampMicrosecondArray::from(values).with_timezone("UTC");
        let mut columns: Vec<ArrayRef> = vec![
            Arc::new(self.system.id.finish()),
            Arc::new(instants(self.system.ts)),
            Arc::new(self.system.op.finish()),
            Arc::new(instants(self.system.commit_ts)),
            Arc::new(self.system.raw.finish()),
        ];
        columns.extend(self.lanes.iter_mut().map(|lane| lane.finish()));
        RecordBatch::try_new(schema.clone(), columns)
    }
}

/// Reads tuples into the builders of one group.
pub struct Tuples<'a> {
    pub plan: &'a Plan,
    pub group: &'a mut Group,
    pub commit_ts_us: &'a mut i64,
    /// Values of this row that their columns cannot hold, as the members of a JSON object.
    pub beyond: Vec<u8>,
}

impl Tuples<'_> {
    fn count(&mut self, bytes: usize, at: usize) -> Read<()> {
        self.group.text_bytes = self.group.text_bytes.saturating_add(bytes);
        if self.group.text_bytes > MAX_TEXT_BYTES {
            return fault(at, "more than 2 GiB of one table in one call; read fewer messages at once");
        }
        Ok(())
    }

    pub fn row(&mut self, walk: &mut Walk<'_>) -> Read<()> {
        let rows = self.group.system.ts.len();
        let mut found = false;
        let mut start = walk.at();
        let mut beside = Beside::default();
        let mut more = walk.object_key()?;
        while let Some(key) = more {
            match key {
                "tuple" if found => return fault(walk.at(), "a second tuple in a row"),
                "tuple" => {
                    found = true;
                    start = walk.at();
                    self.tuple(walk, &mut beside.raw)?;
                }
                RAW => {
                    let peek = walk.peek()?;
                    beside.raw = walk.scalar(peek)?.map(str::to_owned);
                }
                COMMIT_TS => beside.commit_ts = Some(instant(walk)?),
                _ => walk.skip()?,
            }
            more = walk.next_key()?;
        }
        if found { self.complete(rows, beside, start) } else { fault(walk.at(), "a row without a tuple") }
    }

    fn tuple(&mut self, walk: &mut Walk<'_>, raw: &mut Option<String>) -> Read<()> {
        let mut fields = 0;
        let start = walk.at();
        let mut more = walk.enter_array("tuple")?;
        while let Some(peek) = more {
            let Some(target) = self.plan.targets.get(fields) else {
                return fault(walk.at(), format!("a tuple of more values than the schema has fields ({fields})"));
            };
            match *target {
                Target::Skip => walk.skip_known(peek)?,
                Target::Column(column) => self.value(walk, peek, column, fields)?,
                Target::Raw => *raw = walk.scalar(peek)?.map(str::to_owned),
                system => self.system_value(walk, peek, system, fields)?,
            }
            fields += 1;
            more = walk.array_step()?;
        }
        if fields < self.plan.targets.len() {
            let wanted = self.plan.targets.len();
            return fault(start, format!("a tuple of {fields} values where the schema has {wanted} fields"));
        }
        Ok(())
    }

    /// The commit time and the values beyond their types, which may stand in the tuple or beside it.
    fn complete(&mut self, rows: usize, beside: Beside, start: usize) -> Read<()> {
        let ts = self.group.system.ts.last().copied().filter(|_| self.group.system.ts.len() > rows);
        let Some(ts) = ts else { return fault(start, "a row without a time") };
        *self.commit_ts_us = ts.max(*self.commit_ts_us);
        if self.group.system.commit_ts.len() == rows {
            self.group.system.commit_ts.push(beside.commit_ts.unwrap_or(*self.commit_ts_us));
        }
        self.raw(beside.raw, start)
    }

    fn value(&mut self, walk: &mut Walk<'_>, peek: Peek, column: usize, field: usize) -> Read<()> {
        let at = walk.at();
        let value = walk.scalar(peek)?;
        self.count(value.map_or(0, str::len), at)?;
        let Some(lane) = self.group.lanes.get_mut(column) else { return fault(at, "no column") };
        let Some(value) = value else {
            lane.null();
            return Ok(());
        };
        if !lane.take(value) {
            lane.null();
            let name = self.plan.names.get(field).map_or("", String::as_str);
            self.beyond.push(if self.beyond.is_empty() { b'{' } else { b',' });
            text::quoted(&mut self.beyond, name.as_bytes());
            self.beyond.push(b':');
            text::quoted(&mut self.beyond, value.as_bytes());
        }
        Ok(())
    }

    fn system_value(&mut self, walk: &mut Walk<'_>, peek: Peek, target: Target, field: usize) -> Read<()> {
        let at = walk.at();
        let name = self.plan.names.get(field).map_or("", String::as_str);
        let Some(text) = walk.scalar(peek)? else { return fault(at, format!("{name} is null")) };
        let taken = match target {
            Target::Id => id_value(text, self.plan.dbus_id).map(|id| self.group.system.id.append_value(id)),
            Target::Ts => timestamp_value(text, MICROS).map(|ts| self.group.system.ts.push(ts)),
            Target::CommitTs => timestamp_value(text, MICROS).map(|ts| self.group.system.commit_ts.push(ts)),
            _ => op_value(text).map(|op| self.group.system.op.append_value(op)),
        };
        match taken {
            Some(()) => Ok(()),
            None => fault(at, format!("{name} cannot be '{}'", text.chars().take(40).collect::<String>())),
        }
    }

    /// The row's `_ums_raw_`: what the message had there, and what its columns could not hold now.
    fn raw(&mut self, from_message: Option<String>, at: usize) -> Read<()> {
        if !self.beyond.is_empty() {
            self.beyond.push(b'}');
        }
        self.count(from_message.as_ref().map_or(0, String::len) + self.beyond.len(), at)?;
        match (from_message, &*String::from_utf8_lossy(&self.beyond)) {
            (None, "") => self.group.system.raw.append_null(),
            (None, beyond) => self.group.system.raw.append_value(beyond),
            (Some(text), "") => self.group.system.raw.append_value(text),
            (Some(text), beyond) => {
                let Some(members) = text.trim_end().strip_suffix('}').filter(|text| text.trim_start().starts_with('{'))
                else {
                    return fault(at, "the values beyond their types are not in a JSON object");
                };
                let comma = if members.trim_start() == "{" { "" } else { "," };
                self.group.system.raw.append_value(format!("{members}{comma}{}", beyond.get(1..).unwrap_or_default()));
            }
        }
        self.beyond.clear();
        Ok(())
    }
}

/// What a row has besides its tuple.
#[derive(Default)]
struct Beside {
    commit_ts: Option<i64>,
    raw: Option<String>,
}

fn instant(walk: &mut Walk<'_>) -> Read<i64> {
    let peek = walk.peek()?;
    let at = walk.at();
    match walk.scalar(peek)?.and_then(|text| timestamp_value(text, MICROS)) {
        Some(ts) => Ok(ts),
        None => fault(at, format!("{COMMIT_TS} is no time")),
    }
}

/// An id as headrace has it.
fn id_value(text: &str, dbus_id: bool) -> Option<i64> {
    let id = whole_value(text)?;
    if !dbus_id || id < 0 {
        return i64::try_from(id).ok();
    }
    let (file, offset) = (id / DBUS_OFFSETS, id % DBUS_OFFSETS);
    (offset < ID_OFFSETS).then(|| i64::try_from(file * ID_OFFSETS + offset).ok())?
}

/// `b`, the row before an update, is kept here and left out by the caller.
fn op_value(text: &str) -> Option<&'static str> {
    ["i", "u", "d", "b"].into_iter().find(|op| text.eq_ignore_ascii_case(op))
}
