"""``headrace decode``: changes of recorded logs as lines of JSON, in log order.

Values are written exactly: integers and decimals keep all digits, dates keep what no calendar holds, bytes are base64. Each column
is turned into JSON fragments as a whole, and a line is put together from the fragments of its row.
"""

from __future__ import annotations

import heapq
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.binlog import ABSENT, BEFORE, BEFORE_RAW, OFFSET, ColumnInfo, Ddl, Rows
from headrace.ums.schema import ID, OP, RAW, TS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DIGITS = re.compile(r"\((\d)\)")


def jsonl_lines(items: Iterable[Rows | Ddl]) -> Iterator[str]:
    """The lines of what was decoded with before images; rows of several tables come in the order of the log."""
    for is_ddl, group in groupby(items, key=lambda item: isinstance(item, Ddl)):
        if not is_ddl:
            batches = [_lines(item) for item in group if isinstance(item, Rows)]
            for _, line in heapq.merge(*batches, key=lambda numbered: numbered[0]):
                yield line


def _lines(rows: Rows) -> Iterator[tuple[int, str]]:
    data = rows.data
    table = f'"schema": {_text(rows.table.schema)}, "table": {_text(rows.table.table)}'
    columns = rows.table.columns
    absent = [None if text is None else json.loads(text) for text in data.column(ABSENT).to_pylist()]
    befores = _images(
        columns,
        _members(data.column(BEFORE), len(columns)),
        data.column(BEFORE_RAW),
        [row and row["before"] for row in absent],
    )
    first = data.num_columns - len(columns)
    afters = _images(columns, data.columns[first:], data.column(RAW), [row and row["after"] for row in absent])
    ids: list[Any] = data.column(ID).to_pylist()
    offsets: list[Any] = data.column(OFFSET).to_pylist()
    times: list[Any] = data.column(TS).cast(pa.int64()).to_pylist()
    ops = data.column(OP).to_pylist()
    for row, (ums_id, op) in enumerate(zip(ids, ops, strict=True)):
        head = f'"file": {_text(rows.file)}, "offset": {offsets[row]}, "ums_id": {ums_id}, "ums_ts": "{_moment(times[row], 6)}"'
        before = "null" if op == "i" else befores[row]
        after = "null" if op == "d" else afters[row]
        yield ums_id, f'{{{head}, {table}, "op": "{op}", "before": {before}, "after": {after}}}'


def _members(images: pa.Array[Any], count: int) -> list[pa.Array[Any]]:
    return [pc.struct_field(images, index) for index in range(count)]


def _images(
    columns: Sequence[ColumnInfo],
    arrays: Sequence[pa.Array[Any]],
    raw: pa.Array[Any],
    absent: Sequence[list[str] | None],
) -> list[str]:
    """One JSON object per row, with the columns that its image has."""
    fragments = [_fragments(array, column.source_type) for column, array in zip(columns, arrays, strict=True)]
    for row, text in enumerate(raw.to_pylist()):
        if text is not None:
            _write_beyond(columns, fragments, row, json.loads(text))
    names = [f"{_text(column.name)}: " for column in columns]
    images = []
    for row, values in enumerate(zip(*fragments, strict=True)):
        members = zip(columns, names, values, strict=True)
        left_out = absent[row] or ()
        images.append("{" + ", ".join(n + v for c, n, v in members if c.name not in left_out) + "}")
    return images


def _write_beyond(
    columns: Sequence[ColumnInfo], fragments: Sequence[list[str]], row: int, beyond: dict[str, str]
) -> None:
    """Values that the column's type cannot hold (they are null in it). Text in broken characters stays as it could be read."""
    for column, values in zip(columns, fragments, strict=True):
        if values[row] == "null" and column.name in beyond:
            values[row] = _text(beyond[column.name])


def _fragments(array: pa.Array[Any], source_type: str) -> list[str]:
    type_ = array.type
    if pa.types.is_float32(type_):
        # Arrow prints the shortest digits for the width that a number has; Python knows only 64 bits. As an integer, -0 is 0.
        return ["-0.0" if value == "-0" else value or "null" for value in array.cast(pa.utf8()).to_pylist()]
    if pa.types.is_timestamp(type_) or pa.types.is_duration(type_):
        array = array.cast(pa.int64())
    encode = _encoder(type_, source_type)
    return ["null" if value is None else encode(value) for value in array.to_pylist()]


def _encoder(type_: pa.DataType, source_type: str) -> Callable[[Any], str]:
    found = _DIGITS.search(source_type)
    digits = int(found[1]) if found else 0
    encoders: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], str]], ...] = (
        (pa.types.is_integer, str),
        (pa.types.is_decimal, _decimal),
        (pa.types.is_floating, repr),
        (pa.types.is_date, _date),
        (pa.types.is_timestamp, lambda value: f'"{_moment(value, digits)}"'),
        (pa.types.is_duration, lambda value: f'"{_duration(value, digits)}"'),
        (pa.types.is_binary, _base64),
        (pa.types.is_string, str if source_type == "json" else _text),
    )
    return next(encode for matches, encode in encoders if matches(type_))


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _decimal(value: Decimal) -> str:
    return f'"{value:f}"'


def _date(value: date) -> str:
    return f'"{value.isoformat()}"'


def _base64(value: bytes) -> str:
    return f'"{b64encode(value).decode()}"'


def _fraction(micros: int, digits: int) -> str:
    return f".{micros:06d}"[: digits + 1] if digits else ""


def _moment(value_us: int, digits: int) -> str:
    moment = _EPOCH + value_us * _MICROSECOND
    return f"{moment:%Y-%m-%d %H:%M:%S}".zfill(19) + _fraction(moment.microsecond, digits)


def _duration(value_us: int, digits: int) -> str:
    seconds, micros = divmod(abs(value_us), 1_000_000)
    sign = "-" if value_us < 0 else ""
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{sign}{clock}{_fraction(micros, digits)}"
