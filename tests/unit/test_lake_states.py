"""States: when they are due, what makes them void, and that reading uses them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.lake.asof import as_of, snapshot
from headrace.lake.commit import Manifest
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.ums.change import Clear
from tests.lake_tables import ID_NAME, ORDERS, at, changes, land, open_sink, rows, table


def tended(path: Path, state_changes: int = 4) -> Manifest:
    assert not Caretaker(path, Policy(state_changes=state_changes)).tend(all_periods=True).problems
    return Manifest.open(path)


def ids_of_states(manifest: Manifest) -> list[int]:
    return [state.id for state in manifest.states.get(ORDERS, [])]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Twelve changes of four keys, one file each four."""
    for offset in range(3):
        first = offset * 4 + 1
        land(
            tmp_path,
            changes(ID_NAME, *((first + n, "iud"[offset], n, f"{first + n}") for n in range(4))),
            offset=offset + 1,
        )
    return tmp_path


def test_a_state_is_due_after_as_many_changes_as_are_live(path: Path) -> None:
    assert ids_of_states(tended(path, state_changes=5)) == [12]


def test_reading_begins_with_the_newest_state_before_the_moment(path: Path) -> None:
    Caretaker(path, Policy(state_changes=4, period=1)).tend()
    manifest = Manifest.open(path)
    assert ids_of_states(manifest) == [4, 8, 12]
    for file in manifest.tables[ORDERS][:2]:
        (path / file.path).write_text("read by nobody any more")
    (part,) = snapshot(manifest, ORDERS, id=9).parts
    assert [file.id for file in part.base] == [(5, 8)]
    assert [file.id for file in part.files] == [(9, 12)]


def test_a_change_that_comes_late_makes_a_state_void(path: Path) -> None:
    tended(path)
    land(path, changes(ID_NAME, (-3, "i", 0, "old"), (-2, "i", 9, "late")), offset=9)
    assert rows(as_of(path, ORDERS)) == [(9, "late")], "a deleted row stays deleted"
    before = {state.name for state in Manifest.open(path).states[ORDERS]}
    assert before.isdisjoint(state.name for state in tended(path).states[ORDERS])
    assert rows(as_of(path, ORDERS)) == [(9, "late")]


def test_a_clear_ends_what_a_state_has(path: Path) -> None:
    tended(path)
    sink = open_sink(path)
    sink.clear(Clear(ID_NAME, 20, 20_000_000))
    sink.write(changes(ID_NAME, (21, "i", 5, "new")))
    sink.commit(at(9))
    sink.close()
    assert rows(as_of(path, ORDERS)) == [(5, "new")]
    assert ids_of_states(tended(path)) == [12], "one change is not worth another"
    assert rows(as_of(path, ORDERS)) == [(5, "new")]
    assert len(rows(as_of(path, ORDERS, id=8))) == 4


def test_a_table_without_a_key_has_none(tmp_path: Path) -> None:
    log = table(("text", pa.utf8()), key=())
    land(tmp_path, changes(log, *((n, "u", "x") for n in range(1, 20))))
    assert ids_of_states(tended(tmp_path)) == []


def test_keys_of_several_columns(tmp_path: Path) -> None:
    pairs = table(("a", pa.int64()), ("b", pa.utf8()), ("v", pa.int64()), key=("a", "b"))
    land(tmp_path, changes(pairs, *((n, "i", n % 3, f"{n % 2}", n) for n in range(1, 7))), offset=1)
    tended(tmp_path)
    land(tmp_path, changes(pairs, (7, "d", 0, "0", 0), (8, "u", 1, "1", 88)), offset=2)
    (part,) = snapshot(Manifest.open(tmp_path), ORDERS).parts
    assert part.base
    assert rows(as_of(tmp_path, ORDERS)) == [(0, "1", 3), (1, "0", 4), (1, "1", 88), (2, "0", 2), (2, "1", 5)]
