"""The Redis sink: a row becomes one key, a hash of its columns or a JSON text.

::

    shop:orders:10                     hash: column -> text, `_ums_id_`, `_ums_ts_`, `_is_active_`; NULL is a field that is not there
                                       json: {"_ums_id_":"…","_ums_ts_":"…","_is_active_":1,"id":"10",…}, values as text or null
    headrace:gone:shop:orders:10       with `delete: hard`, the `_ums_id_` of the delete, for as long as `tombstones`
    headrace:table:mysql.db1.shop.orders   shape (headrace.sinks.fields), number, changing, pending, cleared, system (`system_columns`)
    headrace:changed:…                 while rows of a table are given another shape: keys that have it
    headrace:positions                 flow, topic and partition -> position

Rows are compared where they are: one script for some hundred rows reads each row's id and writes it when the change is newer. Ids have
up to 19 digits, and numbers of Lua are exact up to 15: they are compared as texts.

Crash story. A commit writes the rows first and the position behind them, and rows take repeats; so a position is never newer than the
rows, also in a server that comes back with what its append-only file has, or a replica has. What a script does is there as a whole.
A change of shape (a column renamed, say) is written into the table's record before the first row is touched; whoever finds one that was
broken off ends it. Each row is changed once: the script that does it keeps the row's key in `headrace:changed`. Meanwhile no script
writes rows of that table, and those of an older shape say so: each checks the record's number.

Limits: one server or a sentinel's master, no cluster. Transactions of the source are not visible as one, for a commit is some scripts.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import islice
from typing import Any, ClassVar

import pyarrow as pa
import redis

from headrace.errors import ConfigError, FatalError, Finding, HeadraceError, RetryableError
from headrace.sinks.base import (
    Capabilities,
    Places,
    Position,
    has_other_system_columns,
    refuse_names,
    refuse_types,
    refused,
    require_key,
)
from headrace.sinks.fields import Evolved, Shape, evolved
from headrace.sinks.gathered import GatheringSink
from headrace.sinks.redis_config import RedisConfig
from headrace.sinks.redis_rows import RedisTable, RowForm, packed, plain, quoted, record_of, ts_text
from headrace.sinks.redis_scripts import BEGIN, END, RAISE_CLEARED, RESHAPE, Scripts
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Namespace, TableSchema

_OWN = "headrace:"
_POSITIONS = "headrace:positions"
_GATHERED_ROWS = 20_000
_PAGE = 500
_TELL_APART = "tell them apart in `key`, for instance with '{source}:{schema}:{table}:{key}'"
_SHAPING_S = 60.0


class RedisSink(GatheringSink):
    """One connection to one server."""

    Config = RedisConfig
    capabilities: ClassVar[Capabilities] = Capabilities(needs_key=True, remembers_position=True, scans=True)

    def __init__(self, config: RedisConfig, flow: str) -> None:
        super().__init__(_GATHERED_ROWS)
        self._config = config
        self._flow = flow
        self._client: redis.Redis | None = None
        self._tables: dict[Namespace, RedisTable] = {}
        self._places = Places(_TELL_APART)
        self._system = config.system_columns
        self._scripts = Scripts(self._system)
        self._form = RowForm(config.form, self._system)
        self._gone_for_ms = round(config.tombstones * 1000) if config.delete == "hard" else 0

    # --- the contract

    def prepare(self, table: TableSchema) -> None:
        for check in self._checks(table, self._places):
            check()
        self.flush()
        with self._errors():
            self._keep_system_columns(table)
            self._tables[table.namespace] = self._shaped(table)

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        places = Places(_TELL_APART)
        for table in tables:
            yield from refused(*self._checks(table, places), partial(self._rehearse, table))

    def _checks(self, table: TableSchema, places: Places) -> list[Callable[[], None]]:
        prefix = self._prefix(table.namespace)
        return [
            partial(require_key, table, "a Redis target"),
            partial(refuse_names, table, self._system.of_rows),
            partial(refuse_types, table),
            partial(_refuse_own_keys, prefix, table),
            partial(places.take, prefix, table, f"the keys {prefix}…"),
        ]

    def _rehearse(self, table: TableSchema) -> None:
        with self._errors():
            self._refuse_other_system_columns(table, self._connected().hget(record_of(table), "system"))
            evolved(self._known(self._connected(), table)[0], table, self._config.on_change)

    def clear(self, clear: Clear) -> None:
        self.flush()
        to = self._tables[clear.table.namespace]
        id_, ts = str(clear.id), ts_text(pa.array([clear.commit_ts_us], pa.int64()).view(pa.timestamp("us", "UTC")))[0]
        with self._errors():
            client = self._connected()
            client.eval(RAISE_CLEARED, 1, to.record, id_)
            script = client.register_script(self._scripts.clear)
            for keys in self._pages(to):
                script(keys=keys, args=[id_, ts, self._gone_for_ms, self._config.form])

    def commit(self, position: Position) -> None:
        self.flush()
        with self._errors():
            name = _position_name(self._flow, position.topic, position.partition)
            self._connected().hset(_POSITIONS, name, json.dumps(asdict(position)))

    def check(self) -> None:
        with self._errors():
            client = self._connected()
            told = client.info()
        policy = str(told.get("maxmemory_policy", "noeviction"))
        if told.get("redis_mode") == "cluster":
            raise ConfigError(
                "the Redis server is part of a cluster, which headrace does not write to",
                fix="name a server of its own, or a sentinel's master",
            )
        if told.get("maxmemory") and policy.startswith("allkeys"):
            raise ConfigError(
                f"the Redis server forgets rows when its memory is full (maxmemory-policy {policy})",
                fix="CONFIG SET maxmemory-policy noeviction, or name another server",
            )

    def position(self, topic: str, partition: int) -> Position | None:
        with self._errors():
            found = self._connected().hget(_POSITIONS, _position_name(self._flow, topic, partition))
        return None if found is None else Position(**json.loads(found))

    def scan(self, table: TableSchema) -> Iterator[pa.RecordBatch]:
        with self._errors():
            client = self._connected()
            to = RedisTable(table, *self._known(client, table)[:2], self._prefix(table.namespace))
            yield self._form.to_batch([], to)
            for keys in self._pages(to):
                rows = [row for row in self._rows(client, keys) if row and plain(row[self._system.active]) == "1"]
                if rows:
                    yield self._form.to_batch(rows, to)

    def close(self) -> None:
        super().close()
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- rows

    def flush(self) -> None:
        for batch in self._take():
            with self._errors():
                self._send(batch.newest_per_key())

    def _send(self, batch: ChangeBatch) -> None:
        space = batch.table.namespace
        for first in range(0, len(batch), self._config.batch_rows):
            part = ChangeBatch(batch.table, batch.data.slice(first, self._config.batch_rows))
            while True:
                to = self._tables[space]
                keys, rows = self._form.encoded(part, to)
                head: list[Any] = [to.record, to.number, self._gone_for_ms, self._config.form, self._expire_ms]
                script = self._connected().register_script(self._scripts.write)
                if int(script(keys=keys, args=[*head, packed(rows)])) >= 0:
                    break
                self._tables[space] = self._shaped(batch.table)

    @property
    def _expire_ms(self) -> int:
        return round(self._config.expire * 1000) if self._config.expire else 0

    def _rows(self, client: redis.Redis, keys: Sequence[bytes]) -> list[dict[str, Any]]:
        """Fields of rows, empty where there is none any more."""
        if self._config.form == "json":
            texts: Any = client.mget(keys)
            return [{} if text is None else self._form.from_json(text) for text in texts]
        pipeline = client.pipeline(transaction=False)
        for key in keys:
            pipeline.hgetall(key)
        return [{name.decode(): value for name, value in row.items()} for row in pipeline.execute()]

    def _pages(self, to: RedisTable) -> Iterator[list[bytes]]:
        """Keys of the rows of a table; those that are there all the time at least once."""
        pattern = "".join(f"\\{sign}" if sign in "*?[]^-\\" else sign for sign in to.prefix) + "*"
        keys: Iterable[Any] = self._connected().scan_iter(match=pattern, count=_PAGE)
        rest = iter(keys)
        while page := list(islice(rest, _PAGE)):
            yield page

    def _prefix(self, space: Namespace) -> str:
        names = {name: quoted(getattr(space, name)) for name in ("type", "source", "schema", "table")}
        return self._config.key.format(**names, key="")

    # --- shapes

    def _keep_system_columns(self, table: TableSchema) -> None:
        client, names = self._connected(), json.dumps(self._system.of_rows)
        if not client.hsetnx(record_of(table), "system", names):
            self._refuse_other_system_columns(table, client.hget(record_of(table), "system"))

    def _refuse_other_system_columns(self, table: TableSchema, stored: Any) -> None:
        if stored is not None and tuple(json.loads(stored)) != self._system.of_rows:
            raise has_other_system_columns(table, json.loads(stored))

    def _shaped(self, table: TableSchema) -> RedisTable:
        """The table's rows in a shape that takes this version: changed when they have another one."""
        give_up_at = time.monotonic() + _SHAPING_S
        client, prefix = self._connected(), self._prefix(table.namespace)
        while time.monotonic() < give_up_at:
            shape, number, pending = self._known(client, table)
            to = RedisTable(table, shape, number, prefix)
            if pending is None:
                pending = evolved(shape, table, self._config.on_change)
                if pending.shape == shape:
                    return to
                if not client.eval(BEGIN, 1, to.record, str(number), pending.to_json()):
                    continue  # somebody else was first
                to = RedisTable(table, shape, number + 1, prefix)
            self._reshape(client, to, pending)
        raise RetryableError(
            f"rows of {table.namespace.all_versions} are being given another shape", fix="wait until that is done"
        )

    def _known(self, client: redis.Redis, table: TableSchema) -> tuple[Shape, int, Evolved | None]:
        record: Any = client.hmget(record_of(table), ["shape", "number", "changing", "pending"])
        shape, number, changing, pending = record
        return (
            Shape.from_json(shape) if shape else Shape(),
            int(number or 0),
            Evolved.from_json(pending) if changing == b"1" else None,
        )

    def _reshape(self, client: redis.Redis, to: RedisTable, change: Evolved) -> None:
        if change.changes_rows:
            script = client.register_script(RESHAPE)
            for keys in self._pages(to):
                rows = self._rows(client, keys)
                pipeline = client.pipeline(transaction=False)
                for key, row in zip(keys, rows, strict=True):
                    if row:
                        args: list[Any] = [to.record, to.number, to.changed, self._config.form]
                        script(keys=[key], args=[*args, *self._form.told(change.row(row))], client=pipeline)
                if 0 in pipeline.execute():
                    return  # somebody else has ended it
        client.eval(END, 1, to.record, str(to.number), change.shape.to_json(), to.changed)

    # --- the server

    def _connected(self) -> redis.Redis:
        if self._client is None:
            self._client = redis.Redis.from_url(
                self._config.url, socket_timeout=self._config.timeout, socket_connect_timeout=self._config.timeout
            )
        return self._client

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, OSError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> HeadraceError:
        what = f"the Redis server said: {error}"
        if isinstance(error, redis.AuthenticationError | redis.exceptions.NoPermissionError):
            return ConfigError(
                what, fix="correct user and password in `url`, and give the user all commands on its keys"
            )
        if isinstance(error, redis.exceptions.OutOfMemoryError) or str(error).startswith("OOM"):
            return RetryableError(what, fix="give the server more memory (maxmemory)")
        if isinstance(
            error, redis.ConnectionError | redis.TimeoutError | redis.BusyLoadingError | redis.ReadOnlyError | OSError
        ):
            return RetryableError(f"the Redis server is away: {error}", fix="start it, or correct `url`")
        return FatalError(what, fix="see the server's log for the reason, then start again")


def _refuse_own_keys(prefix: str, table: TableSchema) -> None:
    if prefix.startswith(_OWN):
        raise ConfigError(
            f"rows of {table.namespace.all_versions} would have keys {prefix}…, among those that headrace needs",
            fix=f"write a `key` that does not begin with {_OWN}",
        )


def _position_name(flow: str, topic: str, partition: int) -> str:
    return json.dumps([flow, topic, partition])
