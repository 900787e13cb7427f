"""Caretakers of the lake are killed at every named point, and work beside writers and readers."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
import pytest

from headrace.lake import tend
from headrace.lake.asof import as_of, snapshot
from headrace.lake.commit import Manifest
from headrace.lake.parquet import verify_file
from headrace.lake.policy import Policy
from headrace.lake.records import Stream
from headrace.storage.location import tree_at
from tests.faults.lake_writer import TABLES
from tests.faults.test_lake_crash import FLOW, Writer
from tests.lake_tables import ID_NAME, ORDERS, changes, ids_in, land, parquet_files, rows, time_of
from tests.patience import HANG_S

OWN_POINTS = re.findall(r"^(tend\.\w+)", tend.__doc__ or "", re.MULTILINE)
POINTS = [*OWN_POINTS, "file.synced", "create.named"]
"""Its own, and of those that it shares with writers one of each kind: before and behind what decides."""
SECONDS = float(os.environ.get("HEADRACE_SOAK_S", "4"))


def caretaker(path: Path | str, policy: Policy, seconds: float = 0, crash_at: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.lake_caretaker", str(path), policy.model_dump_json(), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "HEADRACE_CRASH_AT": crash_at},
        text=True,
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit code, and what it had to complain about."""
    _, errors = process.communicate(timeout=HANG_S)
    return process.returncode, errors


def sums(path: Path | str) -> tuple[int, int]:
    files = list(Manifest.open(path).files())
    return sum(file.rows for file in files), sum(int(file.digest, 16) for file in files) % (1 << 128)


def test_the_crash_story_names_its_points() -> None:
    assert len(OWN_POINTS) == 4


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_named_point_leaves_one_truth(tmp_path: Path, point: str) -> None:
    for offset in range(1, 9):
        first = offset * 10
        land(
            tmp_path,
            changes(
                ID_NAME, *((first + n, "i" if n < 5 else "u", (first + n) % 17, f"{first + n}") for n in range(10))
            ),
            offset=offset,
        )
    before = sums(tmp_path)
    states = {id_: rows(as_of(tmp_path, ORDERS, id=id_)) for id_ in (14, 33, 57, 90)}
    policy = Policy(grace=0, state_changes=20)
    code, errors = ended(caretaker(tmp_path, policy, crash_at=point))
    assert code == -signal.SIGKILL, errors
    for id_, expected in states.items():
        assert rows(as_of(tmp_path, ORDERS, id=id_)) == expected
    assert sums(tmp_path) == before
    assert ended(caretaker(tmp_path, policy)) == (0, "")
    assert sums(tmp_path) == before
    manifest = Manifest.open(tmp_path)
    for file in manifest.files():
        verify_file(tree_at(tmp_path), file)
    assert manifest.states[ORDERS]
    assert len(manifest.tables[ORDERS]) == 1
    assert not manifest.retired
    visible = {path.relative_to(tmp_path).as_posix() for path in parquet_files(tmp_path)}
    orphans = visible - set(manifest.known_paths())
    assert bool(orphans) == (point == "tend.files_named"), (
        "what a dead caretaker has named and not committed, and nothing else"
    )


def test_writer_caretakers_and_reader_at_once(tmp_path: Path) -> None:
    """No change is missing, none is there twice, and both tables of a transaction are always seen together."""
    policy = Policy(target_bytes=64 << 10, grace=60, state_changes=100)
    Manifest.open_to_write(tmp_path)
    writer = Writer(tmp_path, 10**7).opened().go()
    carers = [caretaker(tmp_path, policy, SECONDS) for _ in range(2)]
    chance = random.Random(3)
    deadline = time.monotonic() + SECONDS
    looked = 0
    while time.monotonic() < deadline or _reached(Manifest.open(tmp_path)) < policy.state_changes:
        assert time.monotonic() < deadline + HANG_S, "the writer has not written enough for a state"
        looked += _look(tmp_path, chance)
    writer.process.kill()
    writer.end()
    for carer in carers:
        assert ended(carer) == (0, "")
    assert ended(caretaker(tmp_path, policy)) == (0, "")
    manifest = Manifest.open(tmp_path)
    done = _reached(manifest)
    assert looked
    for name in TABLES:
        table = f"mysql.db1.shop.{name}"
        assert sorted(ids_in(tmp_path, table)) == list(range(1, done + 1))
        assert manifest.states[table]
        for file in manifest.tables[table]:
            verify_file(tree_at(tmp_path), file)


def _reached(manifest: Manifest) -> int:
    """How many changes each table has; 0 before the first commit."""
    reached = manifest.reached.get(Stream(FLOW, "db1", 0))
    return reached.offset if reached else 0


def _look(path: Path, chance: random.Random) -> int:
    """One look at both tables from one manifest, at a moment; how many rows were seen."""
    manifest = Manifest.open(path)
    reached = _reached(manifest)
    if not reached:
        return 0
    moment = chance.randint(1, reached)
    found = []
    for name in TABLES:
        table = f"mysql.db1.shop.{name}"
        assert sum(file.rows for file in manifest.tables[table]) == reached
        by = {"id": moment} if chance.random() < 0.5 else {"time": time_of(moment)}
        ids = snapshot(manifest, table, **by).read_all().column("id")  # type: ignore[arg-type]
        assert (len(ids), pc.sum(ids).as_py()) == (moment, moment * (moment + 1) // 2)
        found.append(len(ids))
    assert found[0] == found[1]
    return found[0]
