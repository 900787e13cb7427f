//! The reader of WAL files as Python sees it. Whole buffers cross, the interpreter's lock is released while they are read.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::reader::{Reader, Stop, with_fix};
use crate::binlog::include::Include;
use crate::binlog::python::{raise, slice};
use crate::border::Batch;

#[pyclass(module = "headrace._native")]
pub struct HBaseWalReader {
    reader: Reader,
    name: String,
}

#[pymethods]
impl HBaseWalReader {
    #[new]
    #[pyo3(signature = (name, *, include, start))]
    #[allow(clippy::needless_pass_by_value, reason = "the form of a Python argument")]
    fn new(name: String, include: Vec<String>, start: u64) -> PyResult<Self> {
        let include = Include::new(&include, &[])
            .map_err(|pattern| PyValueError::new_err(format!("'{pattern}' is no pattern namespace.table")))?;
        Ok(Self { reader: Reader::new(include, start), name })
    }

    #[pyo3(signature = (data, *, stop_after_cells, stop_after_bytes))]
    #[allow(clippy::needless_pass_by_value, reason = "the form of a Python argument")]
    fn feed(
        &mut self,
        py: Python<'_>,
        data: PyBuffer<u8>,
        stop_after_cells: usize,
        stop_after_bytes: usize,
    ) -> PyResult<(usize, bool)> {
        let bytes = slice(&data)?;
        let stop = Stop { cells: stop_after_cells, bytes: stop_after_bytes };
        let used = py.detach(|| self.reader.feed(bytes, stop));
        let used = used.map_err(|fault| raise(py, with_fix(fault.at(&self.name))))?;
        Ok((used, self.reader.is_full(stop)))
    }

    fn take(&mut self, py: Python<'_>) -> PyResult<(Batch, Batch)> {
        let (entries, cells) = py.detach(|| self.reader.finish()).map_err(|fault| raise(py, fault))?;
        Ok((Batch(entries), Batch(cells)))
    }

    #[getter]
    fn position(&self) -> u64 {
        self.reader.position()
    }

    #[getter]
    fn entries(&self) -> usize {
        self.reader.entries()
    }

    #[getter]
    fn ended(&self) -> bool {
        self.reader.ended()
    }

    #[getter]
    fn compressed(&self) -> Option<bool> {
        self.reader.header().map(|header| header.is_compressed)
    }
}
