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


def test_a_command_without_its_extra_says_which() -> None:
    """As on a machine where only the core is installed: the import of one package fails."""
    code = "import sys; sys.modules['argon2'] = None; sys.argv = ['headrace', 'user', '--help']; from headrace.cli.main import main; main()"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert asked.returncode == 2
    assert asked.stderr.splitlines()[-1] == "  what to do: pip install 'headrace[control]'"
