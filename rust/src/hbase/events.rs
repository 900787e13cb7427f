//! What cells hold, as rows have it: values by their declared types, and all cells of a change as one JSON text.
//!
//! ```text
//! [{"family":"d","qualifier":"total","timestamp":1795220619288,"kind":"put","value":"12"}, …]
//! ```
//! Bytes that are no UTF-8 stand in base64, under the same name with `_base64`. What only says that something is gone has no value.
//! Numbers are as `HBase`'s class `Bytes` writes them: big-endian.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, Float32Builder, Float64Builder, Int32Builder, Int64Builder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch, StringArray, StructArray};
use arrow_schema::{ArrowError, DataType};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::border::{self, Batch};
use crate::ums::text::quoted;

const PUT: u8 = 4;

/// Of each change, whose first cell `firsts` names, its cells as a JSON text. `cells`: family, qualifier, timestamp, kind, value.
#[pyfunction]
pub fn hbase_cells_json(py: Python<'_>, cells: &Bound<'_, PyAny>, firsts: &Bound<'_, PyAny>) -> PyResult<Batch> {
    let cells = StructArray::from(border::import_batch(cells)?);
    let firsts = StructArray::from(border::import_batch(firsts)?);
    py.detach(|| texts(&cells, &firsts)).ok_or_else(|| PyTypeError::new_err("cells, and the numbers of some of them"))
}

fn texts(cells: &StructArray, firsts: &StructArray) -> Option<Batch> {
    let bytes = |name: &str| cells.column_by_name(name)?.as_binary_opt::<i32>();
    let (families, qualifiers, values) = (bytes("family")?, bytes("qualifier")?, bytes("value")?);
    let timestamps = cells.column_by_name("timestamp")?.as_primitive_opt::<Int64Type>()?;
    let kinds = cells.column_by_name("kind")?.as_primitive_opt::<UInt8Type>()?;
    let firsts = firsts.columns().first()?.as_primitive_opt::<Int64Type>()?;
    let mut found = StringBuilder::new();
    let mut text = Vec::new();
    let ends = firsts.values().iter().skip(1).copied().chain([i64::try_from(cells.len()).ok()?]);
    for (&first, end) in firsts.values().iter().zip(ends) {
        text.clear();
        let (first, end) = (usize::try_from(first).ok()?, usize::try_from(end).ok()?);
        if first > end || end > cells.len() {
            return None;
        }
        for cell in first..end {
            text.extend_from_slice(if cell == first { b"[{" } else { b",{" });
            member(&mut text, "family", families.value(cell));
            text.push(b',');
            member(&mut text, "qualifier", qualifiers.value(cell));
            text.extend_from_slice(b",\"timestamp\":");
            text.extend_from_slice(itoa::Buffer::new().format(timestamps.value(cell)).as_bytes());
            let kind = kinds.value(cell);
            text.extend_from_slice(b",\"kind\":");
            quoted(&mut text, kind_name(kind).as_bytes());
            if kind == PUT {
                text.push(b',');
                member(&mut text, "value", values.value(cell));
            }
            text.push(b'}');
        }
        text.push(b']');
        found.append_value(std::str::from_utf8(&text).ok()?);
    }
    let column: ArrayRef = Arc::new(found.finish());
    RecordBatch::try_from_iter([("cells", column)]).ok().map(Batch)
}

fn kind_name(kind: u8) -> &'static str {
    match kind {
        PUT => "put",
        8 => "delete version",
        10 => "delete family version",
        12 => "delete column",
        14 => "delete family",
        _ => "unknown",
    }
}

fn member(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let is_text = simdutf8::basic::from_utf8(bytes).is_ok();
    out.push(b'"');
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(if is_text { b"\":" } else { b"_base64\":" });
    if is_text {
        quoted(out, bytes);
        return;
    }
    out.push(b'"');
    base64_simd::STANDARD.encode_append(bytes, out);
    out.push(b'"');
}

/// Bytes as values of a type, null where they are none: a column of the values, and one of what is left, in base64.
#[pyfunction]
pub fn hbase_values(py: Python<'_>, bytes: &Bound<'_, PyAny>, kind: &str) -> PyResult<Batch> {
    let data = border::import_batch(bytes)?;
    let bytes = match data.child_data() {
        [column] if *column.data_type() == DataType::Binary => BinaryArray::from(column.clone()),
        _ => return Err(PyTypeError::new_err("one column of bytes is wanted")),
    };
    let values = py.detach(|| values(&bytes, kind));
    let values = values.ok_or_else(|| PyTypeError::new_err(format!("there is no type '{kind}'")))?;
    let left = left(&bytes, &values);
    let columns = [("value", values, true), ("left", Arc::new(left) as ArrayRef, true)];
    RecordBatch::try_from_iter_with_nullable(columns).map(Batch).map_err(|error: ArrowError| border::arrow_error(error))
}

fn left(bytes: &BinaryArray, values: &ArrayRef) -> StringArray {
    let rows = bytes.iter().enumerate();
    rows.map(|(row, bytes)| {
        bytes.filter(|_| values.is_null(row)).map(|bytes| base64_simd::STANDARD.encode_to_string(bytes))
    })
    .collect()
}

/// One value of a type for each row: what `of` makes of its bytes.
macro_rules! column {
    ($builder:ty, $bytes:expr, $of:expr) => {{
        let mut values = <$builder>::new();
        for bytes in $bytes {
            values.append_option(bytes.and_then($of));
        }
        Some(Arc::new(values.finish()) as ArrayRef)
    }};
}

fn values(bytes: &BinaryArray, kind: &str) -> Option<ArrayRef> {
    match kind {
        "text" | "json" => column!(StringBuilder, bytes, |bytes| simdutf8::basic::from_utf8(bytes).ok()),
        "boolean" => column!(BooleanBuilder, bytes, |bytes| fixed(bytes).map(|[byte]| byte != 0)),
        "short" => column!(Int32Builder, bytes, |bytes| fixed(bytes).map(i16::from_be_bytes).map(i32::from)),
        "int" => column!(Int32Builder, bytes, |bytes| fixed(bytes).map(i32::from_be_bytes)),
        "long" => column!(Int64Builder, bytes, |bytes| fixed(bytes).map(i64::from_be_bytes)),
        "float" => column!(Float32Builder, bytes, |bytes| fixed(bytes).map(f32::from_be_bytes)),
        "double" => column!(Float64Builder, bytes, |bytes| fixed(bytes).map(f64::from_be_bytes)),
        "bytes" => Some(Arc::new(bytes.clone())),
        _ => None,
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_width_of_their_type() {
        let bytes =
            BinaryArray::from_opt_vec(vec![Some(&[0, 0, 0, 7][..]), Some(&[1]), None, Some(b"\xff\xff\xff\xfe")]);
        let found = values(&bytes, "int");
        let numbers: Option<Vec<_>> =
            found.as_ref().map(|found| found.as_primitive::<arrow_array::types::Int32Type>().iter().collect());
        assert_eq!(numbers, Some(vec![Some(7), None, None, Some(-2)]));
        let left = found.map(|found| left(&bytes, &found));
        assert_eq!(left, Some(StringArray::from(vec![None, Some("AQ=="), None, None])));
        assert!(values(&bytes, "other").is_none());
    }
}
