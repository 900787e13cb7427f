"""``headrace log``: what people and programs see."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner

from headrace.cli.log import log_group
from headrace.codec.entries import EntryWriter
from headrace.codec.ums import UmsReader, UmsRows
from headrace.errors import ConfigError, CorruptError, HeadraceError
from headrace.log.base import Entry, EntryForm, Form
from headrace.log.directory import DirectoryLog
from headrace.ums.change import MARK_KEY, ChangeBatch, Clear, Mark
from headrace.ums.schema import Column, Namespace, TableSchema


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
        {"topic": "mysql.db1", "partition": 0, "start": 0, "stop": 3, "readers": []},
        {"topic": "other", "partition": 2, "start": 0, "stop": 1, "readers": []},
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
    assert run("cat", path, "other")[0].endswith("neither a block of headrace nor UMS")


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        (["--from", "1"], [1, 2]),
        (["--to", "1"], [0]),
        (["--since", "2023-11-14 22:13:21"], [1, 2]),
        (["--since", "2024-01-01"], []),
        (["--until", "2023-11-14 22:13:22"], [0, 1]),
        (["--since", "2023-11-14 22:13:21", "--until", "2023-11-14 22:13:22"], [1]),
        (["--from", "2", "--since", "2023-11-14 22:13:20"], [2]),
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


def changes() -> ChangeBatch:
    table = TableSchema(
        Namespace("mysql", "db1", "shop", "t"),
        (Column("id", pa.int64(), "bigint"), Column("at", pa.timestamp("us"), "datetime")),
        ("id",),
    )
    system = {"_ums_ts_": 1_500_000, "_ums_commit_ts_": 2_000_000}
    rows = [
        {"_ums_id_": 1, "_ums_op_": "i", "id": 7, "at": 0},
        {"_ums_id_": 2, "_ums_op_": "d", "id": 7, "_ums_raw_": '{"at":"0000-00-00 00:00:00"}'},
    ]
    return ChangeBatch(table, pa.RecordBatch.from_pylist([system | row for row in rows], schema=table.arrow_schema()))


@pytest.mark.parametrize("form", Form)
def test_cat_shows_what_is_in_entries_of_every_form(tmp_path: Path, form: Form) -> None:
    log, writer = DirectoryLog(DirectoryLog.Config(path=tmp_path / "log")), EntryWriter(EntryForm(form), "mysql")
    mark = Mark("db1", {"file": "binlog.1"}, 3, 4)
    written = [*writer.changes(changes(), 0), *writer.changes(Clear(changes().table, 3, 4), 0), writer.mark(mark, 0)]
    log.append("db1", 0, written)
    log.close()
    head = '{"namespace": "mysql.db1.shop.t.0.0.0", '
    times = '"ums_ts": "1970-01-01 00:00:01.500000", "commit_ts": "1970-01-01 00:00:02.000000"'
    place = str(tmp_path / "log")
    assert run("cat", place, "--format", "jsonl") == [
        head + f'"ums_id": 1, {times}, "op": "i", "row": {{"id": 7, "at": "1970-01-01 00:00:00"}}}}',
        head + f'"ums_id": 2, {times}, "op": "d", "row": {{"id": 7, "at": "0000-00-00 00:00:00"}}}}',
        head
        + '"ums_id": 3, "ums_ts": "1970-01-01 00:00:00.000004", "commit_ts": "1970-01-01 00:00:00.000004", "op": "clear", "row": null}',
    ]
    for wanted in (Form.UMS, Form.UMS_DBUS):
        lines = [line.encode() for line in run("cat", place, "--format", wanted.value)]
        assert [found.batch if isinstance(found, UmsRows) else found for found in UmsReader().read(lines)] == [
            changes(),
            Clear(changes().table, 3, 4),
            mark,
        ]
    kinds = [json.loads(line)["header"]["kind"] for line in run("cat", place, "--json")]
    assert kinds == ["changes", "clear", "mark"]


def test_cat_says_where_it_met_what_is_no_change(path: str) -> None:
    with pytest.raises(CorruptError, match=r"other/2, offset 0: .*not a headrace block"):
        run("cat", path, "other", "--format", "ums")


def test_cat_of_contents_wants_one_topic(path: str) -> None:
    with pytest.raises(ConfigError, match="several topics") as raised:
        run("cat", path, "--format", "jsonl")
    assert raised.value.fix == "name one: mysql.db1, other"
