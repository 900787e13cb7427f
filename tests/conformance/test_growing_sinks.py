"""Stores whose fields never move: writers of several versions beside each other, and changes of fields that were broken off."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace import registry
from headrace.errors import DataError, RetryableError
from headrace.on_change import OnChange, Policy
from headrace.sinks.base import Position, Sink
from headrace.testing.sink import ORDERS, Change, batch_of, in_threads, order, retried, version_of
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Column, TableSchema
from tests.conformance.test_sinks import STORES

KEY, NOTE, AMOUNT = ORDERS.columns
LATER = version_of(
    ORDERS,
    1,
    KEY,
    replace(NOTE, name="text", born_as="note"),
    replace(AMOUNT, type=pa.utf8(), source_type="varchar(20)"),
    Column("size", pa.int32(), "int", initial_default="7"),
)
Open = Callable[..., Sink]


@pytest.fixture(
    params=[(name, name) for name in ("opensearch", "cassandra", "clickhouse", "doris")], ids=lambda pair: pair[0]
)
def open_sink(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    name, variant = request.param
    made: type[Sink] = registry.load("sinks", name)

    def opened(**more: object) -> Sink:
        config = made.Config.model_validate({"type": name, **settings, **more})
        sink: Sink = made(config, "flow")  # type: ignore[call-arg]
        return sink

    with STORES[name][variant](request, tmp_path) as settings:
        yield opened


def deliver(open_sink: Open, *changes: ChangeBatch | Clear, **more: object) -> None:
    with closing(open_sink(**more)) as sink:
        for change in changes:
            sink.prepare(change.table)
            sink.clear(change) if isinstance(change, Clear) else sink.write(change)
        sink.commit(Position("topic", 0, 1, 1, 1))


def scan(open_sink: Open, table: TableSchema) -> list[tuple[Any, ...]]:
    with closing(open_sink()) as sink:
        return sorted(tuple(row.values()) for batch in sink.scan(table) for row in batch.to_pylist())


def later(number: int, key: int) -> Change:
    return Change("u", number, {"id": key, "text": f"by {number}", "amount": f"{number}.00", "size": 3})


def test_writers_of_two_versions_and_a_clear_beside_each_other(open_sink: Open) -> None:
    """A column is renamed, one gets another type and one comes while both forms are written: every value ends where it belongs."""
    history = [(n, n % 40) for n in range(1, 601)]
    random.Random(3).shuffle(history)
    old = [batch_of(ORDERS, [order(n, k)]) for n, k in history[:300]]
    new = [batch_of(LATER, [later(n, k)]) for n, k in history[300:]]
    cleared = Clear(ORDERS, 550, 550_000_000)

    def write(changes: list[ChangeBatch], first: int) -> None:
        with closing(open_sink()) as sink:
            for start in range(first, len(changes), 40):
                for change in changes[start : start + 40]:
                    sink.prepare(change.table)
                    sink.write(change)
                sink.commit(Position("topic", 0, start, 1, 1))

    def clear() -> None:
        deliver(open_sink, cleared)

    in_threads(
        lambda: retried(lambda: write(old, 0)), lambda: retried(lambda: write(new, 0)), lambda: retried(lambda: write(old, 150)),
        lambda: retried(clear),
    )  # fmt: skip
    newest = {k: max(n for n, key in history if key == k) for k in range(40)}
    is_new = {n for n, _ in history[300:]}
    expected = [(k, f"by {n}", f"{n}.00", 3 if n in is_new else 7) for k, n in newest.items() if n > 550]
    assert scan(open_sink, LATER) == sorted(expected)
    assert expected


def test_a_change_of_fields_that_was_broken_off_is_ended(open_sink: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver(open_sink, batch_of(ORDERS, [order(n, n) for n in range(1, 2501)]))
    with closing(open_sink()) as sink:
        tables: Any = getattr(sink, "_indices", None) or getattr(sink, "_tables")  # noqa: B009

        def dies(*_: object) -> bool:
            raise RetryableError("the connection is lost", fix="")

        fill = tables.fill
        monkeypatch.setattr(tables, "fill", lambda *given: (fill(*given), dies()))
        with pytest.raises(RetryableError, match="lost"):
            sink.prepare(LATER)
    deliver(open_sink, batch_of(ORDERS, [order(5000, 1)]))
    found = scan(open_sink, LATER)
    assert found == [(1, "by 5000", "5000.00", 7), *((n, f"by {n}", f"{n}.00", 7) for n in range(2, 2501))]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (OnChange(renamed=Policy.LENIENT), [(10, None, "1.00", 7), (20, "by 2", "2.00", 3)]),
        (OnChange(renamed=Policy.IGNORE), [(10, "by 1", "1.00", 7), (20, "by 2", "2.00", 3)]),
        (OnChange(added=Policy.IGNORE), [(10, "by 1", "1.00", None), (20, "by 2", "2.00", None)]),
    ],
    ids=["lenient", "keeps its name", "not added"],
)
def test_columns_go_by_the_flows_policy(open_sink: Open, policy: OnChange, expected: list[tuple[Any, ...]]) -> None:
    deliver(open_sink, batch_of(ORDERS, [order(1, 10)]), on_change=policy)
    deliver(open_sink, batch_of(LATER, [later(2, 20)]), on_change=policy)
    assert scan(open_sink, LATER) == expected


def test_a_flow_may_stop_at_a_change(open_sink: Open) -> None:
    policy = OnChange(retyped=Policy.FAIL)
    deliver(open_sink, batch_of(ORDERS, [order(1, 10)]), on_change=policy)
    with pytest.raises(DataError, match="retyped in version 1: amount"):
        deliver(open_sink, batch_of(LATER, [later(2, 20)]), on_change=policy)
    text = version_of(ORDERS, 1, replace(KEY, type=pa.utf8(), source_type="varchar(9)"), NOTE, AMOUNT)
    with pytest.raises(DataError, match="the key of"):
        deliver(open_sink, batch_of(text, [Change("i", 3, {"id": "x"})]))
