"""Kills while rows begin to wait and while they go on: none is lost, none is told as overdue without being so, and the target is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.stream.refused import waiting_places
from tests.unit.test_validity import Leads, order

WORK = """
import sys
from pathlib import Path
from tests.unit.test_validity import Leads
Leads(Path(sys.argv[1]), action=sys.argv[2], timeout=sys.argv[3]).deliver()
"""


def killed(directory: Path, crash_at: str, action: str, timeout: str) -> int:
    environment = {**os.environ, "HEADRACE_CRASH_AT": crash_at}
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-c", WORK, str(directory), action, timeout], cwd=root, env=environment, check=False
    ).returncode


@pytest.mark.parametrize("crash_at", ["waiting.entered", "waiting.settled"])
def test_a_kill_while_rows_begin_to_wait_or_go_on(crash_at: str, tmp_path: Path) -> None:
    leads = Leads(tmp_path)
    leads.segment(2, "gold")
    leads.append(order(1, 10), order(2, 20, customer=2), order(3, 30), mark=3)
    leads.append(order(4, 10, "u", status="paid"), mark=4)
    if crash_at == "waiting.settled":
        leads.deliver()
        leads.segment(1, "late")
    leads.close()
    assert killed(tmp_path, crash_at, "drop", "1h") == -signal.SIGKILL
    leads = Leads(tmp_path)
    leads.segment(1, "late")
    leads.append(order(5, 30, "d"), mark=5)
    leads.deliver()
    assert leads.rows() == {10: ("paid", "late"), 20: ("new", "gold")}
    assert leads.waiting() == 0
    assert not leads.deliver().delivered.overdue
    leads.close()


@pytest.mark.parametrize("crash_at", ["waiting.entered", "refused.found", "refused.entered", "waiting.settled"])
def test_a_kill_while_rows_whose_time_is_over_go_to_the_error_ledger(crash_at: str, tmp_path: Path) -> None:
    leads = Leads(tmp_path)
    leads.segment(2, "gold")
    leads.append(order(1, 10, at_us=1), order(2, 20, customer=2), order(3, 30, at_us=2), mark=3)
    leads.close()
    assert killed(tmp_path, crash_at, "alert", "5s") == -signal.SIGKILL
    leads = Leads(tmp_path, action="alert", timeout="5s")
    leads.deliver()
    assert leads.rows() == {20: ("new", "gold")}
    assert len(waiting_places(leads.log, "db1", "leads")) == 2
    assert leads.waiting() == 0
    leads.close()
