"""The tutorial of real-time marketing does what it says: its one command, with fewer applicants."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1200)
def test_leads_reach_the_call_centre(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.marketing.run", str(tmp_path / "out"), "--applicants", "30"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    log = tmp_path / "out" / "run.log"
    assert done.returncode == 0, done.stdout + done.stderr + (log.read_text() if log.exists() else "")
    assert "computed row by row: segment, score; rows without segment wait up to 60s" in done.stdout
    assert "gold" in done.stdout
    assert "from commit to the call centre: p50" in done.stdout


def test_the_tutorial_shows_the_flow_file_as_it_is() -> None:
    flow = (ROOT / "examples" / "marketing" / "flow.yaml").read_text()
    steps = flow[flow.index("  - name: leads") :]
    assert steps in (ROOT / "docs" / "tutorial" / "real-time-marketing.md").read_text()
