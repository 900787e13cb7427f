"""Changes into the rows that Spark was promised when the query began.

::

    columns   _ums_id_ _ums_ts_ _ums_op_ _ums_commit_ts_ _ums_raw_ | the table's columns … | [_ums_before_ struct of the same columns]
    value     _ums_id_ _ums_ts_ _ums_op_ _ums_commit_ts_ table | value, JSON of the row | [_ums_before_, JSON]

The schema of a query is fixed, that of a table is not. What has no column in the query, or does not fit its column's type, stands in
`_ums_raw_` as text, under its own name: a column that was added is there until the query is started again, and is a column then; one that was
dropped is there in rows from before. A column that a row does not have is null.

`_ums_op_` is i, u or d; or c: the table was truncated, dropped or renamed, and all its rows with a smaller `_ums_id_` are gone. Such a row has
nothing else, but its cause in `_ums_raw_` or `value`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.binlog import BEFORE, BEFORE_RAW
from headrace.codec.json_rows import row_objects
from headrace.codec.texts import texts
from headrace.errors import DataError
from headrace.stream.spark_types import spark_type
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, SYSTEM_FIELDS, TS, Column, TableSchema
from headrace.ums.values import cast_or_null

CLEAR = "c"
TABLE, VALUE = "table", "value"
_PLACE = [pa.field(field.name, field.type) for field in SYSTEM_FIELDS if field.name != RAW]
Array: TypeAlias = "pa.Array[Any]"
Beyond = dict[int, dict[str, Any]]
"""By row what has no place in its columns."""


class Frame(Protocol):
    """Turns changes into rows of one schema. It is sent to executors."""

    def rows(self, change: ChangeBatch | Clear) -> pa.RecordBatch: ...


def column_schema(table: TableSchema, *, before_images: bool) -> pa.Schema:
    """What Spark is promised of a table, in columns."""
    columns = [pa.field(column.name, spark_type(column.type)) for column in table.columns]
    before = [pa.field(BEFORE, pa.struct(columns))] if before_images else []
    return pa.schema([*_PLACE, pa.field(RAW, pa.utf8()), *columns, *before])


def value_schema(*, before_images: bool) -> pa.Schema:
    """What Spark is promised of any tables, in one column."""
    before = [BEFORE] if before_images else []
    return pa.schema([*_PLACE, *(pa.field(name, pa.utf8()) for name in (TABLE, VALUE, *before))])


@dataclass(frozen=True)
class ValueFrame:
    """Rows as JSON."""

    schema: pa.Schema

    def rows(self, change: ChangeBatch | Clear) -> pa.RecordBatch:
        space = change.table.namespace
        name = f"{space.schema}.{space.table}"
        if isinstance(change, Clear):
            return _clear_row(change, self.schema, {TABLE: name, VALUE: _cause(change)})
        data, own = change.data, _own_columns(change.table)
        found: dict[str, Array] = {
            TABLE: pa.repeat(name, len(change)),
            VALUE: row_objects(own, [data[c.name] for c in own], data[RAW], [None] * len(change)).cast(pa.utf8()),
        }
        if BEFORE in self.schema.names and BEFORE in data.schema.names:
            found[BEFORE] = _before_objects(own, data)
        return pa.RecordBatch.from_arrays(
            [_placed(field, found.get(field.name), data) for field in self.schema], schema=self.schema
        )


def _placed(field: pa.Field[Any], found: Array | None, data: pa.RecordBatch) -> Array:
    if found is not None:
        return found
    return data[field.name] if field.name in data.schema.names else pa.nulls(data.num_rows, field.type)


def _before_objects(own: Sequence[Column], data: pa.RecordBatch) -> Array:
    image = data[BEFORE]
    members = [pc.struct_field(image, index) for index in range(len(own))]
    found = row_objects(own, members, data[BEFORE_RAW], [None] * data.num_rows).cast(pa.utf8())
    texts_or_none: Array = pc.if_else(pc.is_valid(image), found, pa.scalar(None, pa.utf8()))
    return texts_or_none


@dataclass(frozen=True)
class ColumnFrame:
    """Rows in typed columns."""

    schema: pa.Schema

    def rows(self, change: ChangeBatch | Clear) -> pa.RecordBatch:
        if isinstance(change, Clear):
            return _clear_row(change, self.schema, {RAW: _cause(change)})
        data, own = change.data, _own_columns(change.table)
        beyond = _texts_by_row(data[RAW])
        arrays: dict[str, Array] = {field.name: data[field.name] for field in _PLACE}
        arrays |= _fitted_all(
            [field for field in self.schema if not _is_ours(field.name)],
            own,
            data.columns[len(SYSTEM_FIELDS) :],
            beyond,
        )
        if BEFORE in self.schema.names:
            arrays[BEFORE] = self._before(own, data, beyond)
        arrays[RAW] = self._raw(beyond, len(change), change.table)
        return pa.RecordBatch.from_arrays([arrays[name] for name in self.schema.names], schema=self.schema)

    def _before(self, own: Sequence[Column], data: pa.RecordBatch, beyond: Beyond) -> Array:
        type_ = self.schema.field(BEFORE).type
        if BEFORE not in data.schema.names:
            none: Array = pa.nulls(data.num_rows, type_)
            return none
        image = data[BEFORE]
        mine = _texts_by_row(data[BEFORE_RAW])
        fields = [type_.field(index) for index in range(type_.num_fields)]
        found = _fitted_all(fields, own, [pc.struct_field(image, index) for index in range(len(own))], mine)
        for row, values in mine.items():
            beyond.setdefault(row, {})[BEFORE] = values
        arrays = [found[field.name] for field in fields]
        before: Array = pa.StructArray.from_arrays(arrays, fields=fields, mask=pc.is_null(image))
        return before

    def _raw(self, beyond: Beyond, rows: int, table: TableSchema) -> Array:
        if not beyond:
            return pa.nulls(rows, pa.utf8())
        if RAW not in self.schema.names:
            [first, *_] = beyond.values()
            raise DataError(
                f"rows of {table.namespace.all_versions} have {', '.join(first)}, for which the query has no column that holds it",
                fix=f"let the schema of the query have the column {RAW} string, where such values stand as text",
            )
        return pa.array([_json(beyond[row]) if row in beyond else None for row in range(rows)], pa.utf8())


def _own_columns(table: TableSchema) -> Sequence[Column]:
    return [column for column in table.columns if column.name not in (BEFORE, BEFORE_RAW)]


def _is_ours(name: str) -> bool:
    return name == BEFORE or any(name == field.name for field in SYSTEM_FIELDS)


def _clear_row(change: Clear, schema: pa.Schema, said: dict[str, str]) -> pa.RecordBatch:
    row = {ID: change.id, TS: change.commit_ts_us, OP: CLEAR, COMMIT_TS: change.commit_ts_us} | said
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in schema.names}], schema=schema)


def _cause(change: Clear) -> str:
    return _json({"cause": str(change.cause), **change.statement.header()})


def _texts_by_row(raw: Array) -> Beyond:
    if raw.null_count == len(raw):
        return {}
    return {row: json.loads(text) for row, text in enumerate(raw.to_pylist()) if text is not None}


def _fitted_all(
    wanted: Sequence[pa.Field[Any]], own: Sequence[Column], arrays: Sequence[Array], beyond: Beyond
) -> dict[str, Array]:
    """Arrays for all fields; what has no place in them goes to `beyond`."""
    there = {column.name: (column, array) for column, array in zip(own, arrays, strict=False)}
    rows = len(arrays[0]) if arrays else 0
    found: dict[str, Array] = {}
    for field in wanted:
        if field.name in there:
            column, array = there.pop(field.name)
            found[field.name] = _fitted(column, array, field.type, beyond)
        else:
            found[field.name] = pa.nulls(rows, field.type)
    for column, array in there.values():
        _set_aside(column, array, range(rows), beyond)
    return found


def _fitted(column: Column, array: Array, type_: pa.DataType, beyond: Beyond) -> Array:
    fitted = cast_or_null(array, type_)
    if fitted.null_count > array.null_count:
        unfit: list[Any] = pc.indices_nonzero(pc.and_(pc.is_null(fitted), pc.is_valid(array))).to_pylist()
        _set_aside(column, array, unfit, beyond)
    return fitted


def _set_aside(column: Column, array: Array, rows: Sequence[int], beyond: Beyond) -> None:
    found: list[Any] = texts(array, column.source_type).to_pylist()
    for row in rows:
        if found[row] is not None:
            beyond.setdefault(row, {})[column.name] = found[row]


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False)
