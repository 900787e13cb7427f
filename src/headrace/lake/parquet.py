"""One Parquet file of the lake: how it is written, read and summed.

Choices, measured on a table of 20 columns (bench/lake_write.py): zstd level 1; text and binary try a dictionary, given up at
64 KiB so that unique values cost nothing, and not tried for fewer than 8,192 rows, which without are smaller and cost a tenth less;
integers, dates, times and durations are DELTA_BINARY_PACKED (faster to write and a tenth smaller than dictionaries); statistics for all
columns; a checksum per page, so that a damaged byte is found when read.

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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace._native import digest_rows
from headrace.crash import crash_point
from headrace.errors import ConfigError, CorruptError, HeadraceError, storage_error
from headrace.lake.layout import LakeFile, directory_of, retired_name
from headrace.lake.tally import DIGEST_RANGE
from headrace.storage.base import FileTree, NewFile
from headrace.ums.change import empty_batch
from headrace.ums.schema import COMMIT_TS, ID, OP, TS, TableSchema

ROW_GROUP_ROWS = 256 * 1024
LEVEL = 1
_DICTIONARY_BYTES = 64 * 1024
_DICTIONARY_ROWS = 8192
_DECIMALS = b"headrace.decimals"


class FileWriter:
    """Writes one file of one table version under a hidden name; `finish` gives it its final name. Not thread-safe."""

    def __init__(
        self,
        lake: FileTree,
        table: TableSchema,
        name: str,
        compression_level: int = LEVEL,
        directory: str | None = None,
    ) -> None:
        """`directory`: where the file lies in the lake when it is not one of its table version's own."""
        self.table = table
        self.path = f"{directory or directory_of(table.namespace)}/{name}"
        self._lake = lake
        self._file: NewFile | None = None
        self._schema = stored_schema(table.arrow_schema())
        self._level = compression_level
        self._writer: pq.ParquetWriter | None = None
        self._totals = _Totals()

    @property
    def last_id(self) -> int:
        """The largest id written so far."""
        return self._totals.id[1]

    @property
    def rows(self) -> int:
        """How many rows were written so far."""
        return self._totals.rows

    def append(self, rows: pa.Table) -> None:
        """Writes rows, sorted by id and not older than those before, as row groups; StorageError when the disk refuses."""
        with self._writing():
            stored = rows if rows.schema.types == self._schema.types else rows.cast(self._schema)
            self._write(stored)
        self._totals.add(stored)

    def finish(self) -> LakeFile:
        """Completes the file and makes its bytes durable; its name is durable once its directory is synced."""
        assert self._file is not None, "a file without rows is not written"
        crash_point("lake.rows_written")
        with self._writing():
            self._end()
        crash_point("lake.file_closed")
        size_bytes = self._file.finish()
        return self._totals.described(self.path, str(self.table.namespace), size_bytes)

    def _write(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._writer = open_writer(self._target(), self._schema, self._level, rows.num_rows)
        self._writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)

    def _end(self) -> None:
        assert self._writer is not None
        self._writer.close()

    def _target(self) -> pa.NativeFile:
        if self._file is None:
            self._file = self._lake.new_file(self.path)
        return self._file.target

    def abandon(self) -> None:
        """Throws away what was written; never fails, as it runs when something has failed already."""
        if self._writer is not None:
            with suppress(HeadraceError, OSError, pa.ArrowException):
                self._writer.close()
        if self._file is not None:
            self._file.abandon()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error("write", f"{self._lake.root}/{self.path}", error) from error


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
        self.digest = (self.digest + digest(rows)) % DIGEST_RANGE

    def add_file(self, file: LakeFile) -> None:
        """The rows of a file that is there, as the manifest describes them."""
        self.rows += file.rows
        self.id, self.ts, self.commit_ts = (
            (min(known[0], more[0]), max(known[1], more[1]))
            for known, more in ((self.id, file.id), (self.ts, file.ts), (self.commit_ts, file.commit_ts))
        )
        for operation, count in file.operations.items():
            self.operations[operation] = self.operations.get(operation, 0) + count
        self.digest = (self.digest + file.tally.digest) % DIGEST_RANGE

    def described(self, path: str, namespace: str, size_bytes: int) -> LakeFile:
        operations = dict(sorted(self.operations.items()))
        ranges = (self.id, self.ts, self.commit_ts)
        return LakeFile(path, namespace, self.rows, *ranges, operations, size_bytes, f"{self.digest:032x}")


def _wider(known: tuple[int, int], column: pa.ChunkedArray[Any]) -> tuple[int, int]:
    found = [pc.min_max(chunk.view(pa.int64())) for chunk in column.chunks if len(chunk)]
    lows, highs = ([limits[end].as_py() for limits in found] for end in ("min", "max"))
    return min(known[0], *lows), max(known[1], *highs)


def digest(rows: pa.Table) -> int:
    """The order-free digest of rows, a number below 2^128; digests of parts add up (mod 2^128) to that of the whole."""
    parts: list[int] = [digest_rows(batch) for batch in rows.to_batches()]
    return sum(parts) % DIGEST_RANGE


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


def open_writer(file: pa.NativeFile, schema: pa.Schema, level: int, rows: int) -> pq.ParquetWriter:
    """Opens a file with the choices above; `rows`: how many come first."""
    delta, dictionaries = _encodings(schema)
    return pq.ParquetWriter(
        file,
        schema,
        compression="zstd",
        compression_level=level,
        use_dictionary=dictionaries if rows >= _DICTIONARY_ROWS else [],  # type: ignore[arg-type]  # the stubs lack the list of columns
        column_encoding=dict.fromkeys(delta, "DELTA_BINARY_PACKED"),
        dictionary_pagesize_limit=_DICTIONARY_BYTES,
        write_statistics=True,
        write_page_checksum=True,
        sorting_columns=[pq.SortingColumn(0)],
    )


@lru_cache(maxsize=4096)
def _encodings(schema: pa.Schema) -> tuple[list[str], list[str]]:
    """The columns that are delta-packed, and those that try a dictionary."""
    delta = [field.name for field in schema if _is_packed(field.type)]
    return delta, [field.name for field in schema if field.name not in delta and _has_dictionary(field.type)]


def _is_packed(type_: pa.DataType) -> bool:
    return pa.types.is_integer(type_) or pa.types.is_temporal(type_)


def _has_dictionary(type_: pa.DataType) -> bool:
    return any(check(type_) for check in (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string))


def open_file(lake: FileTree, file: LakeFile) -> pq.ParquetFile:
    """Opens a file that the manifest lists; CorruptError when it is missing or no Parquet.

    A file that was retired since the manifest was read is found under its hidden name.
    """
    with reading(lake, file):
        source = lake.source(file.path, file.bytes, retired_name(file.path))
        return pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True)


def table_in(opened: pq.ParquetFile) -> TableSchema:
    """The table version whose rows a file holds, as the file describes it."""
    return TableSchema.from_arrow(restored_schema(opened.schema_arrow))


@dataclass(frozen=True, slots=True)
class RowGroup:
    """What a file's footer says of one of its row groups; ranges as in LakeFile."""

    number: int
    rows: int
    id: tuple[int, int]
    commit_ts: tuple[int, int]


def row_groups_in(opened: pq.ParquetFile) -> Iterator[RowGroup]:
    """The row groups of a file, in their order."""
    places = [opened.schema_arrow.names.index(name) for name in (ID, COMMIT_TS)]
    for number in range(opened.num_row_groups):
        group = opened.metadata.row_group(number)
        id_, commit_ts = (_range_of(group.column(place)) for place in places)
        yield RowGroup(number, group.num_rows, id_, commit_ts)


def _range_of(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """A column's statistics as 64-bit integers; as wide as can be when there are none."""
    found = column.statistics
    return (-(2**63), 2**63 - 1) if found is None else (int(found.min_raw), int(found.max_raw))  # type: ignore[arg-type]


def row_groups(
    lake: FileTree, file: LakeFile, opened: pq.ParquetFile, columns: Sequence[str], numbers: Sequence[int]
) -> Iterator[pa.Table]:
    """Those columns of those row groups, as they are stored; CorruptError when their bytes are damaged."""
    for number in numbers:
        with reading(lake, file):
            rows = opened.read_row_group(number, columns=list(columns), use_threads=True)
        yield rows


def verify_file(lake: FileTree, file: LakeFile) -> None:
    """Reads a file whole and compares rows and digest with the manifest; CorruptError when they differ."""
    opened = open_file(lake, file)
    rows = total = 0
    for group in row_groups(lake, file, opened, opened.schema_arrow.names, range(opened.num_row_groups)):
        rows += group.num_rows
        total = (total + digest(group)) % DIGEST_RANGE
    if (rows, f"{total:032x}") != (file.rows, file.digest):
        raise corrupt(
            lake, file, f"{rows} rows with digest {total:032x}, but {file.rows} with {file.digest} were written"
        )


@contextmanager
def reading(lake: FileTree, file: LakeFile) -> Iterator[None]:
    """Turns what pyarrow says of a damaged or missing file into CorruptError."""
    try:
        yield
    except FileNotFoundError as error:
        raise corrupt(
            lake, file, "it is missing, or it was merged away longer than the grace ago while this reader was at work"
        ) from error
    except (pa.ArrowException, OSError, EOFError) as error:
        raise corrupt(lake, file, str(error).splitlines()[0]) from error


def corrupt(lake: FileTree, file: LakeFile, reason: str) -> CorruptError:
    return CorruptError(
        f"{lake.root}/{file.path} is not what was written: {reason}",
        fix="restore this file from a copy; the log can deliver its rows again as long as it keeps them",
    )
