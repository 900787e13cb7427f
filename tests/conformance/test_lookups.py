"""Every store that flows look rows up in finds them, on real servers: one suite, one factory per store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis as redis_driver

from headrace import registry
from headrace.compute.columns import answers
from headrace.compute.lookups.base import Key, Lookup, Values
from headrace.compute.lookups.cache import Cached
from headrace.errors import ConfigError, HeadraceError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.cassandra.session import CassandraSession, SessionConfig
from headrace.sinks.hbase.client import Client
from headrace.sinks.hbase.protocol import IDL
from headrace.sinks.lake import LakeSink
from headrace.sinks.opensearch.server import SearchServer, ServerConfig
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, TS, Column, Namespace, TableSchema
from tests.servers.process import free_port

ROWS = 12_000
Settings = dict[str, Any]
Store = Callable[[pytest.FixtureRequest, Path], AbstractContextManager[Settings]]
TABLE = "CREATE TABLE people (id BIGINT PRIMARY KEY, team VARCHAR(20), name VARCHAR(40), score NUMERIC(12,2))"


def people() -> Iterator[tuple[int, str, str | None, str]]:
    """Ids that are even; the last one has no name."""
    for number in range(ROWS):
        yield 2 * number, f"t{number % 7}", None if number == ROWS - 1 else f"Łukasz {number}", f"{number}.25"


def _server(fixture: str) -> Store:
    @contextmanager
    def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
        server = request.getfixturevalue(fixture)
        with server.database() as name, closing(server.connect(name)) as connection:
            with connection.cursor() as cursor:
                cursor.execute(TABLE)
                cursor.executemany("INSERT INTO people VALUES (%s, %s, %s, %s)", list(people()))
            yield {"type": "database", "url": server.url(name), "table": "people"}

    return store


@contextmanager
def _redis(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    server = request.getfixturevalue("redis")
    with server.database() as name:
        with closing(redis_driver.Redis.from_url(server.url(name))) as client, client.pipeline() as pipeline:
            for id_, team, full_name, score in people():
                fields = {"id": id_, "team": team, "score": score} | ({} if full_name is None else {"name": full_name})
                pipeline.hset(f"people:{id_}", mapping=fields)
            pipeline.execute()
        yield {"type": "redis", "url": server.url(name), "key": "people:{id}"}


@contextmanager
def _lake(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    columns = (
        Column("id", pa.int64(), "bigint"), Column("team", pa.utf8(), "varchar(20)"),
        Column("name", pa.utf8(), "varchar(40)"), Column("score", pa.utf8(), "varchar(20)"),
    )  # fmt: skip
    table = TableSchema(Namespace("mysql", "db1", "shop", "people"), columns, ("id",))
    names = ("id", "team", "name", "score")
    system = {TS: 0, OP: "i", COMMIT_TS: 0, RAW: None}
    data = [{ID: n, **system, **dict(zip(names, row, strict=True))} for n, row in enumerate(people(), 1)]
    sink = LakeSink(LakeSink.Config(type="lake", path=folder / "lake"), "f")
    sink.prepare(table)
    sink.write(ChangeBatch(table, pa.RecordBatch.from_pylist(data, schema=table.arrow_schema())))
    sink.commit(Position("db1", 0, 1, ROWS, 0))
    sink.close()
    yield {"type": "lake", "path": str(folder / "lake"), "table": "mysql.db1.shop.people"}


@contextmanager
def _csv(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    lines = ["id,team,name,score", *(f"{i},{team},{name or ''},{score}" for i, team, name, score in people())]
    (folder / "people.csv").write_text("\n".join(lines), encoding="utf-8")
    yield {"type": "csv", "path": str(folder / "people.csv")}


@contextmanager
def _cassandra(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    server = request.getfixturevalue("cassandra")
    reached = {"hosts": server.address, "consistency": "ONE", "parallel": 64}
    with closing(CassandraSession(SessionConfig.model_validate(reached), "looked_into")) as session:
        session.run(
            "CREATE KEYSPACE IF NOT EXISTS looked_into WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        for name, key in (("people", "id"), ("people_of_teams", "team, id")):
            session.run(f"DROP TABLE IF EXISTS looked_into.{name}")
            session.run(
                f"CREATE TABLE looked_into.{name} (id bigint, team text, name text, score decimal, PRIMARY KEY ({key}))"
            )
            rows = [(id_, team, full_name, Decimal(score)) for id_, team, full_name, score in people()]
            session.write(f"INSERT INTO looked_into.{name} (id, team, name, score) VALUES (?, ?, ?, ?)", rows)
    yield {"type": "cassandra", "keyspace": "looked_into", "table": "people", **reached}


@contextmanager
def _hbase(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
    server = request.getfixturevalue("hbase")
    table = f"{server.namespace()}:people"
    with closing(Client(server.url, framed=False, compact=False, timeout_s=60)) as client:
        client.create_table(table, IDL.TColumnFamilyDescriptor(name=b"cf"))
        puts = []
        for id_, team, full_name, score in people():
            cells = {"team": team, "score": score} | ({} if full_name is None else {"name": full_name})
            values = [IDL.TColumnValue(b"cf", name.encode(), text.encode()) for name, text in cells.items()]
            puts.append(IDL.TPut(f"p{id_}".encode(), values))
        for first in range(0, len(puts), 2000):
            client.call("putMultiple", table.encode(), puts[first : first + 2000])
    yield {"type": "hbase", "url": server.url, "table": table, "row_key": "p{id}"}


def _search(fixture: str) -> Store:
    @contextmanager
    def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
        server = request.getfixturevalue(fixture)
        with server.prefix() as prefix:
            settings = ServerConfig.model_validate({"url": server.address})
            with closing(SearchServer(settings)) as search:
                properties = {"id": {"type": "long"}, "team": {"type": "keyword"}}
                search.client.indices.create(index=f"{prefix}people", body={"mappings": {"properties": properties}})
                lines = []
                for id_, team, full_name, score in people():
                    document = {"id": id_, "team": team, "name": full_name, "score": score}
                    lines.append(f'{{"index": {{"_id": "{id_}"}}}}\n{json.dumps(document)}\n'.encode())
                search.bulk(f"{prefix}people", lines, refresh=True)
            yield {"type": "opensearch", "url": server.address, "index": f"{prefix}people"}

    return store


STORES: dict[str, Store] = {
    "cassandra": _cassandra,
    "elasticsearch": _search("elasticsearch"),
    "hbase": _hbase,
    "opensearch": _search("opensearch"),
    "csv": _csv,
    "lake": _lake,
    "mariadb": _server("mariadb"),
    "mysql": _server("mysql"),
    "postgresql": _server("postgresql"),
    "redis": _redis,
}


@pytest.fixture(params=STORES)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    with STORES[request.param](request, tmp_path) as found:
        yield found


def opened(settings: Settings, on: list[str], take: list[str]) -> Lookup:
    kind = registry.load("lookups", settings["type"])
    lookup: Lookup = kind(kind.Config.model_validate(settings), on, take)  # type: ignore[attr-defined]
    return lookup


def find(lookup: Lookup, keys: list[Key]) -> dict[Key, Values]:
    return Cached(lookup, rows=0, ttl_s=0, clock=lambda: 1.0).find(keys)


def test_every_kind_is_in_the_suite() -> None:
    same = dict.fromkeys(["mariadb", "mysql", "postgresql"], "database") | {"elasticsearch": "opensearch"}
    tested = {same.get(name, name) for name in STORES}
    assert tested == set(registry.LOOKUPS)


def test_rows_are_found_by_their_keys(settings: Settings) -> None:
    with closing(opened(settings, ["id"], ["name", "score"])) as lookup:
        found = find(lookup, [(number,) for number in range(2 * ROWS)])
    assert len(found) == ROWS, "half of the keys have no row"
    assert found[(10,)][0] == "Łukasz 5"
    assert found[(2 * ROWS - 2,)][0] is None
    scores = answers([found[(2 * number,)][1] for number in range(ROWS)]).cast(pa.decimal128(12, 2))
    assert [str(score) for score in scores.to_pylist()] == [f"{number}.25" for number in range(ROWS)]


def test_keys_of_several_columns(settings: Settings) -> None:
    if settings["type"] == "cassandra":
        settings["table"] = "people_of_teams"
    with closing(opened(settings, ["team", "id"], ["name"])) as lookup:
        found = find(lookup, [("t5", 10), ("t5", 24), ("none", 10)])
    expected = {("t5", 10): ("Łukasz 5",), ("t5", 24): ("Łukasz 12",)}
    if settings["type"] in ("redis", "hbase"):
        expected[("none", 10)] = ("Łukasz 5",)  # the key's pattern alone says where a row is
    assert found == expected


def test_whether_the_store_can_be_used_is_found_out(settings: Settings) -> None:
    with closing(opened(settings, ["id"], ["name"])) as lookup:
        assert find(lookup, []) == {}
        list(lookup.find([]))
    if settings["type"] in ("csv", "cassandra", "database", "lake"):
        with closing(opened(settings, ["id"], ["colour"])) as lookup, pytest.raises(ConfigError, match="colour"):
            list(lookup.find([]))
    lookup.close()
    gone = {"cassandra": {"table": "none"}, "hbase": {"table": "none"}, "opensearch": {"index": "none"}}
    if change := gone.get(settings["type"]):
        with closing(opened(settings | change, ["id"], ["name"])) as lookup, pytest.raises(ConfigError, match="none"):
            list(lookup.find([]))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:secret@127.0.0.1:{port}/x",
        "mysql://u:secret@127.0.0.1:{port}/x",
        "redis://:secret@127.0.0.1:{port}/0",
    ],
)
def test_a_store_that_is_away(url: str) -> None:
    url = url.format(port=free_port())
    place = {"type": "redis", "key": "{id}"} if url.startswith("redis") else {"type": "database", "table": "people"}
    with closing(opened({**place, "url": url}, ["id"], ["name"])) as lookup:
        for keys in ([], [(1,)]):
            with pytest.raises(RetryableError) as away:
                list(lookup.find(keys))
            assert "secret" not in str(away.value)


@pytest.mark.parametrize("url", ["nothing", "oracle+what://u:secret@h/x", "duckdb:///x.db"])
def test_a_url_of_no_database(url: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        list(opened({"type": "database", "url": url, "table": "t"}, ["id"], ["name"]).find([]))
    assert "secret" not in str(refused.value)
    assert isinstance(refused.value, ConfigError)
