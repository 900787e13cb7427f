"""Migrations by gh-ost and pt-online-schema-change look like one ALTER of the table: their statements, as these tools issue them, on real
servers, between and beside the statements of an application; targets against the server's SELECT.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pymysql
import pytest

from headrace.ums.change import Clear, End
from tests.flows import compare
from tests.pipeline import Pipeline
from tests.servers.binlog_server import BinlogServer

CREATE = "CREATE TABLE `{t}` (id INT PRIMARY KEY, name VARCHAR(20), qty INT, note TEXT, price DECIMAL(8,2))"
ALTERS = (
    "ADD COLUMN status VARCHAR(9) NOT NULL DEFAULT 'new' AFTER id, CHANGE qty quantity BIGINT, DROP COLUMN note",
    "MODIFY price DECIMAL(12,4) FIRST",
)
OLD, NEW = "id, name, qty, price", "id, name, quantity, price"
ROWS = 60


class Application:
    """Writes to one table, by statements that both shapes take."""

    def __init__(self, cursor: pymysql.cursors.Cursor, table: str, seed: int) -> None:
        self._cursor = cursor
        self._table = table
        self._random = random.Random(seed)
        self._next = ROWS + 1
        self.done: list[int] = []

    def write(self) -> None:
        """One statement; `done` has the keys that it wrote."""
        kind = self._random.choice(("insert", "update", "update", "delete", "replace"))
        key = self._random.randint(1, self._next)
        if kind == "insert":
            key = self._next = self._next + 1
            self._cursor.execute(f"INSERT INTO `{self._table}` (id, name, price) VALUES ({key}, 'fresh', {key}.25)")
        elif kind == "update":
            self._cursor.execute(f"UPDATE `{self._table}` SET name = 'changed', price = price + 1 WHERE id = {key}")
        elif kind == "delete":
            self._cursor.execute(f"DELETE FROM `{self._table}` WHERE id = {key}")
        else:
            self._cursor.execute(f"REPLACE INTO `{self._table}` (id, name) VALUES ({key}, 'again')")
        self.done.append(key)


def chunks() -> Iterator[tuple[int, int]]:
    yield from ((low, low + 9) for low in range(1, 2 * ROWS, 10))


def ghost(connect: Callable[[], pymysql.Connection[Any]], table: str, application: Application) -> Iterator[None]:
    """gh-ost's statements; between two steps the caller may do what it likes."""
    with closing(connect()) as first, closing(connect()) as second, first.cursor() as tool, second.cursor() as locker:
        tool.execute(
            f"create /* gh-ost */ table `_{table}_ghc` (id bigint unsigned auto_increment, last_update timestamp not null"
            " DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP, hint varchar(64) charset ascii not null,"
            " value varchar(4096) charset ascii not null, primary key(id), unique key hint_uidx(hint)) auto_increment=256"
        )
        tool.execute(f"create /* gh-ost */ table `_{table}_gho` like `{table}`")
        yield
        for alter in ALTERS:
            tool.execute(f"alter /* gh-ost */ table `_{table}_gho` {alter}")
        beat = (
            f"insert /* gh-ost */ into `_{table}_ghc` (id, hint, value) values (NULLIF(1, 0), 'heartbeat', 'x') on duplicate key"
            " update last_update=NOW(), value=CONCAT(LEFT(value, 9), 'x')"
        )
        application.done.clear()
        for low, high in chunks():
            yield
            tool.execute(beat)
            tool.execute(
                f"insert /* gh-ost `x`.`{table}` */ ignore into `_{table}_gho` ({NEW}) (select {OLD} from `{table}` force index"
                f" (`PRIMARY`) where id >= {low} and id <= {high} lock in share mode)"
            )
            yield
            apply_binlog(tool, table, application)
        tool.execute(f"create /* gh-ost */ table `_{table}_del` (id int auto_increment primary key) engine=InnoDB")
        locker.execute(f"lock /* gh-ost */ tables `{table}` write, `_{table}_del` write")
        swap = threading.Thread(
            target=tool.execute,
            args=(f"rename /* gh-ost */ table `{table}` to `_{table}_del`, `_{table}_gho` to `{table}`",),
        )
        # What the application did before the lock must be in the ghost before the tables change places.
        with closing(connect()) as applier, applier.cursor() as cursor:
            apply_binlog(cursor, table, application, from_locked=locker)
        swap.start()
        with closing(connect()) as watcher, watcher.cursor() as cursor:
            while not cursor.execute(
                "select 1 from information_schema.processlist where info like 'rename /* gh-ost */%' and state like '%lock%'"
            ):
                assert swap.is_alive()
        locker.execute(f"drop /* gh-ost */ table if exists `_{table}_del`")
        locker.execute("unlock tables")
        swap.join()
        yield
        tool.execute(f"drop /* gh-ost */ table if exists `_{table}_ghc`")
        tool.execute(f"drop /* gh-ost */ table if exists `_{table}_del`")


def apply_binlog(
    cursor: pymysql.cursors.Cursor,
    table: str,
    application: Application,
    from_locked: pymysql.cursors.Cursor | None = None,
) -> None:
    """What the application did since the last time, as gh-ost writes it into the ghost table."""
    for key in dict.fromkeys(application.done):
        reader = from_locked or cursor
        reader.execute(f"select {OLD} from `{table}` where id = {key}")
        row = reader.fetchone()
        if row is None:
            cursor.execute(f"delete /* gh-ost */ from `_{table}_gho` where id = {key}")
        else:
            cursor.execute(f"replace /* gh-ost */ into `_{table}_gho` ({NEW}) values (%s, %s, %s, %s)", row)
    application.done.clear()


def pt_osc(connect: Callable[[], pymysql.Connection[Any]], table: str, _application: Application) -> Iterator[None]:
    """pt-online-schema-change's statements."""
    new, old = f"_{table}_new", f"_{table}_old"
    values = ", ".join(f"NEW.{name}" for name in OLD.split(", "))
    with closing(connect()) as connection, connection.cursor() as tool:
        tool.execute(CREATE.format(t=new))
        yield
        for alter in ALTERS:
            tool.execute(f"ALTER TABLE `{new}` {alter}")
        gone = f"DELETE IGNORE FROM `{new}` WHERE `{new}`.`id` <=> OLD.`id`"
        come = f"REPLACE INTO `{new}` ({NEW}) VALUES ({values})"
        tool.execute(f"CREATE TRIGGER `pt_osc_{table}_del` AFTER DELETE ON `{table}` FOR EACH ROW {gone}")
        moved = f"DELETE IGNORE FROM `{new}` WHERE !(OLD.`id` <=> NEW.`id`) AND `{new}`.`id` <=> OLD.`id`"
        tool.execute(
            f"CREATE TRIGGER `pt_osc_{table}_upd` AFTER UPDATE ON `{table}` FOR EACH ROW BEGIN {moved}; {come}; END"
        )
        tool.execute(f"CREATE TRIGGER `pt_osc_{table}_ins` AFTER INSERT ON `{table}` FOR EACH ROW {come}")
        for low, high in chunks():
            yield
            tool.execute(
                f"INSERT LOW_PRIORITY IGNORE INTO `{new}` ({NEW}) SELECT {OLD} FROM `{table}` FORCE INDEX(`PRIMARY`)"
                f" WHERE id >= {low} AND id <= {high} LOCK IN SHARE MODE /*pt-online-schema-change 7 copy nibble*/"
            )
        yield
        tool.execute(f"ANALYZE TABLE `{new}` /* pt-online-schema-change */")
        tool.execute(f"RENAME TABLE `{table}` TO `{old}`, `{new}` TO `{table}`")
        yield
        tool.execute(f"DROP TABLE IF EXISTS `{old}`")
        for kind in ("del", "upd", "ins"):
            tool.execute(f"DROP TRIGGER IF EXISTS `pt_osc_{table}_{kind}`")


@contextmanager
def names_left_out(server: BinlogServer) -> Iterator[None]:
    """The log does not describe its tables: what they are must be known from statements, those on helpers among them."""
    [(before,)] = server.execute("SELECT @@GLOBAL.binlog_row_metadata")
    server.execute("SET GLOBAL binlog_row_metadata = 'MINIMAL'")
    try:
        yield
    finally:
        server.execute(f"SET GLOBAL binlog_row_metadata = '{before}'")


@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted_and_without_names"])
@pytest.mark.demand(2)
def test_a_migration_is_one_alter(binlog_server: BinlogServer, tmp_path: Path, *, restarted: bool) -> None:
    with (
        names_left_out(binlog_server) if restarted else nullcontext(),
        binlog_server.database() as database,
        binlog_server.connect(database) as connection,
    ):
        pipeline = Pipeline(
            tmp_path,
            binlog_server,
            [f"{database}.*"],
            [
                {"name": "raw", "from": "mysql.db1", "to": {"type": "lake", "path": tmp_path / "lake"}},
                {
                    "name": "lite",
                    "from": "mysql.db1",
                    "to": {"type": "database", "url": f"sqlite:///{tmp_path}/mart.db"},
                },
            ],
        )
        pipeline.run_until_idle()
        with connection.cursor() as cursor:
            for table in ("orders", "bills"):
                cursor.execute(CREATE.format(t=table))
                rows = ", ".join(f"({key}, 'first', {key}, 'n', {key}.5)" for key in range(1, ROWS + 1))
                cursor.execute(f"INSERT INTO {table} VALUES {rows}")
            pipeline.run_until_idle()
            steps = random.Random(1)
            with nullcontext() if restarted else pipeline.running():
                for table, tool in (("orders", ghost), ("bills", pt_osc)):
                    application = Application(cursor, table, seed=1)
                    for _ in tool(lambda: binlog_server.connect(database), table, application):
                        for _ in range(steps.randint(0, 5)):
                            application.write()
                        if restarted and steps.random() < 0.3:
                            pipeline.run_until_idle()
                    application.write()
                    cursor.execute(f"INSERT INTO {table} (id, quantity) VALUES (1000, 7)")
        pipeline.run_until_idle()
        for table in ("orders", "bills"):
            expected = compare.source_rows(connection, table)
            columns = ["price", "id", "status", "name", "quantity"]
            assert compare.lake_rows(tmp_path / "lake", f"mysql.db1.{database}.{table}") == expected
            assert compare.sqlite_target_rows(tmp_path / "mart.db", table, columns) == expected
            assert len(expected) > ROWS // 2
        only_the_tables_themselves(pipeline, database)


def only_the_tables_themselves(pipeline: Pipeline, database: str) -> None:
    """No helper on the log, and one change of shape for each table."""
    logged = pipeline.logged()
    names = {change.table.namespace.table for change in logged if hasattr(change, "table")}
    assert names == {"orders", "bills"}
    assert not [change for change in logged if isinstance(change, Clear)]
    ends = [change for change in logged if isinstance(change, End)]
    assert sorted((end.table.namespace.table, end.successor.namespace.version) for end in ends) == [
        ("bills", 1),
        ("orders", 1),
    ]
    assert all("table `_" in end.statement.sql.lower() and end.statement.place for end in ends)
    told = [notice for notice in pipeline.notices if "helper table" not in notice]
    assert not told, f"{database}: {told}"
