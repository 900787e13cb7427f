"""Every registered sink passes the suite; the database sink once per dialect and way of deleting, on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import uuid4

import duckdb
import pytest

from headrace import registry
from headrace.errors import ConfigError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.sinks.base import Position, Sink
from headrace.testing.sink import ORDERS, OpenSink, SinkConformance, batch_of, order
from headrace.ums.change import ChangeBatch
from tests.conformance.scanned import SCANNED, ScannedCallable, ScannedWebhook
from tests.servers.cassandra import Cassandra
from tests.servers.doris import Doris
from tests.servers.jdbc import H2
from tests.servers.webhook import Webhook

Settings = dict[str, object]
Store = Callable[[pytest.FixtureRequest, Path], AbstractContextManager[Settings]]


def _lake(request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[Settings]:
    return nullcontext({"path": str(folder / "lake")})


def _memory(request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[Settings]:
    return nullcontext({"name": str(uuid4())})


def _sqlite(request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[Settings]:
    return nullcontext({"url": f"sqlite:///{folder / 'mart.db'}"})


@contextmanager
def _duckdb(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    """Another connection of the process has the file open all the time, as another flow's."""
    path = folder / "mart.duckdb"
    with closing(duckdb.connect(str(path))):
        yield {"url": f"duckdb:///{path}"}


def _server(fixture: str) -> Store:
    @contextmanager
    def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
        server = request.getfixturevalue(fixture)
        with server.database() as name:
            yield {"url": server.url(name)}

    return store


def _search(fixture: str) -> Store:
    @contextmanager
    def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
        server = request.getfixturevalue(fixture)
        with server.prefix() as prefix:
            records = f"headrace-{fixture}"
            yield {"url": server.address, "index": f"{prefix}{{schema}}.{{table}}", "records": records}

    return store


def _cassandra(request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[Settings]:
    server: Cassandra = request.getfixturevalue("cassandra")
    return nullcontext(
        {
            "hosts": server.address,
            "keyspace": "shared",
            "replication": {"datacenter1": 1},
            "table": f"{server.prefix()}{{table}}",
        }
    )


@contextmanager
def _doris(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    with Doris(frontends=2, backends=2, password="p") as server:
        query = f"127.0.0.1:{server.sql_port}"
        yield {"frontends": server.frontend_places, "query": query, "password": "p", "database": "db"}


def _with(store: Store, **more: object) -> Store:
    @contextmanager
    def with_more(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
        with store(request, folder) as settings:
            yield {**settings, **more}

    return with_more


@contextmanager
def _kafka(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    server = request.getfixturevalue("kafka")
    with server.prefix() as prefix:
        topics = {"topic": f"{prefix}{{schema}}.{{table}}", "positions": f"{prefix}positions"}
        yield {"brokers": server.brokers, **topics}


@contextmanager
def _callable(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    ScannedCallable.told.clear()
    yield {"function": "tests.conformance.scanned:ScannedCallable.told.append"}


@contextmanager
def _webhook(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    with Webhook() as server:
        ScannedWebhook.servers[server.url] = server
        yield {"url": server.url, "format": "ums"}


def _hbase(request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[Settings]:
    server = request.getfixturevalue("hbase")
    return nullcontext({"url": server.url, "table": f"{server.namespace()}:{{schema}}.{{table}}"})


def _h2(request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[Settings]:
    server: H2 = request.getfixturevalue("h2")
    return server.schema()


RENAMED = {"id": "ums_id", "ts": "Changed_At", "active": "order", "raw": "unread"}
"""System columns with an upper-case name, and one that is a word of SQL."""
_REDIS = _server("redis")
_DIALECTS = {"sqlite": _sqlite, "duckdb": _duckdb, "postgresql": _server("postgresql"), "mariadb": _server("mariadb")}
STORES: dict[str, dict[str, Store]] = {
    "callable": {"callable": _callable},
    "kafka": {"kafka-ums": _kafka},
    "cassandra": {"cassandra": _cassandra, "cassandra-hard": _with(_cassandra, delete="hard", system_columns=RENAMED)},
    "clickhouse": {"clickhouse": _with(_server("clickhouse"), system_columns=RENAMED)},
    "doris": {"doris": _doris, "doris-hard": _with(_doris, delete="hard", system_columns=RENAMED)},
    "lake": {"lake": _lake},
    "memory": {"memory": _memory},
    "opensearch": {
        "opensearch": _search("opensearch"),
        "elasticsearch-hard": _with(_search("elasticsearch"), delete="hard", system_columns=RENAMED),
    },
    "redis": {
        "redis": _REDIS,
        "redis-hard": _with(_REDIS, delete="hard", system_columns=RENAMED),
        "redis-json": _with(_REDIS, form="json", system_columns=RENAMED),
    },
    "webhook": {"webhook-ums": _webhook},
    "hbase": {
        "hbase": _hbase,
        "hbase-hard": _with(_hbase, delete="hard", row_key="{salt:2}-{key}", values="binary", system_columns=RENAMED),
        "hbase-json": _with(_hbase, form="json", key_encoding="binary", system_columns=RENAMED),
    },
    "database": {
        **_DIALECTS,
        **{f"{name}-hard": _with(store, delete="hard", system_columns=RENAMED) for name, store in _DIALECTS.items()},
    },
    "jdbc": {"h2": _with(_h2, system_columns=RENAMED)},  # Derby: test_jdbc_sink.py
}
"""Name of a sink -> its stores: what to put into the configuration beside `type`."""

ONLY_FROM = {"hbase-replica": "tests/faults/test_source_histories.py"}
"""Sinks that take tables of one type of source only, and where they are tested."""
_CASES = [
    (sink, variant)
    for sink in registry.SINKS
    if sink not in ONLY_FROM
    for variant in STORES.get(sink, {"no store": None})
]


@pytest.mark.parametrize(("sink", "variant"), _CASES, ids=[variant for _, variant in _CASES])
class TestSinks(SinkConformance):
    @pytest.fixture
    def open_sink(self, sink: str, variant: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenSink]:
        assert sink in STORES, f"the sink '{sink}' is registered: give it a store in {__name__}.STORES"
        made: type[Sink] = SCANNED.get(sink) or registry.load("sinks", sink)
        with STORES[sink][variant](request, tmp_path) as settings:
            config = made.Config.model_validate({"type": sink, **settings})
            yield lambda: made(config, "flow")  # type: ignore[call-arg]


_KEEPERS = [
    ("cassandra", "cassandra"),
    ("clickhouse", "clickhouse"),
    ("database", "sqlite"),
    ("database", "duckdb"),
    ("database", "postgresql"),
    ("database", "mariadb"),
    ("doris", "doris"),
    ("hbase", "hbase"),
    ("jdbc", "h2"),
    ("opensearch", "opensearch"),
    ("redis", "redis"),
]


@pytest.mark.parametrize(("sink", "variant"), _KEEPERS, ids=[variant for _, variant in _KEEPERS])
def test_rows_that_are_there_keep_their_system_columns(
    sink: str, variant: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made: type[Sink] = registry.load("sinks", sink)
    with STORES[sink][variant](request, tmp_path) as settings:

        def opened(**names: object) -> Sink:
            config = made.Config.model_validate({"type": sink, **settings, **names})
            return made(config, "flow")  # type: ignore[call-arg]

        with closing(opened(system_columns={})) as first:
            first.prepare(ORDERS)
            first.write(batch_of(ORDERS, [order(1, 10)]))
            first.commit(Position("topic", 0, 1, 1, 1))
        with closing(opened(system_columns=RENAMED)) as other:
            [told] = other.misfits([ORDERS])
            assert told.stops
            assert RENAMED["id"] in told.message or "_ums_id_" in told.message
            with pytest.raises(ConfigError) as refused:
                other.prepare(ORDERS)
            assert refused.value.message == told.message


_BY_ROWS = ("callable", "clickhouse", "database", "doris", "hbase", "jdbc", "redis", "webhook")
SMALLEST: dict[str, Settings] = {
    **{sink: {"batch_rows": 3} for sink in _BY_ROWS},
    "cassandra": {"batch_rows": 3, "batch_bytes": 100, "parallel": 2},
    "kafka": {},
    "opensearch": {"batch_bytes": 1000, "parallel": 3},
}
"""How little of a flow's rows each sink can be told to send at once; Kafka's client divides them by itself."""
_TOLD = [("callable", "callable"), ("kafka", "kafka-ums"), ("webhook", "webhook-ums")]


@pytest.mark.parametrize(("sink", "variant"), [*_KEEPERS, *_TOLD], ids=[variant for _, variant in [*_KEEPERS, *_TOLD]])
def test_what_a_flow_says_of_columns_keys_and_batches_holds(
    sink: str, variant: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    made: type[Sink] = SCANNED.get(sink) or registry.load("sinks", sink)
    keyless = replace(ORDERS, key=())
    with STORES[sink][variant](request, tmp_path) as settings:
        to = {"type": sink, **settings, **SMALLEST[sink]}
        flow = {
            "name": "flow",
            "from": "mysql.db1",
            "to": {name: value for name, value in to.items() if name != "system_columns"},
            "key": {"shop.orders": ["id"]},
            "columns": {"drop": ["note"], "rename": {"amount": "total", "id": "number"}},
        }
        if "system_columns" in made.Config.model_fields:
            flow["system_columns"] = RENAMED
        spec = FlowSpec.model_validate(flow)
        shaper = Shaper(spec)
        with closing(made(spec.target(), "flow")) as opened:  # type: ignore[call-arg]
            opened.prepare(shaper.table(keyless))
            for first in (1, 31):  # all rows, then all of them anew
                for some in (range(first, first + 20), range(first + 20, first + 30)):
                    shaped = shaper.shape(batch_of(keyless, [order(n, n % 30) for n in some]))
                    assert isinstance(shaped, ChangeBatch)
                    opened.write(shaped)
                opened.commit(Position("topic", 0, first, first, 1))
            found = [row for batch in opened.scan(shaper.table(keyless)) for row in batch.to_pylist()]
    assert sorted(found, key=lambda row: row["number"]) == [
        {"number": key, "total": Decimal(key + (30 if key else 60))} for key in range(30)
    ]
