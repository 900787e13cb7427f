"""How far hosts have come by the times of their lines, their signs of life, and lines that are out of order; all against plain Python."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.capture.applog.source import Rests
from headrace.capture.base import Progress
from headrace.capture.lines.beat import beat, beat_line
from headrace.capture.lines.fields import HOST, LINE, Fields, numbers, texts_of
from headrace.capture.lines.host_times import HostTimes, are_beats
from headrace.cli.main import cli
from headrace.errors import ConfigError

HOSTS = st.sampled_from(["web1", "web2", "web3", None])
TIMES = st.one_of(st.integers(0, 20), st.sampled_from([-(10**15), 4 * 10**15]), st.none())
BATCHES = st.lists(st.lists(st.tuples(HOSTS, TIMES), max_size=12), max_size=5)


@settings(deadline=None)
@given(BATCHES)
def test_the_newest_of_each_host_and_what_is_older_than_one_before(
    batches: list[list[tuple[str | None, int | None]]],
) -> None:
    times = HostTimes()
    newest: dict[str, int] = {}
    for batch in batches:
        expected: dict[str, int] = {}
        of_batch: dict[str, int] = {}
        for host, us in batch:
            if host is not None and us is not None:
                if us < newest.get(host, us):
                    expected[host] = expected.get(host, 0) + 1
                newest[host] = max(us, newest.get(host, us))
                of_batch[host] = max(us, of_batch.get(host, us))
        hosts, said = texts_of([host for host, _ in batch]), pa.array([us for _, us in batch], pa.int64())
        times.rows(hosts, said, numbers(len(batch)))
        progress = times.end()
        assert times.newest_us == of_batch
        assert progress.passed_us == {host: newest[host] for host in of_batch}
        assert progress.disordered == expected
        assert sum(progress.rows.values()) == sum(host is not None and us is not None for host, us in batch)


def test_a_sign_of_life_moves_its_host_and_is_no_row() -> None:
    lines = texts_of(["2026-03-02T12:00:00Z said headrace-beat", beat_line(1_700_000_000_000_001), None])
    fields = Fields({LINE: lines, HOST: texts_of(["web1", "web2", "web3"])}, numbers(3))
    beats = are_beats(fields)
    assert beats.to_pylist() == [False, True, False]
    times = HostTimes()
    times.beats(fields.where(beats), pa.array([7], pa.int64()), 0)
    assert times.end() == Progress({"web2": 1_700_000_000_000_001}, {"web2": 0})


def test_of_several_logs_a_host_has_passed_what_was_newest_at_the_rest_before() -> None:
    rests = Rests()
    assert rests.passed(Progress({"web1": 5}), at_rest=False).passed_us == {}
    assert rests.passed(Progress({"web1": 6}), at_rest=True).passed_us == {}
    assert rests.passed(Progress({"web2": 1}), at_rest=False).passed_us == {}
    assert rests.passed(Progress({}), at_rest=True).passed_us == {"web1": 6}
    assert rests.passed(Progress({}), at_rest=True).passed_us == {"web1": 6, "web2": 1}


def test_only_a_log_that_is_quiet_and_ends_with_a_line_gets_a_sign_of_life(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    assert not beat(log, 1)
    for text, age_s, expected in [("one\n", 0, False), ("one\n", 10, True), ("one\ntw", 10, False), ("", 10, True)]:
        log.write_text(text)
        os.utime(log, (log.stat().st_mtime - age_s,) * 2)
        assert beat(log, 1) == expected
        lines = log.read_text().removeprefix(text).splitlines()
        assert len(lines) == expected
        assert all(line.endswith("Z headrace-beat") for line in lines)
    assert not beat(log, 1), "its own line is one as well"


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        beat(tmp_path, 1)
    log = tmp_path / "app.log"
    log.touch()
    said = CliRunner().invoke(cli, ["beat", str(log), str(tmp_path / "none"), "--once", "--every", "0s"])
    told = f"headrace: {tmp_path / 'none'} is not there; it gets signs of life when it is\n1 of 2 logs were quiet\n"
    assert (said.exit_code, said.stderr) == (0, told)
    wrong = CliRunner().invoke(cli, ["beat", str(log), "--every", "soon"])
    assert wrong.exit_code == 2
    assert "write a duration" in wrong.stderr
