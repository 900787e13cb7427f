//! Parquet files joined: their row groups one behind the other in a new file, byte for byte, with one footer.
//!
//! Nothing is decompressed or decoded. Of each column chunk the pages are walked: every page's checksum must be that of its bytes (where a
//! page has one; all of headrace's do), and the values of the data pages together must be as many as the row group has rows. So what comes out
//! holds what was written, or it is not made. What the footer says of a chunk (encodings, statistics) is taken over, with new places.
use std::sync::Arc;

use bytes::Bytes;
use parquet::basic::Compression;
use parquet::column::page::{Page, PageReader};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader, RowGroupMetaData};
use parquet::file::properties::WriterProperties;
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::writer::SerializedFileWriter;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

/// A file in the making, of files with the same columns. What it hands out is to be written in that order.
#[pyclass]
#[derive(Default)]
pub struct ParquetJoin {
    joining: Option<Joining>,
}

struct Joining {
    writer: SerializedFileWriter<Vec<u8>>,
    like: Arc<ParquetMetaData>,
}

#[pymethods]
impl ParquetJoin {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// The next bytes of the file: all row groups of a whole Parquet file. `ValueError` when that is damaged, or has other columns.
    fn append<'py>(&mut self, py: Python<'py>, content: PyBackedBytes) -> PyResult<Bound<'py, PyBytes>> {
        let content = Bytes::from_owner(content);
        let joined = py.detach(|| self.joined(&content)).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(PyBytes::new(py, &joined))
    }

    /// The last bytes of the file, its footer. `ValueError` when nothing was appended.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut joining = self.joining.take().ok_or_else(|| PyValueError::new_err("there is nothing to join"))?;
        let footer = joining.writer.finish().map(|_| std::mem::take(joining.writer.inner_mut()));
        Ok(PyBytes::new(py, &footer.map_err(|error| PyValueError::new_err(error.to_string()))?))
    }
}

impl ParquetJoin {
    fn joined(&mut self, content: &Bytes) -> Result<Vec<u8>> {
        let metadata = Arc::new(ParquetMetaDataReader::new().parse_and_finish(content)?);
        let joining = match &mut self.joining {
            Some(joining) => joining,
            none => none.insert(Joining::begun(&metadata)?),
        };
        joining.must_be_alike(&metadata)?;
        for group in metadata.row_groups() {
            joining.append(content, group)?;
        }
        joining.writer.flush()?;
        Ok(std::mem::take(joining.writer.inner_mut()))
    }
}

impl Joining {
    /// A file that says of itself what the first one says.
    fn begun(first: &Arc<ParquetMetaData>) -> Result<Self> {
        let told = first.file_metadata();
        let properties = WriterProperties::builder()
            .set_created_by(told.created_by().unwrap_or_default().to_owned())
            .set_key_value_metadata(told.key_value_metadata().cloned())
            .set_sorting_columns(first.row_groups().first().and_then(|group| group.sorting_columns().cloned()))
            .build();
        let schema = told.schema_descr().root_schema_ptr();
        let writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
        Ok(Self { writer, like: Arc::clone(first) })
    }

    fn must_be_alike(&self, other: &ParquetMetaData) -> Result<()> {
        let (first, other) = (self.like.file_metadata(), other.file_metadata());
        if first.schema() != other.schema() || first.key_value_metadata() != other.key_value_metadata() {
            return Err(ParquetError::General("its columns are not those of the files before it".to_owned()));
        }
        Ok(())
    }

    fn append(&mut self, content: &Bytes, group: &RowGroupMetaData) -> Result<()> {
        let mut written = self.writer.next_row_group()?;
        for column in group.columns() {
            must_be_whole(content, column, group.num_rows())?;
            written.append_column(content, as_it_is(column, group.num_rows())?)?;
        }
        written.close()?;
        Ok(())
    }
}

/// What a writer of the chunk would have said at its end.
fn as_it_is(column: &ColumnChunkMetaData, rows: i64) -> Result<ColumnCloseResult> {
    Ok(ColumnCloseResult {
        bytes_written: u64::try_from(column.compressed_size())?,
        rows_written: u64::try_from(rows)?,
        metadata: column.clone(),
        bloom_filter: None,
        column_index: None,
        offset_index: None,
    })
}

/// An error unless all pages of a chunk have their checksums, and together a value for each row.
fn must_be_whole(content: &Bytes, column: &ColumnChunkMetaData, rows: i64) -> Result<()> {
    must_be_inside(content, column)?;
    // Read as if it were not compressed: only the bytes are looked at.
    let plain = column.clone().into_builder().set_compression(Compression::UNCOMPRESSED).build()?;
    let mut pages = SerializedPageReader::new(Arc::new(content.clone()), &plain, usize::try_from(rows)?, None)?;
    let mut values = 0;
    while let Some(page) = pages.get_next_page()? {
        values += match page {
            Page::DictionaryPage { .. } => 0,
            Page::DataPage { num_values, .. } | Page::DataPageV2 { num_values, .. } => i64::from(num_values),
        };
    }
    if values != rows {
        return Err(ParquetError::General(format!("{} has {values} values in {rows} rows", column.column_path())));
    }
    Ok(())
}

/// An error unless a chunk lies in the file; the library takes that for granted.
fn must_be_inside(content: &Bytes, column: &ColumnChunkMetaData) -> Result<()> {
    let start = column.dictionary_page_offset().unwrap_or_else(|| column.data_page_offset());
    let place = usize::try_from(start).ok().zip(usize::try_from(column.compressed_size()).ok());
    if place.and_then(|(start, length)| start.checked_add(length)).is_none_or(|end| end > content.len()) {
        return Err(ParquetError::General(format!("{} does not lie in the file", column.column_path())));
    }
    Ok(())
}
