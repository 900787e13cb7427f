"""Rows of an older table version in the columns of a newer one."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

import pyarrow as pa

from headrace.errors import DataError
from headrace.ums.schema import ID, Column, TableSchema

_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_DURATION = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


class Reshape:
    """From every known version of a table to one target version.

    A column comes from an older row when every version from that row's to the target has it (`Column.identity`), whatever its name
    there; when one in between has not, it was dropped and added anew, and old rows have the new column's initial default.
    """

    def __init__(self, versions: Mapping[int, TableSchema], target: TableSchema) -> None:
        self.target = target
        self._versions = versions
        self._target = {column.name: column for column in target.columns}
        self._stored = {version: self._stored_names(version) for version in versions}
        for version in versions:
            missing = [key for key in target.key if key not in self._stored[version]]
            if missing and self._target[missing[0]].initial_default is None:
                raise DataError(
                    f"key column '{missing[0]}' of {target.namespace} did not exist in version {version}, so its rows cannot be "
                    "told apart",
                    fix=f"load the table anew, or read the versions one by one, for instance {versions[version].namespace}",
                )

    def _stored_names(self, version: int) -> dict[str, str]:
        """The target's columns that the version has: each with its name there."""
        low, high = sorted((version, self.target.namespace.version))
        between = [_by_identity(table) for number, table in self._versions.items() if low <= number <= high]
        there = _by_identity(self._versions[version])
        return {
            column.name: there[column.identity]
            for column in self.target.columns
            if all(column.identity in names for names in between)
        }

    @property
    def numbers(self) -> Iterable[int]:
        """The versions that it knows."""
        return self._versions

    def stored_columns(self, version: int, names: Sequence[str]) -> list[str]:
        """Those of the target's columns that a file of that version holds, as they are called there."""
        stored = self._stored[version]
        return [stored[name] for name in names if name in stored]

    def columns(
        self, rows: pa.Table, version: int, names: Sequence[str]
    ) -> dict[str, pa.ChunkedArray[Any] | pa.Array[Any]]:
        """Those columns of the target, from rows of that version."""
        return {name: self._column(rows, version, name) for name in names}

    def _column(self, rows: pa.Table, version: int, name: str) -> pa.ChunkedArray[Any] | pa.Array[Any]:
        if name == ID:
            return rows.column(ID)
        column = self._target[name]
        if name not in self._stored[version]:
            initial: Any = initial_value(column, self.target)
            repeated: pa.Array[Any] = pa.repeat(initial, rows.num_rows)
            return repeated
        stored = rows.column(self._stored[version][name])
        try:
            return stored if stored.type == column.type else stored.cast(column.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise DataError(
                f"column '{name}' of {self.target.namespace} holds values of version {version} ({stored.type}) that do not fit "
                f"its type {column.type}: {error}",
                fix=f"read the versions one by one, for instance {self._versions[version].namespace}",
            ) from error


def initial_value(column: Column, table: TableSchema) -> pa.Scalar[Any]:
    """The value of rows written before the column existed; DataError when its text does not read as the column's type.

    Zero and partial dates ("0000-00-00", "2024-00-15") are null, as they are in rows that carry them.
    """
    text = column.initial_default
    if text is None:
        return pa.scalar(None, column.type)
    try:
        return parsed(text, column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        if pa.types.is_temporal(column.type) and _DATE.match(text):
            return pa.scalar(None, column.type)
        raise DataError(
            f"the initial default '{text}' of column '{column.name}' in {table.namespace} does not read as {column.type}",
            fix="report this with the table's definition; until then read the versions one by one",
        ) from error


def parsed(text: str, type_: pa.DataType) -> pa.Scalar[Any]:
    """A value from its text, binary from base64; an error of Arrow's, or ValueError, when it is none of that type."""
    if pa.types.is_timestamp(type_):
        # Written without a zone: it is UTC where the column has one.
        local = pa.scalar(text).cast(pa.timestamp(type_.unit))
        return cast("pa.Scalar[Any]", pa.scalar(local.as_py(), type_))
    if pa.types.is_duration(type_):
        return cast("pa.Scalar[Any]", pa.scalar(_duration(text), type_))
    if pa.types.is_binary(type_):
        return cast("pa.Scalar[Any]", pa.scalar(base64.b64decode(text, validate=True), type_))
    return pa.scalar(text).cast(type_)


def _duration(text: str) -> timedelta:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    sign, hours, minutes, seconds, fraction = match.groups()
    length = timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(seconds), microseconds=int((fraction or "0").ljust(6, "0"))
    )
    return -length if sign else length


def _by_identity(table: TableSchema) -> dict[str, str]:
    return {column.identity: column.name for column in table.columns}
