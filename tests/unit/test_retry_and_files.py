"""Backoff, whole-or-absent files, the ledger of epochs."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ConfigError, CorruptError, FencedError, RetryableError, StorageError
from headrace.files import create_file, replace_file
from headrace.retry import Backoff
from headrace.stream.ledger import Ended, Ledger
from headrace.stream.rundir import RunDirectory, Until


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


AWAY = RetryableError("away", fix="wait", retry_after_s=0.2)


def test_pauses_grow_but_not_beyond_the_longest() -> None:
    backoff = Backoff(1e9, longest_s=1.0, clock=Clock())
    pauses = [backoff.failed(AWAY) for _ in range(20)]
    assert 0.1 <= pauses[0] <= 0.2
    assert all(0.5 <= pause <= 1.0 for pause in pauses[8:])


def test_an_outage_counts_from_its_first_failure_over_several_lives() -> None:
    clock = Clock()
    first = Backoff(60, clock=clock)
    first.failed(AWAY)
    clock.now += 59
    second = Backoff(60, failing_since_s=first.failing_since_s, clock=clock)
    second.failed(AWAY)
    clock.now += 2
    with pytest.raises(RetryableError, match="away"):
        second.failed(AWAY)


def test_progress_ends_an_outage() -> None:
    clock = Clock()
    backoff = Backoff(60, clock=clock)
    backoff.failed(AWAY)
    backoff.worked()
    clock.now += 61
    assert backoff.failed(AWAY) > 0


def test_what_was_fenced_never_tries_again() -> None:
    with pytest.raises(FencedError):
        Backoff(60).failed(FencedError("taken over", fix="end"))


def test_create_file_never_replaces(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    assert create_file(path, b"one")
    assert not create_file(path, b"two")
    assert path.read_bytes() == b"one"
    replace_file(path, b"three")
    assert path.read_bytes() == b"three"
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_a_file_in_place_of_a_directory_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="could not create the directory"):
        replace_file(tmp_path / "file" / "below", b"")


def test_the_first_end_of_an_epoch_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.newest() is None
    first = Ended(1, {"at": 1}, {"rows": 1})
    assert ledger.end(first) == first
    assert ledger.end(Ended(1, {"at": 2}, {})) == first
    assert ledger.newest() == first


def test_the_ledger_keeps_only_the_newest_epochs(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    for epoch in range(1, 51):
        ledger.end(Ended(epoch, {"at": epoch}, {}))
    assert len(list(tmp_path.iterdir())) == 20
    newest = ledger.newest()
    assert newest is not None
    assert newest.epoch == 50


def test_a_damaged_ledger_says_which_file(tmp_path: Path) -> None:
    Ledger(tmp_path).end(Ended(7, {}, {}))
    path = tmp_path / f"{7:020d}.json"
    path.write_bytes(b"{")
    with pytest.raises(CorruptError, match=str(path)):
        Ledger(tmp_path).newest()


def test_a_run_directory_carries_errors_figures_and_stops(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "runs" / "a")
    run.create()
    clock = Clock()
    until = Until(run, 1, 30, clock)
    assert not until.over()
    run.report("capture-db1", {"rows": 3})
    run.is_captured("db1", 0, 17)
    run.fail("deliver-db1", AWAY)
    assert run.reports() == {"capture-db1": {"rows": 3}}
    assert run.captured_end("db1", 0) == 17
    assert run.captured_end("db1", 1) is None
    assert str(run.errors()["deliver-db1"]) == str(AWAY)
    clock.now += 1
    assert until.over()


def test_an_executor_without_the_state_directory_says_so(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "state" / "runs" / "a")
    with pytest.raises(ConfigError, match=f"{tmp_path}/state of the run is not on the executor's machine"):
        run.require()
    run.create()
    run.require()


def test_an_epoch_is_over_when_its_time_has_passed(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "a")
    run.create()
    clock = Clock()
    until = Until(run, 1, 30, clock)
    clock.now += 29.9
    assert not until.over()
    clock.now += 0.2
    assert until.over()


def test_an_epoch_that_is_over_for_one_task_is_over_for_one_that_began_late(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "a")
    run.create()
    clock = Clock()
    first = Until(run, 7, 30, clock)
    clock.now += 29
    late, next_one = Until(run, 7, 30, clock), Until(run, 8, 30, clock)
    assert not late.over()
    clock.now += 2
    assert first.over()
    assert late.over()
    assert not next_one.over()


def test_only_the_newest_runs_are_kept(tmp_path: Path) -> None:
    for name in "abcdefgh":
        RunDirectory(tmp_path / name).create()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d", "e", "f", "g", "h"]


def test_errors_keep_what_they_know_on_their_way_to_the_driver(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "a")
    run.create()
    run.fail("x", RetryableError("m", fix="f", retry_after_s=3))
    error = run.errors()["x"]
    assert isinstance(error, RetryableError)
    assert (error.message, error.fix, error.retry_after_s) == ("m", "f", 3)
