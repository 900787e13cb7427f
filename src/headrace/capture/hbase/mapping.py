"""What a flow file says of HBase's tables: types of keys, and columns for cells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

import pyarrow as pa
from pydantic import Field, model_validator

from headrace.model import Model

_TYPES: dict[str, pa.DataType] = {
    "text": pa.utf8(),
    "json": pa.utf8(),
    "bytes": pa.binary(),
    "boolean": pa.bool_(),
    "short": pa.int32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}
CellType = Literal["text", "json", "bytes", "boolean", "short", "int", "long", "float", "double"]
_TAKEN = {"region", "sequence", "cell", "row", "kind", "cells"}
_DEFAULT = "default:"
_NAME = re.compile(r"([\w*?\[\]!-]+:)?[\w.*?\[\]!-]+")
"""What HBase allows (letters, digits, _ - . in tables), and what patterns are made of."""


class CellMapping(Model):
    """A cell that has a column of its own."""

    cell: Annotated[str, Field(pattern=r"^[^:]+:")]
    """``family:qualifier``."""
    type: CellType = "text"
    """What its bytes are: text and JSON in UTF-8; numbers as HBase's class Bytes writes them (``Bytes.toBytes(long)``), 2 bytes for short, 4
    for int and float, 8 for long and double, 1 for boolean; or bytes as they are."""

    @property
    def family(self) -> bytes:
        return self.cell.partition(":")[0].encode()

    @property
    def qualifier(self) -> bytes:
        return self.cell.partition(":")[2].encode()

    @property
    def arrow_type(self) -> pa.DataType:
        return _TYPES[self.type]


class TableMapping(Model):
    """What rows of a table look like."""

    row: CellType = "bytes"
    """What the bytes of its row keys are."""
    columns: dict[str, CellMapping] = Field(default_factory=dict)
    """Column -> the cell whose puts it has: ``{total: {cell: "d:total", type: long}}``. All cells are in the column `cells` besides."""

    @model_validator(mode="after")
    def _names_are_free(self) -> Self:
        for name in self.columns:
            if name in _TAKEN or name.startswith("_ums_") or not name:
                raise ValueError(f"the column '{name}' is there already: give the cell another name")
        return self

    @property
    def row_type(self) -> pa.DataType:
        return _TYPES[self.row]


def is_table(name: str) -> bool:
    """Whether a table may have such a name, or a pattern is like one."""
    return _NAME.fullmatch(name) is not None


def full_name(table: str) -> str:
    """A table's name with its namespace."""
    return table if ":" in table else f"{_DEFAULT}{table}"


class Mappings:
    """The mapping of each table by the name that the log has for it."""

    def __init__(self, patterns: Mapping[str, TableMapping]) -> None:
        self._patterns = {full_name(pattern): mapping for pattern, mapping in patterns.items()}
        self._found: dict[str, TableMapping | None] = {}

    def of(self, table: str) -> TableMapping | None:
        """None when no pattern is like the table; of several the first counts."""
        if table not in self._found:
            name = full_name(table)
            fitting = (mapping for like, mapping in self._patterns.items() if fnmatchcase(name, like))
            self._found[table] = next(fitting, None)
        return self._found[table]
