"""Which indices there are and what they are called, and what headrace keeps beside the rows (drawn at the head of opensearch.py)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from string import Formatter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from opensearchpy.exceptions import ConflictError, NotFoundError, RequestError

from headrace.errors import ConfigError, Finding
from headrace.sinks.growing import Record, Records
from headrace.sinks.opensearch.config import NAMES, OpenSearchConfig
from headrace.sinks.opensearch.documents import filled, ids, mapping_of, short_id, system_fields, takes, versions
from headrace.sinks.opensearch.server import Document, SearchServer
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import ID, TableSchema
from headrace.ums.values import Array

_OLDEST = {"opensearch": (2, 0), "elasticsearch": (7, 10)}
_UNSIGNED_LONG_SINCE = (2, 8)
_NOT_IN_NAMES = '\\/*?"<>| ,#:%'
_NAME_BYTES = 255
_FIELDS_LIMIT = 1000
_KEPT = {"dynamic": False, "properties": {ID: {"type": "long"}, "at": {"type": "date"}}}


class Indices(Records):
    """The indices of a flow's tables, and two of headrace's own."""

    def __init__(self, config: OpenSearchConfig, server: SearchServer) -> None:
        self._config = config
        self._server = server
        self._gone = f"{config.records}-gone"
        self._made: dict[str, int] = {}
        """Index -> the number of the record that its fields are of."""
        self._tags: dict[str, tuple[int, int]] = {}
        """Document of a record -> the sequence number and term by which it is replaced."""
        self._has_unsigned_long: bool | None = None

    # --- names

    def base(self, table: TableSchema) -> str:
        """The index of a table; where dates are in the name, what its names have in common."""
        return self._name(table, "")

    def search_name(self, table: TableSchema) -> str:
        """What a search in all rows of a table names."""
        if not self._dates():
            return self.base(table)
        # Another table's name may begin like this one's.
        return ",".join(self._own(table)) or self.base(table)

    def of_rows(self, batch: ChangeBatch, record: Record) -> list[str]:
        """The index of each row, with the fields of the record."""
        columns = [_dated(batch.data.column(name), form) for name, form in self._dates()]
        names = [self._name(batch.table, values) for values in zip(*columns, strict=True)]
        names = names if columns else [self.base(batch.table)] * len(batch)
        for index in sorted(set(names)):
            self._make(index, batch.table, record)
        return names

    def refuse_dates(self, table: TableSchema) -> None:
        """ConfigError when a row could move from one index to another, or has no date."""
        for name, _ in self._dates():
            kinds = {column.name: column.type for column in table.columns if column.name in table.key}
            if not (name in kinds and (pa.types.is_date(kinds[name]) or pa.types.is_timestamp(kinds[name]))):
                raise ConfigError(
                    f"the table {table.namespace.all_versions} has no date '{name}' in its key, and rows whose date changed would be"
                    " in two indices",
                    fix=f"when '{name}' never changes in a row, name it in the flow: `key: {{{table.namespace.schema}."
                    f"{table.namespace.table}: [{', '.join([*table.key, name])}]}}`; else take it out of `index`",
                )

    def _dates(self) -> list[tuple[str, str]]:
        parts = Formatter().parse(self._config.index)
        return [(name, spec) for _, name, spec, _ in parts if name is not None and spec]

    def _name(self, table: TableSchema, dates: Sequence[str]) -> str:
        names = {name: _part(getattr(table.namespace, name)) for name in NAMES}
        rest, text = iter(dates or ["*"] * len(self._dates())), ""
        for literal, name, spec, _ in Formatter().parse(self._config.index):
            text += literal
            if name is not None:
                text += next(rest) if spec else names[name]
        text = f"%{ord(text[0]):02x}{text[1:]}" if text[:1] in ("-", "_", "+", ".") else text
        if len(text.encode()) > _NAME_BYTES:
            raise ConfigError(
                f"the index of {table.namespace.all_versions} would have a name of more than {_NAME_BYTES} bytes",
                fix="write a shorter `index` for it",
            )
        return text

    def _own(self, table: TableSchema) -> list[str]:
        found: dict[str, Any] = self._server.client.indices.get_mapping(
            index=self.base(table), params={"allow_no_indices": "true"}
        )
        return sorted(index for index, said in found.items() if _owner(said) == table.namespace.all_versions)

    # --- the server

    @property
    def has_unsigned_long(self) -> bool:
        """Whether fields may have that type; in Elasticsearch it is not part of what is open."""
        if self._has_unsigned_long is None:
            distribution, version, flavor = self._told()
            new = distribution == "opensearch" and version >= _UNSIGNED_LONG_SINCE
            self._has_unsigned_long = new or flavor == "default"
        return self._has_unsigned_long

    def refuse_old_servers(self) -> None:
        """ConfigError when the server does not know what is needed of it."""
        distribution, version, _ = self._told()
        if version < _OLDEST[distribution]:
            needed = ".".join(map(str, _OLDEST[distribution]))
            raise ConfigError(
                f"the server is {distribution} {'.'.join(map(str, version))}",
                fix=f"use {distribution} {needed} or newer",
            )

    def _told(self) -> tuple[str, tuple[int, ...], str]:
        version = self._server.client.info()["version"]
        number = tuple(int(part) for part in version["number"].split(".")[:2])
        return version.get("distribution", "elasticsearch"), number, version.get("build_flavor", "")

    # --- records

    def read(self, table: TableSchema) -> Record:
        name = self._record_name(table)
        found = self._get(self._config.records, name)
        if found is None:
            self._tags.pop(name, None)
            return Record()
        self._tags[name] = found["_seq_no"], found["_primary_term"]
        return Record.from_json(found["_source"]["text"])

    def replace(self, table: TableSchema, old: Record, new: Record) -> bool:
        name = self._record_name(table)
        if name in self._tags:
            number, term = self._tags[name]
            condition: dict[str, Any] = {"if_seq_no": number, "if_primary_term": term}
        else:
            self._make_own(self._config.records)
            condition = {"op_type": "create"}
        try:
            self._server.client.index(
                index=self._config.records, id=name, body={"text": new.to_json()}, params=condition
            )
        except ConflictError:
            return False
        return True

    def grow(self, table: TableSchema, old: Record, new: Record) -> bool:
        return self.replace(table, old, new)  # who writes by it, here or elsewhere, makes the fields before

    def make(self, table: TableSchema, record: Record) -> None:
        """Makes the index of a table, and fields that it lacks; with dates in the name those that are there."""
        for index in self._own(table) if self._dates() else [self.base(table)]:
            self._make(index, table, record)

    def fill(self, table: TableSchema, record: Record) -> None:
        self.make(table, record)
        for page in self._server.search(self.search_name(table), {"match_all": {}}):
            items = [
                item("index", {"_index": hit["_index"], "_id": hit["_id"], "version": hit["_version"]}, hit["_source"])
                for hit in page
                if filled(hit["_source"], record)
            ]
            self._server.bulk(self._config.records, items)

    def keep(self, name: str, text: str) -> None:
        """Keeps a text under a name."""
        self._make_own(self._config.records)
        self._server.client.index(index=self._config.records, id=name, body={"text": text})

    def kept(self, name: str) -> str | None:
        """What `keep` has kept."""
        found = self._get(self._config.records, name)
        return None if found is None else str(found["_source"]["text"])

    # --- hard deletes

    def remember_deletes(self, index: str, deletes: ChangeBatch) -> None:
        """Writes down which documents are removed, and by which change."""
        if not len(deletes):
            return
        self._make_own(self._gone)
        now = datetime.now(UTC).isoformat()
        rows = zip(
            ids(deletes),
            deletes.data.column(ID).to_pylist(),
            versions(deletes).cast(pa.int64()).to_pylist(),
            strict=True,
        )
        items = [
            item("index", {"_id": _gone_id(index, id_), "version": version}, {ID: change, "at": now})
            for id_, change, version in rows
        ]
        self._server.bulk(self._gone, items)

    def without_gone(self, index: str, batch: ChangeBatch) -> ChangeBatch:
        """Without the changes that are older than a delete."""
        wanted = [_gone_id(index, id_) for id_ in ids(batch)]
        try:
            found = self._server.client.mget(index=self._gone, body={"ids": wanted}, params={"_source": ID})
        except NotFoundError:
            return batch
        changes: list[Any] = batch.data.column(ID).to_pylist()
        left = [
            not doc.get("found") or id_ >= doc["_source"][ID] for id_, doc in zip(changes, found["docs"], strict=True)
        ]
        return ChangeBatch(batch.table, batch.data.filter(pa.array(left)))

    def forget_deletes(self) -> None:
        """Removes what was remembered long enough."""
        before = datetime.fromtimestamp(time.time() - self._config.tombstones, UTC).isoformat()
        self._server.client.delete_by_query(
            index=self._gone,
            body={"query": {"range": {"at": {"lt": before}}}},
            params={"conflicts": "proceed", "ignore_unavailable": "true", "allow_no_indices": "true"},
        )

    # --- making indices

    def _make(self, index: str, table: TableSchema, record: Record) -> None:
        if self._made.get(index) == record.number:
            return
        client, owner, fields = self._server.client, table.namespace.all_versions, self._fields(record)
        settings = {"index.mapping.total_fields.limit": max(_FIELDS_LIMIT, 2 * len(fields)), **self._config.settings}
        meta = {"headrace": {"table": owner}}
        try:
            mappings = {"dynamic": False, "_meta": meta, "properties": fields}
            client.indices.create(index=index, body={"settings": settings, "mappings": mappings})
        except RequestError as error:
            if error.error != "resource_already_exists_exception":
                raise
            said = client.indices.get_mapping(index=index)[index]
            _refuse_owner(index, said, table)
            there = said["mappings"].get("properties", {})
            missing = {name: field for name, field in fields.items() if name not in there}
            if missing or _owner(said) != owner:
                kept = said["mappings"].get("_meta", {})
                client.indices.put_mapping(index=index, body={"_meta": kept | meta, "properties": missing})
        self._made[index] = record.number

    def refuse_index(self, table: TableSchema) -> None:
        """ConfigError when the index of a table has another one's rows."""
        for index, said in self._there(table).items():
            _refuse_owner(index, said, table)

    def unlike(self, table: TableSchema, record: Record) -> Iterator[Finding]:
        """Fields that somebody has made otherwise than headrace would: they take some values only."""
        for index, said in self._there(table).items():
            there = said["mappings"].get("properties", {})
            for name, field in self._fields(record).items():
                kind = there.get(name, field).get("type", "object")
                if not takes(kind, str(field["type"])):
                    yield Finding(
                        f"the field {name} of the index {index} is of type {kind}, and {table.namespace.all_versions} has values of type"
                        f" {field['type']} for it: those that are no {kind} will be refused",
                        fix="make the field anew by another `index`, or let such rows go to the error ledger (`set_aside`)",
                        stops=False,
                    )

    def _there(self, table: TableSchema) -> dict[str, Document]:
        found: dict[str, Document] = self._server.client.indices.get_mapping(
            index=self.search_name(table), params={"ignore_unavailable": "true", "allow_no_indices": "true"}
        )
        return found

    def _fields(self, record: Record) -> dict[str, dict[str, object]]:
        fields = {name: mapping_of(kind) for name, kind in record.fields().items()}
        return fields | system_fields(self._config.system_columns)

    def _make_own(self, index: str) -> None:
        if index in self._made:
            return
        if not self._server.client.indices.exists(index=index):
            try:
                self._server.client.indices.create(index=index, body={"mappings": _KEPT})
            except RequestError as error:
                if error.error != "resource_already_exists_exception":
                    raise
        self._made[index] = 0

    def _get(self, index: str, name: str) -> Document | None:
        try:
            found: Document = self._server.client.get(index=index, id=name)
        except NotFoundError:
            return None
        return found

    def _record_name(self, table: TableSchema) -> str:
        return short_id(f"table:{self.base(table)}")


def item(action: str, head: Document, source: Document | None = None) -> bytes:
    """One item of a bulk request, decided by its version."""
    lines = [{action: {**head, "version_type": "external_gte"}}, *([] if source is None else [source])]
    return "".join(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines).encode()


def _refuse_owner(index: str, said: Document, table: TableSchema) -> None:
    """ConfigError when an index has another table's rows."""
    owner = table.namespace.all_versions
    if _owner(said) not in ("", owner):
        raise ConfigError(
            f"the index {index} has the rows of {_owner(said)}, and {owner} would be written to it",
            fix="give each table an index of its own by `index`",
        )


def _owner(said: Document) -> str:
    return str(said["mappings"].get("_meta", {}).get("headrace", {}).get("table", ""))


def _part(text: str) -> str:
    """A name as a part of an index' name, which has small letters only."""
    return "".join(f"%{ord(sign):02x}" if sign in _NOT_IN_NAMES else sign for sign in text.casefold())


def _dated(column: Array, form: str) -> list[str]:
    naive: Any = column.cast(pa.timestamp("us", column.type.tz if pa.types.is_timestamp(column.type) else None))
    return [str(text) for text in pc.strftime(naive.view(pa.int64()).view(pa.timestamp("us")), form).to_pylist()]


def _gone_id(index: str, id_: str) -> str:
    return short_id(f"{id_}|{index}")
