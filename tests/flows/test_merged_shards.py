"""Shards of one table in one target table: the same keys, types that differ, ALTERs that come to each shard at its own time."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from tests.flows import compare
from tests.pipeline import Pipeline
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql

pytestmark = pytest.mark.demand(14)

TABLES = (
    "CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(20), qty INT, price DECIMAL(8,2))",
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, qty BIGINT, note TEXT, price DECIMAL(12,5))",
    "CREATE TABLE orders (id SMALLINT PRIMARY KEY, price INT, note VARCHAR(9), qty VARCHAR(20))",
)
ALTERS = (
    "ALTER TABLE orders ADD more INT DEFAULT {own}",
    "ALTER TABLE orders RENAME COLUMN qty TO quantity",
    "ALTER TABLE orders MODIFY note VARCHAR(200)",
    "ALTER TABLE orders ADD extra VARCHAR(9) NOT NULL DEFAULT 'of {own}' FIRST",
    "ALTER TABLE orders DROP price",
    "ALTER TABLE orders ADD price INT DEFAULT 1{own}",
)
"""What happens to every shard, each at its own time; `own` is another number in each."""
STORES = ("lite", "pg", "maria")
HISTORIES = max(1, int(os.environ.get("HEADRACE_SERVER_HISTORIES", "0")) // 10)


class Shards:
    """Three databases on two servers, and what three stores make of them: a source per server, a flow per source and store."""

    def __init__(
        self, directory: Path, servers: list[BinlogServer], databases: list[str], urls: dict[str, str]
    ) -> None:
        self._servers = servers
        self._databases = databases
        self._urls = urls
        self._altered = [0] * len(servers)
        self.pipelines = [
            self._pipeline(directory, source, servers[first], databases[first : first + count])
            for source, first, count in (("db1", 0, 2), ("db2", 2, 1))
        ]

    def _pipeline(self, directory: Path, source: str, server: BinlogServer, databases: list[str]) -> Pipeline:
        flows: list[dict[str, Any]] = [
            {
                "name": f"{source}_{store}",
                "from": f"mysql.{source}.*.orders",
                "to": {"type": "database", "url": url, "table": "orders_of_all", "merge": True},
                "delete": "hard" if store == "maria" else "soft",
            }
            for store, url in self._urls.items()
        ]
        (directory / source).mkdir()
        tables = [f"{database}.orders" for database in databases]
        return Pipeline(directory / source, server, tables, flows, name=source, load={"workers": 1})

    def execute(self, shard: int, *statements: str) -> None:
        self._servers[shard].execute(*statements, database=self._databases[shard])

    def alter(self, shard: int) -> bool:
        """The next of `ALTERS`; False when there is none."""
        if self._altered[shard] == len(ALTERS):
            return False
        self.execute(shard, ALTERS[self._altered[shard]].format(own=shard + 5))
        self._altered[shard] += 1
        return True

    def columns(self, shard: int) -> list[str]:
        return [
            row[0] for row in self._servers[shard].execute("SHOW COLUMNS FROM orders", database=self._databases[shard])
        ]

    def wrong(self, names: dict[str, str] | None = None) -> list[str]:
        """Where a store has not what a shard has; `names`: columns that are called otherwise in the targets."""
        found = []
        for shard, (server, database) in enumerate(zip(self._servers, self._databases, strict=True)):
            own = self.columns(shard)
            columns = [*((names or {}).get(column, column) for column in own), "_ums_source_"]
            with server.connect(database) as connection:
                expected = [_as_text(row) for row in compare.source_rows(connection, "orders")]
            source = f"mysql.{'db1' if shard < 2 else 'db2'}.{database}.orders"
            for store in STORES:
                rows = [_as_text(row[:-1]) for row in self.rows(store, columns) if row[-1] == source]
                if sorted(rows) != sorted(expected):
                    found.append(f"shard {shard} in {store}, {own}: {sorted(rows)}\n  not {sorted(expected)}")
        return found

    def rows(self, store: str, columns: list[str]) -> compare.Rows:
        url = self._urls[store]
        if store == "lite":
            return compare.sqlite_target_rows(Path(url.removeprefix("sqlite:///")), "orders_of_all", columns)
        if store == "pg":
            return compare.postgresql_rows(url, "orders_of_all", columns)
        with closing(self._servers[0].connect(url.rpartition("/")[2])) as connection:
            return compare.mysql_rows(connection, "orders_of_all", columns)


def _as_text(row: tuple[object, ...]) -> tuple[str, ...]:
    """Where one shard has numbers and another text, targets have text: with zeros behind the point, or without."""
    return tuple(
        text.rstrip("0").removesuffix(".") if "." in (text := str(value)) and text.replace(".", "").isdigit() else text
        for value in row
    )


@pytest.fixture
def shards(mariadb: MariaDb, mysql: MySql, postgresql: PostgreSql, tmp_path: Path) -> Iterator[Shards]:
    servers: list[BinlogServer] = [mariadb, mariadb, mysql]
    with ExitStack() as stack:
        databases = [stack.enter_context(server.database()) for server in servers]
        urls = {
            "lite": f"sqlite:///{tmp_path}/mart.db",
            "pg": postgresql.url(stack.enter_context(postgresql.database())),
            "maria": mariadb.url(stack.enter_context(mariadb.database())),
        }
        yield Shards(tmp_path, servers, databases, urls)


def run(shards: Shards) -> None:
    for pipeline in shards.pipelines:
        pipeline.run_until_idle()


def test_the_same_key_in_shards_and_types_that_differ(shards: Shards) -> None:
    for shard, create in enumerate(TABLES):
        shards.execute(
            shard,
            create,
            f"INSERT INTO orders (id, note, qty, price) VALUES (1, 'loaded', {shard}, 1.25), (2, 'x', 2, 2)",
        )
    run(shards)
    assert shards.wrong() == []
    shards.execute(0, "UPDATE orders SET note = 'changed' WHERE id = 1")
    shards.execute(
        1,
        "DELETE FROM orders WHERE id = 1",
        "INSERT INTO orders VALUES (5000000000, 5000000000, REPEAT('n', 300), 1.12345)",
    )
    shards.execute(2, "UPDATE orders SET id = 3, qty = 'many' WHERE id = 1")
    run(shards)
    assert shards.wrong() == []
    shards.execute(0, "TRUNCATE TABLE orders")
    shards.execute(2, "INSERT INTO orders VALUES (1, 5, 'again', 'x')")
    run(shards)
    assert shards.wrong() == []
    assert len(shards.rows("pg", ["id", "_ums_source_"])) == 5


def test_alters_that_come_to_each_shard_at_its_own_time(shards: Shards) -> None:
    for shard, create in enumerate(TABLES[:1] * 3):
        shards.execute(shard, create, f"INSERT INTO orders VALUES (1, 'loaded', {shard}, 1.25), (2, 'x', 2, 2)")
    run(shards)
    shards.execute(0, "INSERT INTO orders VALUES (3, 'before', 3, 3)")
    shards.alter(0)
    shards.alter(0)
    shards.execute(0, "INSERT INTO orders (id, quantity) VALUES (4, 40)")
    shards.execute(1, "INSERT INTO orders (id, qty) VALUES (4, 41)", "UPDATE orders SET qty = 9 WHERE id = 1")
    run(shards)
    # Of a column that shards call otherwise, the newest name counts for all.
    assert shards.wrong({"qty": "quantity"}) == []
    for shard in (1, 2):
        shards.execute(shard, "INSERT INTO orders (id, qty) VALUES (3, 31)")
        while shards.alter(shard):
            pass
        shards.execute(shard, "INSERT INTO orders (id, quantity, extra) VALUES (5, 50, 'new')")
    run(shards)
    while shards.alter(0):
        pass
    shards.execute(0, "UPDATE orders SET note = 'end' WHERE id = 2")
    run(shards)
    assert shards.wrong() == []


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_any_order_of_alters_and_changes(shards: Shards, seed: int) -> None:
    """In the end all shards have had all of `ALTERS`, and the targets what each shard has."""
    chance = random.Random(seed)
    for shard in range(3):
        shards.execute(shard, TABLES[0], "INSERT INTO orders (id, qty) VALUES (1, 1), (2, 2), (3, 3)")
    for _ in range(30):
        shard = chance.randrange(3)
        if chance.random() < 0.4:
            shards.alter(shard)
        key = chance.randint(1, 6)
        text = chance.choice(("a", "b", "c"))
        statement = chance.choice(
            (f"REPLACE INTO orders (id, note) VALUES ({key}, '{text}')", f"UPDATE orders SET note = '{text}' WHERE id = {key}",
             f"DELETE FROM orders WHERE id = {key}", "TRUNCATE TABLE orders")
        )  # fmt: skip
        shards.execute(shard, statement)
        if chance.random() < 0.3:
            chance.choice(shards.pipelines).run_until_idle()
    for shard in range(3):
        while shards.alter(shard):
            pass
        shards.execute(shard, "REPLACE INTO orders (id) VALUES (9)")
    run(shards)
    assert shards.wrong() == []


def test_without_merge_two_shards_are_refused_with_both_remedies(mariadb: MariaDb, tmp_path: Path) -> None:
    with mariadb.database() as one, mariadb.database() as other:
        for database in (one, other):
            mariadb.execute(
                "CREATE TABLE orders (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (1)", database=database
            )
        to = {"type": "database", "url": f"sqlite:///{tmp_path}/mart.db"}
        flow = {"name": "mart", "from": "mysql.db1", "to": to}
        pipeline = Pipeline(tmp_path, mariadb, [f"{one}.orders", f"{other}.orders"], [flow], load={"workers": 1})
        with pytest.raises(ConfigError, match="would both be written to the table orders") as refused:
            pipeline.run_until_idle()
        assert "{schema}_{table}" in refused.value.fix
        assert "merge: true" in refused.value.fix
