"""An upkeep of derived tables as a process of its own, to be killed: ``python -m tests.faults.lake_deriver LAKE DERIVE``; DERIVE is JSON."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.lake.commit import Manifest
from headrace.lake.derived.spec import Derive
from headrace.lake.derived.upkeep import derive

if __name__ == "__main__":
    done = derive(Manifest.open(Path(sys.argv[1])), Derive.model_validate_json(sys.argv[2]))
    print(done.tables, done.problems, flush=True)
    sys.exit(4 if done.problems else 0)
