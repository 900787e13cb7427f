"""Lookups in HBase, through its Thrift2 server: some hundred rows by their row keys in one request. Cells hold text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from headrace.compute.lookups.base import Key, Lookup, Values
from headrace.compute.lookups.pattern import KeyPattern, filled
from headrace.errors import ConfigError, DataError
from headrace.model import Component, Duration
from headrace.sinks.hbase.client import Client
from headrace.sinks.hbase.protocol import IDL

_ASKED_TOGETHER = 500


class HBaseLookupConfig(Component):
    """Looks rows up in a table of HBase."""

    type: Literal["hbase"]
    url: Annotated[str, Field(pattern=r"^thrift://.+")]
    """``thrift://host:9090``: the Thrift2 server (``hbase thrift2 start``)."""
    framed: bool = False
    """The server was started with ``-f``."""
    compact: bool = False
    """The server was started with ``-c``."""
    table: Annotated[str, Field(min_length=1)]
    """``namespace:name``."""
    row_key: KeyPattern
    """The row key, with the names of the step's `on` in braces: ``{id}``."""
    family: str = "cf"
    """The column family of what is taken; ``family:qualifier`` in `take` names another one."""
    timeout: Annotated[Duration, Field(gt=0)] = 60.0
    """How long the server may take for an answer before that counts as an outage."""


class HBaseLookup(Lookup):
    """A row without any of the cells counts as none."""

    Config = HBaseLookupConfig

    def __init__(self, config: HBaseLookupConfig, on: Sequence[str], take: Sequence[str]) -> None:
        self._config = config
        self._on = on
        named = [name if ":" in name else f"{config.family}:{name}" for name in take]
        self._cells = [
            (family.encode(), qualifier.encode()) for family, _, qualifier in (n.partition(":") for n in named)
        ]
        self._client = Client(config.url, framed=config.framed, compact=config.compact, timeout_s=config.timeout)

    def find(self, keys: Sequence[Key]) -> Iterable[tuple[Key, Values]]:
        if not keys:
            self._require_table()
        columns = [IDL.TColumn(family=family, qualifier=qualifier) for family, qualifier in self._cells]
        for first in range(0, len(keys), _ASKED_TOGETHER):
            together = keys[first : first + _ASKED_TOGETHER]
            rows = [filled(self._config.row_key, self._on, key).encode() for key in together]
            gets = [IDL.TGet(row=row, columns=columns) for row in rows]
            for key, result in zip(
                together, self._client.call("getMultiple", self._config.table.encode(), gets), strict=True
            ):
                cells = {(cell.family, cell.qualifier): cell.value for cell in result.columnValues or ()}
                if cells:
                    yield key, tuple(self._text(cells.get(wanted)) for wanted in self._cells)

    def close(self) -> None:
        self._client.close()

    def _require_table(self) -> None:
        if self._client.table(self._config.table) is None:
            raise ConfigError(
                f"there is no HBase table {self._config.table} for a lookup", fix="correct `table` of the step"
            )

    def _text(self, cell: bytes | None) -> str | None:
        try:
            return None if cell is None else bytes(cell).decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"a cell of {self._config.table} that is looked up is no text: {bytes(cell or b'')[:40]!r}",
                fix="take columns that hold text (of a table that headrace fills, `values: text`)",
            ) from error
