"""Keys that a person has written: column and value as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.lake.reshape import parsed
from headrace.ums.schema import TableSchema


def key_values(schema: TableSchema, newest: TableSchema, key: Mapping[str, str]) -> dict[str, pa.Scalar[Any]]:
    """The values to look for in a version's columns; the key names columns of the newest version.

    ConfigError for a column that is not of the version's key, or a value that is none of its type.
    """
    found = {}
    for name, text in key.items():
        identity = next((column.identity for column in newest.columns if column.name == name), name)
        column = next((column for column in schema.columns if column.identity == identity), None)
        if column is None or column.name not in schema.key:
            raise ConfigError(
                f"'{name}' is not a column of the key of {schema.namespace}, which is {', '.join(schema.key) or 'empty'}",
                fix="name columns of the table's key; rows of other tables are found by their own keys",
            )
        try:
            found[column.name] = parsed(text, column.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise ConfigError(
                f"'{text}' is no value of column '{name}' of {schema.namespace}, which is {column.type}",
                fix="write the value as `headrace lake asof` shows it",
            ) from error
    return found
