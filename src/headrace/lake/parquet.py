"""One Parquet file of the lake: how it is written, read and summed.

Choices, measured on a table of 20 columns (bench/lake_write.py): zstd level 1; text and binary try a dictionary, given up at
64 KiB so that unique values cost nothing; integers, dates, times and durations are DELTA_BINARY_PACKED (faster to write and a
tenth smaller than dictionaries); statistics for all columns; a checksum per page, so that a damaged byte is found when read.

Two types need care, so that every Parquet reader can read a version's directory:

* ``duration[us]`` (MySQL's TIME) has no Parquet type: it is stored as INT64 microseconds, which pyarrow gives back as a duration
  (the Arrow schema is in the footer) and every other reader, Spark for one, as a 64-bit integer.
* Decimals of more than 38 digits (MySQL has up to 65) make Spark refuse the whole file: they are stored as text, and the schema
  metadata ``headrace.decimals`` names them, so that headrace gives them back as decimals.

The digest is that of the rows as they are stored, so it can be checked from the file alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace._native import digest_rows
from headrace.crash import crash_point
from headrace.errors import ConfigError, CorruptError, storage_error
from headrace.files import make_directories, sync_file
from headrace.lake.layout import LakeFile, directory_of
from headrace.ums.change import empty_batch
from headrace.ums.schema import COMMIT_TS, ID, OP, TS, TableSchema

ROW_GROUP_ROWS = 256 * 1024
_DICTIONARY_BYTES = 64 * 1024
_DIGEST_RANGE = 1 << 128
_DECIMALS = b"headrace.decimals"


class FileWriter:
    """Writes one file of one table version under a hidden name; `finish` gives it its final name. Not thread-safe."""

    def __init__(self, lake: Path, table: TableSchema, name: str, compression_level: int) -> None:
        self.table = table
        self.path = lake / directory_of(table.namespace) / name
        self._relative = self.path.relative_to(lake).as_posix()
        self._hidden = self.path.with_name(f"_{name}.writing")
        self._schema = stored_schema(table.arrow_schema())
        self._level = compression_level
        self._writer: pq.ParquetWriter | None = None
        self._totals = _Totals()

    @property
    def last_id(self) -> int:
        """The largest id written so far."""
        return self._totals.id[1]

    def append(self, rows: pa.Table) -> None:
        """Writes rows, sorted by id and not older than those before, as row groups; StorageError when the disk refuses."""
        with _writing(self._hidden):
            if self._writer is None:
                make_directories(self.path.parent)
                self._writer = open_writer(self._hidden, self._schema, self._level)
            stored = rows if rows.schema.types == self._schema.types else rows.cast(self._schema)
            self._writer.write_table(stored, row_group_size=ROW_GROUP_ROWS)
        self._totals.add(stored)

    def finish(self) -> LakeFile:
        """Completes the file and makes its bytes durable; its name is durable once its directory is synced."""
        assert self._writer is not None, "a file without rows is not written"
        crash_point("lake.rows_written")
        with _writing(self._hidden):
            self._writer.close()
            crash_point("lake.file_closed")
            sync_file(self._hidden)
            crash_point("lake.file_synced")
            size_bytes = self._hidden.stat().st_size
            self._hidden.rename(self.path)
        return self._totals.described(self._relative, str(self.table.namespace), size_bytes)

    def abandon(self) -> None:
        """Throws away what was written; never fails, as it runs when something has failed already."""
        with _quietly():
            if self._writer is not None:
                self._writer.close()
        with _quietly():
            self._hidden.unlink(missing_ok=True)


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The schema that a file has: that of the batches, but for decimals that other readers do not know."""
    wide = {f.name: [f.type.precision, f.type.scale] for f in schema if pa.types.is_decimal256(f.type)}
    if not wide:
        return schema
    fields = [pa.field(field.name, pa.utf8()) if field.name in wide else field for field in schema]
    return pa.schema(fields, {**_metadata(schema), _DECIMALS: json.dumps(wide).encode()})


def restored_schema(schema: pa.Schema) -> pa.Schema:
    """The inverse of `stored_schema`."""
    wide = json.loads(_metadata(schema).get(_DECIMALS, b"{}"))
    fields = [pa.field(f.name, pa.decimal256(*wide[f.name])) if f.name in wide else f for f in schema]
    return pa.schema(fields, {key: value for key, value in _metadata(schema).items() if key != _DECIMALS})


def _metadata(schema: pa.Schema) -> dict[bytes | str, bytes | str]:
    return dict((schema.metadata or {}).items())


class _Totals:
    """What the manifest says of a file's rows, added up while they are written."""

    def __init__(self) -> None:
        self.rows = 0
        self.id = self.ts = self.commit_ts = (2**63 - 1, -(2**63))
        self.operations: dict[str, int] = {}
        self.digest = 0

    def add(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        self.id = _wider(self.id, rows.column(ID))
        self.ts = _wider(self.ts, rows.column(TS))
        self.commit_ts = _wider(self.commit_ts, rows.column(COMMIT_TS))
        for counted in rows.column(OP).value_counts():
            operation = counted["values"].as_py()
            self.operations[operation] = self.operations.get(operation, 0) + counted["counts"].as_py()
        self.digest = (self.digest + digest(rows)) % _DIGEST_RANGE

    def described(self, path: str, namespace: str, size_bytes: int) -> LakeFile:
        operations = dict(sorted(self.operations.items()))
        ranges = (self.id, self.ts, self.commit_ts)
        return LakeFile(path, namespace, self.rows, *ranges, operations, size_bytes, f"{self.digest:032x}")


def _wider(known: tuple[int, int], column: pa.ChunkedArray[Any]) -> tuple[int, int]:
    found = pc.min_max(column.cast(pa.int64()))
    return min(known[0], found["min"].as_py()), max(known[1], found["max"].as_py())


def digest(rows: pa.Table) -> int:
    """The order-free digest of rows, a number below 2^128; digests of parts add up (mod 2^128) to that of the whole."""
    parts: list[int] = [digest_rows(batch) for batch in rows.to_batches()]
    return sum(parts) % _DIGEST_RANGE


def check_types(table: TableSchema) -> None:
    """ConfigError when a column's type cannot be kept in the lake."""
    for column in table.columns:
        try:
            digest_rows(empty_batch(TableSchema(table.namespace, (column,))).data)
        except TypeError as error:
            raise ConfigError(
                f"the lake cannot keep column '{column.name}' of {table.namespace}: its type is {column.type}",
                fix="leave the column out of the flow (columns: drop) or report the type",
            ) from error


def open_writer(path: Path, schema: pa.Schema, level: int) -> pq.ParquetWriter:
    """Opens a file with the choices above."""
    delta = [field.name for field in schema if _is_packed(field.type)]
    dictionaries = [field.name for field in schema if field.name not in delta and _has_dictionary(field.type)]
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=level,
        use_dictionary=dictionaries,  # type: ignore[arg-type]  # the stubs lack the list of columns
        column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
        write_statistics=True,
        write_page_checksum=True,
        sorting_columns=[pq.SortingColumn(0)],
    )


def _is_packed(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_temporal(type_)


def _has_dictionary(type_: pa.DataType) -> bool:
    return any(check(type_) for check in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string))


def open_file(lake: Path, file: LakeFile) -> pq.ParquetFile:
    """Opens a file that the manifest lists; CorruptError when it is missing or no Parquet."""
    with reading(lake, file):
        return pq.ParquetFile(lake / file.path, page_checksum_verification=True)


def row_groups(
    lake: Path, file: LakeFile, opened: pq.ParquetFile, columns: Sequence[str], numbers: Sequence[int]
) -> Iterator[pa.Table]:
    """Those columns of those row groups, as they are stored; CorruptError when their bytes are damaged."""
    for number in numbers:
        with reading(lake, file):
            rows = opened.read_row_group(number, columns=list(columns), use_threads=True)
        yield rows


def verify_file(lake: Path, file: LakeFile) -> None:
    """Reads a file whole and compares rows and digest with the manifest; CorruptError when they differ."""
    opened = open_file(lake, file)
    rows = total = 0
    for group in row_groups(lake, file, opened, opened.schema_arrow.names, range(opened.num_row_groups)):
        rows += group.num_rows
        total = (total + digest(group)) % _DIGEST_RANGE
    if (rows, f"{total:032x}") != (file.rows, file.digest):
        raise _corrupt(
            lake / file.path, f"{rows} rows with digest {total:032x}, but {file.rows} with {file.digest} were written"
        )


@contextmanager
def reading(lake: Path, file: LakeFile) -> Iterator[None]:
    """Turns what pyarrow says of a damaged or missing file into CorruptError."""
    path = lake / file.path
    try:
        yield
    except FileNotFoundError as error:
        raise _corrupt(path, "it is listed by the manifest but missing") from error
    except (pa.ArrowException, OSError, EOFError) as error:
        raise _corrupt(path, str(error).splitlines()[0]) from error


def _corrupt(path: Path, reason: str) -> CorruptError:
    return CorruptError(
        f"{path} is not what was written: {reason}",
        fix="restore this file from a copy; the log can deliver its rows again as long as it keeps them",
    )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error("write", path, error) from error


@contextmanager
def _quietly() -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException):
        return
