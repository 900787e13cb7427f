"""A caretaker of the lake as a process of its own, to be killed: ``python -m tests.faults.lake_caretaker PATH POLICY SECONDS [LENGTH]``.

POLICY is JSON; with LENGTH, in seconds, it closes windows as well. It tends the lake once, or again and again for so many seconds, and prints a line per round. Exit 4 when something kept a
table from being tended; but two that work again and again may meet at a table: the second leaves it to the first, and goes on.
"""

from __future__ import annotations

import sys
import time

from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from tests.lake_windows import closing


def main(path: str, policy: Policy, seconds: float, *length: str) -> int:
    until = time.monotonic() + seconds
    while True:
        done = Caretaker(path, policy, closing(f"{length[0]}s") if length else None).tend(all_periods=True)
        print(done.merged_files, done.states, done.swept_files, flush=True)
        if any(not seconds or "changed by another process" not in problem for problem in done.problems):
            print(done.problems, file=sys.stderr)
            return 4
        if time.monotonic() >= until:
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Policy.model_validate_json(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:]))
