"""What is told of the SQL of computed tables, what becomes of them when their inputs change, and that what cannot be is said once and clearly."""

from __future__ import annotations

import re
import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.capture.partitions import Parts
from headrace.codec.entries import EntryWriter
from headrace.compute.changing.answer import Answers
from headrace.compute.changing.batch import Whole, compared
from headrace.compute.changing.state import State
from headrace.errors import ConfigError, DataError, FatalError
from headrace.flow.shape import Shaper
from headrace.flow.spec import PipelineSpec
from headrace.log.base import EntryForm
from headrace.log.directory import DirectoryLog
from headrace.log.retention import HOUR_MS
from headrace.retry import Backoff
from headrace.stream.batch import verify_batch
from headrace.stream.deliver import Follower
from headrace.stream.parts import sink_opener
from headrace.ums.change import End, Mark
from headrace.ums.schema import Column, TableSchema
from tests.sql_tables import INPUT, ORDERS, Computed, OnLog, Shop, Writer, batch, open_log, table

JOINED = "FROM orders o LEFT JOIN customers c ON o.customer = c.id"


def explained(directory: Path, sql: str, *key: str) -> str:
    return Computed(directory, sql, list(key)).source().explained()


@pytest.mark.parametrize(
    ("sql", "key", "by"),
    [
        ("SELECT status, count(*) AS n FROM orders GROUP BY ALL", ["status"], "status"),
        ("SELECT date_trunc('day', placed) AS day, status, count(*) AS n FROM orders GROUP BY 1, 2", ["day", "status"], "day, status"),
        (f"SELECT o.id, c.region {JOINED}", ["id"], "id"),
        (f"SELECT o.*, c.region {JOINED}", ["id"], "id"),
        (f"SELECT c.region, o.status, sum(amount) AS n {JOINED} GROUP BY ALL", ["region", "status"], "status"),
        ("SELECT c.id, o.amount FROM orders o RIGHT JOIN customers c ON c.id = o.customer", ["id"], "id"),
        ("SELECT c.region, sum(amount) AS n FROM orders o, customers c WHERE c.id = o.customer GROUP BY ALL", ["region"], "region"),
        ("SELECT a.id, b.id AS other FROM orders a JOIN orders b USING (customer)", ["id", "other"], "id"),
        ("SELECT c.id, o.amount FROM orders o LEFT JOIN customers c ON c.id = o.customer", ["id"], None),
        ("SELECT o.id, c.region FROM orders o LEFT JOIN customers c ON o.customer > c.id", ["id"], None),
        ("SELECT o.id FROM orders o FULL JOIN customers c ON o.customer = c.id", ["id"], None),
        ("SELECT DISTINCT status FROM orders", ["status"], None),
        ("SELECT status, count(*) AS n FROM orders GROUP BY ROLLUP (status)", ["status"], None),
        ("SELECT id FROM orders ORDER BY amount LIMIT 3", ["id"], None),
        ("SELECT id, row_number() OVER (ORDER BY id) AS place FROM orders", ["id"], None),
        ("SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)", ["id"], None),
        ("SELECT max(id) AS id FROM orders", ["id"], None),
    ],
)  # fmt: skip
def test_how_much_is_computed_again(tmp_path: Path, sql: str, key: list[str], by: str | None) -> None:
    told = explained(tmp_path, sql, *key)
    assert ("the whole answer" if by is None else f"computed anew by {by} when") in told


def test_only_what_the_sql_names_is_kept(tmp_path: Path) -> None:
    told = explained(tmp_path, f"SELECT o.id, region AS r {JOINED}", "id")
    assert "mysql.db1.shop.orders (id, customer)" in told
    assert "mysql.db1.shop.customers (id, region)" in told


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT id, now() AS at FROM orders", r"now\(\), whose answer changes"),
        ("SELECT id, current_date AS day FROM orders", "current_date, whose answer changes"),
        ("SELECT id FROM orders WHERE random() > 0.5", r"random\(\)"),
        ("SELECT id FROM payments", "reads from payments, which is no input"),
        ("SELECT * FROM read_csv('/etc/passwd')", "read_csv"),
        ("DELETE FROM orders", "no SELECT"),
        ("SELECT id FROM orders; SELECT 1", "2 statements"),
        ("SELECT price AS id FROM orders", "price"),
        ("SELECT amount FROM orders", "no column id"),
        ("SELECT id, _ums_id_ FROM orders", "column _ums_id_, a name that headrace needs"),
        ("SELECT id, placed - placed AS took FROM orders", "took of type"),
    ],
)
def test_what_cannot_be_computed_is_told_by_check(tmp_path: Path, sql: str, message: str) -> None:
    source = Computed(tmp_path, sql, ["id"]).source()
    findings = [*source.check(None), *source.tables_now()]
    told = [found for found in findings if not isinstance(found, TableSchema)]
    assert told, "nothing was found"
    assert all(found.stops and found.fix for found in told)
    assert re.search(message, " ".join(found.message for found in told))


def test_columns_come_go_and_get_other_names(tmp_path: Path) -> None:
    more = table("orders", *((c.name, c.type) for c in ORDERS.columns), ("shop", pa.utf8()), version=1)
    more = replace(more, columns=(*more.columns[:-1], replace(more.columns[-1], initial_default="web")))
    renamed = replace(more.with_version(2), columns=tuple(_renamed(column) for column in more.columns))
    writer = Writer(tmp_path)
    computed = Computed(tmp_path, "SELECT * FROM orders", ["id"], {"orders": "mysql.db1.shop.orders"})
    named = Computed(tmp_path, "SELECT id, amount * 2 AS twice FROM orders", ["id"], computed.inputs, name="named")
    writer.transact(batch(ORDERS, [(10, "i", {"id": 1, "amount": 5}), (11, "i", {"id": 2, "amount": 6})]))
    for one in (computed, named):
        one.run()
    writer.transact(End(ORDERS, more, 2000, 0), batch(more, [(2001, "i", {"id": 3, "amount": 7, "shop": "here"})]))
    for one in (computed, named):
        one.run()
    assert [(row[0], row[-1]) for row in computed.rows()] == [(1, "web"), (2, "web"), (3, "here")]
    assert [change.successor.namespace.version for change in computed.told() if isinstance(change, End)] == [1]
    writer.transact(End(more, renamed, 3000, 0), batch(renamed, [(3001, "u", {"id": 3, "price": 8, "shop": "here"})]))
    for one in (computed, named):
        one.run()
    assert [int(row[1]) for row in named.rows()] == [10, 12, 16], "known by its first name"
    assert not any(isinstance(change, End) for change in named.told()), "its own columns are what they were"
    gone = replace(renamed.with_version(3), columns=renamed.columns[:3])
    writer.transact(End(renamed, gone, 4000, 0))
    with pytest.raises(ConfigError, match=r"source named: .*amount"):
        named.run()


def _renamed(column: Column) -> Column:
    return replace(column, name="price", born_as="amount") if column.name == "amount" else column


def test_rows_of_a_load_lose_against_newer_changes(tmp_path: Path) -> None:
    lane = f"{INPUT}.load.1"
    sql, key = "SELECT id, status FROM orders", ["id"]
    computed = Computed(tmp_path, sql, key, upstream=OnLog(tmp_path, topics_=(lane, INPUT)))
    writer = Writer(tmp_path)
    writer.transact(batch(ORDERS, [(5, "u", {"id": 1, "status": "new"}), (6, "d", {"id": 2})]))
    computed.run()
    writer.transact(
        batch(
            ORDERS, [(-3, "i", {"id": 1, "status": "old"}), (-2, "i", {"id": 2}), (-1, "i", {"id": 3, "status": "old"})]
        ),
        topic=lane,
    )
    computed.run()
    assert computed.rows() == [(1, "new"), (3, "old")]


def test_tables_without_a_key(tmp_path: Path) -> None:
    visits = table("visits", ("page", pa.utf8()), ("n", pa.int64()), key=())
    inputs = {"visits": "mysql.db1.shop.visits"}
    computed = Computed(tmp_path, "SELECT page, sum(n) AS n FROM visits GROUP BY page", ["page"], inputs)
    writer = Writer(tmp_path)
    added = batch(visits, [(1, "i", {"page": "a", "n": 1}), (2, "i", {"page": "a", "n": 1})])
    writer.transact(added)
    writer.transact(added)
    computed.run()
    assert computed.rows() == [("a", 2)]
    writer.transact(batch(visits, [(3, "u", {"page": "a", "n": 5})]))
    with pytest.raises(DataError, match="without a key"):
        computed.run()
    keyed = replace(computed, name="keyed", options={"keys": {"shop.visits": ["page"]}})
    keyed.run()
    assert keyed.rows() == [("a", 5)]


def test_shards_are_one_input_and_keep_their_rows_apart(tmp_path: Path) -> None:
    other = replace(ORDERS, namespace=replace(ORDERS.namespace, schema="shop2"))
    sql, key = "SELECT status, count(*) AS n FROM orders GROUP BY status", ["status"]
    computed = Computed(tmp_path, sql, key, {"orders": "mysql.db1.shop*.orders"})
    Writer(tmp_path).transact(
        batch(ORDERS, [(1, "i", {"id": 1, "status": "new"})]), batch(other, [(2, "i", {"id": 1, "status": "new"})])
    )
    computed.run()
    assert computed.rows() == [("new", 2)]


@pytest.mark.parametrize(
    ("sql", "message"),
    [("SELECT status, id FROM orders", r"2 rows with the key status=new"), ("SELECT customer AS status FROM orders", "key is null: status=None")],
)  # fmt: skip
def test_rows_without_a_key_of_their_own_stop_the_source(tmp_path: Path, sql: str, message: str) -> None:
    computed = Computed(tmp_path, sql, ["status"])
    Writer(tmp_path).transact(
        batch(ORDERS, [(1, "i", {"id": 1, "status": "new"}), (2, "i", {"id": 2, "status": "new", "customer": 3})])
    )
    with pytest.raises(DataError, match=message):
        computed.run()
    assert not computed.told()


def test_other_sql_under_the_same_name_is_refused(tmp_path: Path) -> None:
    computed = Computed(tmp_path, "SELECT id, status FROM orders", ["id"])
    Writer(tmp_path).transact(batch(ORDERS, [(1, "i", {"id": 1})]))
    computed.run()
    with pytest.raises(ConfigError, match="has been computed by other") as refused:
        replace(computed, sql="SELECT id FROM orders").run()
    assert "new name" in refused.value.fix


def test_a_log_that_has_lost_its_begin(tmp_path: Path) -> None:
    options = {"path": tmp_path / "log", "segment_bytes": 1, "retention": {"age_s": 3600}}
    with closing(DirectoryLog(DirectoryLog.Config.model_validate({"type": "directory", **options}))) as log:
        parts = Parts(EntryWriter(EntryForm(), "mysql"), 1)
        for id_ in range(1, 5):
            changes = [batch(ORDERS, [(id_ * 10, "i", {"id": id_})])]
            now_ms = id_ * 2 * HOUR_MS
            log.append_together(INPUT, parts.of(changes, [], Mark(INPUT, {}, id_ * 10 + 1, id_), now_ms))
        assert log.spans(INPUT)[0].start > 0
    computed = Computed(tmp_path, "SELECT id FROM orders", ["id"])
    with pytest.raises(FatalError, match=f"given up the begin of {INPUT}/0") as refused:
        computed.run()
    assert "start: kept" in refused.value.fix
    kept = replace(computed, name="kept", options={"start": "kept"})
    kept.run()
    assert kept.rows()[-1] == (4,)


def test_partitions_of_a_computed_table(tmp_path: Path) -> None:
    more = table("orders", *((c.name, c.type) for c in ORDERS.columns), ("shop", pa.utf8()), version=1)
    computed = Computed(
        tmp_path, "SELECT * FROM orders", ["id"], {"orders": "mysql.db1.shop.orders"}, {"partitions": 3}
    )
    writer = Writer(tmp_path)
    writer.transact(batch(ORDERS, [(10 + id_, "i", {"id": id_}) for id_ in range(20)]))
    computed.run()
    rows = [(100 + id_, "u", {"id": id_, "shop": "here"}) for id_ in range(20)]
    writer.transact(End(ORDERS, more, 100, 0), batch(more, rows))
    computed.run()
    shutil.rmtree(computed.state)
    told = len(computed.told())
    computed.run()
    assert len(computed.told()) == told, "nothing is told twice though its partitions are read one by one"
    assert [(row[0], row[-1]) for row in computed.rows()] == [(id_, "here") for id_ in sorted(range(20), key=str)]


def test_a_state_that_is_ahead_of_the_log_is_thrown_away(tmp_path: Path) -> None:
    computed, writer = Computed(tmp_path, "SELECT id, status FROM orders", ["id"]), Writer(tmp_path)
    writer.transact(batch(ORDERS, [(1, "i", {"id": 1, "status": "new"})]))
    computed.run()
    shutil.copytree(tmp_path / "log", tmp_path / "copy")
    writer.transact(batch(ORDERS, [(2, "u", {"id": 1, "status": "paid"}), (3, "i", {"id": 2})]))
    computed.run()
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "copy").rename(tmp_path / "log")
    writer.transact(batch(ORDERS, [(2, "u", {"id": 1, "status": "sent"})]))
    computed.run()
    assert computed.rows() == [(1, "sent")]


def test_an_input_that_was_never_written_is_empty(tmp_path: Path) -> None:
    computed = Computed(tmp_path, f"SELECT o.id, c.region {JOINED}", ["id"])
    Writer(tmp_path).transact(batch(ORDERS, [(1, "i", {"id": 1, "customer": 1})]))
    computed.run()
    assert computed.rows() == [(1, None)]
    unknown = replace(computed, name="unknown", upstream=OnLog(tmp_path, tables=()))
    assert "waits for the first table that matches its input customers" in unknown.run().notices[0]
    assert not unknown.told()


def test_keys_of_deleted_rows_are_forgotten_in_time(tmp_path: Path) -> None:
    computed = Computed(tmp_path, "SELECT id FROM orders", ["id"], options={"tombstones": 0.001})
    writer = Writer(tmp_path)
    writer.transact(batch(ORDERS, [(1, "i", {"id": 1}), (2, "d", {"id": 1})]))
    computed.run()
    writer.id += 1_000_000
    writer.transact(batch(ORDERS, [(writer.id, "i", {"id": 2})]))
    computed.run()
    with closing(State(computed.state, "1GB", Answers(computed.config))) as state:
        state.open()
        assert state.rows() == 1


def test_a_batch_finds_what_was_told_wrongly(tmp_path: Path) -> None:
    computed, shop, writer = Computed(tmp_path, "SELECT id, status FROM orders", ["id"]), Shop(7), Writer(tmp_path)
    writer.transact(*shop.changes(writer.id + 1, 60))
    computed.run()
    orders = shop.inputs()["orders"]
    same = compared(computed.config, {"orders": [Whole(ORDERS, orders)]}, computed.told())
    assert same.ok
    assert same.rows == orders.num_rows
    other = pa.concat_tables([orders.slice(1), pa.table({"id": [99], "status": ["lost"]})], promote_options="default")
    found = compared(computed.config, {"orders": [Whole(ORDERS, other)]}, computed.told())
    assert (found.missing, found.different, found.extra) == (1, 0, 1)
    assert "id=99" in found.examples


def test_a_lake_is_compared_as_of_the_table_s_place(tmp_path: Path) -> None:
    computed, shop, writer = Computed(tmp_path, "SELECT id, status FROM orders", ["id"]), Shop(8), Writer(tmp_path)
    inputs = {"orders": "mysql.db1.shop.orders"}
    pipeline = PipelineSpec.model_validate(
        {
            "source": [
                {"type": "mysql", "name": "db1", "files": "x", "tables": ["*.*"]},
                {"type": "sql", "name": "made", "from": inputs, "sql": computed.sql, "key": ["id"]},
            ],
            "log": {"type": "directory", "path": tmp_path / "log"},
            "state": tmp_path / "state",
            "flows": [{"name": "copy", "from": "mysql.db1", "to": {"type": "lake", "path": str(tmp_path / "lake")}}],
        }
    )
    computed = replace(computed, inputs=inputs)
    writer.transact(*shop.changes(writer.id + 1, 40))
    computed.run()
    rows = len(shop.orders)
    deliver(pipeline)
    assert [(each.result.ok, each.result.rows) for each in verify_batch(pipeline)] == [(True, rows)]
    writer.transact(*shop.changes(writer.id + 1, 40))
    deliver(pipeline)
    assert [(each.result.ok, each.result.rows) for each in verify_batch(pipeline)] == [(True, rows)], (
        "the lake is ahead"
    )
    computed.run()
    writer.transact(*shop.changes(writer.id + 1, 40))
    computed.run()
    with pytest.raises(FatalError, match="has not come to where the table is"):
        list(verify_batch(pipeline))


def deliver(pipeline: PipelineSpec) -> None:
    """What is on the log goes into the lake."""
    [flow] = pipeline.flows
    with closing(open_log(pipeline.state.parent)) as log:
        end = log.spans(INPUT)[0].stop
        follower = Follower(sink_opener(flow), Shaper(flow), log, INPUT, 0, start=None)
        follower.run(lambda: False, lambda offset: offset >= end, Backoff(10))


def test_flow_files_with_computed_tables(tmp_path: Path) -> None:
    def file(*sources: dict[str, Any]) -> PipelineSpec:
        log = {"type": "directory", "path": tmp_path / "log"}
        return PipelineSpec.model_validate({"source": list(sources), "log": log, "state": tmp_path / "state"})

    db1 = {"type": "mysql", "name": "db1", "files": "x", "tables": ["*.*"]}
    made = {"type": "sql", "name": "made", "sql": "SELECT 1 AS one FROM a", "key": ["one"]}
    assert file({**made, "from": {"a": "mysql.db1.shop.a"}}, db1)
    with pytest.raises(ValidationError, match=r"`mysql\.db2\.a` matches none of the other sources"):
        file({**made, "from": {"a": "mysql.db2.a"}}, db1)
    with pytest.raises(ValidationError, match="made, more are computed from one another"):
        file({**made, "from": {"a": "sql.more"}}, {**made, "name": "more", "from": {"a": "sql.made"}}, db1)
    with pytest.raises(ValidationError, match="leave `mask` out"):
        file({**made, "from": {"a": "mysql.db1"}, "mask": {"headrace.made.one": {"type": "default"}}}, db1)
    with pytest.raises(ValidationError, match="headrace itself has a table Told"):
        file({**made, "from": {"Told": "mysql.db1"}}, db1)
    with pytest.raises(ValidationError, match="'a b' is no name for SQL"):
        file({**made, "from": {"a b": "mysql.db1"}}, db1)
