//! Bodies as Python asks for them: messages in, the bytes of a body out, and which messages are not in it.

use arrow_array::{Array, StringArray};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::lines::{Enclosed, Lines};
use super::separated::{Record, Separated};
use crate::border;
use crate::json::{Node, Step, Walk};

type Texts = Vec<Option<PyBackedBytes>>;
/// The body, its rows, and of what was left out the number of the message and the reason.
type Body = (Py<PyBytes>, usize, Vec<(usize, &'static str)>);

#[pyclass(module = "headrace._native")]
pub struct BodyLines {
    lines: Lines,
}

#[pymethods]
impl BodyLines {
    #[staticmethod]
    #[allow(clippy::needless_pass_by_value, reason = "the form in which Python hands them over")]
    fn json(names: Vec<String>) -> Self {
        Self { lines: Lines::json(&names) }
    }

    #[staticmethod]
    fn csv(separator: &str, end: &str, enclosed: Option<(u8, u8)>) -> Self {
        let enclosed = enclosed.map(|(by, escape)| Enclosed { by, escape });
        Self { lines: Lines::csv(separator, end, enclosed) }
    }

    /// JSON objects, a row each: the values at the places, then the constants.
    #[allow(clippy::needless_pass_by_value, reason = "the form in which Python hands them over")]
    fn of_json(&mut self, py: Python<'_>, texts: Texts, places: Vec<Vec<Step>>, constants: Vec<String>) -> Body {
        let made = py.detach(|| {
            let mut made = Made::new(&mut self.lines, &constants);
            let (tree, mut walk) = (Node::of(&places), Walk::new(places.len()));
            for (number, text) in texts.iter().enumerate() {
                match text_of(text.as_ref()) {
                    Ok(text) if text.trim_ascii_start().starts_with('{') && walk.through(text, &tree) => {
                        made.push(number, walk.members.iter().map(|found| walk.text(found.as_ref())));
                    }
                    Ok(_) => made.refused.push((number, "not a JSON object")),
                    Err(reason) => made.refused.push((number, reason)),
                }
            }
            made.done()
        });
        handed(py, made)
    }

    /// Records of separated fields, one or more in a message, each of `width` fields: those at the places, then the constants.
    #[allow(clippy::needless_pass_by_value, reason = "the form in which Python hands them over")]
    fn of_separated(
        &mut self,
        py: Python<'_>,
        texts: Texts,
        form: PyRef<'_, Separated>,
        places: Vec<usize>,
        constants: Vec<String>,
    ) -> Body {
        let form = &*form;
        let made = py.detach(|| {
            let mut made = Made::new(&mut self.lines, &constants);
            for (number, text) in texts.iter().enumerate() {
                match text_of(text.as_ref()) {
                    Ok(text) => made.push_records(number, text, form, &places),
                    Err(reason) => made.refused.push((number, reason)),
                }
            }
            made.done()
        });
        handed(py, made)
    }

    /// Columns of text, then the constants.
    #[allow(clippy::needless_pass_by_value, reason = "the form in which Python hands them over")]
    fn of_columns(&mut self, py: Python<'_>, columns: &Bound<'_, PyAny>, constants: Vec<String>) -> PyResult<Body> {
        let batch = border::import_batch(columns)?;
        if batch.child_data().iter().any(|column| *column.data_type() != arrow_schema::DataType::Utf8) {
            return Err(PyTypeError::new_err("columns of text are wanted"));
        }
        let columns: Vec<StringArray> = batch.child_data().iter().cloned().map(StringArray::from).collect();
        let made = py.detach(|| {
            let mut made = Made::new(&mut self.lines, &constants);
            for row in 0..batch.len() {
                made.push(row, columns.iter().map(|column| column.is_valid(row).then(|| column.value(row))));
            }
            made.done()
        });
        Ok(handed(py, made))
    }
}

/// What is being made: the body so far.
struct Made<'a> {
    lines: &'a mut Lines,
    constants: &'a [String],
    out: Vec<u8>,
    rows: usize,
    refused: Vec<(usize, &'static str)>,
}

type Done = (Vec<u8>, usize, Vec<(usize, &'static str)>);

impl<'a> Made<'a> {
    fn new(lines: &'a mut Lines, constants: &'a [String]) -> Self {
        Self { lines, constants, out: Vec::new(), rows: 0, refused: Vec::new() }
    }

    fn push<'b>(&mut self, number: usize, cells: impl Iterator<Item = Option<&'b str>>)
    where
        'a: 'b,
    {
        let constants = self.constants.iter().map(|text| Some(text.as_str()));
        match self.lines.push(&mut self.out, cells.chain(constants)) {
            Ok(()) => self.rows += 1,
            Err(unfit) => self.refused.push((number, unfit.reason())),
        }
    }

    fn push_records(&mut self, number: usize, mut text: &str, form: &Separated, places: &[usize]) {
        let mut record = Record::default();
        loop {
            match form.next(&mut text, &mut record) {
                Ok(Some(())) if record.len() == form.width => {
                    self.push(number, places.iter().map(|&place| record.field(place)));
                }
                Ok(Some(())) => self.refused.push((number, "a record has more or fewer fields than `fields`")),
                Ok(None) => return,
                Err(reason) => return self.refused.push((number, reason)),
            }
        }
    }

    fn done(self) -> Done {
        (self.out, self.rows, self.refused)
    }
}

fn handed(py: Python<'_>, (body, rows, refused): Done) -> Body {
    (PyBytes::new(py, &body).unbind(), rows, refused)
}

fn text_of(text: Option<&PyBackedBytes>) -> Result<&str, &'static str> {
    let bytes: &[u8] = text.ok_or("it has no value")?;
    simdutf8::basic::from_utf8(bytes).map_err(|_| "not UTF-8")
}
