//! `headrace._native`: names only. Each module says what it does.
use pyo3::prelude::*;

mod binlog;
mod body;
mod border;
mod digest;
mod hbase;
mod json;
mod log;
mod newest;
mod parquet_join;
mod rows;
mod ums;

#[cfg(fuzzing)]
pub use binlog::fuzzing;
#[cfg(fuzzing)]
pub use body::fuzzing as body_fuzzing;
#[cfg(fuzzing)]
pub use hbase::fuzzing as hbase_fuzzing;
#[cfg(fuzzing)]
pub mod json_fuzzing {
    pub use crate::json::{Step, elements, members};
}
#[cfg(fuzzing)]
pub use rows::fuzzing as rows_fuzzing;

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
    module.add_class::<body::python::BodyLines>()?;
    module.add_class::<body::separated::Separated>()?;
    module.add_class::<border::Batch>()?;
    module.add_class::<hbase::python::HBaseWalReader>()?;
    module.add_function(wrap_pyfunction!(hbase::events::hbase_cells_json, module)?)?;
    module.add_function(wrap_pyfunction!(hbase::events::hbase_values, module)?)?;
    module.add_class::<newest::NewestRows>()?;
    module.add_class::<parquet_join::ParquetJoin>()?;
    module.add_class::<rows::python::RowsReader>()?;
    module.add_function(wrap_pyfunction!(rows::python::describe_table, module)?)?;
    module.add_class::<ums::python::UmsMessages>()?;
    module.add_class::<ums::python::UmsParser>()?;
    module.add_function(wrap_pyfunction!(ums::python::encode_ums, module)?)?;
    module.add_function(wrap_pyfunction!(json::json_members, module)?)?;
    module.add_function(wrap_pyfunction!(json::json_elements, module)?)?;
    module.add_function(wrap_pyfunction!(log::checksum, module)?)?;
    module.add_function(wrap_pyfunction!(log::records_of_chunk, module)?)?;
    module.add_function(wrap_pyfunction!(log::records_of_messages, module)?)?;
    module.add_function(wrap_pyfunction!(digest::parts_of_rows, module)?)?;
    module.add_function(wrap_pyfunction!(digest::hashes_of_rows, module)?)?;
    module.add_class::<digest::PartSums>()?;
    module.add_function(wrap_pyfunction!(digest::digest_rows, module)?)
}
