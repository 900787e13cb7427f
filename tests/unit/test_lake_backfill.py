"""``headrace lake backfill``: a range of a lake delivered once more, into stores and in the place of a range of another lake."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from headrace.cli.lake import lake as lake_group
from headrace.errors import ConfigError, DataError, RetryableError
from headrace.flow.spec import FlowSpec
from headrace.lake.asof import as_of
from headrace.lake.backfill import Range, changes_in
from headrace.lake.certificate import Rounds
from headrace.lake.commit import Manifest
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.sinks.base import Position
from headrace.sinks.lake import LakeSink
from headrace.sinks.memory import MemorySink
from headrace.storage.location import tree_at
from headrace.stream.backfill import Backfill, fill
from headrace.ums.change import Cause, ChangeBatch, Clear, End, Mark
from headrace.ums.schema import COMMIT_TS, ID, Column, TableSchema
from headrace.verify.windows import check_windows
from tests.lake_tables import ID_NAME, ORDERS, START, at, changes, ids_in, open_sink, rows, table, time_of
from tests.lake_windows import START_US, certified, closing, passed

LINES = table(("id", pa.int64()), ("qty", pa.int32()), name="lines")
LATER = table(("id", pa.int64()), ("title", pa.utf8()), ("more", pa.int32()), version=1)
LATER = TableSchema(
    LATER.namespace, (LATER.columns[0], Column("title", pa.utf8(), "text", born_as="name"), LATER.columns[2]), ("id",)
)


@pytest.fixture(autouse=True)
def _fresh_stores() -> Iterator[None]:
    yield
    MemorySink.stores.clear()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two tables, a rename, a TRUNCATE, rows of a load, transactions over both tables; in five commits."""
    lake = tmp_path / "lake"
    sink = open_sink(lake)
    sink.write(changes(ID_NAME, *((n, "i", n, "loaded") for n in range(-9, 0))))
    sink.write(changes(LINES, *((n, "i", n, n) for n in range(1, 20, 2))))
    sink.write(changes(ID_NAME, *((n, "iu"[n % 4 // 2], n % 6, f"{n}") for n in range(2, 20, 2))))
    sink.commit(at(1, 19))
    sink.write(changes(ID_NAME, *((n, "u", n % 6, f"{n}") for n in range(20, 30))))
    sink.clear(Clear(LINES, 25, 25_000_000 + START_US))
    sink.write(changes(LINES, *((n, "i", n, n) for n in (30, 31))))
    sink.commit(at(2, 31))
    sink.write(changes(LATER, *((n, "iud"[n % 3], n % 6, f"later {n}", n) for n in range(40, 50))))
    sink.commit(at(3, 49))
    sink.close()
    return lake


def flow(name: str = "mart", to: dict[str, Any] | None = None, **settings: Any) -> FlowSpec:
    return FlowSpec.model_validate({"name": name, "from": "mysql.db1", "to": to or {"type": "memory"}, **settings})


def job(path: Path, to: FlowSpec, low: int | None = None, high: int | None = None, **more: Any) -> Backfill:
    config = LakeSink.Config(type="lake", path=path)
    return Backfill(config, to, Range(more.pop("column", ID), low, high), **more)


def stored(name: str) -> list[tuple[object, ...]]:
    """The live rows of the memory store."""
    tables = MemorySink.stores["memory"].tables.get(f"mysql.db1.shop.{name}", {})
    live = [row for row in tables.values() if row.is_active]
    return sorted((tuple(value.as_py() for value in row.values.values()) for row in live), key=repr)


def test_all_of_a_lake_gives_its_newest_state(path: Path) -> None:
    done = fill(job(path, flow()))
    assert stored("lines") == [(30, 30), (31, 31)]
    [schema] = {
        batch.table
        for batch in changes_in(Manifest.open(path), [ORDERS], Range(ID, 40, None))
        if isinstance(batch, ChangeBatch)
    }
    [scanned] = MemorySink(MemorySink.Config(type="memory"), "mart").scan(schema)
    assert rows(pa.Table.from_batches([scanned])) == rows(as_of(path, ORDERS))
    assert sum(done.rows.values()) == 9 + 10 + 9 + 10 + 2 + 10 + 1, "the clear is a change as well"


def test_rows_of_the_past_do_not_wait_to_become_valid(path: Path, tmp_path: Path) -> None:
    lines = "SELECT id, CASE WHEN id <> 31 THEN qty END AS n FROM input"
    rule = {"check": ["n"], "timeout": "1h", "action": "drop"}
    done = fill(job(path, flow(sql=lines, validity=rule, exclude="mysql.db1.shop.orders")))
    assert stored("lines") == [(30, 30)]
    assert (
        "1 rows of mysql.db1.shop.lines.0.0.0 lacked n when their time was over: they were left out" in done.notices[0]
    )
    with pytest.raises(ConfigError, match="a backfill has no log"):
        fill(job(path, flow(sql=lines, validity={**rule, "action": "alert"}, exclude="mysql.db1.shop.orders")))
    with pytest.raises(ConfigError, match="computes or checks its rows"):
        fill(job(path, flow("live", {"type": "lake", "path": str(tmp_path / "live")}, validity=rule), replace=True))


@pytest.mark.parametrize("column", [ID, COMMIT_TS])
def test_a_range_is_what_is_delivered(path: Path, column: str) -> None:
    low, high = (8, 23) if column == ID else (START_US + 8_000_000, START_US + 23_000_000)
    found = list(changes_in(Manifest.open(path), [ORDERS, "mysql.db1.shop.lines"], Range(column, low, high)))
    ids = [id_ for change in found if isinstance(change, ChangeBatch) for id_ in change.data.column(ID).to_pylist()]
    assert sorted(ids) == list(range(8, 23))


def test_log_order_with_clears_ends_and_marks(path: Path) -> None:
    found = list(changes_in(Manifest.open(path), [ORDERS, "mysql.db1.shop.lines"], Range(ID, None, None)))
    assert isinstance(found[-1], Mark)
    assert found[-1].id == 49
    [clear] = [change for change in found if isinstance(change, Clear)]
    [end] = [change for change in found if isinstance(change, End)]
    assert (clear.id, clear.cause, end.id, end.successor.namespace.version) == (25, Cause.TRUNCATED, 39, 1)
    newest: dict[str, int] = {}
    marked_us = -1
    for change in found:
        if isinstance(change, Mark):
            marked_us = change.commit_ts_us
            continue
        low, high = change.id_range if isinstance(change, ChangeBatch) else (change.id, change.id)
        assert low > newest.get(change.table.namespace.all_versions, -(10**9))
        newest[change.table.namespace.all_versions] = high
        if isinstance(change, ChangeBatch) and low > 0:
            committed = change.data.column(COMMIT_TS).cast(pa.int64()).to_pylist()
            assert min(committed) > marked_us, "a transaction is not cut by a mark"


def test_transactions_are_whole_over_files_and_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten transactions of 50 rows in two tables, in row groups of seven rows: marks stand between transactions only."""
    for module in ("parquet", "rewrite", "joined"):
        monkeypatch.setattr(f"headrace.lake.{module}.ROW_GROUP_ROWS", 7)
    sink = open_sink(tmp_path)
    for transaction in range(10):
        for schema, odd in ((ID_NAME, 0), (LINES, 1)):
            ids = [transaction * 100 + 2 * n + odd for n in range(25)]
            batch = changes(schema, *((id_, "i", id_, "x" if odd == 0 else 1) for id_ in ids))
            when = pa.array([START + timedelta(seconds=transaction // 2)] * 25, pa.timestamp("us", "UTC"))
            data = batch.data.set_column(3, batch.data.schema.field(3), when)
            sink.write(ChangeBatch(schema, data))
    sink.commit(at(1, 950))
    found = list(changes_in(Manifest.open(tmp_path), [ORDERS, "mysql.db1.shop.lines"], Range(ID, None, None)))
    since: list[int] = []
    times: set[int] = set()
    for change in found:
        if isinstance(change, Mark):
            assert sum(since) % 100 == 0, "whole transactions of one commit time"
            since = []
        elif isinstance(change, ChangeBatch):
            since.append(len(change))
            times |= set(change.data.column(COMMIT_TS).cast(pa.int64()).to_pylist())
    assert (len(times), sum(isinstance(change, Mark) for change in found)) == (5, 5)


def test_only_overlapping_files_are_read(path: Path) -> None:
    for file in Manifest.open(path).files():
        if not Range(ID, 40, None).can_touch(file):
            (path / file.path).write_text("not to be read")
    assert fill(job(path, flow(), 40)).rows == {f"{ORDERS}.1.0.0": 10}


def test_the_flow_says_what_becomes_of_it(path: Path) -> None:
    shaped = flow(columns={"drop": ["more"], "rename": {"title": "label"}}, exclude=["mysql.db1.shop.lines"])
    fill(job(path, shaped, 40, None))
    assert "mysql.db1.shop.lines" not in MemorySink.stores["memory"].tables
    [*live] = [row for row in MemorySink.stores["memory"].tables[ORDERS].values() if row.is_active]
    assert {len(row.values) for row in live} == {2}


def test_on_change_counts(path: Path) -> None:
    with pytest.raises(DataError, match=r"has column\(s\) added: more, and the flow is to stop then"):
        fill(job(path, flow(on_change={"added": "fail"})))
    fill(job(path, flow(on_change={"truncated": "ignore"})))
    assert len(stored("lines")) == 12


def dump(path: Path) -> list[str]:
    """Everything in a SQLite file but the positions."""
    with sqlite3.connect(path) as connection:
        return [line for line in connection.iterdump() if "_headrace_positions" not in line]


@pytest.mark.parametrize("delete", ["soft", "hard"])
def test_twice_into_a_database_changes_nothing(path: Path, tmp_path: Path, delete: str) -> None:
    to = flow(to={"type": "database", "url": f"sqlite:///{tmp_path}/mart.db"}, delete=delete)
    fill(job(path, to))
    before = dump(tmp_path / "mart.db")
    fill(job(path, to))
    assert dump(tmp_path / "mart.db") == before
    for low, high in ((None, 20), (5, 23), (20, 45), (30, None)):
        fill(job(path, to, low, high))
    assert dump(tmp_path / "mart.db") == before, "parts, in any order"


def test_a_row_that_the_target_refuses_is_named(path: Path, tmp_path: Path) -> None:
    """There is no ledger that it could be set aside in."""
    to = flow(to={"type": "database", "url": f"sqlite:///{tmp_path}/mart.db"}, set_aside=10)
    fill(job(path, to, 0, 20))
    with sqlite3.connect(tmp_path / "mart.db") as connection:
        connection.execute(
            "CREATE TRIGGER rule BEFORE INSERT ON lines WHEN NEW.id = 31 BEGIN SELECT RAISE(ABORT, 'against the rule'); END"
        )
    with pytest.raises(DataError, match=r"shop\.lines, row with id=31.*against the rule"):
        fill(job(path, to))


class Shaky(MemorySink):
    """A target that is away now and then."""

    left = 3

    def commit(self, position: Position) -> None:
        super().commit(position)
        Shaky.left -= 1
        if Shaky.left in (0, 1):
            raise RetryableError("the target is away", fix="wait")


def test_a_target_that_is_away_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.stream.deliver._GATHER_ROWS", 5)
    monkeypatch.setattr(
        "headrace.stream.backfill.sink_opener", lambda flow: partial(Shaky, Shaky.Config(type="memory"), flow.name)
    )
    fill(job(path, flow()))
    assert Shaky.left < 0
    assert stored("lines") == [(30, 30), (31, 31)]


def copy_of(path: Path, to: Path, *, without: range = range(0)) -> Path:
    """Another lake with the same rows, but for some ids; all of it in one commit."""
    sink = open_sink(to, "copied")
    manifest = Manifest.open(path)
    for change in changes_in(manifest, sorted(manifest.tables), Range(ID, None, None)):
        if isinstance(change, Clear):
            sink.clear(change)
        elif isinstance(change, ChangeBatch):
            ids = change.data.column(ID).to_pylist()
            sink.write(ChangeBatch(change.table, change.data.filter(pa.array([id_ not in without for id_ in ids]))))
    sink.commit(Position("other", 0, 1, 49, START_US + 49_000_000))
    sink.close()
    return to


def sums(path: Path) -> list[tuple[str, int, int]]:
    manifest = Manifest.open(path)
    return sorted(
        (name, sum(file.rows for file in files), sum(int(file.digest, 16) for file in files) % (1 << 128))
        for name, files in manifest.tables.items()
    )


def lake_flow(path: Path) -> FlowSpec:
    return flow("copied", {"type": "lake", "path": str(path)})


def test_a_range_of_a_lake_is_replaced_in_one_commit(path: Path, tmp_path: Path) -> None:
    target = copy_of(path, tmp_path / "other", without=range(10, 45))
    number = Manifest.open(target).number
    to = job(path, lake_flow(target), 8, 47, tables=("shop.orders",), replace=True)
    assert fill(to).replaced == [ORDERS]
    assert Manifest.open(target).number == number + 1
    assert sorted(ids_in(target)) == sorted(ids_in(path))
    for id_ in (5, 15, 30, 45, 49):
        assert rows(as_of(target, ORDERS, id=id_)) == rows(as_of(path, ORDERS, id=id_))
    assert fill(to).replaced == []
    assert Manifest.open(target).number == number + 1, "twice is once"
    fill(job(path, lake_flow(target), replace=True))
    assert sums(target) == sums(path)
    files = {file.path for file in Manifest.open(target).files()}
    assert {path.relative_to(target).as_posix() for path in target.rglob("v*/[!_]*.parquet")} == files


def test_a_replacement_amends_closed_windows(path: Path, tmp_path: Path) -> None:
    target = copy_of(path, tmp_path / "other", without=range(10, 15))
    members = closing(10, [Manifest.open(target).reached.copy().popitem()[0]])
    Caretaker(target, Policy(), members).certify()
    before = certified(target)
    fill(job(path, lake_flow(target), 10, 15, tables=("shop.orders",), replace=True))
    after = certified(target)
    assert {start for start in after if after[start] != before.get(start)} == {10.0}
    assert after[10.0] == (before[10.0][0] + 1, before[10.0][1] + 3)
    assert all(result.ok for result in check_windows(Manifest.open(target)))
    assert not any(window.late for result in check_windows(Manifest.open(target)) for window in result.windows)
    assert len(Rounds(tree_at(target), ORDERS).all) == 2


def test_an_empty_lake_is_filled_by_a_replacement(path: Path, tmp_path: Path) -> None:
    assert sorted(fill(job(path, lake_flow(tmp_path / "new"), replace=True)).replaced) == [
        "mysql.db1.shop.lines",
        ORDERS,
    ]
    assert sums(tmp_path / "new") == sums(path)
    assert rows(as_of(tmp_path / "new", "mysql.db1.shop.lines")) == [(30, 30), (31, 31)]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({}, "keeps every change it is given"),
        ({"replace": True, "low": 1}, "has come to id 49 in"),
        ({"replace": True, "high": 60}, "has come to id 49 in"),
        ({"replace": True, "tables": ("shop.nothing",)}, "has no table shop.nothing that flow live takes"),
    ],
)
def test_lakes_that_cannot_be_replaced(path: Path, tmp_path: Path, more: dict[str, Any], message: str) -> None:
    live = open_sink(tmp_path / "live", "live")
    live.write(changes(ID_NAME, (1, "i", 1, "a")))
    live.commit(passed(1, 49))
    to = flow("live", {"type": "lake", "path": str(tmp_path / "live")})
    with pytest.raises(ConfigError, match=message):
        fill(job(path, to, **more))
    assert ids_in(tmp_path / "live") == [1]


def test_a_clear_is_not_taken_back(path: Path, tmp_path: Path) -> None:
    target = copy_of(path, tmp_path / "other")
    empty = open_sink(tmp_path / "source")
    empty.write(changes(LINES, (1, "i", 1, 1)))
    empty.commit(at(1, 1))
    with pytest.raises(DataError, match=r"was cleared \(truncated, id 25\) in this range"):
        fill(job(tmp_path / "source", lake_flow(target), replace=True))
    assert sums(target) == sums(path)


def test_what_retention_has_thinned_is_told(path: Path) -> None:
    Caretaker(path, Policy(keep=1), clock=lambda: time_of(1000).timestamp()).tend([ORDERS])
    horizon = Manifest.open(path).horizons[ORDERS].id
    with pytest.raises(ConfigError, match=f"keeps all changes of {ORDERS} behind id {horizon} only"):
        fill(job(path, flow(), 5))
    with pytest.raises(ConfigError, match="what was overwritten before is gone"):
        fill(job(path, lake_flow(path.parent / "other"), tables=("shop.orders",), replace=True))
    fill(job(path, flow(), tables=("shop.orders",)))
    assert len(stored("orders")) == as_of(path, ORDERS).num_rows


FLOWS = """
source: {{type: mysql, name: db1, files: "./none.*", tables: ["shop.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: orders_lake, from: mysql.db1, to: {{type: lake, path: {lake}}}}}
  - {{name: mart, from: mysql.db1, to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(lake_group, ["backfill", *map(str, arguments)], catch_exceptions=False)


def test_the_command(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "flow.yaml"
    file.write_text(FLOWS.format(lake=path))
    out = run(file, "--to-flow", "mart", "--from", "2026-01-01T00:00:40Z", "--json").output
    assert json.loads(out) == {"rows": {f"{ORDERS}.1.0.0": 10}, "notices": [], "replaced": []}
    assert "10 changes" in run(file, "--to-flow", "mart", "--from", 40, "--to", 50).output
    other = tmp_path / "other.yaml"
    other.write_text(FLOWS.format(lake=tmp_path / "copy"))
    told = run(file, "--to-file", other, "--to-flow", "orders_lake", "--replace").output
    assert "replaced: mysql.db1.shop.lines, mysql.db1.shop.orders" in told
    assert "as all of it was there" in run(file, "--to-file", other, "--to-flow", "orders_lake", "--replace").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to-flow", "martt"], "has no flow 'martt'"),
        (["--to-flow", "mart", "--from-flow", "mart"], "has no such flow into a lake"),
        (["--to-flow", "mart", "--from", "1", "--to", "2026-01-01"], "is of times or of ids"),
        (["--to-flow", "mart", "--from", "9", "--to", "9"], "is empty"),
        (["--to-flow", "mart", "--from", "yesterday"], "is not a time"),
        (["--to-flow", "mart", "--replace"], "is no lake"),
        (["--to-flow", "orders_lake"], "would double its rows"),
        (["--to-flow", "mart", "--table", "shop.order"], "has no table shop.order that flow mart takes"),
    ],
)
def test_wrong_use_is_a_config_error(path: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "flow.yaml").write_text(FLOWS.format(lake=path))
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "flow.yaml", *arguments)
