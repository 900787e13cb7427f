"""The body of a stream load as rows of a table, by the request's headers.

A header that Doris has and the stand-in has not (`where`, `jsonpaths` …) is refused, so that no test passes because it was overlooked.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.servers.doris.csv import Csv, separator
from tests.servers.doris.tables import SEQUENCE, SIGN, RowError, Rows, Store, Table

_UNKNOWN = (
    "where", "jsonpaths", "json_root", "partitions", "temporary_partitions", "delete", "fuzzy_parse", "negative",
    "skip_lines", "unique_key_update_mode",
)  # fmt: skip


class LoadError(Exception):
    """Why a whole load fails."""


@dataclass
class Loaded:
    """What came of a body. `refused`: a line of the error log for each row that was filtered."""

    rows: Rows
    total: int = 0
    refused: list[str] = field(default_factory=list)


def read(store: Store, table: Table, headers: Mapping[str, str], body: bytes) -> Loaded:
    """LoadError when nothing of it can be loaded."""
    for name in _UNKNOWN:
        if headers.get(name, "").lower() not in ("", "false"):
            raise LoadError(f"[INTERNAL_ERROR]the stand-in does not know the header {name}")
    if headers.get("partial_columns", "false").lower() == "true":
        raise LoadError("[INTERNAL_ERROR]the stand-in does not know the header partial_columns")
    if headers.get("strict_mode", "false").lower() not in ("true", "false"):
        raise LoadError("[INVALID_ARGUMENT]Invalid strict mode format. Must be bool type")
    if headers.get("compress_type", "").lower() in ("gz", "gzip"):
        body = gzip.decompress(body)
    elif headers.get("compress_type"):
        raise LoadError(f"[INTERNAL_ERROR]the stand-in does not know compress_type {headers['compress_type']}")
    names = _columns(table, headers)
    kind = headers.get("format", "csv").lower()
    if kind == "json":
        found = _json_rows(table, names, headers, body)
    elif kind == "csv":
        found = _csv_rows(names, headers, body)
    else:
        raise LoadError(f"[INTERNAL_ERROR]unknown format type {kind}")
    return _taken(store, table, headers, names, found)


def _columns(table: Table, headers: Mapping[str, str]) -> list[str]:
    """What each value of a line is for."""
    if "columns" in headers:
        names = _split_names(headers["columns"])
    else:
        hidden = [name.strip() for name in headers.get("hidden_columns", "").split(",") if name.strip()]
        names = [*(one.name for one in table.fields), *hidden]
    by = headers.get("function_column.sequence_col", "") if table.sequence_type else ""
    own = (SIGN, SEQUENCE, by.upper())
    is_column = {one.name.upper() for one in table.fields}
    return [name if name.upper() in own and name.upper() not in is_column else table.field(name).name for name in names]


def _split_names(text: str) -> list[str]:
    names = [
        quoted.replace("``", "`") if quoted else plain
        for quoted, plain in re.findall(r"`((?:[^`]|``)*)`|([^`,\s]+)", text)
    ]
    if any("=" in name or "(" in name for name in names):
        raise LoadError("[ANALYSIS_ERROR]the stand-in does not know derived columns")
    return names


def _taken(
    store: Store, table: Table, headers: Mapping[str, str], names: list[str], found: Iterator[Sequence[Any] | str]
) -> Loaded:
    strict = headers.get("strict_mode", "false").lower() == "true"
    merge = headers.get("merge_type", "APPEND").upper()
    if merge not in ("APPEND", "DELETE"):
        raise LoadError(f"[INTERNAL_ERROR]the stand-in does not know merge_type {merge}")
    is_column = {one.name for one in table.fields}
    of_table = [name for name in names if name in is_column]
    at = [names.index(name) for name in of_table]
    if (sequence_at := _sequence_at(table, headers, names)) is not None:
        of_table, at = [*of_table, SEQUENCE], [*at, sequence_at]
    loaded = Loaded(Rows(of_table, [], []))
    sign_at = next((n for n, name in enumerate(names) if name.upper() == SIGN), None)
    missing = [one for one in table.fields if one.name not in of_table and not one.nullable and one.default is None]
    for row in found:
        loaded.total += 1
        try:
            if isinstance(row, str):
                raise RowError(row)
            if missing:
                raise RowError(f"column_name[{missing[0].name}], null value for not null column")
            sign = 1 if merge == "DELETE" else 0 if sign_at is None else int(row[sign_at] or 0)
            loaded.rows.values.append(store.prepared(table, of_table, [row[n] for n in at], strict=strict))
            loaded.rows.signs.append(sign)
        except RowError as error:
            loaded.refused.append(f"Reason: {error}. src line [{row}]; ")
    return loaded


def _sequence_at(table: Table, headers: Mapping[str, str], names: list[str]) -> int | None:
    """Where in a line the value of a hidden sequence column stands; None where the table has none, or one that is not hidden."""
    by = headers.get("function_column.sequence_col", "")
    if by and table.sequence is None and table.sequence_type is None:
        raise LoadError(f"[ANALYSIS_ERROR]There is no sequence column in the table {table.name}")
    missing = f"[ANALYSIS_ERROR]Table {table.name} has sequence column, need to specify the sequence column"
    if table.sequence is not None and table.sequence not in names:
        raise LoadError(missing)
    if table.sequence_type is None:
        return None
    if not by:
        raise LoadError(missing)
    folded = [name.lower() for name in names]
    if by.lower() not in folded:
        raise LoadError(f"[ANALYSIS_ERROR]There is no sequence column {by} in the table or the COLUMNS")
    return folded.index(by.lower())


def _json_rows(
    table: Table, names: list[str], headers: Mapping[str, str], body: bytes
) -> Iterator[Sequence[Any] | str]:
    exact = headers.get("num_as_string", "false").lower() == "true"
    numbers: dict[str, Any] = {"parse_float": str, "parse_int": str} if exact else {}
    is_column = {one.name for one in table.fields}
    for item in _objects(headers, body, numbers):
        if not isinstance(item, dict):
            yield f"JSON data is not an object: {item}"
            continue
        by_name = {key.lower(): value for key, value in item.items()}
        yield [
            by_name[name.lower()] if name.lower() in by_name
            else None if name not in is_column
            else table.field(name).default
            for name in names
        ]  # fmt: skip


def _objects(headers: Mapping[str, str], body: bytes, numbers: dict[str, Any]) -> Iterator[Any]:
    if headers.get("strip_outer_array", "false").lower() == "true":
        yield from json.loads(body, **numbers)
        return
    delimiter = separator(headers.get("line_delimiter", "\\n"))
    lines = body.split(delimiter) if headers.get("read_json_by_line", "false").lower() == "true" else [body]
    for line in lines:
        if line.strip():
            try:
                yield json.loads(line, **numbers)
            except ValueError as error:
                yield f"Parse json data for JsonDoc failed: {error}: {line!r}"


def _csv_rows(names: list[str], headers: Mapping[str, str], body: bytes) -> Iterator[Sequence[Any] | str]:
    for found in Csv.of(headers).rows(body):
        if len(found) != len(names):
            yield f"actual column number in csv file is {len(found)}, schema column number is {len(names)}: {found!r}"
        else:
            yield [None if value is None else value.decode() for value in found]
