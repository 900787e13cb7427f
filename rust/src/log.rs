//! Records of a log, made without a call of Python for each: of batches of the embedded log (their bytes are drawn at the head of
//! `headrace/log/record.py`), which are checked here, and of messages of Kafka. In Python they are tuples that this module fills.
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyTuple, PyType};

const ROW_BYTES: usize = 16;
const HEADER_BYTES: usize = 44;
const MAGIC: &[u8] = b"HRL1";
/// Begins a batch that takes an offset and has no record.
const TAKEN: &[u8] = b"HRT1";
/// Where the part of a batch begins that its checksum covers.
const CHECKED_FROM: usize = 8;
/// From here on other threads of Python go on while a checksum is made.
const LONG_BYTES: usize = 1 << 16;

/// The crc32 of the bytes from `start` up to `stop`, going on from that of the bytes before; `ValueError` when they are not there.
#[pyfunction]
#[pyo3(signature = (data, start=0, stop=None, before=0))]
pub fn checksum(py: Python<'_>, data: &[u8], start: usize, stop: Option<usize>, before: u32) -> PyResult<u32> {
    let bytes = data.get(start..stop.unwrap_or(data.len())).ok_or_else(|| PyValueError::new_err("no such bytes"))?;
    let sum = || {
        let mut hasher = crc32fast::Hasher::new_with_initial(before);
        hasher.update(bytes);
        hasher.finalize()
    };
    Ok(if bytes.len() < LONG_BYTES { sum() } else { py.detach(sum) })
}

/// What a run of batches holds: its records, where the next batch begins and its offset, and both of the last batch.
type Run<'py> = (Bound<'py, PyList>, usize, u64, usize, u64);

/// The records with offsets in `[start, stop)` of the batches that follow one another from `at` on, where `next_offset` is due.
///
/// Ends behind the batch with the entry before `stop`, and before the first that is not whole in the chunk, intact and in its place: what is
/// wrong with that one is for the caller to say. `record` and `entry` are the named tuples of `headrace.log.base`: (offset, entry) and
/// (key, value, time).
#[pyfunction]
#[allow(clippy::too_many_arguments)] // a whole chunk crosses the border at once
pub fn records_of_chunk<'py>(
    py: Python<'py>,
    chunk: &[u8],
    at: usize,
    next_offset: u64,
    start: u64,
    stop: u64,
    record: &Bound<'py, PyType>,
    entry: &Bound<'py, PyType>,
) -> PyResult<Run<'py>> {
    let mut filler = Filler { record: TupleType::of(record)?, entry: TupleType::of(entry)?, key: None };
    let found = PyList::empty(py);
    let (mut at, mut next_offset) = (at, next_offset);
    let (mut last_at, mut last_offset) = (at, next_offset);
    while next_offset < stop {
        let Some(batch) = chunk.get(at..).and_then(|rest| Batch::at(rest, next_offset)) else { break };
        if next_offset + batch.count > start {
            filler.fill(&batch, next_offset, start, stop, &found)?;
        }
        (last_at, last_offset) = (at, next_offset);
        at += batch.length;
        next_offset += batch.count;
    }
    Ok((found, at, next_offset, last_at, last_offset))
}

/// The records of Kafka's `messages` from the one numbered `first` on, up to the first that has headers: those are for the caller. `class` is
/// the messages' own, whose methods say what they hold.
#[pyfunction]
pub fn records_of_messages<'py>(
    messages: &Bound<'py, PyList>,
    first: usize,
    class: &Bound<'py, PyType>,
    record: &Bound<'py, PyType>,
    entry: &Bound<'py, PyType>,
) -> PyResult<Bound<'py, PyList>> {
    let py = messages.py();
    let (record, entry) = (TupleType::of(record)?, TupleType::of(entry)?);
    let method = |name| class.getattr(name);
    let (headers, offset, timestamp) = (method("headers")?, method("offset")?, method("timestamp")?);
    let (key, value) = (method("key")?, method("value")?);
    let empty = PyBytes::new(py, b"").into_any();
    let or_empty = |bytes: Bound<'py, PyAny>| if bytes.is_none() { empty.clone() } else { bytes };
    let found = PyList::empty(py);
    for message in messages.iter().skip(first) {
        if !called(&headers, &message)?.is_none() {
            break;
        }
        let time_ms = called(&timestamp, &message)?.cast_into::<PyTuple>()?.get_item(1)?;
        let held = [or_empty(called(&key, &message)?), or_empty(called(&value, &message)?), time_ms];
        found.append(record.filled([called(&offset, &message)?, entry.filled(held)?])?)?;
    }
    Ok(found)
}

/// `function(argument)`, without a tuple of arguments.
fn called<'py>(function: &Bound<'py, PyAny>, argument: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // Safety: both objects live through the call, which gives a new reference or sets an error; the list of arguments ends with a null.
    unsafe {
        let end = std::ptr::null_mut::<ffi::PyObject>();
        let result = ffi::PyObject_CallFunctionObjArgs(function.as_ptr(), argument.as_ptr(), end);
        Bound::from_owned_ptr_or_err(function.py(), result)
    }
}

/// An intact batch: its rows, then its keys and values.
struct Batch<'a> {
    length: usize,
    count: u64,
    rows: &'a [[u8; ROW_BYTES]],
    body: &'a [u8],
}

impl<'a> Batch<'a> {
    /// The batch at the beginning of `rest`, when it is whole, intact, and the one that is due.
    fn at(rest: &'a [u8], due: u64) -> Option<Self> {
        let (header, _) = rest.split_first_chunk::<HEADER_BYTES>()?;
        let number = |from: usize| header.get(from..from + 8)?.try_into().ok().map(u64::from_le_bytes);
        let length = usize::try_from(number(8)?).ok()?;
        let count = u32::from_le_bytes(header.get(40..)?.try_into().ok()?);
        let whole = rest.get(..length)?;
        let magic = header.get(..4)?;
        if (magic != MAGIC && magic != TAKEN) || number(16)? != due || count == 0 {
            return None;
        }
        let crc32 = u32::from_le_bytes(header.get(4..8)?.try_into().ok()?);
        if crc32fast::hash(whole.get(CHECKED_FROM..)?) != crc32 {
            return None;
        }
        if magic == TAKEN {
            return (length == HEADER_BYTES).then_some(Self { length, count: u64::from(count), rows: &[], body: &[] });
        }
        let (rows, body) = whole.get(HEADER_BYTES..)?.split_at_checked(count as usize * ROW_BYTES)?;
        Some(Self { length, count: u64::from(count), rows: rows.as_chunks().0, body })
    }
}

/// Makes records of entries.
struct Filler<'a, 'py, 'c> {
    record: TupleType<'a, 'py>,
    entry: TupleType<'a, 'py>,
    /// That of the entry before: entries of one table come in runs.
    key: Option<(&'c [u8], Bound<'py, PyBytes>)>,
}

impl<'py, 'c> Filler<'_, 'py, 'c> {
    fn fill(
        &mut self,
        batch: &Batch<'c>,
        base: u64,
        start: u64,
        stop: u64,
        found: &Bound<'py, PyList>,
    ) -> PyResult<()> {
        let py = found.py();
        let too_short = || PyValueError::new_err("the entries of a batch are longer than the batch");
        let mut rest = batch.body;
        for (offset, row) in (base..stop).zip(batch.rows) {
            let (key_bytes, value_bytes, time_ms) = lengths_and_time(*row);
            let (key, behind) = rest.split_at_checked(key_bytes).ok_or_else(too_short)?;
            let (value, behind) = behind.split_at_checked(value_bytes).ok_or_else(too_short)?;
            rest = behind;
            if offset < start {
                continue;
            }
            let key = match &self.key {
                Some((bytes, object)) if *bytes == key => object.clone(),
                _ => self.key.insert((key, PyBytes::new(py, key))).1.clone(),
            };
            let time_ms = time_ms.into_pyobject(py)?;
            let filled = self.entry.filled([key.into_any(), PyBytes::new(py, value).into_any(), time_ms.into_any()])?;
            let offset: Bound<'py, PyInt> = offset.into_pyobject(py)?;
            found.append(self.record.filled([offset.into_any(), filled])?)?;
        }
        Ok(())
    }
}

fn lengths_and_time(row: [u8; ROW_BYTES]) -> (usize, usize, i64) {
    let [k0, k1, k2, k3, v0, v1, v2, v3, time @ ..] = row;
    let length = |bytes| u32::from_le_bytes(bytes) as usize;
    (length([k0, k1, k2, k3]), length([v0, v1, v2, v3]), i64::from_le_bytes(time))
}

/// A subclass of `tuple` that adds nothing but names, and how its instances are allocated.
struct TupleType<'a, 'py> {
    class: &'a Bound<'py, PyType>,
    allocate: ffi::allocfunc,
}

impl<'a, 'py> TupleType<'a, 'py> {
    fn of(class: &'a Bound<'py, PyType>) -> PyResult<Self> {
        if !class.is_subclass_of::<PyTuple>()? {
            return Err(PyTypeError::new_err("not a named tuple"));
        }
        // Safety: `class` is a heap type that lives as long as this, and its slot `tp_alloc` is an `allocfunc`.
        let allocate = unsafe {
            let slot = ffi::PyType_GetSlot(class.as_type_ptr(), ffi::Py_tp_alloc);
            std::mem::transmute::<*mut std::ffi::c_void, Option<ffi::allocfunc>>(slot)
        };
        Ok(Self { class, allocate: allocate.ok_or_else(|| PyTypeError::new_err("tuple cannot be made"))? })
    }

    /// A tuple of `values` (numbers, bytes, and tuples made here), without the two that `tuple.__new__` is given them in.
    fn filled<const N: usize>(&self, values: [Bound<'py, PyAny>; N]) -> PyResult<Bound<'py, PyAny>> {
        // Safety: `of` has checked that the class is a subclass of tuple, whose instances have as many places, all empty, as `allocate` is
        // asked for. Each place is filled, by a reference that is given away, before anybody else sees the tuple.
        unsafe {
            let size = ffi::Py_ssize_t::try_from(N)?;
            let made = Bound::from_owned_ptr_or_err(self.class.py(), (self.allocate)(self.class.as_type_ptr(), size))?;
            for (place, value) in (0..size).zip(values) {
                if ffi::PyTuple_SetItem(made.as_ptr(), place, value.into_ptr()) != 0 {
                    return Err(PyErr::fetch(self.class.py()));
                }
            }
            // Numbers and bytes hold nobody, so no cycle can begin here: left to look for some, the collector takes half of a reader's time.
            ffi::PyObject_GC_UnTrack(made.as_ptr().cast());
            Ok(made)
        }
    }
}
