"""What stands under `to` in a flow file for an HBase target."""

from __future__ import annotations

from string import Formatter
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from headrace.model import Component, Duration, names_server
from headrace.on_change import OnChange
from headrace.sinks.hbase import rowkey
from headrace.ums.system_columns import USUAL, SystemColumns

JSON_CELL = "row"
"""The cell of `form: json`."""
_NAMES = {"type", "source", "schema", "table"}


class HBaseServer(Component):
    """Where an HBase is, and which tables changes go to."""

    url: str
    """``thrift://host:9090``: the Thrift2 server (``hbase thrift2 start``)."""
    framed: bool = False
    """The server was started with ``-f``."""
    compact: bool = False
    """The server was started with ``-c``."""
    table: str = "{schema}:{table}"
    """The HBase table, ``namespace:name``; may also use {type} and {source}. Signs that HBase does not take in names become ``_x`` and
    two hexadecimal digits."""
    batch_rows: Annotated[int, Field(ge=1, le=20_000)] = 2000
    """How many rows go in one request."""
    timeout: Annotated[Duration, Field(gt=0)] = 60.0
    """How long the server may take for an answer before that counts as an outage."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        if not names_server(url, "thrift") or "@" in url:
            raise ValueError("write the URL as thrift://host:9090; the server takes no user and password")
        return url

    @field_validator("table")
    @classmethod
    def _is_table(cls, table: str) -> str:
        try:
            names = {name for _, name, _, _ in Formatter().parse(table) if name is not None}
        except ValueError:
            names = {""}
        if names - _NAMES or table.count(":") > 1 or not table.rpartition(":")[2]:
            raise ValueError(
                f"'{table}' must be namespace:name, and may use {{type}}, {{source}}, {{schema}} and {{table}}"
            )
        return table


class HBaseConfig(HBaseServer):
    """Delivers into tables of HBase, through its Thrift2 server."""

    type: Literal["hbase"]
    family: Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+$")] = "cf"
    """The column family of all cells."""
    row_key: str = "{key}"
    """The row key, made of the table's key: ``{salt:16}-{customer:reverse}:{id:08}`` for instance (docs/how-to/hbase.md)."""
    key_encoding: Literal["text", "binary"] = "text"
    """text: as people read it. binary: bytes that sort as the values do."""
    form: Literal["columns", "json"] = "columns"
    """columns: a cell per column. json: one cell ``row`` with an object of all columns, as text or null."""
    values: Literal["text", "binary"] = "text"
    """How cells hold numbers: as digits, or as Java's ``Bytes.toBytes`` writes them."""
    delete: Literal["soft", "hard"] = "soft"
    """soft: a deleted row stays with `_is_active_` = 0. hard: it gets HBase's delete marker, which a major compaction forgets: an older change
    that comes after that brings the row back."""
    versions: Annotated[int, Field(ge=1, le=1000)] = 3
    """How many of a cell's versions a table that headrace makes keeps."""
    compression: Literal["none", "gz", "snappy", "lz4", "zstd"] = "none"
    """Compression of the files of a table that headrace makes; the region servers must have it."""
    splits: tuple[str, ...] = ()
    """Row keys at which the regions of a table that headrace makes begin; when left out, one region per bucket of the row key's salt."""
    records: Annotated[str, Field(pattern=r"^([A-Za-z0-9_]+:)?[A-Za-z0-9_][A-Za-z0-9_.-]*$")] = "headrace"
    """The table in which headrace keeps what it must know of the others; made when it is not there."""
    system_columns: SystemColumns = USUAL
    """What the cells beside those of the source are called; set by the flow's `system_columns`."""
    on_change: OnChange = OnChange()
    """What becomes of rows when columns change at the source; set by the flow's `on_change`."""

    @field_validator("row_key")
    @classmethod
    def _is_row_key(cls, row_key: str) -> str:
        rowkey.parse(row_key)
        return row_key

    @field_validator("values")
    @classmethod
    def _suits_form(cls, values: str, info: ValidationInfo) -> str:
        if values == "binary" and info.data.get("form") == "json":
            raise ValueError("an object of JSON holds text: leave `values: binary` out, or write `form: columns`")
        return values

    @field_validator("system_columns")
    @classmethod
    def _leave_the_row(cls, names: SystemColumns) -> SystemColumns:
        if JSON_CELL in names.of_rows:
            raise ValueError(
                f"`{JSON_CELL}` is the cell of all columns in `form: json`: call the system column otherwise"
            )
        return names
