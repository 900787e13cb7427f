"""What only callables have: what the function gets, and what becomes of what it raises."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, FatalError, RetryableError
from headrace.sinks.base import Position
from headrace.sinks.callable import CallableSink
from headrace.stream.refused import Part, Place, refused
from headrace.testing.sink import ORDERS, batch_of, order, version_of
from headrace.ums.change import ChangeBatch, Clear

POSITION = Position("db1", 0, 1, 1, 1)
told: list[ChangeBatch | Clear] = []
NOT_A_FUNCTION = 3


def deliver(change: ChangeBatch | Clear) -> None:
    """The function of these tests."""
    notes = change.data.column("note").to_pylist() if isinstance(change, ChangeBatch) else []
    for note, error in RAISED.items():
        if note in notes:
            raise error
    told.append(change)


RAISED: dict[str, Exception] = {
    "away": ConnectionResetError("gone"),
    "slow": TimeoutError("late"),
    "later": RetryableError("busy", fix="wait"),
    "bad": DataError("bad row", fix="mend it"),
    "fatal": FatalError("broken", fix="mend it"),
    "bug": KeyError("price"),
}


@pytest.fixture(autouse=True)
def _nothing_told() -> None:
    told.clear()


def open_sink(function: str = f"{__name__}:deliver", **settings: Any) -> CallableSink:
    return CallableSink(CallableSink.Config(type="callable", function=function, **settings), "flow")


def test_changes_come_in_order_and_together_up_to_the_most_rows() -> None:
    later = version_of(ORDERS, 1, *ORDERS.columns)
    with closing(open_sink(batch_rows=3)) as sink:
        sink.prepare(ORDERS)
        sink.write(batch_of(ORDERS, [order(1, 1), order(2, 2)]))
        assert told == []
        sink.clear(Clear(ORDERS, 3, 3))
        sink.write(batch_of(ORDERS, [order(n, n) for n in range(4, 9)]))
        sink.write(batch_of(later, [order(9, 9)]))
        sink.commit(POSITION)
    found = [
        (
            change.table.namespace.version,
            change.id if isinstance(change, Clear) else change.data.column("id").to_pylist(),
        )
        for change in told
    ]
    assert found == [(0, [1, 2]), (0, 3), (0, [4, 5, 6]), (0, [7, 8]), (1, [9])]


@pytest.mark.parametrize(
    ("note", "kind", "message"),
    [
        ("away", RetryableError, "ConnectionResetError: gone"),
        ("slow", RetryableError, "TimeoutError: late"),
        ("later", RetryableError, "busy"),
        ("bad", DataError, "bad row"),
        ("fatal", FatalError, "broken"),
        ("bug", DataError, r"KeyError: 'price' \(.*test_callable_sink\.py:\d+\)"),
    ],
)
def test_what_the_function_raises(note: str, kind: type[Exception], message: str) -> None:
    with closing(open_sink()) as sink:
        sink.prepare(ORDERS)
        sink.write(batch_of(ORDERS, [order(1, 1, note=note)]))
        with pytest.raises(kind, match=message):
            sink.commit(POSITION)


def test_the_rows_that_it_does_not_take_are_found() -> None:
    batch = batch_of(ORDERS, [order(1, 1), order(2, 2, note="bug"), order(3, 3)])
    [found] = refused([Part([Place(0, 0, n) for n in range(3)], batch, batch)], open_sink)
    assert found.row.places == [Place(0, 0, 1)]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("no.such:f", "there is no function"),
        (f"{__name__}:none", "there is no"),
        (f"{__name__}:NOT_A_FUNCTION", "is no function"),
    ],
)
def test_functions_that_are_none_are_told_by_check(function: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        open_sink(function).check()
    open_sink().check()


@pytest.mark.parametrize("wrong", ["deliver", "a:b c", ":f", "a:"])
def test_wrong_names_are_told(wrong: str) -> None:
    with pytest.raises(ValidationError):
        open_sink(wrong)
