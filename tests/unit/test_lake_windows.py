"""Windows of a lake's tables: when they close, what is certified, what amends them."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest

from headrace.errors import CorruptError
from headrace.lake.certificate import Lacking, Passed, Rounds
from headrace.lake.checked import checked, read_checked
from headrace.lake.commit import Manifest
from headrace.lake.records import Stream
from headrace.lake.watermark import CommitTimes
from headrace.lake.windows import taken_from
from headrace.storage.location import tree_at
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import TS
from tests.lake_tables import ID_NAME, ORDERS, START, changes, table
from tests.lake_windows import (
    MEMBERS,
    SECOND,
    START_US,
    caretaker,
    certified,
    closing,
    expected,
    land_until,
)


def rows(*ids: int) -> tuple[tuple[int, str, int, str], ...]:
    return tuple((id_, "iud"[id_ % 3], id_ % 7, f"row {id_}") for id_ in ids)


def test_a_window_closes_when_the_watermark_has_passed_its_end_and_not_before(tmp_path: Path) -> None:
    land_until(tmp_path, 9, changes(ID_NAME, *rows(3, 9)), offset=1)
    caretaker(tmp_path).certify()
    assert certified(tmp_path) == {}
    land_until(tmp_path, 9.999999, offset=20_000)
    caretaker(tmp_path).certify()
    assert certified(tmp_path) == {}
    land_until(tmp_path, 10, offset=40_000)
    caretaker(tmp_path).certify()
    assert certified(tmp_path) == {0: (0, 2)}
    assert caretaker(tmp_path).certify().certified_windows == 0, "once"


def test_each_member_must_have_passed(tmp_path: Path) -> None:
    windows = closing(members=[*MEMBERS, Stream("orders_lake", "db1", 1)])
    land_until(tmp_path, 30, changes(ID_NAME, *rows(3)), offset=1)
    assert caretaker(tmp_path, windows).certify().certified_windows == 0, "the other partition has said nothing yet"
    land_until(tmp_path, 8, changes(ID_NAME, *rows(5)), offset=1, partition=1)
    assert caretaker(tmp_path, windows).certify().certified_windows == 0, "it stands in the window"
    land_until(tmp_path, 12, offset=40_000, partition=1)
    assert caretaker(tmp_path, windows).certify().certified_windows == 1
    assert certified(tmp_path) == {0: (0, 2)}


def test_the_watermark_is_the_least_of_all(tmp_path: Path) -> None:
    land_until(tmp_path, 30, offset=1)
    land_until(tmp_path, 20, offset=1, partition=1)
    manifest = Manifest.open(tmp_path)
    several = [*MEMBERS, Stream("orders_lake", "db1", 1)]
    assert CommitTimes(manifest, several).low_watermark_us() == START_US + 20 * SECOND
    assert CommitTimes(manifest, [*several, Stream("orders_lake", "db1", 2)]).low_watermark_us() is None
    assert CommitTimes(manifest, []).low_watermark_us() is None, "nobody knows who brings the table"


class Told:
    """Another watermark: what somebody says."""

    name: ClassVar[str] = "told"

    def __init__(self, seconds: float | None) -> None:
        self._us = None if seconds is None else START_US + int(seconds * SECOND)

    def low_watermark_us(self) -> int | None:
        return self._us

    def lacking(self) -> tuple[Lacking, ...]:
        return (Lacking("source:web", "web7", START_US, is_abandoned=False),)


def test_any_watermark_closes_and_none_opens_again(tmp_path: Path) -> None:
    land_until(tmp_path, 1, changes(ID_NAME, *rows(3, 15, 25)), offset=1)
    windows = closing()
    until: list[tuple[int, int | None]] = []
    for seconds in (None, 12, 9, None, 31):
        watermark = Told(seconds)
        caretaker(tmp_path, replace(windows, watermark=lambda *_, told=watermark: told)).certify()
        last = Rounds(tree_at(tmp_path), ORDERS).last
        assert last is not None
        until.append((last.number, None if last.until_us is None else (last.until_us - START_US) // SECOND))
    assert until == [(1, None), (2, 10), (2, 10), (2, 10), (3, 30)]
    last = Rounds(tree_at(tmp_path), ORDERS).last
    assert last is not None
    lacking = (Lacking("source:web", "web7", START_US, is_abandoned=False),)
    assert last.watermark == Passed("told", START_US + 31 * SECOND, lacking)


def test_a_certificate_says_what_is_there(tmp_path: Path) -> None:
    batches = [changes(ID_NAME, *rows(1, 2, 3, 9, 10, 11)), changes(ID_NAME, *rows(12, 25))]
    for offset, batch in enumerate(batches, 1):
        land_until(tmp_path, 12 * offset, batch, offset=offset)
    caretaker(tmp_path).certify()
    [(_, first), (_, second)] = Rounds(tree_at(tmp_path), ORDERS).newest.values()
    sums = expected(batches)
    assert (first.rows, second.rows) == (sums[START_US], sums[START_US + 10 * SECOND])
    assert (first.id, second.id) == ((1, 9), (10, 12))
    assert first.rows.operations == {"d": 1, "i": 2, "u": 1}
    assert first.versions == (f"{ORDERS}.0.0.0",)
    files = [file.path for file in Manifest.open(tmp_path).tables[ORDERS]]
    assert (first.files, second.files) == (tuple(files[:1]), tuple(files))
    [round_] = Rounds(tree_at(tmp_path), ORDERS).all
    assert round_.watermark is not None
    assert (round_.watermark.of, round_.watermark.us) == ("commit time", START_US + 24 * SECOND)
    assert (round_.commit, round_.until_us) == (2, START_US + 20 * SECOND)
    [member] = round_.members
    assert (member.stream, member.start, member.end and member.end.offset) == (MEMBERS[0], None, 2)


def test_rounds_follow_each_other_without_a_gap_in_positions(tmp_path: Path) -> None:
    for offset in range(1, 6):
        land_until(tmp_path, offset * 10, changes(ID_NAME, *rows(offset * 10 - 5)), offset=offset)
        caretaker(tmp_path).certify()
    rounds = Rounds(tree_at(tmp_path), ORDERS).all
    assert [each.number for each in rounds] == [1, 2, 3, 4, 5]
    ends = [each.members[0].end for each in rounds]
    assert [each.members[0].start for each in rounds] == [None, *ends[:-1]]


def test_rows_that_come_late_are_a_numbered_amendment(tmp_path: Path) -> None:
    batches = [changes(ID_NAME, *rows(3, 15)), changes(ID_NAME, *rows(4, 25)), changes(ID_NAME, *rows(5))]
    land_until(tmp_path, 20, batches[0], offset=1)
    caretaker(tmp_path).certify()
    assert certified(tmp_path) == {0: (0, 1), 10: (0, 1)}
    land_until(tmp_path, 28, batches[1], offset=2)
    caretaker(tmp_path).certify()
    assert certified(tmp_path) == {0: (1, 2), 10: (0, 1)}
    land_until(tmp_path, 28, batches[2], offset=3)
    caretaker(tmp_path, None).certify()
    assert certified(tmp_path) == {0: (2, 3), 10: (0, 1)}
    assert Rounds(tree_at(tmp_path), ORDERS).newest[START_US][1].rows == expected(batches)[START_US]
    assert [each.number for round_ in Rounds(tree_at(tmp_path), ORDERS).all for each in round_.certificates] == [
        0,
        0,
        1,
        2,
    ]


def test_a_closed_window_without_rows_is_amended_as_well(tmp_path: Path) -> None:
    land_until(tmp_path, 40, changes(ID_NAME, *rows(3, 35)), offset=1)
    caretaker(tmp_path).certify()
    land_until(tmp_path, 40, changes(ID_NAME, *rows(15)), offset=2)
    caretaker(tmp_path).certify()
    assert certified(tmp_path) == {0: (0, 1), 10: (1, 1), 30: (0, 1)}


def test_compaction_changes_no_certificate(tmp_path: Path) -> None:
    for offset in range(1, 9):
        land_until(tmp_path, offset * 5, changes(ID_NAME, *rows(offset * 5 - 1, offset * 5)), offset=offset)
    tended = caretaker(tmp_path).tend(all_periods=True)
    assert (tended.certified_windows, tended.merged_files) == (4, 8)
    assert caretaker(tmp_path).certify().certified_windows == 0
    land_until(tmp_path, 41, changes(ID_NAME, *rows(2)), offset=9)
    assert caretaker(tmp_path).tend(all_periods=True).certified_windows == 1
    assert certified(tmp_path)[0] == (1, 4)


def test_what_a_purge_takes_is_recorded_and_certified_rows_stay(tmp_path: Path) -> None:
    batch = changes(ID_NAME, *rows(*range(1, 30)))
    land_until(tmp_path, 30, batch, offset=1)
    caretaker(tmp_path).certify()
    before = dict(Rounds(tree_at(tmp_path), ORDERS).newest)
    caretaker(tmp_path).purge(ORDERS, {"id": "3"}, "asked for")
    assert caretaker(tmp_path).certify().certified_windows == 0
    assert Rounds(tree_at(tmp_path), ORDERS).newest == before
    taken = taken_from(Manifest.open(tmp_path), ORDERS)
    gone = changes(ID_NAME, *(row for row in rows(*range(1, 30)) if row[2] == 3))
    assert taken == expected([gone])


def test_retention_takes_and_tells(tmp_path: Path) -> None:
    for offset in range(1, 5):
        land_until(tmp_path, offset * 10, changes(ID_NAME, *rows(*range(offset * 10 - 9, offset * 10))), offset=offset)
    caretaker(tmp_path).certify()
    before = dict(Rounds(tree_at(tmp_path), ORDERS).newest)
    assert caretaker(tmp_path, keep="1s").tend().given_up_rows > 0
    assert caretaker(tmp_path).certify().certified_windows == 0
    assert Rounds(tree_at(tmp_path), ORDERS).newest == before
    assert taken_from(Manifest.open(tmp_path), ORDERS)


CREATED = table(("id", pa.int64()), ("created", pa.timestamp("us")), ("day", pa.date32()))


def test_event_time_in_a_column(tmp_path: Path) -> None:
    def created(id_: int, seconds: int | None) -> tuple[object, ...]:
        time = None if seconds is None else START.replace(tzinfo=None) + timedelta(seconds=seconds)
        return id_, "i", id_, time, date(2026, 1, 1)

    windows = closing(event_time={"shop.orders": "created"}, delay="5s")
    land_until(tmp_path, 14, changes(CREATED, created(12, 3), created(13, 11), created(14, None)), offset=1)
    caretaker(tmp_path, windows).certify()
    assert certified(tmp_path) == {}, "the delay has not passed"
    land_until(tmp_path, 15, changes(CREATED, created(15, 9)), offset=2)
    caretaker(tmp_path, windows).certify()
    assert certified(tmp_path) == {0: (0, 2)}
    land_until(tmp_path, 26, changes(CREATED, created(26, 0)), offset=3)
    caretaker(tmp_path, windows).certify()
    assert certified(tmp_path) == {0: (1, 3), 10: (0, 2)}, "a row without the time goes by its commit"
    caretaker(tmp_path, windows).tend(all_periods=True)
    assert certified(tmp_path) == {0: (1, 3), 10: (0, 2)}


def test_event_time_is_that_of_the_change_itself(tmp_path: Path) -> None:
    """Of an HBase the commit time never goes back, and a change out of the log of a dead server comes late."""
    batch = changes(ID_NAME, *rows(12, 13, 14))
    written = pa.array(
        [START + timedelta(seconds=seconds) for seconds in (12, 3, 14)], batch.data.schema.field(TS).type
    )
    data = batch.data.set_column(batch.data.schema.get_field_index(TS), batch.data.schema.field(TS), written)
    land_until(tmp_path, 26, ChangeBatch(batch.table, data), offset=1)
    caretaker(tmp_path, closing(event_time={"shop.orders": TS})).certify()
    assert certified(tmp_path) == {0: (0, 1), 10: (0, 2)}


def test_dates_and_times_before_1970(tmp_path: Path) -> None:
    day = closing("1d", event_time={"shop.orders": "day"})
    old = changes(CREATED, (1, "i", 1, None, date(1969, 12, 31)), (2, "i", 2, None, date(1970, 1, 1)))
    land_until(tmp_path, 1, old, offset=1)
    caretaker(tmp_path, day).certify()
    assert sorted(Rounds(tree_at(tmp_path), ORDERS).newest) == [-86400 * SECOND, 0]
    by_time = closing(10, event_time={"shop.orders": "created"})
    path = tmp_path / "other"
    times = [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(1970, 1, 1), datetime(1969, 12, 31, 23, 59, 50)]  # noqa: DTZ001
    land_until(path, 1, changes(CREATED, *((n, "i", n, time, None) for n, time in enumerate(times))), offset=1)
    caretaker(path, by_time).certify()
    assert {start: each.rows.rows for start, (_, each) in Rounds(tree_at(path), ORDERS).newest.items()} == {
        -10 * SECOND: 2,
        0: 1,
    }


def test_a_column_that_is_no_time_is_told(tmp_path: Path) -> None:
    land_until(tmp_path, 30, changes(ID_NAME, *rows(3)), offset=1)
    done = caretaker(tmp_path, closing(event_time={"shop.orders": "name"})).tend()
    assert "column 'name' of mysql.db1.shop.orders.0.0.0 is string, which is no time" in done.problems[0]


def test_windows_of_another_length_are_told(tmp_path: Path) -> None:
    land_until(tmp_path, 30, changes(ID_NAME, *rows(3)), offset=1)
    caretaker(tmp_path).certify()
    done = caretaker(tmp_path, closing(60)).certify()
    assert "are 10 s by commit time since the first one, and now are to be 60 s by commit time" in done.problems[0]


def test_two_caretakers_make_each_certificate_once(tmp_path: Path) -> None:
    land_until(tmp_path, 30, changes(ID_NAME, *rows(3, 15)), offset=1)
    one, other = caretaker(tmp_path), caretaker(tmp_path)
    assert [one.certify().certified_windows, other.certify().certified_windows] == [2, 0]
    assert [each.number for each in Rounds(tree_at(tmp_path), ORDERS).all] == [1]


def test_damaged_rounds_are_named(tmp_path: Path) -> None:
    for offset in (1, 2):
        land_until(tmp_path, offset * 10, changes(ID_NAME, *rows(offset * 10 - 5)), offset=offset)
        caretaker(tmp_path).certify()
    first, second = sorted((tmp_path / Rounds(tree_at(tmp_path), ORDERS).directory).iterdir())
    whole = first.read_bytes()
    first.write_bytes(whole.replace(b'"commit":1', b'"commit":2'))
    with pytest.raises(CorruptError, match="its checksum differs"):
        _ = Rounds(tree_at(tmp_path), ORDERS).all
    first.unlink()
    with pytest.raises(CorruptError, match=r"1\.json is not what was written: it is missing, but later rounds exist"):
        Rounds(tree_at(tmp_path), ORDERS)
    first.write_bytes(second.read_bytes())
    with pytest.raises(CorruptError, match="it holds round 2"):
        _ = Rounds(tree_at(tmp_path), ORDERS).all


def test_lost_rows_get_no_amendment(tmp_path: Path) -> None:
    land_until(tmp_path, 20, changes(ID_NAME, *rows(3, 4, 5)), offset=1)
    caretaker(tmp_path).certify()
    commit = tmp_path / "_headrace" / "commits" / f"{1:020d}.json"
    content = read_checked(tree_at(commit.parent), commit.name)
    content["landing"]["added"] = []
    commit.write_bytes(checked(content))
    land_until(tmp_path, 21, changes(ID_NAME, *rows(6)), offset=2)
    with pytest.raises(CorruptError, match="has lost rows that were certified"):
        caretaker(tmp_path).certify()
    assert certified(tmp_path) == {0: (0, 3)}
