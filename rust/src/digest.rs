//! The order-free digest of rows: 128 bits that say whether two sets of rows are the same, however they lie in files.
//!
//! ```text
//! digest(rows) = sum over rows of (A << 64 | B)  mod 2^128             (so digest(X + Y) = digest(X) + digest(Y))
//! A, B         start as SEED and take in the row's columns from left to right as 64-bit words w:
//!                A = fold(A ^ w, MULTIPLIER[0])   B = fold(B ^ w, MULTIPLIER[1])
//!                fold(x, y) = low 64 bits of x*y  ^  high 64 bits of x*y
//! words        fixed width: the little-endian bytes, 8 to a word, the last word filled up with zero bytes
//!              boolean: 0 or 1
//!              text and binary: the length in bytes, then the bytes, 8 to a word, the last filled up with zeros
//!              null: no word, but A and B are folded once with NULL_MULTIPLIER instead
//! ```
//! A sum, not an exclusive or, so that a row written twice does not vanish. It finds accidents, not forgeries.
//! The result is part of the lake's format: a golden test holds it, changing it needs a new format number.
use arrow_array::{BooleanArray, OffsetSizeTrait};
use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::DataType;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::border;

const SEED: [u64; 2] = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344];
const MULTIPLIER: [u64; 2] = [0xa076_1d64_78bd_642f, 0xe703_7ed1_a0b4_28db];
const NULL_MULTIPLIER: [u64; 2] = [0x8ebc_6af0_9c88_c6e3, 0x5899_65cc_7537_4cc3];

/// The two halves of a row's hash while its columns are taken in.
type Row = [u64; 2];

/// The digest of a pyarrow.RecordBatch's rows as a number below 2^128; `TypeError` for a column type that it does not know.
#[pyfunction]
pub fn digest_rows(py: Python<'_>, batch: &Bound<'_, PyAny>) -> PyResult<u128> {
    let rows = border::import_batch(batch)?;
    py.detach(|| digest(&rows)).map_err(PyTypeError::new_err)
}

fn digest(rows: &ArrayData) -> Result<u128, String> {
    let mut states = vec![SEED; rows.len()];
    for column in rows.child_data() {
        take_in(&column.slice(rows.offset(), rows.len()), &mut states)?;
    }
    Ok(states.iter().fold(0, |sum: u128, [a, b]| sum.wrapping_add(u128::from(*a) << 64 | u128::from(*b))))
}

fn take_in(column: &ArrayData, states: &mut [Row]) -> Result<(), String> {
    match column.data_type() {
        DataType::Null => states.iter_mut().for_each(absorb_null),
        DataType::Boolean => {
            let bits = BooleanArray::from(column.clone());
            each(column, states, bits.values().iter(), |row, bit| {
                absorb(row, u64::from(bit));
            });
        }
        DataType::Utf8 | DataType::Binary => variable::<i32>(column, states)?,
        DataType::LargeUtf8 | DataType::LargeBinary => variable::<i64>(column, states)?,
        DataType::FixedSizeBinary(width) => fixed(column, states, usize::try_from(*width).map_err(|e| e.to_string())?)?,
        other => {
            let width = other.primitive_width().ok_or_else(|| format!("no digest of a column of type {other}"))?;
            fixed(column, states, width)?;
        }
    }
    Ok(())
}

/// Takes one value into each row's state, or null where the column has none.
fn each<V>(column: &ArrayData, states: &mut [Row], values: impl Iterator<Item = V>, present: impl Fn(&mut Row, V)) {
    match column.nulls() {
        None => {
            for (row, value) in states.iter_mut().zip(values) {
                present(row, value);
            }
        }
        Some(nulls) => {
            for ((row, value), valid) in states.iter_mut().zip(values).zip(nulls.iter()) {
                if valid {
                    present(row, value);
                } else {
                    absorb_null(row);
                }
            }
        }
    }
}

fn fixed(column: &ArrayData, states: &mut [Row], width: usize) -> Result<(), String> {
    let from = column.offset() * width;
    let bytes = column
        .buffers()
        .first()
        .and_then(|buffer| buffer.get(from..from + states.len() * width))
        .ok_or("a column's buffer is too short")?;
    match width {
        4 => each(column, states, bytes.as_chunks().0.iter(), |row, v| {
            absorb(row, u64::from(u32::from_le_bytes(*v)));
        }),
        8 => each(column, states, bytes.as_chunks().0.iter(), |row, v| {
            absorb(row, u64::from_le_bytes(*v));
        }),
        _ => each(column, states, bytes.chunks_exact(width.max(1)), absorb_bytes),
    }
    Ok(())
}

fn variable<O: OffsetSizeTrait>(column: &ArrayData, states: &mut [Row]) -> Result<(), String> {
    if states.is_empty() {
        return Ok(());
    }
    let offsets = column.buffer::<O>(0).get(..=states.len()).ok_or("a column's offsets are too few")?;
    let bytes = column.buffers().get(1).map(Buffer::as_slice).unwrap_or_default();
    let values = offsets.windows(2).map(|pair| match pair {
        [from, to] => bytes.get(from.as_usize()..to.as_usize()).unwrap_or_default(),
        _ => &[],
    });
    each(column, states, values, |row, value| {
        absorb(row, value.len() as u64);
        absorb_bytes(row, value);
    });
    Ok(())
}

fn absorb_bytes(row: &mut Row, bytes: &[u8]) {
    let (whole, rest) = bytes.as_chunks();
    for word in whole {
        absorb(row, u64::from_le_bytes(*word));
    }
    if !rest.is_empty() {
        absorb(row, rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    }
}

fn absorb(row: &mut Row, word: u64) {
    let [a, b] = *row;
    *row = [fold(a ^ word, MULTIPLIER[0]), fold(b ^ word, MULTIPLIER[1])];
}

fn absorb_null(row: &mut Row) {
    let [a, b] = *row;
    *row = [fold(a, NULL_MULTIPLIER[0]), fold(b, NULL_MULTIPLIER[1])];
}

#[allow(clippy::cast_possible_truncation)] // the low half is meant
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    product as u64 ^ (product >> 64) as u64
}
