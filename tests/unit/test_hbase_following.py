"""Files of HBase's log that move, are lost, come twice or are none, and the order in which regions go from server to server.

The log is made by tests/hbase_bytes.py; that HBase writes the same is shown by tests/oracle and tests/faults.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.capture.hbase import following
from headrace.capture.hbase.client import HBaseWalClient, RowChange
from headrace.capture.hbase.following import Following
from headrace.capture.hbase.places import LocalFiles
from headrace.capture.hbase.source import HBaseSource
from headrace.errors import ConfigError, SourceError
from headrace.ums.change import ChangeBatch, Mark
from tests.hbase_bytes import TABLE, TRAILER, cell, entry, opened, put, wal


class Root:
    """A directory like HBase's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "oldWALs").mkdir(parents=True)

    def write(self, server: str, created: int, content: bytes) -> Path:
        path = self.path / "WALs" / server / f"{server}.{created:013}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def archive(self, path: Path) -> Path:
        return path.rename(self.path / "oldWALs" / path.name)


class Reader:
    """What a `Following` hands out, taken until it has nothing more."""

    def __init__(self, root: Root, position: dict[str, Any] | None = None, start_ms: int = 0, **more: Any) -> None:
        store = LocalFiles(root.path)
        self.following = Following(store, ["*:*"], start_ms, position, sleep=lambda _: None, **more)

    def take(self) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        self.following.look()
        while True:
            for piece in self.following.take():
                regions, sequences = (
                    piece.batch.entries["region"].to_pylist(),
                    piece.batch.entries["sequence"].to_pylist(),
                )
                found += [(region.decode(), sequence) for region, sequence in zip(regions, sequences, strict=True)]
            if self.following.needs_look:
                self.following.look()
            elif self.following.caught_up:
                return found


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path / "hbase")


def of_region(found: Iterable[tuple[str, int]], region: str) -> list[int]:
    return [sequence for name, sequence in found if name == region]


def test_a_region_that_moves_keeps_its_order(root: Root) -> None:
    """`a` comes before `z` by name, and has what was written later: r goes from z to a and back, s from a to z."""
    root.write(
        "a", 1, wal(put("s", 1, "x"), opened("r", 10, 2000), put("r", 11, "x"), put("r", 12, "x"), put("a", 1, "x"))
    )
    back = (opened("r", 20, 3000), put("r", 21, "x"))
    root.write("z", 1, wal(opened("r", 2, 500), put("r", 3, "x"), opened("s", 5, 2500), put("s", 6, "x"), *back))
    found = Reader(root).take()
    assert of_region(found, "r") == [2, 3, 10, 11, 12, 20, 21]
    assert of_region(found, "s") == [1, 5, 6]


def test_a_region_whose_old_log_is_found_only_after_its_new_one(root: Root) -> None:
    root.write("a", 1, wal(opened("r", 10, 2000), put("r", 11, "x")))
    reader = Reader(root)
    reader.following.look()
    assert not reader.following.take()
    root.write("z", 1, wal(put("r", 3, "x")))
    assert reader.take() == [("r", 3), ("r", 10), ("r", 11)]


def test_reading_goes_on_at_any_entry_while_files_move(root: Root) -> None:
    first, second = [put("r", number, "x") for number in range(1, 6)], [put("r", number, "x") for number in range(6, 9)]
    path = root.write("a", 1, wal(*first[:2]))
    reader = Reader(root)
    assert of_region(reader.take(), "r") == [1, 2]
    with path.open("ab") as file:
        file.write(first[2] + first[3][:7])
    assert of_region(reader.take(), "r") == [3]
    position = reader.following.to_json()
    path.write_bytes(wal(*first) + TRAILER)
    splitting = path.parent.rename(path.parent.with_name("a-splitting")) / path.name
    root.write("a", 2, wal(*second))
    assert of_region(Reader(root, position).take(), "r") == [4, 5, 6, 7, 8]
    root.archive(splitting)
    assert of_region(reader.take(), "r") == [4, 5, 6, 7, 8]
    assert set(reader.following.to_json()["files"].values()) == {-1, len(wal(*second))}


def test_what_was_written_again_into_the_next_file_comes_once(root: Root) -> None:
    root.write("a", 1, wal(opened("r", 1), put("r", 2, "x"), put("r", 3, "x"), put("q", 7, "x")))
    reader = Reader(root)
    reader.take()
    position = reader.following.to_json()
    root.write("a", 2, wal(put("r", 3, "x"), put("q", 7, "x"), put("r", 4, "x")))
    assert Reader(root, position).take() == [("r", 4)]
    assert reader.take() == [("r", 4)]


def test_a_server_adds_to_a_file_until_it_writes_into_the_next_one(root: Root) -> None:
    path = root.write("a", 1, wal(put("r", 1, "x")))
    reader = Reader(root)
    assert reader.take() == [("r", 1)]
    following = root.write("a", 2, wal())
    assert reader.take() == []
    with path.open("ab") as file:
        file.write(put("r", 2, "x"))
    assert reader.take() == [("r", 2)]
    with path.open("ab") as file:
        file.write(put("r", 3, "x"))
    following.write_bytes(wal(put("r", 4, "x")))
    assert reader.take() == [("r", 3), ("r", 4)]
    assert reader.following.to_json()["files"][path.name] == -1
    root.write("a", 3, wal())
    following.write_bytes(wal(put("r", 4, "x"), put("r", 5, "x")) + TRAILER)
    assert reader.take() == [("r", 5)]
    assert reader.following.to_json()["files"][following.name] == -1, "it was closed"


def test_a_file_that_is_followed_by_closed_ones_is_over(root: Root) -> None:
    """As when a server has lost a file, and wrote nothing into the next one."""
    root.write("a", 1, wal(put("r", 1, "x")))
    root.write("a", 2, wal() + TRAILER)
    root.write("a", 3, wal())
    reader = Reader(root)
    assert reader.take() == [("r", 1)]
    assert list(reader.following.to_json()["files"].values()) == [-1, -1, 0]


def test_a_region_that_begins_anew(root: Root) -> None:
    root.write("a", 1, wal(put("r", 50, "x")))
    root.write("a", 2, wal(opened("r", 2), put("r", 3, "x")))
    assert Reader(root).take() == [("r", 50), ("r", 2), ("r", 3)]


def test_a_file_that_was_deleted_before_it_was_read(root: Root) -> None:
    path = root.write("a", 1, wal(put("r", 1, "x")))
    reader = Reader(root)
    reader.take()
    position = reader.following.to_json()
    path.unlink()
    root.write("a", 2, wal(put("r", 9, "x")))
    with pytest.raises(
        SourceError, match=r"deleted before they were read to their end: a\.0+1 \(read up to byte 57\)"
    ) as lost:
        Reader(root, position).take()
    assert "hbase.master.logcleaner.ttl" in lost.value.fix
    forgiving = Reader(root, position, forgives=True)
    assert forgiving.take() == [("r", 9)]
    assert len(forgiving.following.take_notices()) == 1


def test_a_file_that_was_read_to_its_end_may_go(root: Root) -> None:
    path = root.archive(root.write("a", 1, wal(put("r", 1, "x"))))
    reader = Reader(root)
    assert reader.take() == [("r", 1)]
    path.unlink()
    assert reader.take() == []
    assert reader.following.to_json()["files"] == {}


def test_files_of_the_master_are_no_log(root: Root) -> None:
    old = root.path / "oldWALs"
    (old / "pv2-00000000000000000001.log").write_bytes(b"\x0a\x02\x08\x01")
    (old / "pv2-00000000000000000002.log").write_bytes(wal(put("r", 1, "x")))
    (old / "m%2C1%2C2.0000000000003$masterlocalwal$").write_bytes(b"anything")
    (old / "a.meta.0000000000003.meta").write_bytes(wal(put("meta", 1, "x")))
    reader = Reader(root)
    assert reader.take() == [("r", 1)]
    [notice] = reader.following.take_notices()
    assert notice.startswith("oldWALs/pv2-00000000000000000001.log is passed over")


def test_from_a_time_on(root: Root) -> None:
    root.write("a", 1, b"damaged, and over before that time")
    root.write("a", 2000, wal(put("r", 1, "x", 2500), put("r", 2, "x", 3500), put("r", 3, "x", 3600)))
    assert Reader(root, start_ms=3000).take() == [("r", 2), ("r", 3)]


def source(root: Root, tmp_path: Path, **config: Any) -> HBaseSource:
    raw = {"name": "crm", "root": str(root.path), "tables": {"shop:*": {"row": "text"}}} | config
    return HBaseSource(HBaseSource.Config.model_validate(raw), tmp_path / "state", sleep=lambda _: None)


def rows_of(source: HBaseSource, start: Mark | None = None) -> tuple[list[dict[str, Any]], Mark]:
    rows: list[dict[str, Any]] = []
    for event in source.follow(start):
        rows += [row for change in event.changes if isinstance(change, ChangeBatch) for row in change.data.to_pylist()]
        if event.caught_up:
            assert event.mark is not None
            return rows, event.mark
    raise AssertionError("a source ends")


def test_columns_are_what_was_put_and_what_is_no_value_is_kept(root: Root, tmp_path: Path) -> None:
    number = struct.pack(">q", -7)
    cells = [
        cell(b"k1", b"d", b"n", number, 5),
        cell(b"k1", b"d", b"n", struct.pack(">q", 1), 4),
        cell(b"k1", b"d", b"t", b"caf\xc3\xa9"),
        cell(b"k2", b"d", b"n", b"short"),
        cell(b"k2", b"d", b"t", b"", kind=12),
        cell(b"k1", b"d", b"", b"", kind=14),
    ]
    root.write("a", 1, wal(entry("r", 3, *cells, written=1_700_000_000_123)))
    columns = {"n": {"cell": "d:n", "type": "long"}, "t": {"cell": "d:t"}}
    tables = {TABLE: {"row": "text", "columns": columns}}
    rows, _ = rows_of(source(root, tmp_path, tables=tables))
    shown = [(row["row"], row["cell"], row["kind"], row["n"], row["t"], row["_ums_raw_"]) for row in rows]
    assert shown == [
        ("k1", 0, "put", -7, "café", None),
        ("k2", 3, "mixed", None, None, '{"n": "c2hvcnQ="}'),
        ("k1", 5, "delete", None, None, None),
    ]
    assert rows[1]["cells"] == (
        '[{"family":"d","qualifier":"n","timestamp":1,"kind":"put","value":"short"},'
        '{"family":"d","qualifier":"t","timestamp":1,"kind":"delete column"}]'
    )
    assert '"value_base64":"//////////k="' in rows[0]["cells"]
    assert rows[0]["_ums_ts_"].timestamp() == 1_700_000_000.123


def test_capture_goes_on_behind_a_gap_when_it_is_told_to(root: Root, tmp_path: Path) -> None:
    path = root.write("a", 1, wal(put("r", 1, "x")))
    _, mark = rows_of(source(root, tmp_path))
    with pytest.raises(ConfigError, match="nothing to skip"):
        source(root, tmp_path).skip(mark, "earliest")
    path.unlink()
    root.write("a", 2, wal(put("r", 9, "x", 5000)))
    [finding] = source(root, tmp_path).check(mark)
    assert finding.stops
    skipped = source(root, tmp_path).skip(mark, "earliest")
    assert skipped.id > mark.id
    rows, newest = rows_of(source(root, tmp_path), skipped)
    assert [row["sequence"] for row in rows] == [9]
    assert rows[0]["_ums_id_"] > skipped.id
    assert newest.commit_ts_us == 5_000_000
    later, _ = rows_of(source(root, tmp_path), source(root, tmp_path).skip(mark, "1970-01-01T00:00:06"))
    assert later == []


def test_a_place_without_a_log(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="neither WALs nor oldWALs"):
        HBaseWalClient(str(tmp_path / "empty")).poll()


def test_a_listener_that_fails_gets_the_same_again(root: Root) -> None:
    root.write("a", 1, wal(put("r", 1, "x"), put("r", 2, "y")))
    client, found = HBaseWalClient(str(root.path)), list[int]()

    def listener(change: RowChange) -> None:
        found.append(change.sequence)
        if found == [1, 2]:
            raise RuntimeError("the target is away")

    client.on_change(listener)
    with pytest.raises(RuntimeError, match="away"):
        client.poll()
    while client.poll():
        pass
    assert found == [1, 2, 1, 2]
    later = HBaseWalClient(str(root.path), position=client.position)
    later.on_change(listener)
    while later.poll():
        pass
    assert found == [1, 2, 1, 2]


def test_how_far_all_logs_are_together(root: Root) -> None:
    """The log of a server that is gone holds the time up until it is drained; one that is quiet does not."""
    root.write("a", 100, wal(put("q", 1, "x", written=5000)))
    dead = root.write("z", 200, wal(opened("r", 10, 2000), put("r", 11, "x", written=3000)))
    root.archive(dead)
    reader = Reader(root)
    following = reader.following
    following.look()
    assert len(following.take()) == 1
    assert following.low_ms(looked_ms=9000) == 200
    assert of_region(reader.take(), "r") == [10, 11]
    assert following.low_ms(looked_ms=9000) == 9000
    following.look()
    assert following.low_ms(looked_ms=9500) == 5000
    assert not following.take()
    assert following.low_ms(looked_ms=9500) == 9500


@pytest.mark.parametrize("seed", range(20))
def test_nothing_comes_behind_what_was_told_to_be_complete(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Logs of live and dead servers, of which only a few entries are read at a time, and which are archived meanwhile."""
    monkeypatch.setattr(following, "_CELLS_AT_ONCE", 5)
    chance, files = random.Random(seed), list[Path]()
    for server in "abcd":
        written, sequence = 1000 + chance.randrange(3000), 1
        for _ in range(chance.randrange(1, 4)):
            created, entries = written, list[bytes]()
            for _ in range(chance.randrange(8)):
                entries.append(put(server, sequence, "x", written))
                written, sequence = written + chance.randrange(800), sequence + 1
            files.append(root.write(server, created, wal(*entries)))
            written += 1
        if chance.random() < 0.5:
            dead = root.path / "WALs" / server
            files = [path for path in files if path.parent != dead]
            dead.rename(dead.with_name(f"{server}-splitting"))
    told, rows = list[int](), list[tuple[int, int]]()
    for number, event in enumerate(source(root, tmp_path, clock_skew=0).follow(None)):
        changes = [change for change in event.changes if isinstance(change, ChangeBatch)]
        times = [time for change in changes for time in change.data["_ums_ts_"].cast(pa.int64()).to_pylist()]
        rows += [(number, time) for time in times]
        told.append(event.progress.passed_us["crm"])
        if files and chance.random() < 0.3:
            root.archive(files.pop(0))
        if event.caught_up:
            break
    assert not [(number, time) for number, time in rows if number and time < max(told[:number])]
    assert told[-1] > max((time for _, time in rows), default=0)


def test_the_source_reports_what_is_complete(root: Root, tmp_path: Path) -> None:
    root.write("a", 1000, wal(put("q", 1, "x", written=5000)))
    config = HBaseSource.Config.model_validate(
        {"name": "crm", "root": str(root.path), "tables": {"*:*": {}}, "clock_skew": 2}
    )
    events = HBaseSource(config, tmp_path / "state", clock=lambda: 9.0, sleep=lambda _: None).follow(None)
    assert next(events).progress.passed_us == {"crm": 3_000_000}
    assert next(events).progress.passed_us == {"crm": 7_000_000}


def test_a_client_s_tables_are_names(root: Root) -> None:
    for wrong in ("shop:*", ["a:b:c"], [""]):
        with pytest.raises(ConfigError, match="is no name of a table") as told:
            HBaseWalClient(str(root.path), tables=wrong)
        assert told.value.fix
