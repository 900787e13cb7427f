"""Expected rows from JSON lines in the forms of ``headrace decode``: one object per row, column -> value."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import CorruptError, storage_error
from headrace.ums.schema import RAW, Column, TableSchema
from headrace.verify.digest import fitted


def read_expected(path: Path, table: TableSchema) -> pa.Table:
    """The rows of a file in the types of `table`.

    A zero or partial date, which no date type holds, is null and stands in `_ums_raw_` (the table has that column when there is
    one). A column with any other value that its type does not hold stays text, so that a comparison shows it. A column that no row
    has is not in the result. CorruptError, with file and line, for what is not JSON lines of this table.
    """
    rows = _rows(path)
    names = [column.name for column in table.columns if rows and column.name in rows[0]]
    for number, row in enumerate(rows, start=1):
        if row.keys() != set(names):
            unlike = ", ".join(sorted(row.keys() ^ set(names)))
            raise _corrupt(
                path, number, f"its columns are not those of {table.namespace} and of the first line: {unlike}"
            )
    raws: list[dict[str, str]] = [{} for _ in rows]
    columns = {name: _column(path, table.column(name), [row[name] for row in rows], raws) for name in names}
    if any(raws):
        columns[RAW] = pa.array([json.dumps(raw, ensure_ascii=False) if raw else None for raw in raws], pa.utf8())
    return pa.table(columns) if rows else pa.table({column.name: pa.array([], column.type) for column in table.columns})


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise storage_error("read", path, error) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise _corrupt(path, number, str(error)) from error
        if not isinstance(row, dict):
            raise _corrupt(path, number, "not a JSON object")
        rows.append(row)
    return rows


def _column(path: Path, column: Column, values: list[Any], raws: list[dict[str, str]]) -> pa.Array[Any]:
    kind = column.type
    if pa.types.is_binary(kind):
        return pa.array([_bytes(path, number, value) for number, value in enumerate(values, start=1)], kind)
    if column.source_type == "json":
        values = [None if value is None else json.dumps(value, ensure_ascii=False) for value in values]
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        for number, value in enumerate(values):
            if isinstance(value, str) and _is_partial(value):
                raws[number][column.name] = value
        values = [None if column.name in raw else value for raw, value in zip(raws, values, strict=True)]
    read = _read(values, kind)
    typed, misfits = fitted(read, column)
    return read if misfits else typed


def _read(values: list[Any], kind: pa.DataType) -> pa.Array[Any]:
    """Numbers as such, everything else as text."""
    if not any(isinstance(value, str) for value in values):
        try:
            return pa.array(values, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
            pass
    return pa.array([None if value is None else _text(value) for value in values], pa.utf8())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_partial(text: str) -> bool:
    """Year, month or day 0, as only MySQL has them."""
    date = text[:10].split("-")
    return len(date) == 3 and all(part.isdecimal() for part in date) and 0 in (int(part) for part in date)


def _bytes(path: Path, number: int, value: object) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(str(value), validate=True)
    except ValueError as error:
        raise _corrupt(path, number, f"'{value}' is not base64") from error


def _corrupt(path: Path, number: int, reason: str) -> CorruptError:
    return CorruptError(
        f"{path}:{number}: {reason}", fix="write one JSON object per row, with values as `headrace decode` prints them"
    )
