"""Logs of MySQL 9.7 and MariaDB 10.11 with every column type hold what the servers themselves answered (record.py)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.record import DATABASE, FOLDER
from tests.oracle.answers import comparable
from tests.oracle.replay import KEY, Replay


@pytest.mark.parametrize("answered", sorted(FOLDER.glob("*-types.select.json")), ids=lambda path: path.name)
def test_the_log_replayed_is_what_the_server_answered(answered: Path) -> None:
    expected = json.loads(answered.read_text())
    name = answered.name.removesuffix(".select.json")
    [log] = FOLDER.glob(f"{name}.[0-9]*")
    replay = Replay().apply([log], DATABASE)
    assert replay.tables.keys() == expected["tables"].keys()
    for table, answer in expected["tables"].items():
        rows = [_stored(comparable(answer["types"], row)) for row in replay.tables[table].values()]
        assert sorted(rows, key=lambda row: row[KEY]) == sorted(answer["rows"], key=lambda row: row[KEY]), table


def _stored(value: Any) -> Any:
    """As a file of JSON keeps it: bits of numbers and addresses in hexadecimal digits."""
    return json.loads(json.dumps(value, default=bytes.hex))


def test_both_servers_are_there() -> None:
    versions = [json.loads(path.read_text())["server"] for path in FOLDER.glob("*-types.select.json")]
    assert {version.split(".")[0] for version in versions} == {"9", "10"}
    assert sum(path.stat().st_size for path in FOLDER.glob("*-types.*")) < 300_000
