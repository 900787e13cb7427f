//! One message after the other into groups of rows, a group per table version and kind.
//!
//! The envelope's members may come in any order (the original writes `payload` first): `survey` notes where they are and jumps over
//! a `protocol` or `schema` that it has just seen in the message before; the payload is read when both are known. What a schema
//! means, where each value goes, is a `Plan`, made outside and kept by the schema's bytes.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use jiter::Peek;

use super::tuples::{Group, Plan, Tuples};
use super::walk::{Member, Read, Walk, fault};

/// Schemas whose plans are kept; more are forgotten and made again.
const PLANS: usize = 4096;

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
    Rows(Box<Group>),
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

/// A schema of which the plan is known, or where it stands.
#[derive(Clone)]
enum Schema {
    Known(usize),
    At(Range<usize>),
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
        let mut walk = Walk::new(data, std::mem::take(tape));
        let step = self.envelope(message, &mut walk);
        *tape = walk.into_tape();
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

    /// One that is the same as the last is not read, only compared.
    fn schema(&self, walk: &mut Walk<'_>) -> Read<Schema> {
        let start = walk.value_start()?;
        let (known, plan) = &self.last_schema;
        if !known.is_empty() && walk.rest_from(start).starts_with(known) {
            walk.jump(start + known.len());
            return Ok(Schema::Known(*plan));
        }
        if walk.peek()? != Peek::Object {
            return fault(start, "schema is no object");
        }
        walk.skip()?;
        Ok(Schema::At(start..walk.at()))
    }

    /// The number of the schema's plan, or where the schema stands when it has none yet.
    fn plan(&mut self, walk: &Walk<'_>, schema: Schema) -> Result<usize, Range<usize>> {
        let schema = match schema {
            Schema::Known(plan) => return Ok(plan),
            Schema::At(range) => range,
        };
        let bytes = walk.data.get(schema.clone()).unwrap_or_default();
        let plan = *self.by_schema.get(bytes).ok_or(schema)?;
        self.last_schema = (bytes.into(), plan);
        Ok(plan)
    }

    fn payload(&mut self, walk: &mut Walk<'_>, plan_number: usize, kind: usize) -> Read<()> {
        let Some(plan) = self.plans.get(plan_number).cloned() else { return fault(walk.at(), "no plan") };
        let open = match self.group(plan_number, kind, &plan) {
            Ok(open) => open,
            Err(reason) => return fault(walk.at(), reason),
        };
        let Some(Open::Rows(group)) = self.open.get_mut(open) else { return fault(walk.at(), "no group") };
        let mut tuples = Tuples { plan: &plan, group, commit_ts_us: &mut self.commit_ts_us, beyond: Vec::new() };
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
        self.open.push(Open::Rows(Box::new(Group::new(plan_number, kind, &plan.schema)?)));
        Ok(self.open.len() - 1)
    }

    /// Everything read since the last time.
    pub fn take(&mut self) -> Result<Vec<Found>, ArrowError> {
        self.taken_commit_ts_us = self.commit_ts_us;
        let open = std::mem::take(&mut self.open);
        let with_rows = open.into_iter().filter(|open| !matches!(open, Open::Rows(group) if group.is_empty()));
        let found = with_rows.map(|open| match open {
            Open::Notice { message, kind } => Ok(Found::Notice { message, kind }),
            Open::Rows(group) => {
                let plan = self.plans.get(group.plan).ok_or(ArrowError::InvalidArgumentError("no plan".into()))?;
                Ok(Found::Rows { plan: group.plan, kind: group.kind, batch: group.finish(&plan.schema)? })
            }
        });
        found.collect()
    }
}
