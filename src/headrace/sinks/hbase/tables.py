"""HBase's tables and what headrace keeps beside them: making tables, refusing those that would lose changes, records and clears.

What a record holds, and why it may change while others write, is told at the head of layout.py.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass, replace
from typing import Any

from headrace.errors import ConfigError, DataError
from headrace.sinks.base import has_other_system_columns
from headrace.sinks.hbase.client import Client
from headrace.sinks.hbase.config import HBaseConfig
from headrace.sinks.hbase.layout import Layout
from headrace.sinks.hbase.protocol import IDL
from headrace.sinks.hbase.rowkey import RowKeys, salt_splits
from headrace.ums.change import Clear
from headrace.ums.schema import Namespace, TableSchema

OFFSET = 10**10
"""What a version has more than its `_ums_id_`: ids of full loads are negative, versions of cells are not."""
_RECORD_FAMILY, _LAYOUT, _CLEARED = b"h", b"layout", b"cleared"
_FOR_EVER = 2**31 - 1
_SAMPLED_ROWS = 100
_NAME_BYTES = 255
"""Of a table, which is a directory."""
TELL_APART = "tell them apart in `table`, for instance with '{source}_{schema}:{table}'"
_WALL_CLOCK_MS = range(10**12, 4 * 10**12)
"""What another writer's versions look like: milliseconds of the years 2001 to 2096."""
_SETTINGS = {
    "row_key": "row key",
    "key_encoding": "encoding of the row key",
    "form": "form",
    "values": "encoding of values",
    "family": "column family",
}


@dataclass(frozen=True)
class Ended:
    """The newest clear of a table: rows with a smaller id are gone."""

    id: int
    ts_us: int

    @property
    def version(self) -> int:
        """The version of the cells that end rows: the largest of those before the clear."""
        return self.id - 1 + OFFSET


@dataclass(frozen=True)
class Record:
    """What is kept about a table."""

    text: bytes | None
    """The layout as it is stored; None when there is none."""
    layout: Layout
    cleared: Ended | None


class Tables:
    """The tables of one flow, by their names in HBase."""

    def __init__(self, config: HBaseConfig, client: Client) -> None:
        self._config = config
        self._client = client
        self._records_known = False

    def name(self, space: Namespace) -> str:
        """The table that a source's table goes to."""
        name = table_name(self._config.table, space)
        if name == self._config.records:
            raise _unfit_name(space, name)
        return name

    def record(self, name: str) -> Record:
        """What is kept about a table now."""
        found = self._client.call("get", self._records, IDL.TGet(row=name.encode()))
        cells = {cell.qualifier: cell.value for cell in found.columnValues or ()}
        text = cells.get(_LAYOUT)
        layout = Layout({}) if text is None else Layout.from_json(text)
        return Record(text, layout, Ended(**json.loads(cells[_CLEARED])) if _CLEARED in cells else None)

    def opened(self, table: TableSchema, keys: RowKeys) -> Record:
        """The record of a table that is there and may be written; both are made when they are not."""
        name, settings = self.name(table.namespace), self._settings(table, keys)
        self._make_records()
        record = self.record(name)
        if record.text is None:
            self._make(name)
            return replace(record, layout=Layout(settings))
        _must_be_the_same(table, name, dict(record.layout.settings), settings)
        self._make(name, must_be_ours=False)
        return record

    def rehearse(self, table: TableSchema, keys: RowKeys) -> Record:
        """The record that `opened` would give, or its error; nothing is made."""
        name, settings = self.name(table.namespace), self._settings(table, keys)
        none = Record(None, Layout(settings), None)
        record = none if self._client.table(self._config.records) is None else self.record(name)
        if record.text is not None:
            _must_be_the_same(table, name, dict(record.layout.settings), settings)
            return record
        if self._has_namespace(name) and (found := self._client.table(name)) is not None:
            self._must_suit(name, found)
        return none

    def _settings(self, table: TableSchema, keys: RowKeys) -> dict[str, str]:
        return {
            "source": table.namespace.all_versions,
            "key_kinds": ", ".join(keys.kinds),
            "system_columns": ", ".join(self._config.system_columns.of_rows),
            **{setting: str(getattr(self._config, setting)) for setting in _SETTINGS},
        }

    def _has_namespace(self, name: str) -> bool:
        before, _, _ = name.rpartition(":")
        return (before or "default") in self._client.call("listNamespaces")

    def change(self, name: str, before: Record, layout: Layout) -> Record | None:
        """Puts a layout in the place of that of `before`; None when somebody else was quicker."""
        text = layout.to_json()
        cell = IDL.TColumnValue(_RECORD_FAMILY, _LAYOUT, text)
        row = name.encode()
        put = IDL.TPut(row, [cell])
        if not self._client.call("checkAndPut", self._records, row, _RECORD_FAMILY, _LAYOUT, before.text, put):
            return None
        return replace(before, text=text, layout=layout)

    def clear(self, name: str, clear: Clear) -> Ended:
        """Writes down that rows have ended; returns the newest clear, which may be another one."""
        value = json.dumps({"id": clear.id, "ts_us": clear.commit_ts_us}).encode()
        cell = IDL.TColumnValue(_RECORD_FAMILY, _CLEARED, value, clear.id + OFFSET)
        self._client.call("put", self._records, IDL.TPut(name.encode(), [cell]))
        newest = self.record(name).cleared
        assert newest is not None
        return newest

    def check(self) -> None:
        """Looks at the tables that are known to be the flow's: raises what `opened` would."""
        self._client.call("listNamespaces")
        if self._client.table(self._config.records) is not None:
            for name in self._recorded():
                if self._may_be_ours(name) and (found := self._client.table(name)) is not None:
                    self._must_suit(name, found)
        if "{" not in self._config.table and self._has_namespace(self._config.table):
            found = self._client.table(self._config.table)
            if found is not None:
                self._must_suit(self._config.table, found)

    # --- tables

    @property
    def _records(self) -> bytes:
        return self._config.records.encode()

    def _make_records(self) -> None:
        if not self._records_known and self._client.table(self._config.records) is None:
            family = IDL.TColumnFamilyDescriptor(name=_RECORD_FAMILY, maxVersions=1)
            self._client.create_table(self._config.records, family)
        self._records_known = True

    def _make(self, name: str, *, must_be_ours: bool = True) -> None:
        found = self._client.table(name)
        if found is None:
            self._client.create_table(name, self._family(), self._splits())
        elif must_be_ours:
            if self._family_in(found) is None:
                self._client.add_family(name, self._family())
            self._must_suit(name, found)

    def _family(self) -> Any:
        algorithm = getattr(IDL.TCompressionAlgorithm, self._config.compression.upper())
        name = self._config.family.encode()
        return IDL.TColumnFamilyDescriptor(
            name=name, maxVersions=self._config.versions, compressionType=algorithm, timeToLive=_FOR_EVER
        )

    def _splits(self) -> list[bytes]:
        wanted = [split.encode() for split in self._config.splits]
        return wanted or salt_splits(self._config.row_key, self._config.key_encoding)

    def _family_in(self, found: Any) -> Any | None:
        """Our column family in the descriptor of a table."""
        ours = self._config.family.encode()
        return next((family for family in found.columns if family.name == ours), None)

    def _must_suit(self, name: str, found: Any) -> None:
        family = self._family_in(found)
        if family is None:
            return  # it is made, and has nothing in it
        if family.timeToLive not in (None, _FOR_EVER):
            raise ConfigError(
                f"the column family {self._config.family} of the HBase table {name} has a TTL of {family.timeToLive} s, and HBase takes "
                "small versions for old ones: rows would be gone at once",
                fix=f"alter '{name}', {{NAME => '{self._config.family}', TTL => 'FOREVER'}} in hbase shell, or name another `family`",
            )
        self._must_have_no_other_writer(name)

    def _must_have_no_other_writer(self, name: str) -> None:
        family = self._config.family.encode()
        scan = IDL.TScan(caching=_SAMPLED_ROWS, limit=_SAMPLED_ROWS, columns=[IDL.TColumn(family)])
        for row in self._client.call("getScannerResults", name.encode(), scan, _SAMPLED_ROWS):
            ours = [cell for cell in row.columnValues if cell.qualifier == self._config.system_columns.id.encode()]
            newest = max(cell.timestamp for cell in row.columnValues)
            is_ours = any(cell.value == b"%d" % (newest - OFFSET) for cell in ours)
            if newest in _WALL_CLOCK_MS and not is_ours:
                moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(newest / 1000))
                raise ConfigError(
                    f"somebody else writes to the column family {self._config.family} of the HBase table {name}: row {row.row!r} has a cell whose "
                    f"version is a time ({moment}), and it would win over changes of the source",
                    fix="name another `table` or `family`, or end the other writer and empty the table",
                )

    def _recorded(self) -> list[str]:
        pages = self._client.pages(self._config.records)
        return [row.row.decode() for page in pages for row in page]

    def _may_be_ours(self, name: str) -> bool:
        pattern = re.sub(r"\\\{\w+\\\}", ".*", re.escape(self._config.table))
        return re.fullmatch(pattern, name) is not None


def _must_be_the_same(table: TableSchema, name: str, before: dict[str, str], now: dict[str, str]) -> None:
    if before["source"] != now["source"]:
        raise ConfigError(
            f"{now['source']} and {before['source']} would both be written to the HBase table {name}",
            fix=TELL_APART,
        )
    if before["system_columns"] != now["system_columns"]:
        raise has_other_system_columns(table, before["system_columns"].split(", "))
    for setting, words in _SETTINGS.items():
        if before[setting] != now[setting]:
            raise ConfigError(
                f"the rows of the HBase table {name} have the {words} {before[setting]}, and the flow says {now[setting]}",
                fix=f"write `{setting}: {before[setting]}`, or name another `table` and load it",
            )
    if before["key_kinds"] != now["key_kinds"]:
        raise DataError(
            f"the key columns of {now['source']} were {before['key_kinds']} and are {now['key_kinds']} now: rows of the HBase table {name} would "
            "get other row keys",
            fix="give the flow a new name and another `table`, and load it again",
        )


def table_name(pattern: str, space: Namespace) -> str:
    """What `table` of a target says for a source's table; ConfigError when HBase cannot have it."""
    before, colon, own = pattern.rpartition(":")
    parts = {name: getattr(space, name) for name in ("type", "source", "schema", "table")}
    in_names = before.format(**{name: _in_names(part, "") for name, part in parts.items()})
    own = own.format(**{name: _in_names(part, ".-") for name, part in parts.items()})
    own = re.sub("^[.-]", lambda sign: _escaped(sign[0]), own)
    if len(own) > _NAME_BYTES or len(in_names) > _NAME_BYTES:
        raise _unfit_name(space, f"{in_names}{colon}{own}")
    return f"{in_names}{colon}{own}"


def _unfit_name(space: Namespace, name: str) -> ConfigError:
    return ConfigError(
        f"{space.all_versions} would be written to the HBase table {name}, a name that is too long or that headrace needs",
        fix="write another `table` for it",
    )


def _in_names(part: str, also: str) -> str:
    return re.sub(rf"[^A-Za-z0-9_{re.escape(also)}]", lambda sign: _escaped(sign[0]), part)


def _escaped(sign: str) -> str:
    return "".join(f"_x{byte:02X}" for byte in sign.encode())
