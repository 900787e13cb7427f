"""The OpenSearch sink, also for Elasticsearch from 7.10: a row becomes one document (opensearch/documents.py), a table one index.

The server itself keeps the newest change: each document has an external version, its `_ums_id_` + 10^10, and a write with a lower version is
turned down. A write of the same version is taken (external_gte), because a row may have to be written again in another form (growing.py).

::

    shop.orders            the documents of a table; with dates in the pattern one index per date
    headrace               what headrace knows: ``table:shop.orders`` -> its record (growing.py),
                           ``position:…`` -> how far a flow has come
    headrace-gone          with `delete: hard`: index and `_id` -> `_ums_id_` of the delete, its version

Soft deletes are documents like others. A hard delete would be forgotten by the server after `index.gc_deletes` (a minute), or with a restart, and an
older write would bring the document back. So it is also written into `headrace-gone`, before the document is removed, and who writes rows looks
there before: what it finds is older than the delete and is left out. A delete that comes between looking and writing is one that the server has
not forgotten yet.

Crash story. A commit writes the rows first and the position behind them, and rows take repeats; the server syncs its log before it answers a
bulk request (`index.translog.durability: request`, the default). So a position is never newer than the rows. What becomes of rows when columns
change, and when that is broken off: growing.py. Transactions of the source are not visible as one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError, DataError, Finding
from headrace.sinks import growing
from headrace.sinks.base import Capabilities, Places, Position, refuse_names, refuse_types, require_key
from headrace.sinks.growing import Record, Records
from headrace.sinks.growing_sink import GrowingSink
from headrace.sinks.opensearch.config import OpenSearchConfig
from headrace.sinks.opensearch.documents import SHIFT, column_of, documents, ids, kind_of, short_id, versions
from headrace.sinks.opensearch.indices import Indices, item
from headrace.sinks.opensearch.server import SearchServer
from headrace.ums.change import ChangeBatch, Clear, is_delete
from headrace.ums.schema import Column, TableSchema
from headrace.ums.values import join, to_text

_GATHERED_ROWS = 20_000
_TELL_APART = "give each table an index of its own by `index`, for instance '{source}.{schema}.{table}'"
_METADATA = {
    "_data_stream_timestamp", "_doc_count", "_feature", "_field_names", "_id", "_ignored", "_index", "_nested_path", "_primary_term",
    "_routing", "_seq_no", "_size", "_source", "_tier", "_type", "_version",
}  # fmt: skip
_FORGET_EVERY_S = 3600.0
_EXTERNAL = ',"version_type":"external_gte"}}\n'


class OpenSearchSink(GrowingSink):
    """One client of one cluster."""

    Config = OpenSearchConfig
    capabilities: ClassVar[Capabilities] = Capabilities(needs_key=True, remembers_position=True, scans=True)

    def __init__(self, config: OpenSearchConfig, flow: str) -> None:
        super().__init__(_GATHERED_ROWS, _TELL_APART)
        self._config = config
        self._flow = flow
        self._server = SearchServer(config)
        self._indices = Indices(config, self._server)
        self._names = config.system_columns
        self._unseen: set[str] = set()
        """Indices that were written to since the last commit."""
        self._forgot_at = 0.0

    # --- the contract

    def prepare(self, table: TableSchema) -> None:
        for check in self._checks(table, self._places):
            check()
        self.flush()
        with self._server.errors():
            record = self._records[table.namespace] = self._settled(table)
            self._indices.make(table, record)

    def _checks(self, table: TableSchema, places: Places) -> list[Callable[[], object]]:
        return [
            partial(require_key, table, "an OpenSearch target"),
            partial(growing.refuse_policy, self._config.on_change, "an OpenSearch target"),
            partial(refuse_names, table, (*self._names.of_rows, self._names.raw)),
            partial(refuse_types, table),
            partial(_refuse_fields, table),
            partial(self._indices.refuse_dates, table),
            partial(self._claim, places, table),
        ]

    def _claim(self, places: Places, table: TableSchema) -> None:
        index = self._indices.base(table)
        places.take(index, table, f"the index {index}")

    def _rehearse(self, table: TableSchema) -> None:
        with self._server.errors():
            self._grown(table)
            self._indices.refuse_index(table)

    def _rehearsed(self, table: TableSchema) -> Iterator[Finding]:
        yield from list(super()._rehearsed(table)) or self._unlike(table)

    def _unlike(self, table: TableSchema) -> Iterator[Finding]:
        with self._server.errors():
            yield from self._indices.unlike(table, self._grown(table))

    def _grown(self, table: TableSchema) -> Record:
        record = self._indices.read(table)
        return growing.grown(record, table, self._kinds, self._config.on_change, self._names)

    def flush(self) -> None:
        with self._server.errors():
            for batch in self._take():
                self._send(batch)

    def clear(self, clear: Clear) -> None:
        self.flush()
        with self._server.errors():
            record = growing.cleared(self._indices, clear.table, clear)
            self._records[clear.table.namespace] = record
            self._end_rows(clear.table, record)

    def commit(self, position: Position) -> None:
        self.flush()
        with self._server.errors():
            self._indices.keep(self._position_name(position.topic, position.partition), json.dumps(asdict(position)))
            if self._config.refresh == "commit" and self._unseen:
                self._server.client.indices.refresh(index=",".join(sorted(self._unseen)))
            self._unseen = set()
            if self._config.delete == "hard" and time.monotonic() - self._forgot_at > _FORGET_EVERY_S:
                self._forgot_at = time.monotonic()
                self._indices.forget_deletes()

    def check(self) -> None:
        growing.refuse_policy(self._config.on_change, "an OpenSearch target")
        with self._server.errors():
            self._indices.refuse_old_servers()
            self._indices.kept(self._position_name("", 0))

    def position(self, topic: str, partition: int) -> Position | None:
        with self._server.errors():
            found = self._indices.kept(self._position_name(topic, partition))
        return None if found is None else Position(**json.loads(found))

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        with self._server.errors():
            record = self._indices.read(table)
            yield _batch([], table, record)
            for page in self._server.search(self._indices.search_name(table), {"term": {self._names.active: 1}}):
                yield _batch([hit["_source"] for hit in page], table, record)

    def close(self) -> None:
        super().close()
        self._server.close()

    # --- rows

    @property
    def _kept(self) -> Records:
        return self._indices

    def _settled(self, table: TableSchema) -> Record:
        return growing.settled(self._indices, table, self._kinds, self._config.on_change, self._names)

    def _kinds(self, column: Column, held: str | None) -> str | None:
        return kind_of(column, held, unsigned_long=self._indices.has_unsigned_long)

    def _put(self, batch: ChangeBatch, record: Record) -> None:
        if not len(batch):
            return
        names = self._indices.of_rows(batch, record)
        for index in sorted(set(names)):
            part = batch
            if len(set(names)) > 1:
                part = ChangeBatch(batch.table, batch.data.filter(pa.array([name == index for name in names])))
            self._put_into(index, part, record)

    def _put_into(self, index: str, batch: ChangeBatch, record: Record) -> None:
        self._unseen.add(index)
        if self._config.delete == "hard":
            batch = self._indices.without_gone(index, batch)
            self._indices.remember_deletes(index, ChangeBatch(batch.table, batch.data.filter(is_delete(batch.data))))
        self._server.bulk(index, self._items(batch, record))

    def _items(self, batch: ChangeBatch, record: Record) -> list[bytes]:
        """Each row as an item of a bulk request."""
        if not len(batch):
            return []
        named = pa.array([json.dumps(id_, ensure_ascii=False) for id_ in ids(batch)], pa.utf8())
        heads = join('{"index":{"_id":', named, ',"version":', versions(batch), _EXTERNAL)
        lines = join(heads, documents(batch, record, self._names), "\n")
        if self._config.delete == "hard":
            bare = pc.replace_substring(heads, '{"index":', '{"delete":', max_replacements=1)
            lines = pc.if_else(is_delete(batch.data), bare, lines)
        items: list[Any] = lines.cast(pa.binary()).to_pylist()
        return items

    def _end_rows(self, table: TableSchema, record: Record) -> None:
        """Ends the rows that are older than the record's clear."""
        assert record.cleared is not None
        ts = (
            to_text(pa.array([record.cleared_us], pa.int64()).view(pa.timestamp("us")))[0].as_py().replace(" ", "T")
            + "Z"
        )
        query = {
            "bool": {"filter": [{"term": {self._names.active: 1}}, {"range": {self._names.id: {"lt": record.cleared}}}]}
        }
        for page in self._server.search(self._indices.search_name(table), query):
            items = []
            for hit in page:
                head = {"_index": hit["_index"], "_id": hit["_id"], "version": record.cleared + SHIFT}
                source = {**hit["_source"], **dict(zip(self._names.of_rows, (record.cleared, ts, 0), strict=True))}
                items.append(item("delete", head) if self._config.delete == "hard" else item("index", head, source))
            self._server.bulk(self._indices.base(table), items)

    def _position_name(self, topic: str, partition: int) -> str:
        return short_id(f"position:{json.dumps([self._config.index, self._flow, topic, partition])}")


def _batch(found: Sequence[Mapping[str, Any]], table: TableSchema, record: Record) -> pa.RecordBatch:
    arrays = []
    for column in table.columns:
        try:
            arrays.append(column_of(found, column, record.places.get(column.identity)))
        except (ValueError, ArithmeticError, TypeError) as error:
            raise DataError(
                f"documents of {table.namespace.all_versions}, column '{column.name}': a value is not {column.type}: {error}",
                fix="correct the value in the target, or remove the index and load the table again",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, [column.name for column in table.columns])


def _refuse_fields(table: TableSchema) -> None:
    """ConfigError for names that no field can have."""
    for column in table.columns:
        if column.name in _METADATA:
            raise ConfigError(
                f"the table {table.namespace.all_versions} has the column {column.name}, a name that OpenSearch needs",
                fix=f"rename it: `columns: {{rename: {{{column.name}: …}}}}`",
            )
        if "." in column.name or not column.name.strip():
            raise ConfigError(
                f"the table {table.namespace.all_versions} has the column '{column.name}', which an OpenSearch target takes for an object",
                fix=f"rename it: `columns: {{rename: {{'{column.name}': …}}}}`",
            )
