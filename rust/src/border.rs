//! Arrow across the border to Python through the C data interface: nothing is copied.

use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi};
use arrow_array::{Array, RecordBatch, StructArray};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

/// Takes over a `pyarrow.RecordBatch`; its columns are the children.
pub fn import_batch(batch: &Bound<'_, PyAny>) -> PyResult<ArrayData> {
    let pair = batch.call_method0("__arrow_c_array__")?.cast_into::<PyTuple>()?;
    let schema = pair.get_item(0)?.cast_into::<PyCapsule>()?;
    let array = pair.get_item(1)?.cast_into::<PyCapsule>()?;
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
    // Safety: the capsules' names say what they point to, both live as long as `pair`, and moving the array out leaves an empty
    // one behind, so that it is released once.
    unsafe { from_ffi(FFI_ArrowArray::from_raw(array.as_ptr()), schema.as_ref()) }
        .map_err(|error| PyValueError::new_err(error.to_string()))
}

/// A `pyarrow.Schema`, with its metadata.
pub fn import_schema(schema: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let capsule = schema.call_method0("__arrow_c_schema__")?.cast_into::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // Safety: the capsule's name says what it points to, and it lives until the schema is read.
    let schema = Schema::try_from(unsafe { pointer.as_ref() });
    Ok(Arc::new(schema.map_err(|error| PyValueError::new_err(error.to_string()))?))
}

/// What `__arrow_c_array__` answers.
pub fn export_batch<'py>(py: Python<'py>, batch: &RecordBatch) -> PyResult<Bound<'py, PyTuple>> {
    let schema = FFI_ArrowSchema::try_from(batch.schema().as_ref()).map_err(arrow_error)?;
    let array = FFI_ArrowArray::new(&StructArray::from(batch.clone()).into_data());
    let schema = PyCapsule::new_with_value(py, schema, c"arrow_schema")?;
    let array = PyCapsule::new_with_value(py, array, c"arrow_array")?;
    PyTuple::new(py, [schema, array])
}

#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
pub fn arrow_error(error: ArrowError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// A record batch that `pyarrow.record_batch` takes over.
#[pyclass(module = "headrace._native", frozen)]
pub struct Batch(pub RecordBatch);

#[pymethods]
impl Batch {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        // The protocol lets a producer answer with its own schema.
        drop(requested_schema);
        export_batch(py, &self.0)
    }

    fn __len__(&self) -> usize {
        self.0.num_rows()
    }
}
