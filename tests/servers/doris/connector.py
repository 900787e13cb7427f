"""Validates the stand-in: the real spark-doris-connector writes through it, by both formats, in one phase by a sequence column and in two by a hidden one.

::

    python -m tests.servers.doris.connector [PYTHON]       PYTHON: the interpreter of an environment that has pyspark 3.5.9

The connector is for Spark 3.5, so it runs in an environment of its own, which is made in the user's cache when none is named (part of
`make test-long`). The rows that come out must be those
that went in, and its requests must be of the kinds that the stand-in was written for; what was seen is printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from tests.servers import jars
from tests.servers.doris import Doris

_HERE = Path(__file__).parent
_PASSWORD = "p@ss word"
_ROWS = [(n, f"note {n}", f"{n / 4:.2f}", n + 5000) for n in range(1000)]


def validate(python: str) -> dict[str, object]:
    """What was seen; AssertionError when rows are missing, twice or wrong."""
    with Doris(frontends=1, backends=2, password=_PASSWORD) as doris:
        for form in ("csv", "json"):
            for two_phase, sequence in (
                ("false", 'sequence_col" = "_ums_id_'),
                ("true", 'sequence_type" = "bigint'),
            ):
                doris.sql(
                    f"CREATE TABLE {form}_{two_phase} (id BIGINT NOT NULL, note VARCHAR(200), amount DECIMAL(12,2), _ums_id_ BIGINT)"
                    " UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1"
                    f' PROPERTIES ("function_column.{sequence}")'
                )
        jar = jars.class_path("connector", _HERE)
        job = [python, str(_HERE / "connector_job.py"), jar, doris.frontend_places[0], str(doris.sql_port), _PASSWORD]
        done = subprocess.run(job, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
        for form in ("csv", "json"):
            for two_phase in ("false", "true"):
                found = doris.rows(f"{form}_{two_phase}", "id, note, amount, _ums_id_")
                assert sorted(found) == _ROWS, (form, two_phase, len(found), found[:3])
        kinds = Counter(f"{role} {method} {urlsplit(path).path}" for role, method, path, _ in doris.seen)
        names = sorted({name for role, _, path, said in doris.seen if role == "be" for name in said})
        return {"rows": 4 * len(_ROWS), "requests": dict(kinds), "headers": names}


def _own_python() -> str:
    """The interpreter of an environment with pyspark 3.5.9."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "pyspark-3.5.9"
    python = folder / "bin" / "python"
    if not (folder / "made").exists():
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "pyspark==3.5.9"], check=True)
        (folder / "made").touch()
    return str(python)


if __name__ == "__main__":
    print(json.dumps(validate(sys.argv[1] if sys.argv[1:] else _own_python()), indent=1))
