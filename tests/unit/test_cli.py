"""The command line as a whole."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

RECORDED = Path(__file__).parents[2] / "examples" / "shop"


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    recorded = min((RECORDED / "binlog").glob("binlog.0*"))
    decode = subprocess.Popen(
        [sys.executable, "-m", "headrace", "decode", "binlog", str(recorded)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with decode:
        assert decode.stdout is not None
        assert decode.stderr is not None
        assert decode.stdout.readline().startswith(b'{"file"')
        decode.stdout.close()
        complaint = decode.stderr.read()
    assert (decode.returncode, complaint) == (0, b"")
