"""An HBase's changes into another HBase, cell by cell: each put and each delete with its own timestamp, all versions, as HBase's replication does it.

::

    a cell of a change (capture/hbase)        a request of Thrift2
    put                    f:q t value         TPut, its cells with their timestamps
    delete version         f:q t               TDelete DELETE_COLUMN          f:q t
    delete column          f:q t               TDelete DELETE_COLUMNS         f:q t
    delete family          f   t               TDelete DELETE_FAMILY          f   t
    delete family version  f   t               TDelete DELETE_FAMILY_VERSION  f   t

In what order they are written does not matter. Of two puts of one cell (row, column, timestamp) the later one wins: of those that are sent
together only that one is sent, and those before it were acknowledged. Puts and deletes do not know of each other: a delete hides all that it
names, whenever that was written. So a batch is all its puts, then all its deletes, and writing it again changes nothing.

Limits. What a delete hides comes back nowhere, but what it would have hidden can: a major compaction drops a delete and what it hides, here and there at
times of their own, and a put of an older timestamp that comes behind it is seen where that has happened. HBase's replication has the same. Tags and
TTLs of single cells are not in changes. Tables and their column families must be there, with as many VERSIONS as are wanted.

Crash story: as that of sink.py. The position is the ledger's, and what was written in part is written again.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Literal

from headrace.errors import ConfigError, DataError, Finding, RetryableError
from headrace.sinks.base import Capabilities, Position, refused
from headrace.sinks.gathered import GatheringSink
from headrace.sinks.hbase.client import Client
from headrace.sinks.hbase.config import HBaseServer
from headrace.sinks.hbase.protocol import IDL
from headrace.sinks.hbase.tables import table_name
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import RAW, Namespace, TableSchema
from headrace.ums.values import is_bytes, is_text

_GATHERED_ROWS = 20_000
_SOURCE = "hbase"
_PUT = "put"
_KINDS = {
    "delete version": IDL.TDeleteType.DELETE_COLUMN,
    "delete column": IDL.TDeleteType.DELETE_COLUMNS,
    "delete family": IDL.TDeleteType.DELETE_FAMILY,
    "delete family version": IDL.TDeleteType.DELETE_FAMILY_VERSION,
}
_OF_A_COLUMN = ("delete version", "delete column")
Place = tuple[bytes, bytes, int]
"""Family, qualifier, timestamp."""


class HBaseReplicaConfig(HBaseServer):
    """Delivers the changes of an HBase into another one, as they are, through its Thrift2 server."""

    type: Literal["hbase-replica"]


class HBaseReplicaSink(GatheringSink):
    """One connection to one Thrift2 server."""

    Config = HBaseReplicaConfig
    capabilities: ClassVar[Capabilities] = Capabilities(
        needs_key=True, remembers_position=False, scans=False, only_from=_SOURCE
    )

    def __init__(self, config: HBaseReplicaConfig, flow: str) -> None:
        super().__init__(_GATHERED_ROWS)
        self._config = config
        self._client = Client(config.url, framed=config.framed, compact=config.compact, timeout_s=config.timeout)

    def prepare(self, table: TableSchema) -> None:
        _require_changes_of_hbase(table)
        self._require_table(table)

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        for table in tables:
            yield from refused(partial(self.prepare, table))

    def check(self) -> None:
        self._client.call("listNamespaces")

    def clear(self, clear: Clear) -> None:
        """HBase's log has none: a table that is truncated is dropped and made anew, which says nothing of its rows."""

    def flush(self) -> None:
        for batch in self._take():
            name = self._name(batch.table.namespace).encode()
            puts, deletes = _cells(batch)
            for some in _pieces(puts.items(), self._config.batch_rows):
                self._client.call("putMultiple", name, [_put(row, cells) for row, cells in some])
            for those in _pieces(deletes.items(), self._config.batch_rows):
                self._delete(name, [_delete(row, kind, places) for (row, kind), places in those])

    def commit(self, position: Position) -> None:
        self.flush()

    def close(self) -> None:
        super().close()
        self._client.close()

    def _delete(self, name: bytes, deletes: Sequence[Any]) -> None:
        if left := self._client.call("deleteMultiple", name, deletes):
            raise RetryableError(
                f"HBase at {self._config.url} has not done {len(left)} of {len(deletes)} deletes in {name.decode()}",
                fix="check that all its region servers run",
            )

    def _name(self, space: Namespace) -> str:
        return table_name(self._config.table, space)

    def _require_table(self, table: TableSchema) -> None:
        name = self._name(table.namespace)
        space, _, _ = name.rpartition(":")
        known = (space or "default") in self._client.call("listNamespaces")
        if not known or self._client.table(name) is None:
            raise ConfigError(
                f"there is no HBase table {name} at {self._config.url} for the cells of {table.namespace.all_versions}",
                fix="make it with the column families of its source, and as many VERSIONS as are wanted (create in hbase shell)",
            )


def _require_changes_of_hbase(table: TableSchema) -> None:
    columns = {column.name: column.type for column in table.columns}
    if table.namespace.type != _SOURCE or "cells" not in columns:
        raise ConfigError(
            f"{table.namespace.all_versions} has no cells of an HBase",
            fix="let the flow take tables of a source of `type: hbase`; `to: {type: hbase}` takes those of all sources",
        )
    if not (is_bytes(columns["row"]) or is_text(columns["row"])):
        raise ConfigError(
            f"the row keys of {table.namespace.all_versions} are {columns['row']}: their bytes are not known any more",
            fix="declare `row: bytes` or `row: text` for this table in the source",
        )


def _cells(batch: ChangeBatch) -> tuple[dict[bytes, dict[Place, bytes]], dict[tuple[bytes, str], set[Place]]]:
    """By row what is put, and by row and kind what is deleted."""
    puts: dict[bytes, dict[Place, bytes]] = defaultdict(dict)
    deletes: dict[tuple[bytes, str], set[Place]] = defaultdict(set)
    rows, raws, texts = (list[Any](batch.data.column(name).to_pylist()) for name in ("row", RAW, "cells"))
    for key, raw, text in zip(rows, raws, texts, strict=True):
        row = _row(batch.table, key, raw)
        for cell in json.loads(text):
            place = _bytes(cell, "family"), _bytes(cell, "qualifier"), cell["timestamp"]
            if cell.get("masked"):
                raise DataError(
                    f"a change of {batch.table.namespace.all_versions} has a cell whose value is masked, so there is nothing to put",
                    fix="replicate a source without `mask`",
                )
            if cell["kind"] == _PUT:
                puts[row][place] = _bytes(cell, "value")
            elif cell["kind"] in _KINDS:
                deletes[row, cell["kind"]].add(place)
            else:
                raise DataError(
                    f"a change of {batch.table.namespace.all_versions} has a cell of kind '{cell['kind']}'",
                    fix="report this: HBase writes puts and four kinds of deletes",
                )
    return puts, deletes


def _row(table: TableSchema, key: bytes | str | None, raw: str | None) -> bytes:
    """A row key; one that is no text stands beside."""
    if key is None:
        beyond: dict[str, str] = json.loads(raw or "{}")
        if "row" not in beyond:
            raise DataError(
                f"a change of {table.namespace.all_versions} has no row key", fix="check what has written to the log"
            )
        return b64decode(beyond["row"])
    return key if isinstance(key, bytes) else key.encode()


def _bytes(cell: dict[str, Any], name: str) -> bytes:
    text: str | None = cell.get(name)
    return b64decode(cell[f"{name}_base64"]) if text is None else text.encode()


def _put(row: bytes, cells: dict[Place, bytes]) -> Any:
    values = [
        IDL.TColumnValue(family, qualifier, value, timestamp) for (family, qualifier, timestamp), value in cells.items()
    ]
    return IDL.TPut(row, values)


def _delete(row: bytes, kind: str, places: set[Place]) -> Any:
    columns = [
        IDL.TColumn(family, qualifier if kind in _OF_A_COLUMN else None, timestamp)
        for family, qualifier, timestamp in sorted(places)
    ]
    return IDL.TDelete(row=row, columns=columns, deleteType=_KINDS[kind])


def _pieces(items: Iterable[Any], most: int) -> Iterator[list[Any]]:
    iterator = iter(items)
    while some := list(islice(iterator, most)):
        yield some
