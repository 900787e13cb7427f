"""Rows of the Redis sink on both sides: as changes bring them, as the script that writes is told of them, and as the server keeps them (head of
redis.py)."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgpack
import pyarrow as pa

from headrace.errors import DataError
from headrace.sinks.fields import Shape
from headrace.ums.change import ChangeBatch, is_delete
from headrace.ums.schema import ID, TS, Column, TableSchema
from headrace.ums.system_columns import SystemColumns
from headrace.ums.values import Array, from_values, is_bytes, to_text


@dataclass(frozen=True, slots=True)
class RedisTable:
    """A version of a table, and where its values go."""

    table: TableSchema
    shape: Shape
    number: int
    prefix: str
    """What its keys begin with."""

    @property
    def record(self) -> str:
        return record_of(self.table)

    @property
    def changed(self) -> str:
        return f"headrace:changed:{self.table.namespace.all_versions}"


class RowForm:
    """How rows are kept: as hashes or JSON texts, with what the fields beside the columns are called."""

    def __init__(self, form: Literal["hash", "json"], system: SystemColumns) -> None:
        self._form = form
        self._system = system

    def encoded(self, batch: ChangeBatch, to: RedisTable) -> tuple[list[str], list[list[Any]]]:
        """The keys of rows, and what the script is told of each."""
        data = batch.data
        key_columns = [to_text(data.column(name)).to_pylist() for name in batch.table.key]
        if any(value is None for column in key_columns for value in column):
            raise DataError(
                f"table {batch.table.namespace.all_versions}: a row has no value in a key column",
                fix="name key columns that are never null, or leave the table out",
            )
        keys = [
            f"{to.prefix}{':'.join(quoted(value) for value in values)}" for values in zip(*key_columns, strict=True)
        ]
        placed = to.shape.placed(batch.table)
        columns = [_cells(data.column(column.name)) for column, _ in placed]
        fields = [name for _, name in placed]
        later = {name: to.shape.default(one) for one, name in to.shape.later(batch.table).items()}
        ids, times = data.column(ID).to_pylist(), ts_text(data.column(TS))
        deletes = is_delete(data).to_pylist()
        rows: list[list[Any]] = []
        for id_, ts, deleted, values in zip(ids, times, deletes, zip(*columns, strict=True), strict=True):
            row = {
                self._system.id: str(id_),
                self._system.ts: ts,
                self._system.active: "0" if deleted else "1",
                **later,
                **dict(zip(fields, values, strict=True)),
            }
            rows.append([str(id_), ts, "d" if deleted else "w", *self.told(row)])
        return keys, rows

    def told(self, row: dict[str, Any]) -> list[Any]:
        """A row as the server keeps it: fields and values in turns, or one text."""
        if self._form == "hash":
            return [part for name, value in row.items() if value is not None for part in (name, value)]
        values = {name: _as_json(value) for name, value in row.items() if name not in self._system.of_rows}
        names = self._system
        head = (
            f'{{"{names.id}":"{plain(row[names.id])}","{names.ts}":"{plain(row[names.ts])}"'
            f',"{names.active}":{plain(row[names.active])}'
        )
        rest = json.dumps(values, ensure_ascii=False, separators=(",", ":"))[1:]
        return [head + ("," if values else "") + rest]

    def to_batch(self, rows: Sequence[dict[str, Any]], to: RedisTable) -> pa.RecordBatch:
        """Rows by their fields, as the version has them; DataError when a value is not of its column's type."""
        arrays = []
        for column in to.table.columns:
            name = to.shape.names.get(column.identity)
            values = [None if name is None else self._value(row.get(name), column) for row in rows]
            try:
                arrays.append(from_values(values, column.type))
            except (ValueError, ArithmeticError, TypeError) as error:
                raise DataError(
                    f"keys {to.prefix}…, column '{column.name}': a stored value is not {column.type}: {error}",
                    fix="correct the value in the target, or remove the keys and load the table again",
                ) from error
        return pa.RecordBatch.from_arrays(arrays, [column.name for column in to.table.columns])

    def _value(self, stored: Any, column: Column) -> Any:
        if stored is None:
            return None
        if not is_bytes(column.type):
            return plain(stored)
        return stored if self._form == "hash" else base64.b64decode(stored)

    def from_json(self, text: bytes) -> dict[str, Any]:
        """The fields of a row that is kept as JSON."""
        row: dict[str, Any] = json.loads(text)
        return {**row, self._system.active: str(row[self._system.active])}


def record_of(table: TableSchema) -> str:
    """The key of a table's record."""
    return f"headrace:table:{table.namespace.all_versions}"


def quoted(text: str) -> str:
    """A part of a key, which has no colon."""
    return text.replace("%", "%25").replace(":", "%3A")


def plain(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def packed(rows: list[list[Any]]) -> bytes:
    """As the server's cmsgpack reads it, to which text and binary are one type."""
    message: bytes = msgpack.packb(rows, use_bin_type=False)
    return message


def ts_text(column: Array) -> list[str]:
    """Points in time as fields hold them."""
    return [str(text) for text in to_text(column).to_pylist()]


def _cells(column: Array) -> list[Any]:
    """Values as fields hold them: binary as it is, all else as text."""
    cells: list[Any] = column.to_pylist() if is_bytes(column.type) else to_text(column).to_pylist()
    return cells


def _as_json(value: str | bytes | None) -> str | None:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
