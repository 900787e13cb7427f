"""Kills while rows are set aside or replayed: nothing is lost, the ledger never lacks a row, and the target is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.stream.refused import waiting_places
from headrace.stream.replay import replay
from headrace.testing.sink import ORDERS, batch_of, order
from tests.unit.test_refused import Store, poison

WORK = """
import sys
from pathlib import Path
from headrace.stream.replay import replay
from tests.unit.test_refused import Store
store = Store(Path(sys.argv[1]), set_aside=10)
store.deliver()
replay(store.log, store.log.topics(), store.flow)
"""


def killed(directory: Path, crash_at: str) -> int:
    environment = {**os.environ, "HEADRACE_CRASH_AT": crash_at}
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", WORK, str(directory)], cwd=root, env=environment, check=False
    ).returncode


@pytest.mark.parametrize("crash_at", ["refused.found", "refused.entered", "replay.delivered"])
def test_a_kill_on_the_way_into_the_ledger_and_out_of_it(crash_at: str, tmp_path: Path) -> None:
    store = Store(tmp_path, set_aside=10)
    store.refuses()
    store.append(batch_of(ORDERS, [order(2, 2), poison(3, 3), poison(4, 4), order(5, 5), poison(6, 6)]), 6)
    store.append(batch_of(ORDERS, [order(7, 3, "u"), order(8, 4, "d")]), 8)
    store.close()
    if crash_at.startswith("replay"):
        store = Store(tmp_path, set_aside=10)
        store.deliver()
        store.takes_all()
        store.close()
    assert killed(tmp_path, crash_at) == -signal.SIGKILL

    store = Store(tmp_path, set_aside=10)
    store.deliver()
    assert {row["id"] for row in store.ledger()} == {3, 4, 6}
    if not crash_at.startswith("replay"):
        assert store.rows() == {2: "by 2", 3: "by 7", 5: "by 5"}
        store.takes_all()
    replay(store.log, store.log.topics(), store.flow)
    assert store.rows() == {2: "by 2", 3: "by 7", 5: "by 5", 6: "poison"}
    assert not waiting_places(store.log, "db1", "mart")
    store.close()
