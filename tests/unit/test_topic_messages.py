"""What messages on the topics of others become: versions of tables and their ends, and what full loads of a headrace may not bring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.capture.load.plan import Progress
from headrace.capture.seen_tables import SeenTables
from headrace.capture.topic_messages import IDS_PER_MESSAGE, Arrived, Interpreter, Refusal, Wanted, interpreter_of
from headrace.codec.entries import EntryWriter
from headrace.codec.ums import UmsWriter
from headrace.codec.ums_schema import Dialect
from headrace.errors import CorruptError, DataError, SourceError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.log.base import Entry, EntryForm, Form
from headrace.log.directory import DirectoryLog
from headrace.log.kafka.tail import Taken
from headrace.retry import Backoff
from headrace.sinks.memory import MemorySink
from headrace.stream.deliver import Follower
from headrace.ums.change import MARK_KEY, Cause, ChangeBatch, Clear, End, Mark, Statement
from headrace.ums.schema import Column, Namespace, TableSchema

ID, A, B = (Column(name, pa.int64(), "bigint") for name in ("id", "a", "b"))
NARROW = TableSchema(Namespace("mysql", "db1", "shop", "t", 3), (ID, A), ("id",))
WIDE = TableSchema(Namespace("mysql", "db1", "shop", "t", 4), (ID, A, B), ("id",))
Change = ChangeBatch | Clear | End


class Topics:
    """Messages as the source numbers them, and what becomes of them. `path`: where tables are kept."""

    def __init__(self, path: Path, form: str = "ums", *, skip: bool = False, behind: int = 0) -> None:
        self.tables = SeenTables(path, "kafka", "up1")
        self.tables.load()
        self.tables.go_on_behind(behind)
        self.refusal = Refusal(form, skip=skip)
        self._interpreter: Interpreter = interpreter_of(form, Wanted(self.tables, ["*"]), self.refusal, 0)
        self.id = behind

    def take(self, *messages: tuple[str, bytes]) -> list[Change]:
        """The changes of messages (topic, value) that are taken together; the tables are saved."""
        arrived = []
        for topic, value in messages:
            arrived.append(Arrived(self.id + 1, Taken(f"{topic}/0", self.id // IDS_PER_MESSAGE, None, value, 1)))
            self.id += IDS_PER_MESSAGE
        changes = list(self._interpreter.changes(arrived))
        self.tables.save()
        return changes


def rows(table: TableSchema, *ids: int) -> ChangeBatch:
    """Inserts, each with its `_ums_id_` as every value."""
    columns = [column.name for column in table.columns]
    system = {"_ums_ts_": 7, "_ums_op_": "i", "_ums_commit_ts_": 7, "_ums_raw_": None}
    found = [{"_ums_id_": id_} | system | dict.fromkeys(columns, id_) for id_ in ids]
    return ChangeBatch(table, pa.RecordBatch.from_pylist(found, schema=table.arrow_schema()))


def ums(*changes: Change | Mark) -> list[bytes]:
    """What a headrace writes to its topics on Kafka."""
    writer = EntryWriter(EntryForm(Form.UMS), "mysql")
    entries: list[Entry] = []
    for change in changes:
        entries += [writer.mark(change, 0)] if isinstance(change, Mark) else writer.changes(change, 0)
    return [entry.value for entry in entries]


def canal(*data: dict[str, Any]) -> bytes:
    message = {"database": "shop", "table": "t", "type": "INSERT", "isDdl": False, "es": 5, "pkNames": ["id"]}
    return json.dumps(message | {"data": list(data)}).encode()


def versions(changes: list[Change]) -> list[int]:
    return [change.table.namespace.version for change in changes if isinstance(change, ChangeBatch)]


def ends(changes: list[Change]) -> list[tuple[int, int]]:
    found = [change for change in changes if isinstance(change, End)]
    return [(end.table.namespace.version, end.successor.namespace.version) for end in found]


def test_shapes_that_come_in_turn_are_a_version_each(tmp_path: Path) -> None:
    topics = Topics(tmp_path / "tables.json")
    narrow, wide = ums(rows(NARROW, 1), rows(WIDE, 2))
    changes = topics.take(("a", narrow), ("b", wide), ("a", narrow), ("b", wide))
    assert versions(changes) == [0, 1, 0, 1]
    assert ends(changes) == [(0, 1)]
    again = Topics(tmp_path / "tables.json", behind=topics.id)
    changes = again.take(("a", narrow), ("b", wide))
    assert versions(changes) == [0, 1], "older versions are kept in the file too"
    assert ends(changes) == []
    assert again.tables.tables() == [again.tables.known("shop", "t")]


def test_an_end_stands_before_the_first_row_of_a_version(tmp_path: Path) -> None:
    narrow, wide = ums(rows(NARROW, 1), rows(WIDE, 2))
    first, end, second = Topics(tmp_path / "tables.json").take(("a", narrow), ("b", wide))
    assert isinstance(end, End)
    assert (end.table, end.successor) == (first.table, second.table)
    assert (end.id, end.commit_ts_us) == (IDS_PER_MESSAGE, 7)
    assert end.statement == Statement(place="b/0:1")
    assert isinstance(second, ChangeBatch)
    assert second.id_range == (IDS_PER_MESSAGE + 1, IDS_PER_MESSAGE + 1)


def test_an_end_that_did_not_come_to_the_log_is_said_again(tmp_path: Path) -> None:
    """The file is ahead of the log after a crash between them."""
    narrow, wide = ums(rows(NARROW, 1), rows(WIDE, 2))
    topics = Topics(tmp_path / "tables.json")
    topics.take(("a", narrow))
    newest = topics.id
    assert ends(topics.take(("a", wide))) == [(0, 1)]
    again = Topics(tmp_path / "tables.json", behind=newest)
    assert ends(again.take(("a", narrow), ("a", wide), ("a", wide))) == [(0, 1)]
    assert ends(Topics(tmp_path / "tables.json", behind=again.id).take(("a", wide))) == []


def test_a_version_without_rows_ends_nothing(tmp_path: Path) -> None:
    """A message that is left out may have told of one."""
    topics = Topics(tmp_path / "tables.json", "canal", skip=True)
    topics.take(("a", canal({"id": 1})))
    assert topics.take(("a", canal({"id": 2, "a": 1}, {"id": 2, "_ums_id_": 1}))) == []
    [notice] = topics.refusal.take_notices()
    assert "a name that headrace needs" in notice
    assert ends(topics.take(("a", canal({"id": 3, "b": "x"})))) == [(0, 2)]


@pytest.mark.parametrize(
    ("form", "messages"),
    [
        ("canal", [canal({"id": 1}, {"id": 2, "b": 1})]),
        ("canal", [canal({"id": 1}), canal({"id": 2, "b": 1})]),
        ("ums", ums(rows(NARROW, 1), rows(WIDE, 2))),
    ],
)
def test_a_flow_that_is_to_fail_stops_at_a_new_version(tmp_path: Path, form: str, messages: list[bytes]) -> None:
    """Though both versions come as one unit, or even in one message."""
    topics = Topics(tmp_path / "tables.json", form)
    changes = topics.take(*(("a", message) for message in messages))
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=tmp_path / "log"))
    mark = Entry(MARK_KEY, Mark("up1", {}, topics.id, 7).to_block(), 0)
    log.append("up1", 0, [*(Entry(change.key(), change.to_block(), 0) for change in changes), mark])
    config = MemorySink.Config(type="memory", name=str(tmp_path))
    flow = FlowSpec.model_validate({"name": "f", "from": "kafka.up1", "to": config, "on_change": {"added": "fail"}})
    follower = Follower(lambda: MemorySink(config, "f"), Shaper(flow), log, "up1", 0, start=None)
    with pytest.raises(DataError, match=r"kafka.up1.shop.t has column\(s\) added: b, .* \(a/0:[01]: statement not"):
        follower.run(lambda: True, lambda offset: True, Backoff(0))
    log.close()


def mark_of_load() -> Mark:
    return Mark("db1", Progress(5).to_json(), -8, 7)


@pytest.mark.parametrize(
    ("topic", "loaded"),
    [
        ("any", [rows(NARROW, -9, -8)]),
        ("db1.load.2", [rows(NARROW, 4, 4)]),
        ("copy-of.db1.load.2", [Clear(NARROW, 3, 7)]),
        ("renamed", [rows(NARROW, 4, 4), mark_of_load()]),
        ("renamed", [Clear(NARROW, 3, 7), mark_of_load()]),
    ],
)
def test_full_loads_are_refused(tmp_path: Path, topic: str, loaded: list[Change | Mark]) -> None:
    """By their kind, by the topic's name, and by the mark that stands behind them."""
    captured, *rest = ums(rows(NARROW, 1), *loaded)
    messages = [("db1", captured), *((topic, message) for message in rest)]
    with pytest.raises(SourceError, match=rf"^offset 1 of {topic}/0 is of a full load") as raised:
        Topics(tmp_path / "a.json").take(*messages)
    assert "`bad_messages: skip`" in raised.value.fix
    lenient = Topics(tmp_path / "b.json", skip=True)
    [left] = lenient.take(*messages)
    assert left == Topics(tmp_path / "c.json").take(messages[0])[0]
    assert [notice.endswith("; it was left out") for notice in lenient.refusal.take_notices()] == [True]


def test_a_message_of_rows_before_updates_alone_says_nothing(tmp_path: Path) -> None:
    """DBus writes the row before an update beside the one after it, and may cut a message between them."""
    ((_, value),) = UmsWriter(Dialect.DBUS).rows(rows(NARROW, 1))
    topics = Topics(tmp_path / "tables.json")
    assert topics.take(("a", value.replace(b'"i"', b'"b"'))) == []
    assert versions(topics.take(("a", value))) == [0]


def test_a_captured_topic_is_no_load(tmp_path: Path) -> None:
    """Whatever it is called, and though loads go on beside it."""
    first, clear, mark = ums(rows(NARROW, 1), Clear(WIDE, 2, 9, Cause.DROPPED), Mark("db1", {"file": "b.000001"}, 2, 9))
    topics = Topics(tmp_path / "tables.json")
    assert topics.take(("shop.load.1", clear)) == [], "of a table that is not known there is nothing to clear"
    row, cleared = topics.take(("shop.load.1", first), ("shop.load.1", clear), ("shop.load.1", mark))
    assert cleared == Clear(row.table, 2 * IDS_PER_MESSAGE + 1, 9, Cause.DROPPED)
    assert topics.tables.tables() == [row.table], "a clear starts no version"


@pytest.mark.parametrize(
    "content", ["[]", '{"tables": [[]]}', '{"tables": [["AAAA"]]}', '{"tables": [[{"arrow": "A"}]]}']
)
def test_a_damaged_file_is_said(tmp_path: Path, content: str) -> None:
    (tmp_path / "tables.json").write_text(content)
    with pytest.raises(CorruptError, match=r"tables\.json is damaged"):
        Topics(tmp_path / "tables.json")
