"""``headrace log``: what people and programs see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.log import log_group
from headrace.errors import ConfigError, HeadraceError
from headrace.log.base import Entry
from headrace.log.directory import DirectoryLog
from headrace.ums.change import MARK_KEY, Mark


def run(*arguments: str) -> list[str]:
    result = CliRunner().invoke(log_group, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output.splitlines()


@pytest.fixture
def path(tmp_path: Path) -> str:
    log = DirectoryLog(DirectoryLog.Config(path=tmp_path / "log"))
    for number in range(3):
        mark = Mark("db1", {"file": "binlog.1", "pos": number}, number, 0)
        log.append("mysql.db1", 0, [Entry(MARK_KEY, mark.to_block(), 1_700_000_000_000 + number * 1000)])
    log.append("other", 2, [Entry(b"k", b"not a block", 1 << 62)])
    log.close()
    return str(tmp_path / "log")


def test_ls(path: str) -> None:
    assert run("ls", path) == [
        "mysql.db1  partition 0  offsets 0 to 3",
        "other  partition 2  offsets 0 to 1",
    ]
    assert [json.loads(line) for line in run("ls", path, "--json")] == [
        {"topic": "mysql.db1", "partition": 0, "start": 0, "stop": 3},
        {"topic": "other", "partition": 2, "start": 0, "stop": 1},
    ]


def test_stat(path: str) -> None:
    rows = [json.loads(line) for line in run("stat", path, "--json")]
    assert [(row["segments"], row["epoch"], row["state"], row["newest"]) for row in rows] == [
        (1, 1, "closed", "2023-11-14T22:13:22.000+00:00"),
        (1, 1, "closed", f"{1 << 62} ms"),
    ]
    assert "segments 1 " in run("stat", path)[0]


def test_cat(path: str) -> None:
    rows = [json.loads(line) for line in run("cat", path, "mysql.db1", "--json")]
    assert [row["header"]["position"]["pos"] for row in rows] == [0, 1, 2]
    assert rows[1]["key"] == "~mark"
    assert len(run("cat", path)) == 4
    assert run("cat", path, "other")[0].endswith("not a headrace block")


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--from", "1"], [1, 2]),
        (["--to", "1"], [0]),
        (["--since", "2023-11-14 22:13:21"], [1, 2]),
        (["--partition", "0", "--from", "9"], []),
    ],
)
def test_cat_of_a_part(path: str, options: list[str], offsets: list[int]) -> None:
    assert [json.loads(line)["offset"] for line in run("cat", path, "mysql.db1", "--json", *options)] == offsets


@pytest.mark.parametrize("verb", ["ls", "cat", "stat"])
@pytest.mark.parametrize("where", ["nowhere", "kafka://host/topic", "."])
def test_what_is_not_a_log(tmp_path: Path, verb: str, where: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ConfigError) as raised:
        run(verb, where if "://" in where else str(tmp_path / where))
    assert raised.value.fix


def test_cat_of_a_topic_that_is_not_there(path: str) -> None:
    with pytest.raises(HeadraceError, match="no such topic") as raised:
        run("cat", path, "mysql.db2")
    assert "mysql.db1, other" in raised.value.fix
