"""What the logs on HDFS and S3 do beyond the contract: retention, merging, and what users can do wrong. On real servers."""

from __future__ import annotations

from collections.abc import Callable

import obstore
import pytest

from headrace.errors import ConfigError, FatalError, FencedError
from headrace.log.base import Entry, Span
from headrace.log.retention import Retention
from headrace.log.shared import s3 as units
from headrace.log.shared.hdfs import HdfsLog
from headrace.log.shared.log import SharedLog
from headrace.log.shared.s3 import S3Log
from headrace.storage.hdfs import HdfsFileStore
from headrace.storage.options import HdfsOptions, S3Options
from headrace.storage.s3 import S3FileStore
from tests.servers.hdfs import Hdfs
from tests.servers.s3 import BUCKET, S3

EVERYTHING = Span(0, 1 << 60)
Open = Callable[..., SharedLog]


@pytest.fixture(params=["hdfs", "s3"])
def open_log(request: pytest.FixtureRequest) -> Open:
    server = request.getfixturevalue(request.param)
    place = server.place()
    if isinstance(server, Hdfs):
        return lambda **more: HdfsLog(HdfsLog.Config.model_validate({"path": place, "web": server.web, **more}))
    assert isinstance(server, S3)
    return lambda **more: S3Log(S3Log.Config.model_validate({"path": place, **server.options(), **more}))


def fill(log: SharedLog, appends: int, minutes_apart: int = 0) -> None:
    for number in range(appends):
        log.append("t", 0, [Entry(b"k", b"%d" % number + b"v" * 300, number * minutes_apart * 60_000)])


def numbers(log: SharedLog, span: Span = EVERYTHING) -> list[int]:
    return [int(record.entry.value.rstrip(b"v")) for record in log.read("t", 0, span)]


def test_retention_drops_whole_files_and_readers_are_told(open_log: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MOST_UNITS", 4)
    log, reader = open_log(segment_bytes=1000, retention=Retention(age_s=7200)), open_log()
    fill(log, 10)
    assert len(numbers(reader)) == 10
    fill(log, 30, minutes_apart=20)
    log.close()
    kept = reader.spans("t")[0]
    assert 20 < kept.start < 38
    assert numbers(reader, kept) == list(range(kept.start - 10, 30))
    with pytest.raises(FatalError, match=f"the log starts at {kept.start}"):
        numbers(reader)
    with pytest.raises(FatalError, match="is no longer kept"):
        numbers(open_log(), Span(0, 5))


def test_topics_and_figures(open_log: Open) -> None:
    with pytest.raises(ConfigError, match="there is no log at"):
        open_log().topics()
    log = open_log()
    for topic in ("db1", "a/b", "ü %2F"):
        log.append(topic, 2, [Entry(b"k", b"v", 0)])
    assert log.topics() == ["a/b", "db1", "ü %2F"]
    assert log.statistics("db1", 2) == {"files": 1, "bytes": 62}
    log.close()


@pytest.mark.parametrize("store", ["hdfs", "s3"])
def test_a_place_of_other_things_is_not_made_a_log(request: pytest.FixtureRequest, store: str) -> None:
    server = request.getfixturevalue(store)
    place = server.place()
    log: SharedLog
    if isinstance(server, Hdfs):
        assert HdfsFileStore(place, HdfsOptions(web=server.web)).create("photos/one", b"x")
        log = HdfsLog(HdfsLog.Config(path=place, web=server.web))
    else:
        assert S3FileStore(place, S3Options(**server.options())).create("photos/one", b"x")
        log = S3Log(S3Log.Config(path=place, **server.options()))
    for use in (lambda: log.append("t", 0, [Entry(b"k", b"v", 0)]), log.topics):
        with pytest.raises(ConfigError, match="is not a log: it holds photos"):
            use()


def test_files_are_made_once_on_every_store(s3: S3, hdfs: Hdfs) -> None:
    for store in (
        S3FileStore(s3.place(), S3Options(**s3.options())),
        HdfsFileStore(hdfs.place(), HdfsOptions(web=hdfs.web)),
    ):
        assert list(store.files("a")) == []
        assert store.create("a/b %41", b"first")
        assert not store.create("a/b %41", b"second")
        assert store.read("a/b %41", 1, 4) == b"irs"
        assert store.create("a/c", b"")
        assert [tuple(found) for found in store.files("a")] == [("b %41", 5), ("c", 0)]
        assert [found.name for found in store.files("a", "b %41")] == ["c"]
        assert store.names("") == ["a"]
        store.delete("a/c")
        store.delete("a/c")
        assert store.names("a") == ["b %41"]
        with pytest.raises(FileNotFoundError):
            store.read("a/c", 0, 1)


def test_many_units_become_few_objects(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MOST_UNITS", 50)
    place = s3.place()
    log = S3Log(S3Log.Config.model_validate({"path": place, **s3.options()}))
    reader = S3Log(S3Log.Config.model_validate({"path": place, **s3.options()}))
    assert numbers(reader) == []
    for _ in range(3):
        fill(log, 50)
        log.close()  # waits for the merge
        assert numbers(reader)[-50:] == list(range(50))
    assert log.statistics("t", 0)["files"] < 10
    objects = obstore.list(s3.store(), f"{place.removeprefix(f's3://{BUCKET}/')}/t").collect()
    assert len(objects) < 10


@pytest.mark.parametrize("was_empty", [True, False])
def test_a_writer_that_slept_stays_out_though_its_offset_was_merged_away(s3: S3, was_empty: bool) -> None:
    place = s3.place()

    def opened() -> S3Log:
        return S3Log(S3Log.Config.model_validate({"path": place, **s3.options()}))

    sleeper, other = opened(), opened()
    if was_empty:
        sleeper.append("t", 0, [])
    else:
        fill(sleeper, 1)
    fill(other, 3)
    merge(other)
    before = numbers(opened())
    for _ in range(2):
        with pytest.raises(FencedError, match="taken over by another writer"):
            fill(sleeper, 1)
    assert numbers(opened()) == before
    fill(other, 1)
    assert numbers(opened()) == [*before, 0]


def test_a_mark_that_comes_where_units_were_merged_away_stops_nobody_and_the_writer_marks_again(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = s3.place()

    def opened() -> S3Log:
        return S3Log(S3Log.Config.model_validate({"path": place, **s3.options()}))

    first, second = opened(), opened()
    fill(first, 1)
    create, asked = S3FileStore.create, []

    def after_a_sleep(self: S3FileStore, path: str, content: bytes) -> bool:
        if path.startswith("t/") and not asked:
            asked.append(path)
            fill(first, 3)
            merge(first)
        if path.startswith("t/"):
            asked.append(path)
        return create(self, path, content)

    monkeypatch.setattr(S3FileStore, "create", after_a_sleep)
    fill(second, 2)
    monkeypatch.undo()
    assert numbers(opened()) == [0, 0, 1, 2, 0, 1]
    with pytest.raises(FencedError):
        fill(first, 1)
    merge(second)
    assert numbers(opened()) == [0, 0, 1, 2, 0, 1]


def merge(log: S3Log) -> None:
    writer = log._writers["t", 0]
    assert isinstance(writer, units.UnitWriter)
    writer._merger.merge()


def test_objects_read_one_after_the_other_are_read_with_a_request_each(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    place, asked = s3.place(), []
    log = S3Log(S3Log.Config.model_validate({"path": place, **s3.options()}))
    for _ in range(8):
        log.append("t", 0, [Entry(b"k", b"v" * 1_000_000, 0)])
    store_read = S3FileStore.read

    def read(store: S3FileStore, path: str, start: int, stop: int) -> bytes:
        asked.append(path)
        return store_read(store, path, start, stop)

    monkeypatch.setattr(S3FileStore, "read", read)
    reader = S3Log(S3Log.Config.model_validate({"path": place, **s3.options()}))
    end = reader.spans("t")[0].stop
    asked.clear()
    assert len(list(reader.read("t", 0, Span(0, end)))) == 8
    assert all(asked.count(path) == 1 for path in sorted(set(asked))[1:]), asked
    log.close()


def test_a_wrong_login_and_a_missing_bucket(s3: S3) -> None:
    wrong = S3Log(S3Log.Config.model_validate({"path": s3.place(), **s3.options(), "secret_key": "wrong"}))
    missing = S3Log(S3Log.Config.model_validate({"path": "s3://no-such-bucket/log", **s3.options()}))
    for log, message in ((wrong, "refuses to list"), (missing, "there is no bucket for s3://no-such-bucket/log")):
        for use in (
            lambda log=log: log.append("t", 0, [Entry(b"k", b"v", 0)]),
            log.topics,
            lambda log=log: log.spans("t"),
        ):
            with pytest.raises(ConfigError, match=message) as raised:
                use()
            assert raised.value.fix
