//! The decoder as Python sees it. Whole buffers cross, the interpreter's lock is released while they are decoded.

use arrow_array::RecordBatch;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use super::decoder::{self, Before, Decoder, Stop};
use super::definition::Definition;
use super::fault::{Blame, Fault};
use super::gtid;
use super::include::Include;
use super::pending::{self, Item};
use super::skim::Skim;
use crate::border;

/// The fault as one of headrace's errors.
#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
pub(crate) fn raise(py: Python<'_>, fault: Fault) -> PyErr {
    let class = match fault.blame() {
        Blame::Corrupt => "CorruptError",
        Blame::Refused => "SourceError",
        Blame::Away => "RetryableError",
    };
    let error = || -> PyResult<PyErr> {
        let fix = PyDict::new(py);
        fix.set_item("fix", fault.fix())?;
        let error = py.import("headrace.errors")?.getattr(class)?.call((fault.message(),), Some(&fix))?;
        Ok(PyErr::from_value(error))
    };
    error().unwrap_or_else(|error| error)
}

/// The bytes of a buffer, for as long as the buffer is held.
pub(crate) fn slice(buffer: &PyBuffer<u8>) -> PyResult<&[u8]> {
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the buffer is not contiguous"));
    }
    if buffer.len_bytes() == 0 {
        return Ok(&[]);
    }
    // SAFETY: the buffer is contiguous, not empty and held, so its memory stays; the caller must not write to it meanwhile
    // (the documented condition of `feed`).
    Ok(unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>(), buffer.len_bytes()) })
}

#[pyclass(module = "headrace._native")]
pub struct BinlogDecoder {
    decoder: Decoder,
}

#[pymethods]
impl BinlogDecoder {
    #[new]
    #[pyo3(signature = (*, include, columns=Vec::new(), before_images=false, network=false, names_required=false))]
    #[allow(clippy::needless_pass_by_value, reason = "the form of a Python argument")]
    fn new(
        include: Vec<String>,
        columns: Vec<(String, Vec<String>)>,
        before_images: bool,
        network: bool,
        names_required: bool,
    ) -> PyResult<Self> {
        let include = Include::new(&include, &columns).map_err(|pattern| {
            PyValueError::new_err(format!("'{pattern}' is not a pattern of the form schema.table"))
        })?;
        Ok(Self { decoder: Decoder::new(include, before_images, network, names_required) })
    }

    #[pyo3(signature = (file, offset, *, expanded, gtids, renumbered, commit_ts_us, skip_until_us))]
    #[allow(clippy::too_many_arguments, reason = "keyword arguments of a Python method")]
    fn start(
        &mut self,
        py: Python<'_>,
        file: &str,
        offset: u64,
        expanded: u64,
        gtids: &str,
        renumbered: i64,
        commit_ts_us: i64,
        skip_until_us: i64,
    ) -> PyResult<()> {
        let before = Before { expanded, gtids, renumbered, commit_ts_us, skip_until_us };
        self.decoder.start(file, offset, &before).map_err(|fault| raise(py, fault))
    }

    #[allow(clippy::needless_pass_by_value, reason = "the form of a Python argument")]
    fn prime(&mut self, py: Python<'_>, head: PyBuffer<u8>) -> PyResult<()> {
        self.decoder.prime(slice(&head)?).map_err(|fault| raise(py, fault))
    }

    #[pyo3(signature = (data, *, stop_after_rows, stop_after_bytes, stop_at_ddl=false))]
    #[allow(clippy::needless_pass_by_value, reason = "the form of a Python argument")]
    fn feed(
        &mut self,
        py: Python<'_>,
        data: PyBuffer<u8>,
        stop_after_rows: usize,
        stop_after_bytes: usize,
        stop_at_ddl: bool,
    ) -> PyResult<usize> {
        let bytes = slice(&data)?;
        let stop = Stop { rows: stop_after_rows, bytes: stop_after_bytes, at_ddl: stop_at_ddl };
        py.detach(|| self.decoder.feed(bytes, stop)).map_err(|fault| raise(py, fault))
    }

    fn take(&mut self, py: Python<'_>) -> PyResult<Batches> {
        let (items, boundary) = py.detach(|| self.decoder.take()).map_err(|fault| raise(py, fault))?;
        let items = items.into_iter().map(|item| match item {
            Item::Rows { table, file, batch } => {
                let file = file.to_string();
                Ok(Py::new(py, RowBatch { table, file, batch })?.into_any())
            }
            Item::Ddl(ddl) => Ok(Py::new(py, Ddl::from(ddl))?.into_any()),
        });
        let boundary = boundary.map(|boundary| Py::new(py, Boundary::from(boundary))).transpose()?;
        Ok(Batches { items: items.collect::<PyResult<_>>()?, boundary })
    }

    #[pyo3(signature = (schema, table, definition))]
    fn define(&mut self, schema: String, table: String, definition: Option<Definition>) {
        self.decoder.define(schema, table, definition);
    }

    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        self.decoder.finish().map_err(|fault| raise(py, fault))
    }

    fn table(&self, index: usize) -> PyResult<String> {
        let table = self.decoder.table(index);
        table
            .map(super::table_map::Table::to_json)
            .ok_or_else(|| PyIndexError::new_err(format!("there is no table {index}")))
    }

    #[getter]
    fn pending_rows(&self) -> usize {
        self.decoder.pending_rows()
    }

    #[getter]
    fn pending_bytes(&self) -> usize {
        self.decoder.pending_bytes()
    }

    #[getter]
    fn at_boundary(&self) -> bool {
        self.decoder.at_boundary()
    }

    #[getter]
    fn in_payload(&self) -> bool {
        self.decoder.in_payload()
    }

    #[getter]
    fn behind_ddl(&self) -> bool {
        self.decoder.behind_ddl()
    }

    #[getter]
    fn incomplete_event_at(&self) -> Option<u64> {
        self.decoder.incomplete_at()
    }
}

/// A set of transactions.
#[pyclass(module = "headrace._native", frozen)]
pub struct GtidSet(gtid::GtidSet);

#[pymethods]
impl GtidSet {
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        gtid::GtidSet::parse(text).map(Self).map_err(|fault| raise(py, fault))
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("GtidSet('{}')", self.0)
    }

    fn __bool__(&self) -> bool {
        self.0 != gtid::GtidSet::default()
    }

    fn __or__(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0))
    }

    fn __sub__(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0))
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __le__(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    fn to_wire<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_wire())
    }
}

/// What decompression adds up to a place in a recorded file.
#[pyclass(module = "headrace._native")]
pub struct BinlogSkim {
    skim: Skim,
}

#[pymethods]
impl BinlogSkim {
    #[new]
    fn new(py: Python<'_>, file: &str) -> PyResult<Self> {
        Ok(Self { skim: Skim::new(file).map_err(|fault| raise(py, fault))? })
    }

    #[allow(clippy::needless_pass_by_value, reason = "the form of a Python argument")]
    fn feed(&mut self, py: Python<'_>, data: PyBuffer<u8>) -> PyResult<usize> {
        let bytes = slice(&data)?;
        py.detach(|| self.skim.feed(bytes)).map_err(|fault| raise(py, fault))
    }

    #[getter]
    fn expanded(&self) -> u64 {
        self.skim.expanded()
    }
}

#[pyclass(module = "headrace._native", frozen, get_all)]
pub struct Batches {
    items: Vec<Py<PyAny>>,
    boundary: Option<Py<Boundary>>,
}

#[pyclass(module = "headrace._native", frozen, get_all)]
pub struct Boundary {
    file: String,
    offset: u64,
    expanded: u64,
    gtids: String,
    id: i64,
    commit_ts_us: i64,
}

impl From<decoder::Boundary> for Boundary {
    fn from(boundary: decoder::Boundary) -> Self {
        Self {
            file: boundary.file.to_string(),
            offset: boundary.offset,
            expanded: boundary.expanded,
            gtids: boundary.gtids,
            id: boundary.id,
            commit_ts_us: boundary.commit_ts_us,
        }
    }
}

#[pyclass(module = "headrace._native", frozen, get_all)]
pub struct Ddl {
    schema: String,
    sql: String,
    file: String,
    offset: u64,
    id: i64,
    ts_us: i64,
    started_us: i64,
    time_zone: Option<String>,
    server_charset: Option<&'static str>,
}

impl From<pending::Ddl> for Ddl {
    fn from(ddl: pending::Ddl) -> Self {
        Self {
            schema: ddl.schema,
            sql: ddl.sql,
            file: ddl.file.to_string(),
            offset: ddl.offset,
            id: ddl.id,
            ts_us: ddl.ts_us,
            started_us: ddl.started_us,
            time_zone: ddl.time_zone,
            server_charset: ddl.server_charset,
        }
    }
}

/// Rows of one table version, exported without copying (`__arrow_c_array__`).
#[pyclass(module = "headrace._native", frozen)]
pub struct RowBatch {
    #[pyo3(get)]
    table: usize,
    #[pyo3(get)]
    file: String,
    batch: RecordBatch,
}

#[pymethods]
impl RowBatch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // The protocol lets a producer answer with its own schema.
        drop(requested_schema);
        border::export_batch(py, &self.batch)
    }

    /// The batch as a `pyarrow.RecordBatch`.
    #[getter]
    fn batch<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("pyarrow")?.call_method1("record_batch", (slf,))
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }
}
