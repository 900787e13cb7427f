"""Lookups in flows: what is found, kept and asked for, in files of every kind; servers are in tests/conformance/test_lookups.py."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.compute.engine import Engine
from headrace.compute.lookups.base import Key, Lookup, Values
from headrace.compute.lookups.cache import Cached
from headrace.compute.plan import plan
from headrace.errors import ConfigError, DataError, RetryableError
from headrace.model import Component
from tests.unit.test_compute import ORDERS, changes, computed, rows, steps


class Squares(Lookup):
    """Knows the squares of even numbers, and says what it was asked for."""

    Config = Component

    def __init__(self) -> None:
        self.asked: list[int] = []

    def find(self, keys: Sequence[Key]) -> Iterable[tuple[Key, Values]]:
        for (number,) in keys:
            assert isinstance(number, int)
            self.asked.append(number)
            if number % 2 == 0:
                yield (Decimal(number),), (number * number,)
        yield ("never asked for",), (0,)

    def close(self) -> None:
        pass


def test_answers_are_kept_for_a_time_and_up_to_a_number() -> None:
    store, now = Squares(), [100.0]
    cached = Cached(store, rows=3, ttl_s=10, clock=lambda: now[0])
    assert cached.find([(2,), (3,)]) == {(2,): (4,)}
    assert cached.find([(2,), (3,), (4,)]) == {(2,): (4,), (4,): (16,)}
    assert store.asked == [2, 3, 4], "that a key has no row is known too"
    assert cached.find([(2,), (6,)]) == {(2,): (4,), (6,): (36,)}
    assert cached.find([(2,), (4,), (3,)]) == {(2,): (4,), (4,): (16,)}
    assert store.asked == [2, 3, 4, 6, 3], "the one that was not asked for longest has gone"
    now[0] += 10
    assert cached.find([(2,)]) == {(2,): (4,)}
    assert store.asked[5:] == [2]
    nothing = Cached(store, rows=0, ttl_s=10, clock=lambda: now[0])
    assert [nothing.find([(8,)]), nothing.find([(8,)])] == [{(8,): (64,)}] * 2
    assert nothing.asked == 2


def step(store: dict[str, Any], **more: Any) -> dict[str, Any]:
    taken = {"name": "text", "most": {"column": "credit", "type": "decimal(10,2)"}}
    return {"do": "lookup", "from": store, "on": {"status": "code"}, "take": taken, **more}


@pytest.fixture(params=["csv", "database"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Two rows in a file, by code."""
    found = [("a", "Ann, the first", "1.5"), ("b", "Łukasz", None)]
    if request.param == "csv":
        path = tmp_path / "codes.csv"
        path.write_text("credit;code;name\n1.5;a;Ann, the first\n;b;Łukasz\n", encoding="utf-8")
        return {"type": "csv", "path": str(path), "delimiter": ";"}
    with closing(sqlite3.connect(tmp_path / "codes.db")) as connection:
        connection.execute("CREATE TABLE codes (code TEXT, name TEXT, credit TEXT)")
        connection.executemany("INSERT INTO codes VALUES (?, ?, ?)", found)
        connection.commit()
    return {"type": "database", "url": f"sqlite:///{tmp_path / 'codes.db'}", "table": "codes"}


BATCH = changes(
    {"id": 1, "status": "a"},
    {"id": 2, "status": "b", "op": "u"},
    {"id": 3, "status": "x", "op": "u"},
    {"id": 4},
    {"id": 5, "status": "a", "op": "d"},
)


def test_what_is_found_stands_beside_each_row(store: dict[str, Any]) -> None:
    out = computed(BATCH, step(store), "SELECT id, upper(name) AS name, most FROM input")
    assert rows(out, "id", "name", "most") == [
        ("i", 1, "ANN, THE FIRST", Decimal("1.50")),
        ("u", 2, "ŁUKASZ", None),
        ("u", 3, None, None),
        ("i", 4, None, None),
        ("d", 5, None, None),
    ]
    assert [column.source_type for column in out.table.columns] == ["bigint", "text", "decimal(10,2)"]


def test_rows_without_a_match_are_left_out_as_by_a_filter(store: dict[str, Any]) -> None:
    out = computed(BATCH, {"do": "set", "columns": {"status": "lower(status)"}}, step(store, missing="drop"))
    assert rows(out, "id", "name") == [
        ("i", 1, "Ann, the first"), ("u", 2, "Łukasz"), ("d", 3, None), ("d", 5, None),
    ]  # fmt: skip


def test_rows_without_a_match_are_refused(store: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="no row for status=x"):
        computed(changes({"id": 3, "status": "x"}), step(store, missing="fail"))
    with pytest.raises(DataError, match="no row for status=None"):
        computed(changes({"id": 3}), step(store, missing="fail"))
    assert len(computed(changes({"id": 1, "status": "a"}), step(store, missing="fail"))) == 1


def test_rows_that_do_not_count_any_more(tmp_path: Path) -> None:
    path = tmp_path / "codes.csv"
    path.write_text("code,name,credit,_is_active_\na,one,1,0\na,two,2,1\nb,three,3,0\n", encoding="utf-8")
    out = computed(BATCH, step({"type": "csv", "path": str(path)}, active="_is_active_"))
    assert rows(out, "id", "name")[:2] == [("i", 1, "two"), ("u", 2, None)]


def test_a_lookup_is_a_hash_join(store: dict[str, Any]) -> None:
    """Any other join would compare each row with each: a hundred times the cost for a batch of ten thousand."""
    made = steps(step(store, missing="drop"), {"do": "set", "columns": {"name": "upper(name)"}})
    engine = Engine()
    planned = plan("f", made, ORDERS, engine)
    rows_in = planned.relation(changes({"id": 1, "status": "a"}).data)
    keys = engine.rows(planned.asked[0].keys, {"input": rows_in})
    found = planned.asked[0].relation(keys, [pa.array(["Ann"]), pa.array(["1"])])
    explained = engine.rows(f"EXPLAIN {planned.sql}", {"input": rows_in, "found0": found}).column(1)[0].as_py()
    assert "HASH_JOIN" in explained
    assert "NL_JOIN" not in explained
    assert "CTE" not in explained, "nothing is copied between steps"


def test_a_lake_that_has_no_such_table_yet_is_waited_for(tmp_path: Path) -> None:
    lake = {"type": "lake", "path": str(tmp_path / "lake"), "table": "mysql.db1.shop.codes"}
    with pytest.raises(RetryableError, match="not in the lake yet"):
        computed(changes({"id": 1, "status": "a"}), step(lake))


def test_lookups_one_behind_the_other(store: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "first.csv"
    path.write_text("n,id,code\n1,7,a\n", encoding="utf-8")
    first = {
        "do": "lookup",
        "from": {"type": "csv", "path": str(path)},
        "on": {"id": "id", "one": "n"},
        "take": {"code": "text"},
    }
    second = step(store, on={"code": "code"})
    out = computed(changes({"id": 7}), {"do": "set", "columns": {"one": "1::BIGINT"}}, first, second)
    assert rows(out, "id", "one", "code", "name") == [("i", 7, 1, "a", "Ann, the first")]


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "codes.csv"
    path.write_text("code,name,credit\na,one,1\n", encoding="utf-8")
    store = {"type": "csv", "path": str(path)}
    assert rows(computed(changes({"id": 1, "status": "a"}), step(store)), "name") == [("i", "one")]
    new = tmp_path / "new.csv"
    new.write_text("code,name,credit\na,two,1\na,three,1\n", encoding="utf-8")
    new.replace(path)
    with pytest.raises(DataError, match="more than one row for the key a"):
        computed(changes({"id": 1, "status": "a"}), step(store))


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"from": {"type": "csv", "path": "/nowhere/codes.csv"}}, RetryableError, "No such file"),
        ({"from": {"type": "database", "url": "sqlite:////nowhere/x.db", "table": "t"}}, RetryableError, "not there"),
        ({"take": {"colour": "text"}}, ConfigError, "colour"),
        ({"on": {"shade": "code"}}, ConfigError, "shade"),
        ({"take": {"status": {"column": "name", "type": "text"}}}, ConfigError, "two columns status"),
        ({"take": {"name": "int"}}, DataError, "Conversion Error"),
    ],
)
def test_what_does_not_fit(store: dict[str, Any], change: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        computed(changes({"id": 1, "status": "a"}), step(store) | change)
