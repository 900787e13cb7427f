"""Log files: what a capture reads of them, to the byte, and what it says when something is lost. Rotation at random: tests/property."""

from __future__ import annotations

import bz2
import gzip
import os
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.capture.applog import copies, listing
from headrace.capture.applog.content import Content
from headrace.capture.applog.source import AppLogConfig, AppLogSource
from headrace.capture.base import Event
from headrace.errors import ConfigError, CorruptError, SourceError
from headrace.ums.change import ChangeBatch, End, Mark

RULE: dict[str, Any] = {
    "table": "said",
    "steps": [{"do": "extract", "regex": r"^(?P<at>\S+) (?P<word>.+)$"}],
    "time": {"field": "at", "format": "unix"},
    "columns": {"word": "text"},
}


class Site:
    """Log files of a directory, and captures of them."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self.directory = directory / "logs"
        self.directory.mkdir()
        self.state = directory / "state"
        self.options = {
            "name": "web",
            "files": str(self.directory / "*.log"),
            "host": "here",
            "rules": [RULE],
        } | options
        self.mark: Mark | None = None
        self.events: list[Event] = []
        self.clock: Callable[[], float] = time.time

    def write(self, name: str, text: str | bytes, *, mode: str = "ab") -> None:
        with (self.directory / name).open(mode) as file:
            file.write(text.encode() if isinstance(text, str) else text)

    def source(self) -> AppLogSource:
        jumps = cycle((0, 2))
        return AppLogSource(
            AppLogConfig.model_validate(self.options), self.state, lambda: self.clock() + next(jumps), lambda _: None
        )

    def capture(self) -> None:
        """All that is there now, by a capture of its own."""
        source = self.source()
        try:
            for event in source.follow(self.mark):
                self.take(event)
                if event.caught_up:
                    return
        finally:
            source.close()

    def take(self, event: Event) -> None:
        self.events.append(event)
        self.mark = event.mark

    def rows(self, table: str = "said") -> list[dict[str, Any]]:
        batches = [change for event in self.events for change in event.changes if isinstance(change, ChangeBatch)]
        return [row for batch in batches if batch.table.namespace.table == table for row in batch.data.to_pylist()]

    @property
    def words(self) -> list[str]:
        return [row["word"] for row in self.rows()]


def test_capture_goes_on_at_the_byte(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("a.log", "1 one\n2 two\n3 thr")
    site.capture()
    site.write("a.log", "ee\r\n\n4 four\n")
    site.capture()
    assert site.words == ["one", "two", "three", "four"]
    assert [row["offset"] for row in site.rows()] == [0, 6, 12, 22]
    assert [row["_ums_id_"] for row in site.rows()] == [2, 26, 50, 90]
    assert site.mark is not None
    assert site.mark.id == 4 * site.mark.position["read"] == 4 * 29
    assert [row["_ums_ts_"].second for row in site.rows()] == [1, 2, 3, 4]


def test_what_has_not_changed_is_read_again_under_the_same_ids(tmp_path: Path) -> None:
    site = Site(tmp_path, files=str(tmp_path / "logs" / "{host}.log"))
    for host in range(5):
        site.write(f"h{host}.log", "".join(f"{n} {'x' * 9999} {host} {n}\n" for n in range(400)))
    site.capture()
    whole = [(row["_ums_id_"], row["host"], row["offset"]) for row in site.rows()]
    assert len(site.events) > 1, "it is more than one event"
    for kept in range(len(site.events)):
        again = Site.__new__(Site)
        again.__dict__ |= site.__dict__ | {
            "events": site.events[:kept],
            "mark": site.events[kept - 1].mark if kept else None,
        }
        again.capture()
        assert [(row["_ums_id_"], row["host"], row["offset"]) for row in again.rows()] == whole


def test_old_files_of_a_host_come_first_and_packed_ones_too(tmp_path: Path) -> None:
    site = Site(tmp_path, files=str(tmp_path / "logs" / "app.log*"))
    site.write("app.log.3.gz", gzip.compress(b"1 one\n2 two"))
    site.write("app.log.2.bz2", bz2.compress(b"3 three\n"))
    site.write("app.log.1", "4 four\n")
    site.write("app.log", "5 five\n")
    for age, name in enumerate(("app.log", "app.log.1", "app.log.2.bz2", "app.log.3.gz")):
        os.utime(site.directory / name, (time.time() - 1000 * age,) * 2)
    site.capture()
    assert site.words == ["one", "two", "three", "four", "five"]
    site.capture()
    assert len(site.words) == 5


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_where_to_begin(tmp_path: Path, start: str) -> None:
    site = Site(tmp_path, start=start)
    site.write("a.log", "1 one\n2 tw")
    site.capture()
    site.write("a.log", "o\n3 three\n")
    site.capture()
    assert site.words == (["one", "two", "three"] if start == "earliest" else ["three"])


def test_a_line_that_is_too_long_is_cut_and_told(tmp_path: Path) -> None:
    site = Site(tmp_path, longest_line_bytes=100)
    long = "1 " + "y" * (3 << 20)
    site.write("a.log", f"1 one\n{long}\n2 two\n3 {'z' * 98}\n4 {'z' * 99}\n")
    site.capture()
    assert site.words == ["one", "two", "z" * 98]
    cut = site.rows("_unmatched_")
    assert [row["line"] for row in cut] == [long[:100], "4 " + "z" * 98]
    assert [row["offset"] for row in cut] == [6, 6 + len(long) + 1 + 6 + 101]
    assert cut[0]["reason"] == "the line is longer than 100 bytes: this is its beginning"


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("a.log", b"\xef\xbb\xbf1 bom\n2 \xff\xfe caf\xc3\xa9\n3 fine\n")
    site.capture()
    assert site.words == ["bom", r"\xff\xfe café", "fine"]
    assert [row["offset"] for row in site.rows()] == [0, 9, 20]


def test_other_encodings(tmp_path: Path) -> None:
    site = Site(tmp_path, encoding="gb18030")
    site.write("a.log", "1 水渠\n2 数据\n".encode("gb18030"))
    site.capture()
    assert site.words == ["水渠", "数据"]
    for encoding, message in (("utf-16", "do not end with the byte 10"), ("klingon", "no encoding")):
        with pytest.raises(ValidationError, match=message):
            AppLogConfig.model_validate(site.options | {"encoding": encoding})


def test_a_deleted_file_is_read_to_its_end_while_capture_runs(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("a.log", "1 one\n")
    source = site.source()
    events = source.follow(None)
    site.take(next(events))
    site.write("a.log", "2 two\n3 three")
    (site.directory / "a.log").unlink()
    site.write("a.log", "4 four\n")
    site.take(next(events))
    assert site.words == ["one", "two", "four"]
    site.clock = lambda: time.time() + 100
    for _ in range(3):
        site.take(next(events))
    source.close()
    assert site.words == ["one", "two", "four", "three"]
    assert site.mark is not None
    assert len(site.mark.position["files"]) == 1


def test_a_file_that_was_lost_is_an_error_and_is_skipped_by_hand(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("a.log", "1 one\n")
    site.capture()
    (site.directory / "a.log").unlink()
    with pytest.raises(
        SourceError, match=r"a\.log is gone, and no copy of it is there: 6 bytes of it had been read"
    ) as raised:
        site.capture()
    assert "headrace skip" in raised.value.fix
    source = site.source()
    [finding] = source.check(site.mark)
    assert finding.stops
    assert site.mark is not None
    before = site.mark
    site.mark = source.skip(before, "earliest")
    assert site.mark.id > before.id
    site.write("a.log", "2 two\n")
    site.capture()
    assert site.words == ["one", "two"]
    with pytest.raises(ConfigError, match="nothing to skip"):
        source.skip(site.mark, "earliest")
    with pytest.raises(ConfigError, match="no place to go on at"):
        source.skip(site.mark, "binlog.000001:4")
    site.write("a.log", "3 three\n")
    site.mark = source.skip(site.mark, "latest")
    site.write("a.log", "4 four\n")
    site.capture()
    assert site.words == ["one", "two", "four"]


def test_a_file_that_was_emptied(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("a.log", "1 one\n2 two\n")
    site.capture()
    site.write("a.log", "3 three\n", mode="wb")
    with pytest.raises(SourceError, match="was emptied or overwritten, and no copy"):
        site.capture()
    site.write("a.log.bak", "1 one\n2 two\n2 lost\n")
    site.capture()
    assert site.words == ["one", "two", "lost", "three"]
    source = site.source()
    events = source.follow(site.mark)
    site.take(next(events))
    site.write("a.log", "4 four\n", mode="wb")
    site.take(next(events))
    source.close()
    assert site.words[-1] == "four"
    [notice] = site.events[-1].notices
    assert notice.startswith("a.log was emptied after 8 bytes, and no copy is there")


def test_lines_between_copying_and_emptying_are_not_read_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for copy in ("a.log.1", "a.log.2.gz"):
        site.write("a.log", "1 one\n2 two\n")
        source = site.source()
        events = source.follow(site.mark)
        site.take(next(events))
        copied = (site.directory / "a.log").read_bytes()
        site.write("a.log", "3 three\n")
        site.take(next(events))
        site.write(copy, gzip.compress(copied) if copy.endswith(".gz") else copied)
        site.write("a.log", "4 four\n", mode="wb")
        site.take(next(events))
        source.close()
        assert site.words == ["one", "two", "three", "four"]
        (site.directory / copy).unlink()
        site.write("a.log", "", mode="wb")
        site.mark, site.events = None, []


def test_a_file_that_is_moved_elsewhere_is_read_to_its_end_while_capture_runs(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("a.log", "1 one\n")
    source = site.source()
    events = source.follow(None)
    site.take(next(events))
    moved = (site.directory / "a.log").rename(tmp_path / "a.log.1")
    for text in ("2 two\n", "3 three\n"):  # the application has it open still
        with moved.open("a") as file:
            file.write(text)
        site.take(next(events))
    site.write("a.log", "4 four\n")
    site.take(next(events))
    source.close()
    assert site.words == ["one", "two", "three", "four"]


def test_a_copy_that_is_packed_between_the_listing_and_its_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name and its inode are another file's by then, so the look does not see that it has not seen the copy."""
    site = Site(tmp_path)
    site.write("a.log", "1 one\n")
    site.capture()

    def is_copied(text: str, *, then: str) -> None:
        site.write("a.log.1", text, mode="wb")
        site.write("a.log", then, mode="wb")

    def is_packed_and_copied() -> None:
        site.write("a.log.2.gz", gzip.compress((site.directory / "a.log.1").read_bytes()))
        is_copied("3 three\n", then="4 four\n")

    happens = {"a.log": lambda: is_copied("1 one\n2 two\n", then="3 three\n"), "a.log.1": is_packed_and_copied}
    open_content = copies.open_content

    def open_later(path: Path) -> Content | None:
        happens.pop(path.name, lambda: None)()
        return open_content(path)

    monkeypatch.setattr(copies, "open_content", open_later)
    site.capture()
    assert happens == {}
    assert site.words == ["one", "two", "three", "four"]
    assert [event.notices for event in site.events if event.notices] == []


@pytest.mark.parametrize("text", ["2 two\n3 three\n", "2 two"])
def test_an_empty_file_that_is_written_and_packed_before_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Nothing is known of it but the handle, and its packed copy has the same lines."""
    site = Site(tmp_path)
    site.write("a.log", "")
    source = site.source()
    events = source.follow(None)
    site.take(next(events))
    entries = listing.entries

    def entries_later(directory: Path) -> list[os.DirEntry[str]]:
        if not (site.directory / "a.log.1.gz").exists():
            site.write("a.log", text)
            site.write("a.log.1.gz", gzip.compress(text.encode()))
            (site.directory / "a.log").unlink()
            site.write("a.log", "4 four\n")
        return entries(directory)

    monkeypatch.setattr(listing, "entries", entries_later)
    while site.words[-1:] != ["four"]:
        site.take(next(events))
    site.clock = lambda: time.time() + 100
    for _ in range(3):
        site.take(next(events))
    source.close()
    assert site.words == [*(line[2:] for line in text.splitlines()), "four"]


def test_a_new_file_that_is_made_before_the_old_one_is_left(tmp_path: Path) -> None:
    """The old one has half a line, and more to come, when there is already something in the new one's directory entry."""
    site = Site(tmp_path)
    site.write("a.log", "1 one\n2 tw")
    source = site.source()
    events = source.follow(None)
    site.take(next(events))
    (site.directory / "a.log").rename(site.directory / "a.log.1")
    site.write("a.log", "")
    site.take(next(events))
    site.write("a.log.1", "o\n3 three\n")
    site.write("a.log", "4 four\n")
    while site.words[-1] != "four":
        site.take(next(events))
    source.close()
    assert site.words == ["one", "two", "three", "four"]


def test_a_file_that_has_ended_may_go(tmp_path: Path) -> None:
    """Names with dates: nobody renames them, and somebody removes them."""
    site = Site(tmp_path)
    site.write("app-01.log", "1 one\n")
    site.write("app-02.log", "2 two\n")
    os.utime(site.directory / "app-01.log", (time.time() - 1000,) * 2)
    site.capture()
    site.capture()
    (site.directory / "app-01.log").unlink()
    site.write("app-02.log", "3 three\n")
    site.capture()
    assert site.words == ["one", "two", "three"]


def test_the_last_line_of_a_rotated_file_needs_no_end(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("a.log", "1 one\n2 two")
    site.capture()
    (site.directory / "a.log").rename(site.directory / "a.log.1")
    site.write("a.log", "3 three\n")
    site.capture()
    site.clock = lambda: time.time() + 100
    site.capture()
    assert site.words == ["one", "three", "two"]


def test_a_packed_file_that_is_damaged(tmp_path: Path) -> None:
    site = Site(tmp_path, files=str(tmp_path / "logs" / "*.gz"))
    site.write("a.gz", gzip.compress(b"1 one\n" * 1000)[:-20])
    site.capture()
    assert site.words == [], "it may be growing"
    site.clock = lambda: time.time() + 100
    with pytest.raises(CorruptError, match=r"a\.gz cannot be unpacked behind byte"):
        site.capture()


def test_a_rule_that_changes_starts_a_version(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("a.log", "1 one\n")
    site.capture()
    site.options["rules"] = [RULE | {"columns": {"word": "text", "line": "text"}}]
    site.write("a.log", "2 two\n")
    site.capture()
    [end] = [change for event in site.events for change in event.changes if isinstance(change, End)]
    assert (end.id, end.statement.place) == (25, "a.log:6")
    assert site.rows()[1]["line"] == "2 two"
    [table] = site.source().tables()
    assert (str(table.namespace), table.key) == ("applog.web.logs.said.1.0.0", ("id",))


def test_the_newest_time_of_each_host_is_in_the_mark(tmp_path: Path) -> None:
    site = Site(tmp_path, files=str(tmp_path / "logs" / "{host}.log"))
    site.write("w1.log", "5 a\n3 b\n")
    site.write("w2.log", "4 a\nbad line\n")
    site.capture()
    assert site.mark is not None
    assert site.mark.position["hosts"] == {"w1": 5_000_000, "w2": 4_000_000}
    site.write("w2.log", "6 c\n")
    site.capture()
    assert site.mark.position["hosts"] == {"w2": 6_000_000}
    commits = [row["_ums_commit_ts_"] for row in site.rows()]
    assert commits == sorted(commits)


def test_hosts_of_directories_and_of_names(tmp_path: Path) -> None:
    site = Site(tmp_path, files=str(tmp_path / "logs" / "dc?" / "{host}" / "*" / "app.log"))
    for place in ("dc1/web1/x", "dc2/web2/y", "dc10/web3/z"):
        (site.directory / place).mkdir(parents=True)
        site.write(f"{place}/app.log", f"1 {place}\n")
    site.capture()
    assert [(row["host"], row["path"]) for row in site.rows()] == [
        ("web1", "dc1/web1/x/app.log"),
        ("web2", "dc2/web2/y/app.log"),
    ]


@pytest.mark.parametrize("pattern", ["a/{host}/{host}.log", "a/**/x.log"])
def test_patterns_that_are_none(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ValidationError, match="at most once"):
        AppLogConfig.model_validate(Site(tmp_path).options | {"files": pattern})


def test_check_says_what_is_wrong(tmp_path: Path) -> None:
    site = Site(tmp_path, rules=[RULE | {"sample": ["1 fits", "does-not fit", "nothing"]}])
    [no_time, no_rule, advice] = site.source().check(None)
    assert no_time.message.endswith("(table said) fits no rule")
    assert no_rule.stops
    assert not advice.stops
    assert "no files match" in advice.message
    site.options["files"] = str(tmp_path / "nowhere" / "*.log")
    assert [finding.message.partition(" dir")[0] for finding in site.source().check(None)][-1] == "there is no"
