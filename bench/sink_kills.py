"""Who writes into a store, and its server, killed 20 times each in the middle of batches: ``PYTHONPATH=src python -m bench.sink_kills [STORE…]``.

Runs the tests that say whether the store is then what the source is (tests/faults/test_sink_faults.py, tests/faults/test_kafka_sink_kills.py,
tests/conformance/test_hbase_sink.py) with ``HEADRACE_KILLS=20``, or what that variable says, and writes their lines of bench/results/sink_kills.md;
those of stores that are not named stay.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.faults.test_sink_faults import STORES

from bench.machine import RESULTS, write_results

KILLS = os.environ.setdefault("HEADRACE_KILLS", "20")
WITHOUT_SERVER = ("sqlite", "duckdb", "lake")
TESTS = {
    **{
        store: f"tests/faults/test_sink_faults.py::test_writers_and_the_server_are_killed_in_the_middle_of_batches[{store}]"
        for store in STORES
    },
    "kafka": "tests/faults/test_kafka_sink_kills.py",
    "hbase": "tests/conformance/test_hbase_sink.py",
}
_WHAT = (
    "Who writes, and the server of the store, killed with SIGKILL in the middle of batches; then what is in the store, compared with the rows "
    "of the source, and the position of the flow. Changes of 3,000 keys, in commits of 900 that are sent in three parts; a kill comes behind two to "
    "five commits, at any moment of the next one; a writer that is not killed finds the server again each time. Deletes are soft or hard by chance."
)
HEAD = [
    _WHAT,
    "",
    "| store | kills of the writer | kills of the server | compared | s | load |",
    "|---|---|---|---|---|---|",
]


def killed(store: str) -> str:
    """The line of a store."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-k", "kill", "--timeout", "7200", TESTS[store]], check=False
    )
    seconds, load = time.monotonic() - began, os.getloadavg()[1]
    of_server = "" if store in WITHOUT_SERVER else KILLS
    return f"| {store} | {KILLS} | {of_server} | {'equal' if done.returncode == 0 else 'the test failed'} | {seconds:.0f} | {load:.0f} |"


def main() -> None:
    path = RESULTS / "sink_kills.md"
    before = path.read_text().splitlines() if path.exists() else []
    lines = {line.split("|")[1].strip(): line for line in before if line.startswith("| ") and line not in HEAD}
    for store in sys.argv[1:] or TESTS:
        lines[store] = killed(store)
        write_results("sink_kills", [*HEAD, *lines.values()])
    sys.exit("the test failed" in "".join(lines.values()))


if __name__ == "__main__":
    main()
