//! The codec as Python sees it. Whole batches and lists of messages cross, the interpreter's lock is released while they are worked on.

use std::ops::Range;

use arrow_array::{Array, ArrayRef, StructArray};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use super::encode::{Beside, Limits, Messages, Writers, encode};
use super::lanes::new_lane;
use super::parse::{Found, Kind, Parser, Step};
use super::text;
use super::tuples::{Plan, SYSTEM_COLUMNS, Target};
use super::walk::Fault;
use super::writers::{Form, Writer, new_writer};
use crate::border;

/// Column of the batch, form of its values by name (`Form`), digits of seconds.
type Field = (usize, String, u32);

/// The messages of a batch, in its order.
///
/// `fields`: the values of tuples. `beside`: members of rows besides their tuple, by name. `TypeError` for a type that UMS has no
/// form for.
#[pyfunction]
#[pyo3(signature = (batch, head, fields, beside, *, max_rows, max_bytes))]
#[allow(clippy::needless_pass_by_value, reason = "the form of a Python argument")]
pub fn encode_ums(
    py: Python<'_>,
    batch: &Bound<'_, PyAny>,
    head: &[u8],
    fields: Vec<Field>,
    beside: Vec<(String, Field)>,
    max_rows: usize,
    max_bytes: usize,
) -> PyResult<UmsMessages> {
    let columns = StructArray::from(border::import_batch(batch)?);
    let tuple = fields.iter().map(|field| Ok(writer_of(&columns, field)?.1)).collect::<PyResult<Vec<_>>>()?;
    let beside = beside.iter().map(|(name, field)| {
        let (array, writer) = writer_of(&columns, field)?;
        let mut member = vec![b','];
        text::quoted(&mut member, name.as_bytes());
        member.push(b':');
        Ok(Beside { name: member, nulls: array.logical_nulls(), writer })
    });
    let writers = Writers { tuple, beside: beside.collect::<PyResult<Vec<_>>>()? };
    let limits = Limits { rows: max_rows.max(1), bytes: max_bytes };
    let messages = py.detach(|| encode(head, &writers, columns.len(), limits));
    Ok(UmsMessages { messages, next: 0 })
}

/// An iterator. A message is put together when it is asked for: who sends one after the other needs no memory for all of them, which with a
/// row in each are mostly heads, and fetching that memory from the system takes longer than filling it.
#[pyclass(module = "headrace._native")]
pub struct UmsMessages {
    messages: Messages,
    next: usize,
}

#[pymethods]
impl UmsMessages {
    /// The number of each message's first row (`i64` in the machine's order, one after the other).
    #[getter]
    fn first_rows<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let numbers = self.messages.first_rows().map(|row| i64::try_from(row).unwrap_or(i64::MAX));
        PyBytes::new(py, &numbers.flat_map(i64::to_ne_bytes).collect::<Vec<_>>())
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let Some(message) = self.messages.get(self.next) else { return Ok(None) };
        let fill = |memory: &mut [u8]| {
            message.copy_to(memory);
            Ok(())
        };
        let whole = PyBytes::new_with(py, message.len(), fill)?;
        self.next += 1;
        Ok(Some(whole))
    }
}

fn writer_of<'a>(
    columns: &'a StructArray,
    (column, form, digits): &Field,
) -> PyResult<(&'a ArrayRef, Box<dyn Writer>)> {
    let array = columns.columns().get(*column).ok_or_else(|| PyValueError::new_err(format!("no column {column}")))?;
    let form = Form { quoted: form == "quoted", dbus_id: form == "dbus_id", digits: *digits };
    let writer = new_writer(array, form)
        .ok_or_else(|| PyTypeError::new_err(format!("no values of type {} are written", array.data_type())))?;
    Ok((array, writer))
}

/// Messages into batches. `plan` is called for a schema that was not seen before.
#[pyclass(module = "headrace._native")]
pub struct UmsParser {
    parser: Parser,
    plan: Py<PyAny>,
    tokens: Vec<Py<PyAny>>,
    failed_at: Option<(usize, usize)>,
}

#[pymethods]
impl UmsParser {
    #[new]
    fn new(kinds: Vec<(String, bool)>, plan: Py<PyAny>, commit_ts_us: i64) -> Self {
        let kinds = kinds.into_iter().map(|(name, has_rows)| Kind { name, has_rows }).collect();
        Self { parser: Parser::new(kinds, commit_ts_us), plan, tokens: Vec::new(), failed_at: None }
    }

    /// All messages, or a `ValueError` with `failed_at` set and nothing taken.
    fn parse<'py>(&mut self, py: Python<'py>, messages: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
        self.failed_at = None;
        if self.parser.forget_plans() {
            self.tokens.clear();
        }
        let result = self.read_all(py, messages);
        if result.is_err() {
            self.parser.abandon();
        }
        result?;
        let found = py.detach(|| self.parser.take()).map_err(border::arrow_error)?;
        let items = found.into_iter().map(|found| match found {
            Found::Rows { plan, kind, batch } => {
                let token = self.tokens.get(plan).map(|token| token.clone_ref(py));
                (self.parser.kind(kind), (token, border::Batch(batch))).into_pyobject(py)
            }
            Found::Notice { message, kind } => (self.parser.kind(kind), message).into_pyobject(py),
        });
        PyList::new(py, items.collect::<PyResult<Vec<Bound<'py, PyTuple>>>>()?)
    }

    /// Message and byte at which the last `parse` failed.
    #[getter]
    fn failed_at(&self) -> Option<(usize, usize)> {
        self.failed_at
    }

    #[getter]
    fn commit_ts_us(&self) -> i64 {
        self.parser.commit_ts_us()
    }
}

impl UmsParser {
    fn read_all(&mut self, py: Python<'_>, messages: &Bound<'_, PyList>) -> PyResult<()> {
        let held = messages.iter().map(pyo3::Bound::cast_into::<PyBytes>).collect::<Result<Vec<_>, _>>()?;
        let slices: Vec<&[u8]> = held.iter().map(PyBytesMethods::as_bytes).collect();
        let mut next = 0;
        while next < slices.len() {
            let parser = &mut self.parser;
            let (message, result) = py.detach(|| read_until_plan(parser, &slices, next));
            match result {
                Ok(None) => return Ok(()),
                Ok(Some(schema)) => {
                    let bytes = slices.get(message).and_then(|data| data.get(schema.clone())).unwrap_or_default();
                    self.failed_at = Some((message, schema.start));
                    let (token, plan) = make_plan(py, &self.plan, bytes)?;
                    self.failed_at = None;
                    self.parser.add_plan(bytes, plan);
                    self.tokens.push(token);
                    next = message;
                }
                Err(fault) => {
                    self.failed_at = Some((message, fault.at));
                    return Err(PyValueError::new_err(fault.reason));
                }
            }
        }
        Ok(())
    }
}

type Wanted = Result<Option<Range<usize>>, Fault>;

/// Reads messages from `next` on up to the end, an error, or a schema without plan, and says at which message it stopped.
fn read_until_plan(parser: &mut Parser, messages: &[&[u8]], next: usize) -> (usize, Wanted) {
    for (number, data) in messages.iter().enumerate().skip(next) {
        match parser.read(number, data) {
            Ok(Step::Done) => {}
            Ok(Step::Plan(schema)) => return (number, Ok(Some(schema))),
            Err(fault) => return (number, Err(fault)),
        }
    }
    (messages.len(), Ok(None))
}

/// Asks Python what a schema means: (token, Arrow schema, targets, names, dbus ids).
fn make_plan(py: Python<'_>, plan: &Py<PyAny>, schema: &[u8]) -> PyResult<(Py<PyAny>, Plan)> {
    let made = plan.call1(py, (PyBytes::new(py, schema),))?;
    let (token, arrow, targets, names, dbus_id) =
        made.extract::<(Py<PyAny>, Py<PyAny>, Vec<i64>, Vec<String>, bool)>(py)?;
    let schema = border::import_schema(arrow.bind(py))?;
    let users = schema.fields().iter().skip(SYSTEM_COLUMNS);
    if let Some(field) = users.clone().find(|field| new_lane(field.data_type()).is_none()) {
        return Err(PyTypeError::new_err(format!("no values of type {} are read", field.data_type())));
    }
    let targets = targets.into_iter().map(|column| match column {
        0 => Target::Id,
        1 => Target::Ts,
        2 => Target::Op,
        3 => Target::CommitTs,
        4 => Target::Raw,
        column => match usize::try_from(column) {
            Ok(column) if column < schema.fields().len() => Target::Column(column - SYSTEM_COLUMNS),
            _ => Target::Skip,
        },
    });
    let targets = targets.collect();
    Ok((token, Plan { schema, targets, names, dbus_id }))
}
