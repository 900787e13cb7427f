"""``headrace lake compact|retain|purge|purges|history``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli.lake import lake
from headrace.errors import ConfigError
from headrace.lake.commit import Manifest
from tests.lake_tables import ID_NAME, ORDERS, changes, ids_in, land


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three small files of long ago: an update and a delete among five changes."""
    land(tmp_path, changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "b")), offset=1)
    land(tmp_path, changes(ID_NAME, (3, "u", 1, "aa"), (4, "d", 2, "b")), offset=2)
    land(tmp_path, changes(ID_NAME, (5, "i", 3, "c")), offset=3)
    return tmp_path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(lake, [str(argument) for argument in arguments], catch_exceptions=False)


def lines(*arguments: object) -> list[dict[str, object]]:
    return [json.loads(line) for line in run(*arguments, "--format", "jsonl").output.splitlines()]


def test_compact_merges_and_tells(path: Path) -> None:
    assert "3 files" in run("compact", path).output
    assert ids_in(path) == [1, 2, 3, 4, 5]
    assert json.loads(run("compact", path, ORDERS, "--grace", "0", "--json").output)["swept_files"] == 3


def test_retain_gives_up_what_was_overwritten(path: Path) -> None:
    assert "2 overwritten changes given up" in run("retain", path, "--keep", "1d").output
    assert sorted(ids_in(path)) == [3, 4, 5]
    with pytest.raises(ConfigError, match=rf"keeps the history of {ORDERS} from 2026-01-01T00:00:04"):
        run("asof", path, ORDERS, "--id", 1)
    assert lines("asof", path, ORDERS, "--id", 4) == [{"id": 1, "name": "aa"}]


def test_purge_and_its_record(path: Path) -> None:
    assert (
        "2 changes deleted from 2 files" in run("purge", path, ORDERS, "--key", "id=1", "--reason", "request 17").output
    )
    assert sorted(ids_in(path)) == [2, 4, 5]
    assert lines("asof", path, ORDERS, "--id", 2) == [{"id": 2, "name": "b"}]
    (record,) = [json.loads(line) for line in run("purges", path, "--key", "id=1", "--json").output.splitlines()]
    assert (record["reason"], record["rows"], record["table"]) == ("request 17", 2, ORDERS)
    assert run("purges", path, "--key", "id=2", "--json").output == ""
    assert "request 17" in run("purges", path).output
    assert len(Manifest.open(path).retired) == 2
    assert (
        json.loads(run("purge", path, ORDERS, "--key", "id=9", "--reason", "r", "--grace", 0, "--json").output)["rows"]
        == 0
    )
    assert not Manifest.open(path).retired
    assert not list(path.rglob("*.retired"))


def test_history_of_a_table_and_of_a_key(path: Path) -> None:
    assert [(row["_ums_id_"], row["_ums_op_"]) for row in lines("history", path, ORDERS)] == [
        (1, "i"), (2, "i"), (3, "u"), (4, "d"), (5, "i"),
    ]  # fmt: skip
    assert [row["name"] for row in lines("history", path, ORDERS, "--key", "id=1")] == ["a", "aa"]
    assert [row["_ums_id_"] for row in lines("history", path, ORDERS, "--after-id", 1, "--id", 3)] == [2, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compact", "{path}/nowhere"], "there is no lake"),
        (["compact", "{path}", "mysql.db1.shop.order"], "has no table"),
        (["compact", "{path}", f"{ORDERS}.0.0.0"], "is one version of a table"),
        (["purge", "{path}", ORDERS, "--key", "name=a", "--reason", "r"], "not a column of the key"),
        (["purge", "{path}", ORDERS, "--key", "id=one", "--reason", "r"], "is no value of column 'id'"),
        (["purge", "{path}", ORDERS, "--key", "id", "--reason", "r"], "does not say one column"),
        (["history", "{path}", ORDERS, "--key", "name=a"], "not a column of the key"),
        (["history", "{path}", ORDERS, "--key", "id=one"], "is no value of column 'id'"),
    ],
)
def test_wrong_use_is_a_config_error(path: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(*(argument.format(path=path) for argument in arguments))


def test_a_duration_that_is_none(path: Path) -> None:
    assert "write a duration such as" in run("retain", path, "--keep", "long").output
