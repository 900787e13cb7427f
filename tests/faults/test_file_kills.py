"""Who writes to a database file is killed in the middle of transactions: the file opens again, and ends as the source is."""

from __future__ import annotations

import os
import random
import time
from contextlib import closing
from pathlib import Path

import pytest

from headrace.testing.sink import ORDERS
from tests.faults.sink_writer import history, open_sink, rows_behind
from tests.faults.test_sink_faults import KILLS, _line, _writer

CHANGES = 12_000
PER_KILL = 3_000


@pytest.mark.timeout(120 + 30 * KILLS)
def test_writers_of_a_duckdb_file_are_killed_in_the_middle_of_transactions(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(2**32)))
    print(f"HEADRACE_SEED={seed}")
    pick = random.Random(seed)
    size = CHANGES + KILLS * PER_KILL
    settings: dict[str, object] = {
        "type": "database",
        "url": f"duckdb:///{tmp_path / 'mart.duckdb'}",
        "delete": pick.choice(["soft", "hard"]),
    }
    for _ in range(KILLS):
        with _writer(settings, seed, size) as process:
            _line(process)
            time.sleep(pick.uniform(0, 0.3))
            process.kill()
    with _writer(settings, seed, size) as process:
        assert process.wait() == 0
    with closing(open_sink(settings)) as sink:
        position = sink.position("topic", 0)
        found = [row for batch in sink.scan(ORDERS) for row in batch.to_pylist()]
    assert position is not None
    assert position.offset == size
    rows = sorted((row["id"], row["note"], row["amount"]) for row in found)
    assert rows == rows_behind(history(seed, size))
