"""Writers of the lake are killed at every named point and at random times, raced and fenced; readers look on."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from headrace.lake import commit
from headrace.lake.commit import CHECKPOINT_COMMITS, Manifest
from headrace.lake.parquet import verify_file
from headrace.lake.records import Stream
from headrace.storage.location import tree_at
from tests.faults.lake_writer import PER_COMMIT, TABLES
from tests.lake_tables import ids_in, parquet_files
from tests.patience import HANG_S

FLOW = "ledger"
POINTS = re.findall(r"^((?:lake|file|create)\.\w+)", commit.__doc__ or "", re.MULTILINE)
# Two tables are finished per commit, so these points are passed twice per commit.
PASSES = {"lake.rows_written": 5, "lake.file_closed": 5, "file.synced": 6, "lake.checkpoint": 1}


class Writer:
    """A writer's process, paused until `go`."""

    def __init__(self, path: Path | str, transactions: int, flow: str = FLOW, crash_at: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.lake_writer", str(path), flow, str(transactions)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "HEADRACE_CRASH_AT": crash_at},
            text=True,
        )

    def opened(self) -> Writer:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "open\n"
        return self

    def go(self) -> Writer:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self

    def end(self) -> tuple[int, int]:
        """Exit code, and the offset of the last commit that it has seen through."""
        out, _ = self.process.communicate(timeout=HANG_S)
        committed = [int(line) for line in out.split() if line.isdecimal()]
        return self.process.returncode, committed[-1] if committed else 0


def run(path: Path | str, transactions: int, crash_at: str = "") -> tuple[int, int]:
    return Writer(path, transactions, crash_at=crash_at).go().end()


def check_whole(path: Path | str, flow: str = FLOW) -> int:
    """Both tables have exactly the transactions up to the flow's position, each once; returns that position."""
    manifest = Manifest.open(path)
    reached = manifest.reached.get(Stream(flow, "db1", 0))
    offset = reached.offset if reached else 0
    for name in TABLES:
        files = manifest.tables.get(f"mysql.db1.shop.{name}", [])
        assert sum(file.rows for file in files) == offset
        assert [file.id[0] for file in files] == list(range(1, offset + 1, PER_COMMIT))
    return offset


def check_complete(path: Path | str, transactions: int) -> None:
    assert check_whole(path) == transactions
    for name in TABLES:
        assert ids_in(path, f"mysql.db1.shop.{name}") == list(range(1, transactions + 1))
    for file in Manifest.open(path).files():
        verify_file(tree_at(path), file)


def test_the_crash_story_names_its_points() -> None:
    assert len(POINTS) == 8


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point(tmp_path: Path, point: str) -> None:
    transactions = (CHECKPOINT_COMMITS + 2) * PER_COMMIT if point == "lake.checkpoint" else 6 * PER_COMMIT
    code, seen = run(tmp_path, transactions, f"{point}:{PASSES.get(point, 3)}")
    assert code == -signal.SIGKILL
    committed = check_whole(tmp_path)
    done = PER_COMMIT if point in {"create.named", "lake.commit_durable", "lake.checkpoint"} else 0
    assert committed == seen + done, "a commit is there from the link on"
    assert seen > 0
    assert run(tmp_path, transactions) == (0, transactions)
    check_complete(tmp_path, transactions)


def test_killed_at_random_times_while_a_reader_looks_on(tmp_path: Path) -> None:
    chance = random.Random(8)
    Manifest.open_to_write(tmp_path)
    kept = 0
    for _ in range(8):
        writer = Writer(tmp_path, 10**6).opened().go()
        stop_at = time.monotonic() + chance.uniform(0.02, 0.3)
        while time.monotonic() < stop_at:
            check_whole(tmp_path)
        writer.process.kill()
        code, seen = writer.end()
        assert code == -signal.SIGKILL
        offset = check_whole(tmp_path)
        assert offset >= max(kept, seen), "what was committed stays"
        kept = offset
    assert kept > 0
    transactions = kept + PER_COMMIT
    assert run(tmp_path, transactions)[0] == 0
    check_complete(tmp_path, transactions)
    committed = {file.path for file in Manifest.open(tmp_path).files()}
    assert committed <= {path.relative_to(tmp_path).as_posix() for path in parquet_files(tmp_path)}


def test_of_two_runs_of_one_flow_one_is_fenced(tmp_path: Path) -> None:
    transactions = 20 * PER_COMMIT
    writers = [Writer(tmp_path, transactions) for _ in range(2)]
    for writer in writers:
        writer.opened()
    for writer in writers:
        writer.go()
    ends = sorted(writer.end() for writer in writers)
    assert [code for code, _ in ends] == [0, 3]
    assert ends[1][1] == 0, "the one that is fenced has committed nothing: the other was first, and stays it"
    check_complete(tmp_path, transactions)


def test_two_flows_both_succeed(tmp_path: Path) -> None:
    transactions = 20 * PER_COMMIT
    writers = [Writer(tmp_path, transactions, flow) for flow in ("one", "another")]
    for writer in writers:
        writer.opened()
    for writer in writers:
        writer.go()
    assert [writer.end() for writer in writers] == [(0, transactions)] * 2
    manifest = Manifest.open(tmp_path)
    assert manifest.number == 2 * 20
    for name in TABLES:
        ids = ids_in(tmp_path, f"mysql.db1.shop.{name}")
        assert sorted(ids) == sorted([*range(1, transactions + 1)] * 2)
