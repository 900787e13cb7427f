//! `headrace._native`: names only. Each module says what it does.
use pyo3::prelude::*;

mod digest;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(digest::digest_rows, module)?)
}
