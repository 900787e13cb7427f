"""The program in docs/how-to/hbase-wal.md runs as it stands there, but for its path and its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "hbase"


def test_the_example_of_the_client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = tmp_path / "oldWALs"
    old.mkdir()
    for path in GOLDEN.glob("plain-*"):
        if path.suffix != ".gz":
            (old / path.name.removeprefix("plain-")).write_bytes(path.read_bytes())
    [program] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "hbase-wal.md").read_text(), re.DOTALL)
    changed = {
        "hdfs://namenode:8020/hbase": str(tmp_path),
        "shop:*": "ns1:*",
        "until=lambda: False": "until=lambda: not client.poll()",
    }
    for written, meant in changed.items():
        assert written in program
        program = program.replace(written, meant)
    exec(program.replace("datetime(2026, 1, 31", "datetime(2020, 1, 31"), {})
    lines = capsys.readouterr().out.splitlines()
    assert sum(line.startswith("ns1:orders b'r") for line in lines) > 900
    assert any(line.endswith("HBASE::BULK_LOAD") for line in lines)
