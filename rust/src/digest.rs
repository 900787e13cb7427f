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
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

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

/// Of each row a number below `parts`, two bytes each: the same for rows with the same values, spread evenly over others. `TypeError` for
/// a column type that it does not know.
#[pyfunction]
pub fn parts_of_rows<'py>(py: Python<'py>, batch: &Bound<'py, PyAny>, parts: u16) -> PyResult<Bound<'py, PyBytes>> {
    let rows = border::import_batch(batch)?;
    let numbers = py.detach(|| numbers_below(&rows, parts)).map_err(PyTypeError::new_err)?;
    Ok(PyBytes::new(py, &numbers))
}

/// Digests of rows by part: what `parts_of_rows` says of their keys. Rows that differ are then in few parts, however many there are in all.
#[pyclass]
pub struct PartSums {
    rows: Vec<u64>,
    sums: Vec<u128>,
}

#[pymethods]
impl PartSums {
    #[new]
    fn new(parts: u16) -> Self {
        Self { rows: vec![0; parts.into()], sums: vec![0; parts.into()] }
    }

    /// Takes in rows; `parts` has two bytes for each of them. `ValueError` when it has not, or a part is too large.
    fn add(&mut self, py: Python<'_>, batch: &Bound<'_, PyAny>, parts: &[u8]) -> PyResult<()> {
        let rows = border::import_batch(batch)?;
        let states = py.detach(|| states_of(&rows)).map_err(PyTypeError::new_err)?;
        let (parts, rest) = parts.as_chunks();
        if parts.len() != states.len() || !rest.is_empty() {
            return Err(PyValueError::new_err("there must be one part for each row"));
        }
        for ([a, b], part) in states.iter().zip(parts) {
            let part = usize::from(u16::from_le_bytes(*part));
            let (Some(rows), Some(sum)) = (self.rows.get_mut(part), self.sums.get_mut(part)) else {
                return Err(PyValueError::new_err(format!("there is no part {part}")));
            };
            *rows += 1;
            *sum = sum.wrapping_add(u128::from(*a) << 64 | u128::from(*b));
        }
        Ok(())
    }

    /// How many rows there are in all, and their digest.
    fn total(&self) -> (u64, u128) {
        (self.rows.iter().sum(), self.sums.iter().fold(0, |sum: u128, one| sum.wrapping_add(*one)))
    }

    /// How many rows a part has; none for one that there is not.
    fn rows_of(&self, part: u16) -> u64 {
        self.rows.get(usize::from(part)).copied().unwrap_or_default()
    }

    /// The parts in which others differ.
    fn differing(&self, others: &Self) -> Vec<usize> {
        let mine = self.rows.iter().zip(&self.sums);
        let theirs = others.rows.iter().zip(&others.sums);
        mine.zip(theirs).enumerate().filter_map(|(part, (one, other))| (one != other).then_some(part)).collect()
    }
}

/// Of each row its hash, A and then B, eight little-endian bytes each: the same for rows with the same values. `TypeError` for a column type
/// that it does not know.
#[pyfunction]
pub fn hashes_of_rows<'py>(py: Python<'py>, batch: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let rows = border::import_batch(batch)?;
    let states = py.detach(|| states_of(&rows)).map_err(PyTypeError::new_err)?;
    let bytes: Vec<u8> = py.detach(|| states.iter().flatten().flat_map(|half| half.to_le_bytes()).collect());
    Ok(PyBytes::new(py, &bytes))
}

#[allow(clippy::cast_possible_truncation)] // the high half of a product with `parts` is below `parts`
fn numbers_below(rows: &ArrayData, parts: u16) -> Result<Vec<u8>, String> {
    let number = |[a, b]: &Row| ((u128::from(a ^ b) * u128::from(parts)) >> 64) as u16;
    Ok(states_of(rows)?.iter().flat_map(|row| number(row).to_le_bytes()).collect())
}

fn digest(rows: &ArrayData) -> Result<u128, String> {
    let states = states_of(rows)?;
    Ok(states.iter().fold(0, |sum: u128, [a, b]| sum.wrapping_add(u128::from(*a) << 64 | u128::from(*b))))
}

fn states_of(rows: &ArrayData) -> Result<Vec<Row>, String> {
    let mut states = vec![SEED; rows.len()];
    for column in rows.child_data() {
        take_in(&column.slice(rows.offset(), rows.len()), &mut states)?;
    }
    Ok(states)
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
