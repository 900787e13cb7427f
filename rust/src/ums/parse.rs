//! One message after the other into groups of rows, a group per table version and kind.
//!
//! The envelope's members may come in any order (the original writes `payload` first): `survey` notes where they are and jumps over
//! a `protocol` or `schema` that it has just seen in the message before; the payload is read when both are known. What a schema
//! means, where each value goes, is a `Plan`, made outside and kept by the schema's bytes.

use std::collections::HashMap;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{ArrowError, SchemaRef};
use jiter::{Jiter, JiterError, Peek};

use super::lanes::{Lane, new_lane, timestamp_value, whole_value};

const MICROS: i64 = 1_000_000;
/// Schemas whose plans are kept; more are forgotten and made again.
const PLANS: usize = 4096;
/// Offsets of a file in the original's ids and in headrace's.
const DBUS_OFFSETS: i128 = 10_000_000_000_000;
const ID_OFFSETS: i128 = 1_000_000_000_000;

/// Why a message is refused, and the byte at which it stops making sense.
#[derive(Debug)]
pub struct Fault {
    pub at: usize,
    pub reason: String,
}

type Read<T> = Result<T, Fault>;

fn fault<T>(at: usize, reason: impl Display) -> Read<T> {
    Err(Fault { at, reason: reason.to_string() })
}

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
struct Group {
    plan: usize,
    kind: usize,
    system: System,
    lanes: Vec<Box<dyn Lane>>,
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

/// What a call has read, in the order in which it came first.
pub enum Found {
    Rows {
        plan: usize,
        kind: usize,
        batch: RecordBatch,
    },
    /// A message of a kind without rows.
    Notice {
        message: usize,
        kind: usize,
    },
}

enum Open {
    Rows(Group),
    Notice { message: usize, kind: usize },
}

/// A message's kind: its name on the wire and whether it carries rows.
pub struct Kind {
    pub name: String,
    pub has_rows: bool,
}

pub struct Parser {
    kinds: Vec<Kind>,
    plans: Vec<Arc<Plan>>,
    by_schema: HashMap<Box<[u8]>, usize>,
    last_protocol: (Box<[u8]>, usize),
    last_schema: (Box<[u8]>, usize),
    /// Newest `_ums_ts_`, for messages that have no commit time of their own; and what it was at the last `take`.
    commit_ts_us: i64,
    taken_commit_ts_us: i64,
    tape: Vec<u8>,
    open: Vec<Open>,
}

/// How far `read` came.
pub enum Step {
    Done,
    /// The plan of this schema (a range of the message) is wanted: `add_plan`, then read the message again.
    Plan(Range<usize>),
}

impl Parser {
    pub fn new(kinds: Vec<Kind>, commit_ts_us: i64) -> Self {
        Self {
            kinds,
            plans: Vec::new(),
            by_schema: HashMap::new(),
            last_protocol: (Box::default(), 0),
            last_schema: (Box::default(), 0),
            commit_ts_us,
            taken_commit_ts_us: commit_ts_us,
            tape: Vec::new(),
            open: Vec::new(),
        }
    }

    pub fn commit_ts_us(&self) -> i64 {
        self.commit_ts_us
    }

    pub fn kind(&self, kind: usize) -> &str {
        self.kinds.get(kind).map_or("", |kind| &kind.name)
    }

    /// Keeps the plan of a schema; plans count up from 0, and again from 0 after `forget_plans`.
    pub fn add_plan(&mut self, schema: &[u8], plan: Plan) {
        self.by_schema.insert(schema.into(), self.plans.len());
        self.plans.push(Arc::new(plan));
    }

    /// Forgets all plans when they have become many; true when it did. Only between calls.
    pub fn forget_plans(&mut self) -> bool {
        let forget = self.plans.len() > PLANS;
        if forget {
            self.plans.clear();
            self.by_schema.clear();
            self.last_schema = (Box::default(), 0);
        }
        forget
    }

    /// Drops what has been read since the last `take`.
    pub fn abandon(&mut self) {
        self.open.clear();
        self.commit_ts_us = self.taken_commit_ts_us;
    }

    /// Reads one message. After an error the rows of this call are not whole: `abandon` them.
    pub fn read(&mut self, message: usize, data: &[u8]) -> Read<Step> {
        let mut tape = std::mem::take(&mut self.tape);
        let step = self.read_message(message, data, &mut tape);
        self.tape = tape;
        step
    }

    fn read_message(&mut self, message: usize, data: &[u8], tape: &mut Vec<u8>) -> Read<Step> {
        let mut walk = Walk { data, base: 0, jiter: Jiter::with_tape(data, std::mem::take(tape)) };
        let step = self.envelope(message, &mut walk);
        *tape = walk.jiter.into_tape();
        step
    }

    fn envelope(&mut self, message: usize, walk: &mut Walk<'_>) -> Read<Step> {
        let mut kind = None;
        let mut schema = None;
        let mut payload = None;
        let mut payload_read = false;
        let mut more = walk.enter_object()?;
        while let Some(member) = more {
            match member {
                Member::Protocol if kind.is_some() => return fault(walk.at(), "a second protocol"),
                Member::Schema if schema.is_some() => return fault(walk.at(), "a second schema"),
                Member::Payload if payload.is_some() => return fault(walk.at(), "a second payload"),
                Member::Protocol => kind = Some(self.protocol(walk)?),
                Member::Schema => schema = Some(self.schema(walk)?),
                Member::Payload => {
                    payload = Some(walk.value_start()?);
                    match (kind.filter(|kind| self.has_rows(*kind)), schema.clone()) {
                        (Some(kind), Some(schema)) => match self.plan(walk, schema) {
                            Ok(plan) => self.payload(walk, plan, kind)?,
                            Err(wanted) => return Ok(Step::Plan(wanted)),
                        },
                        _ => walk.skip()?,
                    }
                    payload_read = schema.is_some() && kind.is_some();
                }
                Member::Other => walk.skip()?,
            }
            more = walk.next_member()?;
        }
        walk.finish()?;
        let Some(kind) = kind else { return fault(walk.at(), "no protocol") };
        let Some(schema) = schema else { return fault(walk.at(), "no schema") };
        if !self.has_rows(kind) {
            self.open.push(Open::Notice { message, kind });
        } else if !payload_read {
            match (self.plan(walk, schema), payload) {
                (Err(wanted), _) => return Ok(Step::Plan(wanted)),
                (Ok(_), None) => {}
                (Ok(plan), Some(start)) => {
                    walk.jump(start);
                    self.payload(walk, plan, kind)?;
                }
            }
        }
        Ok(Step::Done)
    }

    fn has_rows(&self, kind: usize) -> bool {
        self.kinds.get(kind).is_some_and(|kind| kind.has_rows)
    }

    /// The number of the message's kind.
    fn protocol(&mut self, walk: &mut Walk<'_>) -> Read<usize> {
        let start = walk.value_start()?;
        let (known, kind) = &self.last_protocol;
        if !known.is_empty() && walk.rest_from(start).starts_with(known) {
            walk.jump(start + known.len());
            return Ok(*kind);
        }
        let mut name = None;
        let mut more = walk.object_key()?;
        while let Some(key) = more {
            if key == "type" {
                let at = walk.value_start()?;
                name = Some((at, walk.text()?.to_ascii_lowercase()));
            } else {
                walk.skip()?;
            }
            more = walk.next_key()?;
        }
        let Some((at, name)) = name else { return fault(start, "protocol has no type") };
        let Some(kind) = self.kinds.iter().position(|kind| kind.name == name) else {
            return fault(at, format!("'{name}' is no kind of message that is read here"));
        };
        self.last_protocol = (walk.data.get(start..walk.at()).unwrap_or_default().into(), kind);
        Ok(kind)
    }

    /// Where the schema is. One that is the same as the last is not read, only compared.
    fn schema(&mut self, walk: &mut Walk<'_>) -> Read<Range<usize>> {
        let start = walk.value_start()?;
        let known = self.last_schema.0.len();
        if known > 0 && walk.rest_from(start).starts_with(&self.last_schema.0) {
            walk.jump(start + known);
            return Ok(start..start + known);
        }
        if walk.jiter.peek().map_err(|error| walk.fault(&error))? != Peek::Object {
            return fault(start, "schema is no object");
        }
        walk.skip()?;
        Ok(start..walk.at())
    }

    /// The number of the schema's plan, or the schema back when it has none yet.
    fn plan(&mut self, walk: &Walk<'_>, schema: Range<usize>) -> Result<usize, Range<usize>> {
        let bytes = walk.data.get(schema.clone()).unwrap_or_default();
        if bytes == &*self.last_schema.0 {
            return Ok(self.last_schema.1);
        }
        let plan = *self.by_schema.get(bytes).ok_or(schema)?;
        self.last_schema = (bytes.into(), plan);
        Ok(plan)
    }

    fn payload(&mut self, walk: &mut Walk<'_>, plan_number: usize, kind: usize) -> Read<()> {
        let Some(plan) = self.plans.get(plan_number).cloned() else { return fault(walk.at(), "no plan") };
        let group = match self.group(plan_number, kind, &plan) {
            Ok(group) => group,
            Err(reason) => return fault(walk.at(), reason),
        };
        let Some(Open::Rows(Group { system, lanes, .. })) = self.open.get_mut(group) else {
            return fault(walk.at(), "no group");
        };
        let mut tuples =
            Tuples { plan: &plan, system, lanes, commit_ts_us: &mut self.commit_ts_us, beyond: String::new() };
        let mut more = walk.enter_array("payload")?;
        while more.is_some() {
            tuples.row(walk)?;
            more = walk.array_step()?;
        }
        Ok(())
    }

    /// The number of the open group, the newest first: most messages go where the one before went.
    fn group(&mut self, plan_number: usize, kind: usize, plan: &Plan) -> Result<usize, String> {
        let is_it = |open: &Open| matches!(open, Open::Rows(group) if (group.plan, group.kind) == (plan_number, kind));
        if let Some(found) = self.open.iter().rposition(is_it) {
            return Ok(found);
        }
        let fields = plan.schema.fields().iter().skip(SYSTEM_COLUMNS);
        let lanes = fields.map(|field| {
            new_lane(field.data_type()).ok_or_else(|| format!("no values of type {} are read", field.data_type()))
        });
        let lanes = lanes.collect::<Result<_, _>>()?;
        self.open.push(Open::Rows(Group { plan: plan_number, kind, system: System::default(), lanes }));
        Ok(self.open.len() - 1)
    }

    /// Everything read since the last time.
    pub fn take(&mut self) -> Result<Vec<Found>, ArrowError> {
        self.taken_commit_ts_us = self.commit_ts_us;
        let open = std::mem::take(&mut self.open);
        let found = open.into_iter().map(|open| match open {
            Open::Notice { message, kind } => Ok(Found::Notice { message, kind }),
            Open::Rows(group) => {
                let plan = self.plans.get(group.plan).ok_or(ArrowError::InvalidArgumentError("no plan".into()))?;
                Ok(Found::Rows { plan: group.plan, kind: group.kind, batch: group.finish(&plan.schema)? })
            }
        });
        found.collect()
    }
}

/// `_ums_id_`, `_ums_ts_`, `_ums_op_`, `_ums_commit_ts_`, `_ums_raw_`.
pub const SYSTEM_COLUMNS: usize = 5;

impl Group {
    fn finish(mut self, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
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
struct Tuples<'a> {
    plan: &'a Plan,
    system: &'a mut System,
    lanes: &'a mut [Box<dyn Lane>],
    commit_ts_us: &'a mut i64,
    /// Values of this row that their columns cannot hold, as the members of a JSON object.
    beyond: String,
}

impl Tuples<'_> {
    fn row(&mut self, walk: &mut Walk<'_>) -> Read<()> {
        let mut found = false;
        let mut more = walk.object_key()?;
        while let Some(key) = more {
            if key == "tuple" {
                if found {
                    return fault(walk.at(), "a second tuple in a row");
                }
                found = true;
                self.tuple(walk)?;
            } else {
                walk.skip()?;
            }
            more = walk.next_key()?;
        }
        if found { Ok(()) } else { fault(walk.at(), "a row without a tuple") }
    }

    fn tuple(&mut self, walk: &mut Walk<'_>) -> Read<()> {
        let rows = self.system.ts.len();
        let mut raw = None;
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
                Target::Raw => raw = walk.scalar(peek)?.map(str::to_owned),
                system => self.system_value(walk, peek, system, fields)?,
            }
            fields += 1;
            more = walk.array_step()?;
        }
        if fields < self.plan.targets.len() {
            let wanted = self.plan.targets.len();
            return fault(start, format!("a tuple of {fields} values where the schema has {wanted} fields"));
        }
        let ts = self.system.ts.last().copied().filter(|_| self.system.ts.len() > rows);
        let Some(ts) = ts else { return fault(start, "a row without a time") };
        *self.commit_ts_us = ts.max(*self.commit_ts_us);
        if self.system.commit_ts.len() == rows {
            self.system.commit_ts.push(*self.commit_ts_us);
        }
        self.raw(raw, start)
    }

    fn value(&mut self, walk: &mut Walk<'_>, peek: Peek, column: usize, field: usize) -> Read<()> {
        let at = walk.at();
        let Some(lane) = self.lanes.get_mut(column) else { return fault(at, "no column") };
        match walk.scalar(peek)? {
            None => lane.null(),
            Some(text) => {
                if !lane.take(text) {
                    lane.null();
                    let name = self.plan.names.get(field).map_or("", String::as_str);
                    self.beyond.push(if self.beyond.is_empty() { '{' } else { ',' });
                    push_json(&mut self.beyond, name);
                    self.beyond.push(':');
                    push_json(&mut self.beyond, text);
                }
            }
        }
        Ok(())
    }

    fn system_value(&mut self, walk: &mut Walk<'_>, peek: Peek, target: Target, field: usize) -> Read<()> {
        let at = walk.at();
        let name = self.plan.names.get(field).map_or("", String::as_str);
        let Some(text) = walk.scalar(peek)? else { return fault(at, format!("{name} is null")) };
        let taken = match target {
            Target::Id => id_value(text, self.plan.dbus_id).map(|id| self.system.id.append_value(id)),
            Target::Ts => timestamp_value(text, MICROS).map(|ts| self.system.ts.push(ts)),
            Target::CommitTs => timestamp_value(text, MICROS).map(|ts| self.system.commit_ts.push(ts)),
            _ => op_value(text).map(|op| self.system.op.append_value(op)),
        };
        match taken {
            Some(()) => Ok(()),
            None => fault(at, format!("{name} cannot be '{}'", text.chars().take(40).collect::<String>())),
        }
    }

    /// The row's `_ums_raw_`: what the message had there, and what its columns could not hold now.
    fn raw(&mut self, from_message: Option<String>, at: usize) -> Read<()> {
        if !self.beyond.is_empty() {
            self.beyond.push('}');
        }
        match (from_message, self.beyond.as_str()) {
            (None, "") => self.system.raw.append_null(),
            (None, beyond) => self.system.raw.append_value(beyond),
            (Some(text), "") => self.system.raw.append_value(text),
            (Some(text), beyond) => {
                let Some(members) = text.trim_end().strip_suffix('}').filter(|text| text.trim_start().starts_with('{'))
                else {
                    return fault(at, "the values beyond their types are not in a JSON object");
                };
                let comma = if members.trim_start() == "{" { "" } else { "," };
                self.system.raw.append_value(format!("{members}{comma}{}", beyond.get(1..).unwrap_or_default()));
            }
        }
        self.beyond.clear();
        Ok(())
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

fn push_json(out: &mut String, text: &str) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
}

/// A member of the envelope.
enum Member {
    Protocol,
    Schema,
    Payload,
    Other,
}

fn member(key: &str) -> Member {
    match key {
        "protocol" => Member::Protocol,
        "schema" => Member::Schema,
        "payload" => Member::Payload,
        _ => Member::Other,
    }
}

/// A place in a message. The pull parser cannot jump, so a jump makes a new one for the rest (it has no memory but its place).
struct Walk<'a> {
    data: &'a [u8],
    base: usize,
    jiter: Jiter<'a>,
}

impl<'a> Walk<'a> {
    fn at(&self) -> usize {
        self.base + self.jiter.current_index()
    }

    fn fault(&self, error: &JiterError) -> Fault {
        Fault { at: self.base + error.index, reason: error.error_type.to_string() }
    }

    fn rest_from(&self, at: usize) -> &'a [u8] {
        self.data.get(at..).unwrap_or_default()
    }

    fn jump(&mut self, to: usize) {
        let tape = std::mem::replace(&mut self.jiter, Jiter::new(&[])).into_tape();
        self.base = to;
        self.jiter = Jiter::with_tape(self.rest_from(to), tape);
    }

    fn enter_object(&mut self) -> Read<Option<Member>> {
        let base = self.base;
        let key = self.jiter.next_object().map_err(|error| at_base(base, &error))?;
        Ok(key.map(member))
    }

    fn next_member(&mut self) -> Read<Option<Member>> {
        let base = self.base;
        let key = self.jiter.next_key().map_err(|error| at_base(base, &error))?;
        Ok(key.map(member))
    }

    fn object_key(&mut self) -> Read<Option<&str>> {
        let base = self.base;
        self.jiter.next_object().map_err(|error| at_base(base, &error))
    }

    fn next_key(&mut self) -> Read<Option<&str>> {
        let base = self.base;
        self.jiter.next_key().map_err(|error| at_base(base, &error))
    }

    /// Where the next value begins.
    fn value_start(&mut self) -> Read<usize> {
        self.jiter.peek().map_err(|error| self.fault(&error))?;
        Ok(self.at())
    }

    fn skip(&mut self) -> Read<()> {
        self.jiter.next_skip().map_err(|error| self.fault(&error))
    }

    fn skip_known(&mut self, peek: Peek) -> Read<()> {
        self.jiter.known_skip(peek).map_err(|error| self.fault(&error))
    }

    fn text(&mut self) -> Read<&str> {
        let base = self.base;
        self.jiter.next_str().map_err(|error| at_base(base, &error))
    }

    fn enter_array(&mut self, what: &str) -> Read<Option<Peek>> {
        match self.jiter.peek().map_err(|error| self.fault(&error))? {
            Peek::Array => self.jiter.known_array().map_err(|error| self.fault(&error)),
            // A payload of null is one without rows.
            Peek::Null if what == "payload" => {
                self.jiter.known_null().map_err(|error| self.fault(&error))?;
                Ok(None)
            }
            _ => fault(self.at(), format!("{what} is no array")),
        }
    }

    fn array_step(&mut self) -> Read<Option<Peek>> {
        self.jiter.array_step().map_err(|error| self.fault(&error))
    }

    fn finish(&mut self) -> Read<()> {
        self.jiter.finish().map_err(|error| self.fault(&error))
    }

    /// A value as text: what is in the quotes, a number's digits, or the JSON of an object or array; None for null.
    fn scalar(&mut self, peek: Peek) -> Read<Option<&str>> {
        let base = self.base;
        let failed = |error: JiterError| at_base(base, &error);
        match peek {
            Peek::String => self.jiter.known_str().map(Some).map_err(failed),
            Peek::Null => self.jiter.known_null().map(|()| None).map_err(failed),
            Peek::True | Peek::False => {
                self.jiter.known_bool(peek).map(|value| Some(if value { "true" } else { "false" })).map_err(failed)
            }
            Peek::Array | Peek::Object => {
                let start = self.jiter.current_index();
                self.jiter.known_skip(peek).map_err(failed)?;
                utf8(self.jiter.slice_to_current(start), base + start)
            }
            _ => {
                let at = base + self.jiter.current_index();
                utf8(self.jiter.known_number_bytes(peek).map_err(failed)?, at)
            }
        }
    }
}

#[cold]
fn at_base(base: usize, error: &JiterError) -> Fault {
    Fault { at: base + error.index, reason: error.error_type.to_string() }
}

fn utf8(bytes: &[u8], at: usize) -> Read<Option<&str>> {
    match simdutf8::basic::from_utf8(bytes) {
        Ok(text) => Ok(Some(text)),
        Err(_) => fault(at, "text that is not UTF-8"),
    }
}
