"""The tide without Spark: when it holds, which rows are late, and that late rows are kept once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from headrace.errors import ConfigError
from headrace.lake.commit import Manifest
from headrace.lake.windows import windows_of
from headrace.sinks.lake import LakeConfig
from headrace.stream.late import LateRows
from headrace.stream.source import shared
from headrace.stream.tide import Changes, Instants, Sessions, Until, Windows, opening
from headrace.stream.tide_source import TideDataSource, Tides, as_watermark
from headrace.ums.change import ChangeBatch, Mark
from headrace.ums.schema import Column, Namespace, TableSchema
from headrace.watermark.wire import NEVER

TABLE = TableSchema(
    Namespace("applog", "web", "logs", "said"), (Column("at", pa.timestamp("us", "UTC"), "timestamp"),), ("at",)
)
SECOND_US = 1_000_000


def lived(seed: int) -> None:
    """Hosts append to partitions and report, a query reads with any limit; partitions come meanwhile."""
    pick, tides = Random(seed), Tides()
    log: dict[str, list[int]] = {"0": []}
    reached, newest, watermark_us, tide_us = {"0": 0}, 0, NEVER, NEVER
    for _ in range(400):
        match pick.randrange(5):
            case 0 | 1:
                newest += pick.randrange(4)
                log[pick.choice(list(log))].append(newest)
            case 2:
                watermark_us = newest
                if watermark_us > tides.newest_us:
                    tides.holds_behind({partition: len(rows) for partition, rows in log.items()}, watermark_us)
            case 3 if len(log) < 4:
                log[str(len(log))] = []
            case _:
                ends = {partition: len(rows) for partition, rows in log.items()}
                reached = shared(reached, ends, pick.randrange(1, 9))
                tide_us = max(tide_us, tides.at(reached))
        left = [us for partition, rows in log.items() for us in rows[reached.get(partition, 0) :]]
        assert all(us >= tide_us for us in left)
    for _ in range(400):
        reached = shared(reached, {partition: len(rows) for partition, rows in log.items()}, 4)
        tide_us = max(tide_us, tides.at(reached))
    assert tide_us == watermark_us


@pytest.mark.parametrize("seed", range(20))
def test_no_row_below_the_tide_is_left_to_read(seed: int) -> None:
    lived(seed)


class Hasty(Tides):
    """Takes the newest watermark, whatever is left to read."""

    def at(self, reached: Mapping[str, int]) -> int:
        return self.newest_us


class OfOnePartition(Tides):
    """Is content when it has read to the end of one."""

    def holds_behind(self, ends: Mapping[str, int], watermark_us: int) -> None:
        super().holds_behind(dict(list(ends.items())[:1]), watermark_us)


@pytest.mark.parametrize("wrong", [Hasty, OfOnePartition])
def test_wrong_tides_are_caught(wrong: type[Tides], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.test_tide.Tides", wrong)
    with pytest.raises(AssertionError):
        list(map(lived, range(20)))


def test_a_limit_is_shared_by_all_partitions() -> None:
    assert shared({}, {"0": 100, "1": 100, "2": 1}, 9) == {"0": 4, "1": 4, "2": 1}
    assert shared({"0": 90}, {"0": 100, "1": 2}, 50) == {"0": 100, "1": 2}
    assert shared({"0": 5}, {"0": 5, "1": 8}, 3) == {"0": 5, "1": 3}
    assert sum(shared({}, {str(number): 10 for number in range(7)}, 3).values()) == 3


def test_a_row_at_the_tide_is_not_late_for_spark() -> None:
    # For Spark a row is late when its time is not above the watermark, which has whole ms.
    for tide_us in (1_000_000, 1_000_001, 1_000_999, 0, -1_500):
        assert as_watermark(tide_us) % 1000 == 0
        assert tide_us > as_watermark(tide_us) >= tide_us - 1000


@pytest.mark.parametrize("until", [Windows(60), Windows(60, 20), Windows(50, 20), Windows(20, 60)])
def test_windows_end_where_sparks_do(until: Windows) -> None:
    pick = Random(1)
    length_us, every_us = round(until.length_s * 1e6), round((until.every_s or until.length_s) * 1e6)
    times = [0, -1, length_us, length_us - 1, *(pick.randrange(-(10**12), 10**12) for _ in range(500))]
    first, last = until.ends(pa.array(times, pa.int64()))
    for time_us, first_us, last_us in zip(times, first.to_pylist(), last.to_pylist(), strict=True):
        newest = time_us // every_us * every_us
        starts = [newest - every_us * back for back in range(10) if newest - every_us * back > time_us - length_us]
        if starts:
            assert (first_us, last_us) == (min(starts) + length_us, max(starts) + length_us)


def entries(ids: list[int], seconds: list[float], passed_s: float | None, batch: str) -> pa.RecordBatch:
    """What the source gives for changes of the table and a mark, and the tide's row."""
    rows = [
        {
            "_ums_id_": id_,
            "_ums_ts_": 0,
            "_ums_op_": "i",
            "_ums_commit_ts_": id_,
            "_ums_raw_": None,
            "at": round(second * SECOND_US),
        }
        for id_, second in zip(ids, seconds, strict=True)
    ]
    change = ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, schema=TABLE.arrow_schema()))
    blocks = [(str(TABLE.namespace), change.to_block()), (None, Mark("web", {}, ids[-1], 0).to_block()), (None, None)]
    passed = None if passed_s is None else round(passed_s * SECOND_US)
    columns = {
        "namespace": pa.array([name for name, _ in blocks]),
        "block": pa.array([block for _, block in blocks], pa.binary()),
        "partition": pa.array([0, 0, None], pa.int32()),
        "tide": pa.array([None, None, 5], pa.timestamp("us", "UTC")),
        "passed": pa.array([passed] * 3, pa.timestamp("us", "UTC")),
        "batch": pa.array([batch] * 3),
    }
    return pa.RecordBatch.from_pydict(columns)


def seconds_of(found: list[pa.RecordBatch]) -> list[float]:
    return [at.timestamp() for rows in found for at in rows.column("at").to_pylist()]


@pytest.mark.parametrize(
    ("until", "in_time", "late"),
    [
        (Windows(60), [70, 130], [59]),
        (Windows(60, 30), [59, 70, 130], [59]),
        (Instants(), [130], [59, 70]),
        (Sessions(10), [130, 70], [59]),
    ],
)
def test_who_is_late_is_said_by_what_is_over(
    tmp_path: Path, until: Until, in_time: list[float], late: list[float]
) -> None:
    changes = Changes([TABLE.namespace.all_versions], TABLE.arrow_schema().names)
    work = opening(changes, "at", until, tmp_path)
    assert seconds_of(list(work(iter([entries([1], [1], None, "a")])))) == [1]
    assert not list(tmp_path.iterdir())
    found = list(work(iter([entries([2, 3, 4], [130, 70, 59], 75, "b")])))
    assert sorted(seconds_of(found)) == sorted(in_time)
    [spooled] = tmp_path.iterdir()
    assert spooled.name == "b-0.arrow"
    assert sorted(at.timestamp() for at in pa.ipc.open_file(spooled).read_all().column("at").to_pylist()) == sorted(
        late
    )


def test_late_rows_are_kept_once(tmp_path: Path) -> None:
    windows = {"length": "1m", "event_time": {"logs.said": "at"}}
    lake = LakeConfig.model_validate({"type": "lake", "path": tmp_path / "late", "windows": windows})
    spool = tmp_path / "spool"
    work = opening(Changes([TABLE.namespace.all_versions], TABLE.arrow_schema().names), "at", Windows(60), spool)

    def late() -> LateRows:
        return LateRows(lake, "query", TABLE, spool, Windows(60))

    def runs(ids: list[int], seconds: list[float], batch: str) -> None:
        list(work(iter([entries(ids, seconds, 200, batch)])))

    assert late().write(0) == ()
    runs([1, 2, 3], [10, 20, 70], "a")
    made = [(each.start_us // (60 * SECOND_US), each.number, each.rows.rows) for each in late().write(1)]
    assert made == [(0, 1, 2), (1, 1, 1)]
    runs([1, 2, 3], [10, 20, 70], "a")  # worked out once more in the same batch
    runs([4], [30], "b")
    assert [(each.number, each.rows.rows) for each in late().write(2)] == [(2, 3)]
    (spool / "done").unlink()
    runs([4], [30], "b")  # run again: it was killed behind the certificate
    assert late().write(2) == []
    assert sum(file.rows for files in Manifest.open(tmp_path / "late").tables.values() for file in files) == 4
    assert [path.name for path in spool.iterdir()] == ["done"]


def late_lake(directory: Path, windows: object) -> LakeConfig:
    return LakeConfig.model_validate({"type": "lake", "path": directory / "late", "windows": windows})


@pytest.mark.parametrize("every_s", [20, 25, 7])
def test_a_row_is_kept_once_for_each_overlapping_window_that_it_is_late_for(tmp_path: Path, every_s: int) -> None:
    until, pick, spool = Windows(60, every_s), Random(every_s), tmp_path / "spool"
    lake = late_lake(tmp_path, {"length": f"{every_s}s", "event_time": {"logs.said": "window_start"}})
    late = LateRows(lake, "query", TABLE, spool, until)
    changes = Changes([TABLE.namespace.all_versions], TABLE.arrow_schema().names)
    expected: dict[int, int] = {}
    for batch, passed_s in enumerate((None, 90, 200)):
        seconds = [pick.randrange(300) for _ in range(40)]
        ids = [batch * 1000 + number for number in range(40)]
        work = opening(changes, "at", until, spool)
        rows = list(work(iter([entries(ids, list(map(float, seconds)), passed_s, str(batch))])))
        late.write(batch)
        for second in seconds:
            starts = [start for start in range(-60 * every_s, 300, every_s) if start <= second < start + 60]
            for start in starts:
                expected[start] = expected.get(start, 0) + (start + 60 <= (passed_s or -1000))
        open_rows = [second for second in seconds if (second // every_s) * every_s + 60 > (passed_s or -1000)]
        assert sorted(seconds_of(rows)) == sorted(open_rows)
    found = windows_of(Manifest.open(tmp_path / "late"), TABLE.namespace.all_versions)
    assert {window.start_us // SECOND_US: window.rows.rows for window in found} == {
        start: rows for start, rows in expected.items() if rows
    }
    assert {window.state for window in found} == {"amended"}


def test_late_rows_of_other_windows_than_the_querys_are_refused(tmp_path: Path) -> None:
    keyless = TableSchema(TABLE.namespace, TABLE.columns, ())
    taken = TableSchema(
        TABLE.namespace, (*TABLE.columns, Column("window_start", pa.timestamp("us", "UTC"), "timestamp")), ("at",)
    )
    by_time, by_window = {"logs.said": "at"}, {"logs.said": "window_start"}
    for windows, until, table, told in (
        ({"length": "5m", "event_time": by_time}, Windows(60), TABLE, "has other windows than the query"),
        ({"length": "1m"}, Windows(60), TABLE, "has other windows than the query"),
        ({"length": "1m", "event_time": by_window}, Windows(60, 20), TABLE, "has other windows than the query"),
        ({"length": "20s", "event_time": by_time}, Windows(60, 20), TABLE, "has other windows than the query"),
        ({"length": "20s", "event_time": by_window}, Windows(60, 20), keyless, "has no key"),
        ({"length": "20s", "event_time": by_window}, Windows(60, 20), taken, "has a column window_start"),
    ):
        with pytest.raises(ConfigError, match=told):
            LateRows(late_lake(tmp_path, windows), "query", table, tmp_path, until)


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="says no windows"):
        LateRows(late_lake(tmp_path, None), "query", TABLE, tmp_path, Instants())
    with pytest.raises(ConfigError, match="needs `topology`, `stage`"):
        TideDataSource({"path": "a", "topic": "t", "watermarks": "http://localhost:1"}).streamReader(None)
