"""Launches, by real processes that live, end, are killed, and come too late."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.control.launch import End, Launch
from tests.control import wait_until

_PROCESS = """
import sys, time
from pathlib import Path
from headrace.control.launch import Launch
from headrace.errors import ConfigError

launch = Launch(Path(sys.argv[1]))
with launch.claimed() as may_begin:
    if not may_begin:
        print("called off")
    elif sys.argv[2] == "fail":
        raise ConfigError("the moon is full", fix="wait")
    elif sys.argv[2] == "break":
        raise ZeroDivisionError("by nothing")
    else:
        while not launch.stop_requested():
            time.sleep(0.05)
"""


@pytest.fixture
def launch(tmp_path: Path) -> Launch:
    found = Launch(tmp_path / "launches" / "one")
    found.create()
    return found


def begin(launch: Launch, what: str = "live") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _PROCESS, str(launch.directory), what]
    return subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_a_process_is_seen_to_live_and_to_stop(launch: Launch) -> None:
    assert launch.look().pid is None
    with begin(launch) as process:
        wait_until(lambda: launch.look().is_alive)
        seen = launch.look()
        assert (seen.host, seen.pid) == (socket.gethostname(), process.pid)
        assert not launch.call_off(), "what has begun is not called off any more"
        launch.request_stop()
        launch.request_stop()
        assert process.wait(60) == 0
    assert launch.look().end == End(0, "it has stopped")


@pytest.mark.parametrize(
    ("what", "end"),
    [("fail", End(2, "the moon is full", "wait")), ("break", End(1, "ZeroDivisionError: by nothing", "see its log"))],
)
def test_a_failure_is_told(launch: Launch, what: str, end: End) -> None:
    with begin(launch, what) as process:
        process.wait(60)
    assert launch.look().end == end


def test_who_is_killed_is_seen_to_be_dead(launch: Launch) -> None:
    with begin(launch) as process:
        wait_until(lambda: launch.look().is_alive)
        assert launch.kill()
        process.wait(60)
    end = launch.look().end
    assert end is not None
    assert (end.code, "ended from outside" in end.why) == (None, True)
    assert not launch.kill()


def test_who_comes_too_late_does_nothing(launch: Launch) -> None:
    assert launch.call_off()
    with begin(launch) as process:
        out, _ = process.communicate(timeout=60)
    assert out == "called off\n"
    assert launch.look().end == End(None, "it was called off before it began")


def test_another_process_of_the_same_number_is_not_taken_for_it(launch: Launch) -> None:
    """The claim names a process that lives, but it is another one: nobody holds the lock."""
    with begin(launch) as process:
        wait_until(lambda: launch.look().is_alive)
        launch.kill()
        process.wait(60)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        claim = launch.directory / "claim"
        claim.write_text(claim.read_text().replace(str(process.pid), str(other.pid)))
        assert not launch.look().is_alive
        assert not launch.kill()
        assert other.poll() is None


def test_old_launches_are_cleared_away(tmp_path: Path) -> None:
    for number in range(8):
        Launch(tmp_path / str(number)).create()
    assert len(list(tmp_path.iterdir())) == 5
    assert (tmp_path / "7").exists()


def test_a_log_is_bounded_and_its_end_can_be_read(launch: Launch) -> None:
    """The process and a child that have the file open go on printing into it."""
    chatty = "import sys\nfor line in sys.stdin: print(line.strip() * 100, flush=True)"
    with launch.log.open("ab") as log:
        printing = subprocess.Popen([sys.executable, "-c", chatty], stdin=subprocess.PIPE, stdout=log, text=True)
    with printing as process:
        assert process.stdin is not None
        for number in range(30):
            process.stdin.write(f"{number:04}\n")
            process.stdin.flush()
            wait_until(lambda number=number: launch.last_lines(401)[-1:] == [f"{number:04}" * 100])  # type: ignore[misc]
            launch.bound_log(2_000)
            assert launch.log.stat().st_size <= 2_000
    assert launch.last_lines(2_000)[-3:] == [f"{number:04}" * 100 for number in (27, 28, 29)]
    assert sum(path.stat().st_size for path in launch.directory.glob("log*")) < 5_000
