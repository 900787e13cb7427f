//! `headrace._native`: names only. Each module says what it does.
use pyo3::prelude::*;

mod binlog;
mod border;
mod digest;
mod ums;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<binlog::python::BinlogDecoder>()?;
    module.add_class::<binlog::python::BinlogSkim>()?;
    module.add_class::<binlog::python::Batches>()?;
    module.add_class::<binlog::python::RowBatch>()?;
    module.add_class::<binlog::python::Ddl>()?;
    module.add_class::<binlog::python::Boundary>()?;
    module.add_class::<binlog::python::GtidSet>()?;
    module.add_class::<border::Batch>()?;
    module.add_class::<ums::python::UmsParser>()?;
    module.add_function(wrap_pyfunction!(ums::python::encode_ums, module)?)?;
    module.add_function(wrap_pyfunction!(digest::digest_rows, module)?)
}
