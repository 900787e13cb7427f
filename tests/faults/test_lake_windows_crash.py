"""Closing of windows, backfill and replacement are killed at every named point, and done again: nothing differs from never having died."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.lake import lake
from headrace.lake import certificate
from headrace.lake.commit import Manifest
from headrace.lake.records import Stream
from headrace.verify.windows import check_windows
from tests.faults.test_lake_crash import Writer
from tests.lake_tables import ID_NAME, ORDERS, changes, ids_in
from tests.lake_windows import FLOW, caretaker, certified, land_until
from tests.patience import HANG_S

POINTS = re.findall(r"^(windows\.\w+)", certificate.__doc__ or "", re.MULTILINE)
SECONDS = float(os.environ.get("HEADRACE_SOAK_S", "4"))
CLOSED = 30
"""Changes, one a second, that close some windows of ten seconds."""
FLOWS = """
source: {{type: mysql, name: db1, files: "./none.*", tables: ["shop.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: orders_lake, from: mysql.db1, to: {{type: lake, path: {lake}, windows: 10s}}}}
  - {{name: mart, from: mysql.db1, to: {{type: database, url: "sqlite:///./mart.db", batch_rows: 3}}}}
"""


def run(crash_at: str, *arguments: object) -> tuple[int, str]:
    """Exit code, and what was complained about."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "HEADRACE_CRASH_AT": crash_at},
        timeout=HANG_S,
        check=False,
    )
    return done.returncode, done.stderr


def again(*arguments: object) -> None:
    """The command in this process, which does not die."""
    assert CliRunner().invoke(lake, [str(argument) for argument in arguments], catch_exceptions=False).exit_code == 0


def landed(path: Path, *, without: range = range(0)) -> Path:
    for offset in range(1, 6):
        ids = (id_ for id_ in range(offset * 10 - 9, offset * 10) if id_ not in without)
        land_until(
            path, offset * 10, changes(ID_NAME, *((id_, "iud"[id_ % 3], id_ % 7, "a") for id_ in ids)), offset=offset
        )
    return path


def test_the_crash_story_names_its_points() -> None:
    assert POINTS == ["windows.counted", "windows.certified"]


@pytest.mark.parametrize("point", POINTS)
def test_closing_that_dies(tmp_path: Path, point: str) -> None:
    landed(tmp_path)
    code, errors = run(point, "-m", "tests.faults.lake_caretaker", tmp_path, "{}", 0, 10)
    assert code == -signal.SIGKILL, errors
    assert bool(certified(tmp_path)) == (point == "windows.certified")
    assert run("", "-m", "tests.faults.lake_caretaker", tmp_path, "{}", 0, 10) == (0, "")
    assert certified(tmp_path) == dict.fromkeys((0, 10, 20, 30, 40), (0, 9))
    [result] = check_windows(Manifest.open(tmp_path))
    assert result.ok


def dump(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        return [line for line in connection.iterdump() if "_headrace_positions" not in line]


def test_a_backfill_that_dies_is_run_again(tmp_path: Path) -> None:
    landed(tmp_path / "lake")
    (tmp_path / "flow.yaml").write_text(FLOWS.format(lake=tmp_path / "lake"))
    command = ("-m", "headrace", "lake", "backfill", tmp_path / "flow.yaml", "--to-flow", "mart", "--to", 48)
    (tmp_path / "whole.yaml").write_text(FLOWS.format(lake=tmp_path / "lake").replace("mart.db", "whole.db"))
    again(*command[3:4], tmp_path / "whole.yaml", *command[5:])
    for entry in (2, 5):
        code, errors = run(f"backfill.read:{entry}", *command)
        assert code == -signal.SIGKILL, errors
    for _ in range(2):
        again(*command[3:])
        assert dump(tmp_path / "mart.db") == dump(tmp_path / "whole.db")


@pytest.mark.parametrize("point", ["tend.files_named", "tend.edited", "windows.counted"])
def test_a_replacement_that_dies_is_run_again(tmp_path: Path, point: str) -> None:
    landed(tmp_path / "lake")
    target = landed(tmp_path / "copy", without=range(15, 35))
    caretaker(target).certify()
    for name, path in (("flow", tmp_path / "lake"), ("copy", target)):
        (tmp_path / f"{name}.yaml").write_text(FLOWS.format(lake=path))
    command = (
        "-m", "headrace", "lake", "backfill", tmp_path / "flow.yaml", "--to-file", tmp_path / "copy.yaml",
        "--to-flow", "orders_lake", "--replace", "--from", 12, "--to", 38,
    )  # fmt: skip
    code, errors = run(point, *command)
    assert code == -signal.SIGKILL, errors
    assert len(ids_in(target)) in (45 - 18, 45)
    [result] = check_windows(Manifest.open(target))
    assert result.ok
    again(*command[3:])
    assert sorted(ids_in(target)) == sorted(ids_in(tmp_path / "lake"))
    [result] = check_windows(Manifest.open(target))
    assert (result.ok, [window.late.rows for window in result.windows]) == (True, [0] * 5)
    assert certified(target, ORDERS)[20] == (1, 9)


def test_writer_caretakers_and_check_at_once(tmp_path: Path) -> None:
    """Whenever somebody looks, every certificate holds; and in the end each closed window has all of its rows."""
    Manifest.open_to_write(tmp_path)
    writer = Writer(tmp_path, 10**7, FLOW).opened().go()
    command = [
        sys.executable,
        "-m",
        "tests.faults.lake_caretaker",
        str(tmp_path),
        '{"target_bytes": 65536}',
        str(SECONDS),
        "10",
    ]
    carers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline or _reached(Manifest.open(tmp_path)) < CLOSED:
        assert time.monotonic() < deadline + HANG_S, "the writer has not written enough to close a window"
        assert [result for result in check_windows(Manifest.open(tmp_path)) if not result.ok] == []
    writer.process.kill()
    writer.end()
    for carer in carers:
        _, errors = carer.communicate(timeout=HANG_S)
        assert carer.returncode == 0, errors
    caretaker(tmp_path).certify()
    manifest = Manifest.open(tmp_path)
    done = _reached(manifest)
    for result in check_windows(manifest):
        assert result.ok
        assert [window.there.rows for window in result.windows] == [9, *[10] * (done // 10 - 1)]
        assert {window.number for window in result.windows} == {0}


def _reached(manifest: Manifest) -> int:
    """How many changes each table has; 0 before the first commit."""
    reached = manifest.reached.get(Stream(FLOW, "db1", 0))
    return reached.offset if reached else 0
