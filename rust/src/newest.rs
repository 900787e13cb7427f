//! The newest change of each key, in whatever order changes come: what is left of a history when it is replayed.
//!
//! ```text
//! Words   a key of one column of 1, 2, 4 or 8 bytes   its bytes, as a number             -> Last
//! Bytes   any other key                               its columns as arrow-row has them  -> Last
//! Last    the change's id; the number of its row << 1 | whether it deletes
//! ```
//! Keys are the same when their bytes are; null is a key like any other. A change that comes twice has the same id twice: the later one counts.
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use ahash::RandomState;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StructArray};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, DataType};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use smallvec::SmallVec;

use crate::border;

#[pyclass(module = "headrace._native")]
#[derive(Default)]
pub struct NewestRows {
    keys: Option<Keys>,
}

enum Keys {
    Words(DataType, Table<Option<u64>>),
    Bytes(RowConverter, Table<Key>),
}

/// Short keys, as of a few numbers, lie in the table itself.
type Key = SmallVec<[u8; 24]>;

type Table<K> = HashMap<K, Last, RandomState>;

#[derive(Clone, Copy)]
struct Last {
    id: i64,
    row_and_deleted: u64,
}

#[pymethods]
impl NewestRows {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Takes in changes: their ids, the numbers of their rows (0 and more), whether they delete, and the columns of their keys.
    /// `TypeError` when it is something else.
    fn add(&mut self, py: Python<'_>, changes: &Bound<'_, PyAny>) -> PyResult<()> {
        let changes = columns_of(changes)?;
        py.detach(|| self.take_in(&changes)).map_err(type_error)
    }

    /// Forgets the keys whose last change deletes. Right when all changes to come are younger.
    fn forget_deleted(&mut self, py: Python<'_>) {
        py.detach(|| match &mut self.keys {
            Some(Keys::Words(_, table)) => table.retain(|_, last| !last.deletes()),
            Some(Keys::Bytes(_, table)) => table.retain(|_, last| !last.deletes()),
            None => {}
        });
    }

    /// The numbers of the rows of last changes, sorted: a batch of one column.
    #[pyo3(signature = (*, with_deletes))]
    fn rows(&self, py: Python<'_>, with_deletes: bool) -> PyResult<border::Batch> {
        let numbers = py.detach(|| {
            let chosen = self.lasts().filter(|last| with_deletes || !last.deletes());
            let mut numbers: Vec<i64> = chosen.map(Last::row).collect();
            numbers.sort_unstable();
            numbers
        });
        one_column(numbers)
    }

    /// The places of the keys of which there is no change: a batch of one column. `TypeError` when these are other columns.
    fn others(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<border::Batch> {
        let keys = columns_of(keys)?;
        one_column(py.detach(|| self.unknown(&keys)).map_err(type_error)?)
    }

    /// How many keys there are.
    fn __len__(&self) -> usize {
        match &self.keys {
            Some(Keys::Words(_, table)) => table.len(),
            Some(Keys::Bytes(_, table)) => table.len(),
            None => 0,
        }
    }
}

impl NewestRows {
    fn take_in(&mut self, changes: &[ArrayRef]) -> Result<(), ArrowError> {
        let [ids, numbers, deletes, key @ ..] = changes else {
            return Err(ArrowError::SchemaError("ids, numbers, deletes and a key are needed".to_owned()));
        };
        let lasts = lasts_of(ids, numbers, deletes)?;
        let keys = match &mut self.keys {
            Some(keys) => keys,
            none => none.insert(Keys::like(key)?),
        };
        match keys {
            Keys::Words(kind, table) => put_all(table, words_of(key, Some(kind))?.iter().zip(lasts), |word| *word),
            Keys::Bytes(converter, table) => {
                let rows = converter.convert_columns(key)?;
                put_all(table, rows.iter().map(|row| row.data()).zip(lasts), Key::from_slice);
            }
        }
        Ok(())
    }

    fn unknown(&self, key: &[ArrayRef]) -> Result<Vec<i64>, ArrowError> {
        let rows = key.first().map_or(0, Array::len);
        Ok(match &self.keys {
            Some(Keys::Words(kind, table)) => unknown_to(table, words_of(key, Some(kind))?.iter()),
            Some(Keys::Bytes(converter, table)) => {
                unknown_to(table, converter.convert_columns(key)?.iter().map(|row| row.data()))
            }
            None => (0..).take(rows).collect(),
        })
    }

    fn lasts(&self) -> Box<dyn Iterator<Item = Last> + '_> {
        match &self.keys {
            Some(Keys::Words(_, table)) => Box::new(table.values().copied()),
            Some(Keys::Bytes(_, table)) => Box::new(table.values().copied()),
            None => Box::new(std::iter::empty()),
        }
    }
}

impl Keys {
    fn like(key: &[ArrayRef]) -> Result<Self, ArrowError> {
        if let ([column], Ok(_)) = (key, words_of(key, None)) {
            return Ok(Self::Words(column.data_type().clone(), Table::default()));
        }
        let fields = key.iter().map(|column| SortField::new(column.data_type().clone())).collect();
        Ok(Self::Bytes(RowConverter::new(fields)?, Table::default()))
    }
}

impl Last {
    fn row(self) -> i64 {
        (self.row_and_deleted >> 1).cast_signed()
    }

    fn deletes(self) -> bool {
        self.row_and_deleted & 1 == 1
    }
}

fn put_all<'q, K, Q>(table: &mut Table<K>, changes: impl Iterator<Item = (&'q Q, Last)>, owned: impl Fn(&Q) -> K)
where
    K: Borrow<Q> + Eq + Hash,
    Q: Eq + Hash + ?Sized + 'q,
{
    for (key, last) in changes {
        match table.get_mut(key) {
            Some(known) if last.id < known.id => {}
            Some(known) => *known = last,
            None => {
                table.insert(owned(key), last);
            }
        }
    }
}

/// The places of the keys that are not in the table.
fn unknown_to<'q, K, Q>(table: &Table<K>, keys: impl Iterator<Item = &'q Q>) -> Vec<i64>
where
    K: Borrow<Q> + Eq + Hash,
    Q: Eq + Hash + ?Sized + 'q,
{
    keys.zip(0..).filter(|(key, _)| !table.contains_key(*key)).map(|(_, place)| place).collect()
}

fn lasts_of(ids: &ArrayRef, numbers: &ArrayRef, deletes: &ArrayRef) -> Result<Vec<Last>, ArrowError> {
    let wrong = || ArrowError::SchemaError("ids and numbers are int64, deletes bool".to_owned());
    let ids = ids.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let numbers = numbers.as_primitive_opt::<Int64Type>().ok_or_else(wrong)?;
    let deletes = deletes.as_boolean_opt().ok_or_else(wrong)?;
    let rows = ids.values().iter().zip(numbers.values()).zip(deletes.values());
    Ok(rows
        .map(|((id, number), deletes)| Last {
            id: *id,
            row_and_deleted: number.cast_unsigned() << 1 | u64::from(deletes),
        })
        .collect())
}

/// A key of one column of up to 8 bytes as numbers; an error for any other, and for other types than those before.
fn words_of(key: &[ArrayRef], before: Option<&DataType>) -> Result<Vec<Option<u64>>, ArrowError> {
    let wrong = || ArrowError::SchemaError("the key is not what it was, one column of up to 8 bytes".to_owned());
    let [column] = key else { return Err(wrong()) };
    if before.is_some_and(|kind| kind != column.data_type()) {
        return Err(wrong());
    }
    let width = column.data_type().primitive_width().ok_or_else(wrong)?;
    let data = column.to_data();
    let from = data.offset() * width;
    let bytes = data.buffers().first().and_then(|b| b.get(from..from + data.len() * width)).ok_or_else(wrong)?;
    let words: Vec<Option<u64>> = match width {
        1 => bytes.iter().map(|byte| Some(u64::from(*byte))).collect(),
        2 => bytes.as_chunks().0.iter().map(|v| Some(u64::from(u16::from_le_bytes(*v)))).collect(),
        4 => bytes.as_chunks().0.iter().map(|v| Some(u64::from(u32::from_le_bytes(*v)))).collect(),
        8 => bytes.as_chunks().0.iter().map(|v| Some(u64::from_le_bytes(*v))).collect(),
        _ => return Err(wrong()),
    };
    Ok(match data.nulls() {
        Some(nulls) => words.into_iter().zip(nulls.iter()).map(|(word, valid)| word.filter(|_| valid)).collect(),
        None => words,
    })
}

fn columns_of(batch: &Bound<'_, PyAny>) -> PyResult<Vec<ArrayRef>> {
    Ok(StructArray::from(border::import_batch(batch)?).columns().to_vec())
}

fn one_column(numbers: Vec<i64>) -> PyResult<border::Batch> {
    let column: ArrayRef = Arc::new(Int64Array::from(numbers));
    RecordBatch::try_from_iter([("", column)]).map(border::Batch).map_err(border::arrow_error)
}

#[allow(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn type_error(error: ArrowError) -> PyErr {
    PyTypeError::new_err(error.to_string())
}
