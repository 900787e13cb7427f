"""Tables that change under a loader, and partitions that it makes ahead, on the stand-in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from headrace.errors import ConfigError, DataError
from tests.doris_loading import DUPLICATE, Loading, Messages, taken
from tests.servers.doris import Doris

PARTITIONED = (
    "CREATE TABLE t (id BIGINT NOT NULL, day {kind} NOT NULL) DUPLICATE KEY(id) PARTITION BY RANGE(day) ({parts})"
    " DISTRIBUTED BY HASH(id) BUCKETS 1{props}"
)
LABEL = "^hr-load_er-t-[0-9a-f]{8}-0"


@pytest.fixture
def doris() -> Iterator[Doris]:
    with Doris() as server:
        yield server


def of_days(doris: Doris, folder: Path, days: list[datetime], form: str = "%Y-%m-%d", **settings: object) -> Loading:
    """A loader of one message for each day."""
    values = [json.dumps({"id": n, "day": day.strftime(form)}).encode() for n, day in enumerate(days)]
    made = Loading(doris, folder, {}, **settings)
    made.source = Messages({"t/0": len(values)}, lambda place, offset: taken(place, offset, values[offset]))
    return made


def names(doris: Doris) -> list[str]:
    return [one.name for one in doris.store.table("db", "t").partitions]


@pytest.mark.parametrize("kind", ["DATE", "DATETIME"])
def test_partitions_are_made_ahead(doris: Doris, tmp_path: Path, kind: str) -> None:
    today = datetime.fromtimestamp(doris.clock.now, UTC)
    day = timedelta(days=1)
    before = f'PARTITION before VALUES LESS THAN ("{today - day:%Y-%m-%d}"), PARTITION there VALUES [("{today + day:%Y-%m-%d}"), ("{today + 2 * day:%Y-%m-%d}"))'
    doris.sql(PARTITIONED.format(kind=kind, parts=before, props=""))
    form = "%Y-%m-%d" if kind == "DATE" else "%Y-%m-%d %H:%M:%S"
    days = [today + n * day for n in range(-3, 4)]
    made = of_days(doris, tmp_path, days, form, partitions={"ahead": 3, "back": 1})
    made.run()
    assert len(doris.rows("t")) == len(days)
    wanted = [f"p{today + n * day:%Y%m%d}" for n in (-1, 0, 2, 3)]
    assert sorted(names(doris)) == sorted(["before", "there", *wanted])
    made.run()  # all are there
    assert len(names(doris)) == 6


def test_partitions_are_made_while_time_goes_on(doris: Doris, tmp_path: Path) -> None:
    today = datetime.fromtimestamp(doris.clock.now, UTC)
    days = [today + timedelta(days=n) for n in range(0, 40, 2)]
    doris.sql(PARTITIONED.format(kind="DATE", parts="", props=""))
    settings = {"partitions": {"ahead": 1}, "look_every": 0.001, "batch_rows": 1, "in_flight": 1}
    made = of_days(doris, tmp_path, days, **settings)
    take = made.source.take

    def at_its_time(timeout_s: float) -> list[object]:
        found = take(timeout_s)[:3]
        if found:
            doris.clock.now = days[found[-1].offset].timestamp()
        return found  # type: ignore[return-value]

    made.source.take = at_its_time  # type: ignore[method-assign,assignment]
    made.settings["partitions"] = {"ahead": 1, "back": 5}
    made.run()
    assert len(doris.rows("t")) == len(days)


def test_a_row_that_no_partition_is_for_is_told(doris: Doris, tmp_path: Path) -> None:
    today = datetime.fromtimestamp(doris.clock.now, UTC)
    doris.sql(PARTITIONED.format(kind="DATE", parts="", props=""))
    made = of_days(doris, tmp_path, [today, today + timedelta(days=90)], partitions={})
    with pytest.raises(DataError, match="no partition for this tuple"):
        made.run()


def test_partitions_that_doris_makes_itself_are_left_to_it(doris: Doris, tmp_path: Path) -> None:
    props = ' PROPERTIES ("dynamic_partition.enable" = "true")'
    doris.sql(PARTITIONED.format(kind="DATE", parts="", props=props))
    made = of_days(doris, tmp_path, [], partitions={})
    with pytest.raises(ConfigError, match="take `partitions` out"):
        made.run()
    doris.sql("DROP TABLE t")
    doris.sql(PARTITIONED.format(kind="BIGINT", parts="", props=""))
    with pytest.raises(ConfigError, match="which is bigint: none of a day can be made"):
        made.run()


@pytest.mark.parametrize("two_phase", [False, True], ids=["one phase", "two phases"])
def test_a_column_that_goes_while_a_load_is_under_way(doris: Doris, tmp_path: Path, two_phase: bool) -> None:
    doris.sql(DUPLICATE)
    doris.sql("ALTER TABLE t ADD COLUMN `more` STRING NULL")
    made = Loading(doris, tmp_path, {"t/0": 20}, two_phase=two_phase)
    doris.faults.add("be_fail", LABEL, times=2, text="err=-235")
    waited = count()
    made.slept = lambda: doris.sql("ALTER TABLE t DROP COLUMN `more`") if next(waited) == 0 else None
    made.run_through()
    made.check()
    assert next(waited) > 0


def test_a_column_that_comes_is_filled(doris: Doris, tmp_path: Path) -> None:
    doris.sql(DUPLICATE)
    made = Loading(doris, tmp_path, {"t/0": 10}, look_every=0.001, in_flight=1)
    made.run()
    grown = made.source.grown

    def comes() -> dict[str, int]:
        if not any(one.name == "more" for one in doris.store.table("db", "t").fields):
            doris.sql("ALTER TABLE t ADD COLUMN `more` STRING NULL")
        return grown()

    made.source.ends["t/0"] = 20
    made.source.grown = comes  # type: ignore[method-assign]
    made.run()
    made.check()
    assert sorted(doris.rows("t", "off, more")) == [(n, None if n < 10 else "x" * 20) for n in range(20)]
