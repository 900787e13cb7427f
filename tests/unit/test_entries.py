"""What the log holds in each form, and that all forms say the same."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.codec.entries import EntryReader, EntryWriter, table_of
from headrace.codec.ums import UmsNotice, UmsReader, UmsWriter, is_heartbeat, is_mark
from headrace.codec.ums_schema import Dialect, Kind
from headrace.errors import CorruptError
from headrace.log.base import Entry, EntryForm, Form
from headrace.ums.change import Cause, ChangeBatch, Clear, End, Heartbeat, Mark, Statement
from headrace.ums.schema import ID, Column, Namespace, TableSchema
from tests.ums_tables import TABLE, example

CLEAR = Clear(
    TABLE, 103_000012347000, 1_460_391_814_345_001, Cause.DROPPED, Statement("DROP TABLE t", "binlog.000103:9")
)
RENAMED = tuple(replace(c, name="title", born_as="name") if c.name == "name" else c for c in TABLE.columns)
END = End(
    TABLE,
    replace(TABLE, columns=RENAMED).with_version(4),
    7,
    8,
    Statement("ALTER TABLE t RENAME COLUMN name TO title", "binlog.000103:4"),
)
MARK = Mark("db1", {"file": "binlog.000103", "offset": 12345, "gtid": "0-1-7"}, 103_000012347000, 1_460_391_814_345_001)
NOW_MS = 1_460_391_814_999
FORMS = [EntryForm(form) for form in Form] + [EntryForm(Form.UMS_DBUS, zone="Asia/Shanghai", rows=1)]


def said(entries: list[Entry]) -> list[object]:
    """Changes and marks of entries, without what is only for others."""
    reader = EntryReader()
    return [found for entry in entries if not isinstance(found := reader.read(entry), UmsNotice)]


def values(entry: Entry) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(entry.value)
    return found


def table(version: int) -> TableSchema:
    return TableSchema(
        Namespace("mysql", "db1", "shop", "a.b", version), (Column("id", pa.int64(), "bigint"),), ("id",)
    )


def batch(version: int, *ids: int) -> ChangeBatch:
    rows = [{ID: id_, "_ums_ts_": 5_000_000, "_ums_op_": "i", "_ums_commit_ts_": 9, "id": id_} for id_ in ids]
    return ChangeBatch(table(version), pa.RecordBatch.from_pylist(rows, schema=table(version).arrow_schema()))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form_gives_back_what_was_written(form: EntryForm) -> None:
    writer = EntryWriter(form, "mysql")
    written = [entry for change in (example(), CLEAR, END) for entry in writer.changes(change, NOW_MS)]
    entries = [*written, writer.mark(MARK, NOW_MS)]
    assert {entry.time_ms for entry in entries} == {NOW_MS}
    *batches, clear, end, mark = said(entries)
    assert (clear, end, mark) == (CLEAR, END, MARK)
    rows = [found for found in batches if isinstance(found, ChangeBatch)]
    assert len(rows) == len(batches)
    assert {found.table for found in rows} == {TABLE}
    found = pa.Table.from_batches([part.data for part in rows]).sort_by(ID)
    assert found.equals(pa.Table.from_batches([example().data]).sort_by(ID))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_heartbeats_of_sources_and_tables(form: EntryForm) -> None:
    writer = EntryWriter(form, "mysql")
    beats = [Heartbeat("db1", None, 103_000012347000, 1_460_391_814_345_001), Heartbeat("db1", TABLE.namespace, 5, 7)]
    entries = [writer.heartbeat(beat, NOW_MS) for beat in beats]
    assert said(entries) == beats
    assert not any(is_mark(entry.key) for entry in entries)
    of_source, of_table = (entry.key for entry in entries)
    assert is_heartbeat(of_source)
    assert is_heartbeat(of_table) or table_of(of_table) == str(TABLE.namespace).encode()


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_keys_tell_marks_and_tables_apart(form: EntryForm) -> None:
    writer = EntryWriter(form, "mysql")
    assert is_mark(writer.mark(MARK, 0).key)
    for entry in [*writer.changes(batch(3, 1), 0), *writer.changes(CLEAR, 0)]:
        assert not is_mark(entry.key)
        assert Namespace.parse(table_of(entry.key).decode()).all_versions in (
            "mysql.db1.shop.a%2Eb",
            TABLE.namespace.all_versions,
        )
    assert table_of(writer.changes(batch(3, 2), 0)[-1].key) == str(table(3).namespace).encode()


def test_a_mark_is_a_heartbeat_to_others() -> None:
    for form, key in [
        (Form.UMS, b"~mark"),
        (
            Form.UMS_DBUS,
            b"data_increment_heartbeat.mysql.db1.*.*.0.*.*.1460391814345|1460391814345|ok|db1.wh_placeholder",
        ),
    ]:
        entry = EntryWriter(EntryForm(form), "mysql").mark(MARK, 0)
        message = values(entry)
        assert entry.key == key
        assert message["protocol"]["type"] == "data_increment_heartbeat"
        assert message["schema"]["namespace"] == "mysql.db1.*.*.0.*.*"
        shift = 9 * 10**12 * 103 if form is Form.UMS_DBUS else 0
        assert message["payload"] == [{"tuple": [str(MARK.id + shift), "2016-04-11 16:23:34.345001"]}]


def test_truncate_is_a_heartbeat_of_the_table_to_wormhole() -> None:
    [entry] = EntryWriter(EntryForm(Form.UMS_DBUS), "mysql").changes(CLEAR, 0)
    message = values(entry)
    assert message["protocol"]["type"] == "data_increment_heartbeat"
    assert message["schema"]["namespace"] == str(TABLE.namespace)
    assert [field["name"] for field in message["schema"]["fields"]] == ["ums_id_", "ums_ts_"]


def test_rows_of_a_first_load_are_initial_data() -> None:
    writer = EntryWriter(EntryForm(Form.UMS_DBUS), "mysql")
    for ids, kinds in [((-9, -8), ["initial"]), ((1, 2), ["increment"]), ((-7, 3), ["initial", "increment"])]:
        entries = writer.changes(batch(0, *ids), 0)
        assert [values(entry)["protocol"]["type"] for entry in entries] == [f"data_{kind}_data" for kind in kinds]
        assert all(entry.key.startswith(values(entry)["protocol"]["type"].encode()) for entry in entries)
        assert [
            id_ for found in said(entries) if isinstance(found, ChangeBatch) for id_ in found.data[ID].to_pylist()
        ] == list(ids)


def test_the_end_of_a_version_is_a_termination_to_others() -> None:
    for form in (Form.UMS, Form.UMS_DBUS):
        [entry] = EntryWriter(EntryForm(form), "mysql").changes(END, 0)
        message = values(entry)
        del message["protocol"]["context"]
        [notice] = UmsReader().read([json.dumps(message).encode()])
        assert notice == UmsNotice(Kind.TERMINATION, TABLE.namespace, None, END.commit_ts_us)
        assert table_of(entry.key) == str(TABLE.namespace).encode()


def test_a_renamed_column_is_known_again() -> None:
    rows = ChangeBatch(
        END.successor, pa.RecordBatch.from_arrays(example().data.columns, schema=END.successor.arrow_schema())
    )
    for form in FORMS:
        [first, *_] = said(EntryWriter(form, "mysql").changes(rows, 0))
        assert isinstance(first, ChangeBatch)
        assert first.table == END.successor


def test_messages_keep_to_what_the_log_takes() -> None:
    usual = EntryWriter(EntryForm(Form.UMS), "mysql").changes(batch(0, *range(1, 700)), 0)
    assert [len(values(entry)["payload"]) for entry in usual] == [500, 199]
    small = EntryWriter(EntryForm(Form.UMS, most_bytes=4000), "mysql").changes(batch(0, *range(1, 700)), 0)
    assert max(len(entry.value) for entry in small) <= 4000
    assert len(small) > 10
    few = EntryWriter(EntryForm(Form.UMS, rows=300, size_bytes=1 << 30, most_bytes=1 << 20), "mysql")
    assert [len(values(entry)["payload"]) for entry in few.changes(batch(0, *range(1, 700)), 0)] == [300, 300, 99]


def test_headers_are_the_same_in_every_form() -> None:
    for change in (batch(0, 7, 8), Clear(table(0), 3, 4)):
        headers = [EntryReader().header(EntryWriter(form, "mysql").changes(change, 0)[0]) for form in FORMS[:3]]
        assert headers[0] == headers[1] == headers[2]
    assert [EntryReader().header(EntryWriter(form, "mysql").mark(MARK, 0)) for form in FORMS] == [MARK.header()] * 4
    assert [EntryReader().header(EntryWriter(form, "mysql").changes(END, 0)[0]) for form in FORMS] == [END.header()] * 4


def test_blocks_are_given_whatever_the_form_is() -> None:
    for form in FORMS[:3]:
        writer = EntryWriter(form, "mysql")
        [entry] = writer.changes(batch(0, 7, 8), 0)
        assert EntryReader().block(entry) == batch(0, 7, 8).to_block()
        assert EntryReader().block(writer.mark(MARK, 0)) == MARK.to_block()
        assert EntryReader().block(writer.changes(END, 0)[0]) == END.to_block()
    heartbeat = UmsWriter(Dialect.HEADRACE).heartbeat(TABLE.namespace, 1, 2)
    assert EntryReader().block(Entry(*heartbeat, 0)) is None


def damaged_mark(**changed: object) -> bytes:
    message = values(EntryWriter(EntryForm(Form.UMS), "mysql").mark(MARK, 0))
    message["protocol"]["context"]["mark"] |= changed
    return json.dumps(message).encode()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not a headrace block"),
        (b"HRB0", "not a headrace block"),
        (b"{", "not UMS at byte 1"),
        (b'{"op": "c"}', "no protocol"),
        (damaged_mark(id="7"), "a mark lacks its source, position, id or time"),
        (damaged_mark(position=[]), "a mark lacks its source, position, id or time"),
    ],
)
def test_what_is_of_no_form_is_refused(value: bytes, reason: str) -> None:
    with pytest.raises(CorruptError, match=reason) as raised:
        EntryReader().read(Entry(b"k", value, 0))
    assert raised.value.fix
    assert EntryReader().header(Entry(b"k", value, 0)) is None
