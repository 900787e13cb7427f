//! The reader of rows as Python sees it. Whole buffers cross, the interpreter's lock is released while they are read.

use arrow_schema::SchemaRef;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::catalogue::{self, Stored};
use super::reader::{Reader, Stop, Stopped, schema_is_right};
use crate::binlog::definition::Definition;
use crate::binlog::fault::Fault;
use crate::binlog::python::{raise, slice};
use crate::border::{self, Batch};

const DAMAGED_FIX: &str = "read the table again; if that does not help, look for what changes bytes between headrace and the \
     server (a proxy, a network card), and switch TLS on, which finds it out";

#[pyclass(module = "headrace._native")]
pub struct RowsReader {
    reader: Reader,
}

#[pymethods]
impl RowsReader {
    #[new]
    fn new(schema: &Bound<'_, PyAny>) -> PyResult<Self> {
        let schema: SchemaRef = border::import_schema(schema)?;
        if !schema_is_right(&schema) {
            return Err(PyValueError::new_err(
                "a schema of columns that can be null, and of the side text behind them",
            ));
        }
        Ok(Self { reader: Reader::new(schema) })
    }

    #[pyo3(signature = (data, *, stop_after_rows, stop_after_bytes))]
    #[allow(clippy::needless_pass_by_value, reason = "the form of a Python argument")]
    fn feed(
        &mut self,
        py: Python<'_>,
        data: PyBuffer<u8>,
        stop_after_rows: usize,
        stop_after_bytes: usize,
    ) -> PyResult<(usize, bool)> {
        let bytes = slice(&data)?;
        let stop = Stop { rows: stop_after_rows, bytes: stop_after_bytes };
        let used = py.detach(|| self.reader.feed(bytes, stop));
        let used = used.map_err(|fault| raise(py, fault.with_fix_of_damage(DAMAGED_FIX)))?;
        Ok((used, self.reader.is_full(stop)))
    }

    fn take(&mut self, py: Python<'_>) -> PyResult<Batch> {
        py.detach(|| self.reader.finish()).map(Batch).map_err(|fault| raise(py, fault))
    }

    #[getter]
    fn rows(&self) -> usize {
        self.reader.rows()
    }

    #[getter]
    fn at_end(&self) -> bool {
        self.reader.at_end()
    }

    #[getter]
    fn error(&self) -> Option<(u16, String)> {
        match self.reader.stopped() {
            Some(Stopped::Error(code, text)) => Some((*code, text.clone())),
            _ => None,
        }
    }

    #[getter]
    fn unfit(&self) -> Option<String> {
        match self.reader.stopped() {
            Some(Stopped::Unfit(text)) => Some(text.clone()),
            _ => None,
        }
    }
}

#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "the form of a Python argument")]
pub fn describe_table(
    py: Python<'_>,
    schema: String,
    table: String,
    definition: Definition,
    stored: Vec<Stored>,
) -> PyResult<(String, Batch)> {
    let described = catalogue::described(schema, table, &definition, &stored);
    described.map(|(table, empty)| (table.to_json(), Batch(empty))).map_err(|fault: Fault| raise(py, fault))
}
