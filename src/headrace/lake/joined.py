"""A file of the lake that is made of files: rows that are handed over, and whole files whose row groups are copied as they are.

What is copied is neither decompressed nor decoded (rust/src/parquet_join.rs), which is many times as fast. So its rows are not counted and summed
again either. That it is what was written is known all the same: each page has a checksum, which is compared; the footer must say as many
rows, ids and times as the manifest does; and operations and digest of the file are those that the manifest has of its parts, so whoever
checks the new file against the manifest (`verify_file`) checks the parts.

A file is copied when its row groups are large enough to stay what they are. Small ones would stay small, and readers pay for each.
"""

from __future__ import annotations

import pyarrow as pa

from headrace._native import ParquetJoin
from headrace.lake.layout import LakeFile, retired_name
from headrace.lake.parquet import (
    LEVEL,
    ROW_GROUP_ROWS,
    FileWriter,
    corrupt,
    open_file,
    open_writer,
    reading,
    row_groups_in,
    stored_schema,
)
from headrace.storage.base import FileTree
from headrace.ums.schema import TableSchema

_LARGE_ROWS = 64 * 1024
_LARGE_BYTES = 2 << 20
_WHOLE_BYTES = 128 << 20
"""A file that is copied is held in memory, twice for a moment."""


class JoinedFile(FileWriter):
    """Writes rows as a `FileWriter` does, and takes files as they are."""

    def __init__(self, lake: FileTree, table: TableSchema, name: str, directory: str | None = None) -> None:
        super().__init__(lake, table, name, LEVEL, directory)
        self._join = ParquetJoin()

    def copy(self, file: LakeFile) -> None:
        """Takes all rows of a file that `is_copied`, whose ids are not below those before; CorruptError when it is damaged."""
        content = _content(self._lake, file)
        try:
            joined = self._join.append(content)
        except ValueError as error:
            raise corrupt(self._lake, file, str(error)) from error
        with self._writing():
            self._target().write(joined)
        self._totals.add_file(file)

    def _write(self, rows: pa.Table) -> None:
        part = pa.BufferOutputStream()
        with open_writer(part, self._schema, self._level, rows.num_rows) as writer:
            writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        self._target().write(self._join.append(part.getvalue().to_pybytes()))

    def _end(self) -> None:
        self._target().write(self._join.finish())


def is_copied(lake: FileTree, file: LakeFile, table: TableSchema) -> bool:
    """Whether a file can become part of another of a table as it is. CorruptError when it is not what the manifest says."""
    if (file.rows < _LARGE_ROWS and file.bytes < _LARGE_BYTES) or file.bytes > _WHOLE_BYTES:
        return False
    opened = open_file(lake, file)
    groups = list(row_groups_in(opened))
    ids, times = ([getattr(group, name) for group in groups] for name in ("id", "commit_ts"))
    found = (sum(group.rows for group in groups), _whole(ids), _whole(times))
    if found != (file.rows, file.id, file.commit_ts):
        raise corrupt(
            lake, file, f"its footer tells of {found[0]} rows with ids {found[1]}, not of {file.rows} with {file.id}"
        )
    is_large = file.rows >= _LARGE_ROWS * len(groups) or file.bytes >= _LARGE_BYTES * len(groups)
    return is_large and opened.schema_arrow.equals(stored_schema(table.arrow_schema()), check_metadata=True)


def _whole(ranges: list[tuple[int, int]]) -> tuple[int, int]:
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def _content(lake: FileTree, file: LakeFile) -> bytes:
    with reading(lake, file), lake.source(file.path, file.bytes, retired_name(file.path)) as source:
        return source.read()
