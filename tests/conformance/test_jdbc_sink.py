"""What only databases behind JDBC drivers have: what Derby cannot store, writers between two statements, drivers, messages to people."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import jpype
import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, FatalError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.database.dialect import Destination, Target
from headrace.sinks.database.stored import create_table
from headrace.sinks.jdbc import JdbcSink
from headrace.sinks.jdbc.connection import Connection, is_conflict, sorted_error
from headrace.sinks.jdbc.dialect import Jdbc
from headrace.sinks.jdbc.rows import Texts, Upsert
from headrace.stream.refused import Part, Place, refused
from headrace.testing.sink import ORDERS, TYPES, Change, Deliver, Live, OpenSink, SinkConformance, batch_of, order
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.servers.jdbc import H2, Derby, JdbcServer

POSITION = Position("topic", 0, 1, 1, 1)
Settings = dict[str, Any]


@pytest.fixture(params=["h2", "derby"])
def server(request: pytest.FixtureRequest) -> JdbcServer:
    found: JdbcServer = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def settings(server: JdbcServer) -> Iterator[Settings]:
    with server.schema() as made:
        yield made


def sink_of(settings: Settings, **more: object) -> JdbcSink:
    return JdbcSink(JdbcSink.Config.model_validate({**settings, **more}), "flow")


def deliver_to(settings: Settings, *batches: ChangeBatch) -> None:
    with closing(sink_of(settings)) as sink:
        for batch in batches:
            sink.prepare(batch.table)
            sink.write(batch)
        sink.commit(POSITION)


class TestDerby(SinkConformance):
    """All that Derby can, with hard deletes; keys that are one to it are refused, below."""

    @pytest.fixture
    def open_sink(self, derby: Derby) -> Iterator[OpenSink]:
        with derby.schema() as settings:
            yield lambda: sink_of(settings, delete="hard")

    def test_text_keys_differ_by_case_blanks_and_accents(self, deliver: Deliver, live: Live) -> None:
        """To Derby 'a' and 'a ' are one key: the second is refused, and does not take the place of the first."""
        columns = (Column("code", pa.utf8(), "varchar(20)"), Column("n", pa.int32(), "int"))
        table = TableSchema(Namespace("mysql", "db1", "shop", "codes"), columns, ("code",))
        codes = ["a", "A", "ä", "", "a'\\"]
        deliver(batch_of(table, [Change("i", n + 1, {"code": code, "n": n}) for n, code in enumerate(codes)]))
        rows = live(table)
        assert sorted(row[0] for row in rows) == sorted(codes)
        for code in ("a ", " "):
            with pytest.raises(DataError, match="is the same as"):
                deliver(batch_of(table, [Change("i", 100, {"code": code, "n": 7})]))
        with pytest.raises(DataError, match="duplicate key"):
            deliver(batch_of(table, [Change("i", 101 + n, {"code": f"b{' ' * n}", "n": 8}) for n in range(2)]))
        assert live(table) == rows


# --- writers between two statements


@pytest.fixture
def dialects(settings: Settings) -> Iterator[tuple[Jdbc, Jdbc, Destination]]:
    """Two connections and a table that both write."""
    config = JdbcSink.Config.model_validate(settings)
    one, other = (Jdbc(config.url, config.driver, config.login(), config.address(), config.db_schema) for _ in range(2))
    target = Target("t", (Column("id", pa.int64(), "bigint"), Column("by", pa.utf8(), "varchar(9)")), ("id",))
    one.run(create_table(one, target))
    one.commit()
    stored = one.describe(target)
    assert stored is not None
    yield one, other, Destination(target, stored)
    one.close()
    other.close()


def rows(by: str, *changes: tuple[int, int]) -> list[pa.Array[Any]]:
    """Rows of (key, `_ums_id_`)."""
    keys, ids = zip(*changes, strict=True)
    times = pa.array([0] * len(keys), pa.timestamp("us", "UTC"))
    active = pa.array([1] * len(keys), pa.int16())
    return [pa.array(keys, pa.int64()), pa.array([by] * len(keys)), pa.array(ids, pa.int64()), times, active]


def once(monkeypatch: pytest.MonkeyPatch, name: str, meanwhile: Callable[[], None]) -> None:
    """What another writer does behind the first look and before `name`."""
    step, done = getattr(Upsert, name), []

    def patched(self: Upsert, *arguments: Any) -> Any:
        if not done:
            done.append(True)
            meanwhile()
        return step(self, *arguments)

    monkeypatch.setattr(Upsert, name, patched)


def test_a_key_that_another_writer_inserts_meanwhile_is_compared_and_updated(
    dialects: tuple[Jdbc, Jdbc, Destination], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, to = dialects

    def meanwhile() -> None:
        other.upsert(to, rows("other", (1, 50), (2, 70), (4, 80)))
        other.commit()

    once(monkeypatch, "_insert", meanwhile)
    one.upsert(to, rows("one", (1, 60), (2, 60), (3, 60)))
    one.commit()
    assert [row for part in one.select(to, "1 = 1", 100) for row in part if row[0] < 4] == [
        (1, "one"), (2, "other"), (3, "one"),
    ]  # fmt: skip


def test_a_key_that_another_writer_changes_or_removes_meanwhile_is_looked_up_again(
    dialects: tuple[Jdbc, Jdbc, Destination], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other, to = dialects
    other.upsert(to, rows("first", (1, 10), (2, 10), (3, 10)))
    other.commit()

    def meanwhile() -> None:
        other.run(f"DELETE FROM {other.table(to.target)} WHERE {other.quote('id')} = 1")
        other.upsert(to, rows("other", (2, 70)))
        other.commit()

    once(monkeypatch, "_update", meanwhile)
    one.upsert(to, rows("one", (1, 60), (2, 60), (3, 60)))
    one.commit()
    found = sorted(row for part in one.select(to, "1 = 1", 100) for row in part)
    assert found == [(1, "one"), (2, "other"), (3, "one")]


def test_of_rows_that_follow_new_ones_a_sample_is_looked_up(
    dialects: tuple[Jdbc, Jdbc, Destination], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _, to = dialects
    looked: list[int] = []
    look = Upsert._stored

    def counted(self: Upsert, connection: Connection, columns: Texts, waiting: Collection[int]) -> dict[int, int]:
        looked.append(len(waiting))
        return look(self, connection, columns, waiting)

    def looks(by: str, keys: Sequence[int], id_: int) -> list[int]:
        looked.clear()
        one.upsert(to, rows(by, *((key, id_) for key in keys)))
        return list(looked)

    monkeypatch.setattr(Upsert, "_stored", counted)
    assert looks("first", range(1000, 1100), 10) == [100]
    assert looks("second", range(1100, 1200), 20) == [64]
    assert looks("third", [*range(1200, 1299), 1150], 15) == [64, 36]  # keys are compared as text, so 1150 comes first
    assert looks("fourth", range(1300, 1400), 30) == [100]
    assert looks("fifth", [*range(1400, 1499), 1999, 1350], 5) == [64, 37]
    assert looks("sixth", range(1500, 1600), 40) == [100]
    assert looks("seventh", [*range(1600, 1699), 9150], 40) == [64]
    assert looks("eighth", [*range(1700, 1799), 9150], 50) == [64, 100]  # the sample was new, the INSERT met a key
    one.commit()
    found = dict(row for part in one.select(to, "1 = 1", 1000) for row in part)
    assert len(found) == 798
    assert (found[1150], found[1350], found[9150], found[1999]) == ("second", "fourth", "eighth", "fifth")


def test_a_unique_index_of_somebody_else_is_a_conflict_that_comes_out(dialects: tuple[Jdbc, Jdbc, Destination]) -> None:
    one, _, to = dialects
    one.run(f"CREATE UNIQUE INDEX {one.quote('only')} ON {one.table(to.target)} ({one.quote('by')})")
    one.commit()
    with pytest.raises(one.driver_errors) as raised:
        one.upsert(to, rows("same", (1, 1), (2, 1)))
    assert isinstance(one.translate(raised.value), DataError)


# --- types


def test_every_type_has_a_column(h2: H2, derby: Derby) -> None:
    expected = {
        "bool": ("BOOLEAN", "BOOLEAN"),
        "int8": ("SMALLINT", "SMALLINT"),
        "int16": ("SMALLINT", "SMALLINT"),
        "int32": ("INTEGER", "INTEGER"),
        "int64": ("BIGINT", "BIGINT"),
        "uint8": ("SMALLINT", "SMALLINT"),
        "uint16": ("INTEGER", "INTEGER"),
        "uint32": ("BIGINT", "BIGINT"),
        "uint64": ("NUMERIC(20,0)", "DECIMAL(20,0)"),
        "float32": ("REAL", "REAL"),
        "float64": ("DOUBLE PRECISION", "DOUBLE"),
        "decimal": ("NUMERIC(12,2)", "DECIMAL(12,2)"),
        "decimal_fraction": ("NUMERIC(30,20)", "DECIMAL(30,20)"),
        "decimal256": ("NUMERIC(65,30)", "VARCHAR(68)"),  # Derby's numbers have 31 digits
        "text": ("CHARACTER LARGE OBJECT", "CLOB"),
        "varchar": ("CHARACTER VARYING(60)", "VARCHAR(60)"),
        "blob": ("BINARY LARGE OBJECT", "BLOB"),
        "varbinary": ("BINARY VARYING(20)", "VARCHAR (20) FOR BIT DATA"),
        "date": ("DATE", "DATE"),
        "datetime": ("TIMESTAMP(6)", "TIMESTAMP"),
        "timestamp": ("TIMESTAMP(6)", "TIMESTAMP"),
        "time": ("CHARACTER VARYING(20)", "VARCHAR(20)"),
    }
    columns = {kind: Column("c", values.type, source_type) for kind, (source_type, values) in TYPES.items()}
    for at, database in enumerate((h2, derby)):
        config = JdbcSink.Config.model_validate(database.settings)
        dialect = Jdbc(config.url, config.driver, config.login(), config.address(), None)
        declared = {kind: dialect.declare(column, in_key=False) for kind, column in columns.items()}
        assert declared == {kind: names[at] for kind, names in expected.items()}
        assert all(dialect.holds(name) is not None for name in declared.values())
        dialect.close()


@pytest.mark.parametrize("day", [-719_163, 2_932_897])
def test_a_date_that_jdbc_does_not_have_is_refused_by_its_row(day: int, settings: Settings) -> None:
    table = TableSchema(
        Namespace("mysql", "db1", "shop", "days"),
        (Column("id", pa.int64(), "bigint"), Column("day", pa.date32(), "date")),
        ("id",),
    )
    days = pa.array([-719_162, day, 2_932_896], pa.int32()).view(pa.date32())
    plain = batch_of(table, [Change("i", n + 1, {"id": n}) for n in range(3)])
    batch = ChangeBatch(table, plain.data.set_column(6, table.arrow_schema().field("day"), days))
    [found] = refused([Part([Place(0, 0, number) for number in range(3)], batch, batch)], lambda: sink_of(settings))
    assert found.row.places == [Place(0, 0, 1)]
    deliver_to(settings, ChangeBatch(table, batch.data.take(pa.array([0, 2]))))
    with closing(sink_of(settings)) as sink:
        scanned = pa.Table.from_batches(list(sink.scan(table))).sort_by("id").column("day")
    assert scanned.combine_chunks().equals(days.take(pa.array([0, 2])))


# --- messages


def test_a_value_that_the_database_refuses_names_its_row(server: JdbcServer, settings: Settings) -> None:
    system = " NOT NULL, ".join(
        f'"{column.name}" {kind}'
        for column, kind in zip(
            Target("orders", (), ()).system_columns, ("BIGINT", "TIMESTAMP", "SMALLINT"), strict=True
        )
    )
    server.execute(
        f'CREATE TABLE "orders" ("id" BIGINT NOT NULL PRIMARY KEY, "note" CHAR(9), "amount" DECIMAL(12,2), {system} NOT NULL)',
        schema=settings["schema"],
    )
    batch = batch_of(ORDERS, [order(1, 10), order(2, 777, note="much too long"), order(3, 30)])
    [found] = refused([Part([Place(0, 0, number) for number in range(3)], batch, batch)], lambda: sink_of(settings))
    assert found.row.places == [Place(0, 0, 1)]
    assert found.named().message.startswith("table shop.orders, row with id=777: JDBC target jdbc:")


def test_a_login_that_fails_says_what_to_do_and_no_password(settings: Settings) -> None:
    with pytest.raises(ConfigError) as raised:
        deliver_to({**settings, "password": "geheim"}, batch_of(ORDERS, [order(1, 1)]))
    assert "`password`" in raised.value.fix
    assert "geheim" not in str(raised.value)


def test_a_schema_that_is_not_there_is_told(h2: H2) -> None:
    with pytest.raises(ConfigError, match=r"nowhere"):
        deliver_to({**h2.settings, "schema": "nowhere"}, batch_of(ORDERS, [order(1, 1)]))


def test_a_server_that_crashes_in_the_middle_loses_nothing() -> None:
    with H2() as server, server.schema() as settings:
        batches = [batch_of(ORDERS, [order(n * 100 + row, row) for row in range(1, 51)]) for n in range(3)]
        deliver_to(settings, batches[0])
        with closing(sink_of(settings, batch_rows=10)) as sink:
            sink.prepare(ORDERS)
            sink.write(batches[1])
            server.kill9()
            with pytest.raises(RetryableError, match=f"{server.host}:{server.port}"):
                sink.commit(POSITION)
        with pytest.raises(RetryableError, match=f"{server.host}:{server.port}"):
            deliver_to(settings, batches[2])
        server.start()
        for batch, by in ((None, 0), (batches[2], 200)):
            if batch is not None:
                deliver_to(settings, batch)
            with closing(sink_of(settings)) as sink:
                found = [row for part in sink.scan(ORDERS) for row in part.to_pylist()]
            assert {row["note"] for row in found} == {f"by {by + row}" for row in range(1, 51)}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"url": "h2:tcp://h/db"}, "url"),
        ({"url": "jdbc:h2:tcp://h/db;PASSWORD=geheim"}, "a password does not belong into `url`"),
        ({"url": "jdbc:oracle:thin:scott/geheim@//h:1521/x"}, "a password does not belong into `url`"),
        ({"driver": []}, "driver"),
        ({"driver": "none.jar"}, r"none\.jar is no jar"),
        ({"driver": "empty.jar"}, r"no JDBC driver in empty\.jar"),
        ({"url": "jdbc:other://h/db"}, r"takes URLs that begin with jdbc:other:"),
        ({"table": "{tabel}"}, "no naming pattern"),
    ],
)
def test_wrong_settings_say_what_to_write(more: Settings, message: str, h2: H2, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "empty.jar", "w"):
        pass
    if isinstance(more.get("driver"), str):
        more = {**more, "driver": str(tmp_path / more["driver"])}
    with pytest.raises((ConfigError, ValidationError), match=message) as raised:
        sink_of({**h2.settings, **more}).check()
    assert "geheim" not in str(raised.value)


_FORKED = """
import os
from headrace.errors import FatalError
from headrace.sinks.jdbc import jvm

jvm.start()
if os.fork() == 0:
    try:
        jvm.start()
    except FatalError as error:
        print(error.message, flush=True)
    os._exit(0)
os.wait()
"""
_DAEMON = """
import sys
from importlib import import_module
from headrace.stream.daemon import IMPORTED

for module in IMPORTED:
    import_module(module)
print("jpype" in sys.modules)
"""


@pytest.mark.parametrize(("program", "told"), [(_FORKED, "was forked into this one"), (_DAEMON, "False")])
def test_java_runs_in_no_process_that_others_are_forked_from(program: str, told: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told in done.stdout


def test_a_transaction_that_the_database_has_ended_is_done_again(server: JdbcServer) -> None:
    with closing(server.connect()) as connection:
        before = connection.java.setSavepoint()
        connection.java.rollback()
        with pytest.raises(RetryableError, match="has ended the transaction"):
            connection.back_to(before)


def test_a_deadlock_in_a_batch_counts_before_everything_else_in_it(h2: H2) -> None:
    with closing(h2.connect()):  # starts Java
        exception = jpype.JClass("java.sql.SQLException")
        batch, conflict = jpype.JClass("java.sql.BatchUpdateException")("batch", None), exception("taken", "23505")
        batch.setNextException(conflict)
        assert is_conflict(batch)
        conflict.setNextException(exception("deadlock", "40001"))
    assert not is_conflict(batch)
    told = sorted_error(batch, "here", answers=True)
    assert isinstance(told, RetryableError)
    assert "deadlock" in told.message


def test_an_error_that_nobody_has_sorted_is_the_operators(h2: H2) -> None:
    config = JdbcSink.Config.model_validate(h2.settings)
    dialect = Jdbc(config.url, config.driver, config.login(), config.address(), None)
    with closing(dialect), pytest.raises(dialect.driver_errors) as raised:
        dialect.run("SELECT nonsense FROM FROM")
    told = dialect.translate(raised.value)
    assert isinstance(told, FatalError)
    assert "\n" not in told.message
