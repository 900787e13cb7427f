"""What topics of each format become in a table, on the stand-in: messages of JSON, separated values and UMS, sent as JSON and as CSV."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.codec.ums import UmsWriter
from headrace.codec.ums_schema import Dialect
from headrace.errors import ConfigError, DataError
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.doris_loading import Loading, Messages, taken
from tests.servers.doris import Doris

TABLE = (
    "CREATE TABLE t (id BIGINT NOT NULL, name STRING NULL, amount DECIMAL(12,2) NULL, made STRING NULL DEFAULT 'here')"
)
DUPLICATE = f"{TABLE} DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1"


@pytest.fixture
def doris() -> Iterator[Doris]:
    with Doris() as server:
        yield server


def loading(doris: Doris, folder: Path, values: Sequence[bytes | None], **settings: object) -> Loading:
    """A loader whose topic has these messages."""
    made = Loading(doris, folder, {}, **settings)
    made.source = Messages({"t/0": len(values)}, lambda place, offset: taken(place, offset, values[offset]))
    return made


def refused(made: Loading) -> list[str]:
    with closing(made.store()) as store:
        return [reason for _, reason in store.refused("load_er", 100)]


BODIES: dict[str, dict[str, str]] = {
    "json": {"format": "json"},
    "plain csv": {"format": "csv"},
    "csv of Doris": {"format": "csv", "separator": "\x01", "lines": "\x02"},
    "enclosed csv": {"format": "csv", "separator": ",", "enclose": '"', "escape": "\\"},
    "long separators": {"format": "csv", "separator": "||", "lines": "\r\n", "enclose": "'", "escape": "\\"},
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("two_phase", [False, True], ids=["one phase", "two phases"])
def test_bodies_hold_what_messages_say(doris: Doris, tmp_path: Path, body: str, two_phase: bool) -> None:
    doris.sql(DUPLICATE)
    names = ["plain", "", None, "Zoë ä", 'a "b"', "back\\slash"]
    if body == "json" or "enclose" in BODIES[body]:
        names += ["\\N", "tab\tline\nend\r\n", "a||b,c'd'", "\x01\x02"]
    values = [json.dumps({"id": n, "who": {"name": name}, "amount": n / 4}).encode() for n, name in enumerate(names)]
    columns = {"name": "who.name"}
    loading(doris, tmp_path, values, body=BODIES[body], columns=columns, two_phase=two_phase).run()
    found = sorted(doris.rows("t", "id, name, amount"))
    assert found == [(n, name, f"{n / 4:.2f}") for n, name in enumerate(names)]


def test_what_a_plain_csv_cannot_hold_is_kept_or_stops_the_loader(doris: Doris, tmp_path: Path) -> None:
    doris.sql(DUPLICATE)
    names = ["plain", "\\N", "a\tb", "a\nb", "back\\slash"]
    values = [json.dumps({"id": n, "name": name}).encode() for n, name in enumerate(names)]
    made = loading(doris, tmp_path, values, body=BODIES["plain csv"])
    with pytest.raises(DataError, match=r"3 of 5 rows cannot be loaded:\n *t/0 at offset 1: a value is the text"):
        made.run()
    assert doris.rows("t") == []
    made.settings["bad_rows"] = 0.7
    made.run()
    assert doris.rows("t", "id, name") == [(0, "plain"), (4, "back\\slash")]
    assert [reason.partition(": ")[0] for reason in refused(made)] == [f"t/0 at offset {n}" for n in (1, 2, 3)]


@pytest.mark.parametrize("body", ["json", "csv of Doris"])
def test_topics_of_separated_values(doris: Doris, tmp_path: Path, body: str) -> None:
    doris.sql(DUPLICATE)
    messages = {
        "format": "csv", "fields": ["nr", "unused", "name", "amount"], "separator": ";", "lines": "|", "enclose": "'",
        "escape": "\\", "null": "NULL",
    }  # fmt: skip
    values = [b"1;x;'a;b|''c''';2.5", b"2;x;NULL;NULL|3;x;'NULL';|", b"4;x;\\;y;0.25", b"5;too few", b"'6;x"]
    settings = {"messages": messages, "columns": {"id": "nr"}, "bad_rows": 0.6, "body": BODIES[body], "batch_rows": 50}
    made = loading(doris, tmp_path, values, **settings, batch_wait=0.2)
    made.run()
    found = doris.rows("t", "id, name, amount, made")
    assert found == [(1, "a;b|'c'", "2.50", "here"), (2, None, None, "here"), (4, ";y", "0.25", "here")]
    told = "\n".join(refused(made))
    assert "offset 3: a record has more or fewer fields than `fields`: 5;too few" in told
    assert "offset 4: an enclosure is not closed: '6;x" in told
    assert "Reason: column_name[amount]" in told  # Doris says so: an empty text is no number


ORDERS = TableSchema(
    Namespace("mysql", "db1", "shop", "orders", 0),
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("name", pa.utf8(), "varchar"),
        Column("amount", pa.decimal128(12, 2), "decimal(12,2)"),
        Column("made", pa.date32(), "date"),
        Column("secret", pa.binary(), "blob"),
    ),
    ("id",),
)
OTHERS = TableSchema(Namespace("mysql", "db1", "shop", "others", 0), ORDERS.columns, ("id",))
UMS = {"format": "ums", "tables": ["mysql.*.shop.orders"]}
UNIQUE = (
    "CREATE TABLE t (id BIGINT NOT NULL, _ums_id_ BIGINT NOT NULL, {more}name STRING NULL, amount DECIMAL(12,2) NULL, made DATE NULL, secret STRING NULL)"
    ' UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1 PROPERTIES ("function_column.sequence_col" = "_ums_id_")'
)
HIDDEN = (
    "CREATE TABLE t (id BIGINT NOT NULL, name STRING NULL) UNIQUE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1"
    ' PROPERTIES ("function_column.sequence_type" = "{type}")'
)
LINES = {"messages": {"format": "csv", "fields": ["id", "name", "version"], "separator": ","}}


def changes(rows: Sequence[tuple[str, int, int, str | None]], table: TableSchema = ORDERS) -> list[bytes]:
    """Messages of changes: what was done, `_ums_id_`, the key and a name."""
    at = datetime(2026, 3, 2, 12, tzinfo=UTC)
    rest = {"amount": Decimal("1.50"), "made": date(2026, 3, 2), "secret": b"\x00\xff"}
    made = [
        {"_ums_id_": id_, "_ums_ts_": at, "_ums_op_": op, "_ums_commit_ts_": at, "id": key, "name": name, **rest}
        for op, id_, key, name in rows
    ]
    batch = ChangeBatch(table, pa.RecordBatch.from_pylist(made, schema=table.arrow_schema()))
    return [value for _, value in UmsWriter(Dialect.HEADRACE).rows(batch)]


@pytest.mark.parametrize("body", ["json", "enclosed csv"])
def test_changes_in_ums_and_deletes_by_the_delete_sign(doris: Doris, tmp_path: Path, body: str) -> None:
    doris.sql(UNIQUE.format(more=""))
    writer = UmsWriter(Dialect.HEADRACE)
    values = [
        *changes([("i", 10, 1, "one"), ("i", 11, 2, None), ("i", 12, 3, "three")]),
        *changes([("i", 13, 1, "another table's")], OTHERS),
        writer.heartbeat(ORDERS.namespace, 14, 0).value,
        *changes([("u", 15, 2, "two"), ("d", 16, 3, None), ("u", 9, 1, "older")]),
        writer.termination(ORDERS.namespace, 0).value,
    ]
    loading(doris, tmp_path, values, messages=UMS, body=BODIES[body]).run()
    assert doris.rows("t") == [
        (1, 10, "one", "1.50", "2026-03-02", "AP8="),
        (2, 15, "two", "1.50", "2026-03-02", "AP8="),
    ]


VERSIONS = [(1, "new", 7), (1, "old", 3), (2, "old", 1), (2, "new", 20), (3, "same", 5), (3, "later", 5)]


@pytest.mark.parametrize("messages", ["json", "csv"])
@pytest.mark.parametrize("body", ["json", "enclosed csv"])
def test_a_hidden_sequence_column_gets_what_the_file_says(
    doris: Doris, tmp_path: Path, messages: str, body: str
) -> None:
    doris.sql(HIDDEN.format(type="bigint"))
    if messages == "json":
        values = [json.dumps({"id": i, "name": name, "of": {"version": v}}).encode() for i, name, v in VERSIONS]
        settings: dict[str, object] = {"sequence": "of.version"}
    else:
        values = [f"{i},{name},{v}".encode() for i, name, v in VERSIONS]
        settings = {"sequence": "version", **LINES}
    loading(doris, tmp_path, values, body=BODIES[body], batch_rows=1, in_flight=1, **settings).run()
    assert doris.rows("t") == [(1, "new"), (2, "new"), (3, "later")]


def test_changes_in_ums_into_a_table_with_a_hidden_sequence_column(doris: Doris, tmp_path: Path) -> None:
    doris.sql(HIDDEN.format(type="bigint"))
    values = changes(
        [("i", 10, 1, "one"), ("u", 12, 2, "two"), ("d", 13, 3, None), ("u", 11, 2, "old"), ("u", 9, 3, "old")]
    )
    loading(doris, tmp_path, values, messages=UMS, batch_rows=1).run()
    assert doris.rows("t") == [(1, "one"), (2, "two")]


def test_names_of_columns_may_have_any_letters(doris: Doris, tmp_path: Path) -> None:
    doris.sql(
        "CREATE TABLE t (id BIGINT NOT NULL, `größe` INT NULL, `数量` INT NULL) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1"
    )
    values = [json.dumps({"id": 1, "größe": 2, "数量": 3}, ensure_ascii=False).encode()]
    loading(doris, tmp_path, values).run()
    assert doris.rows("t") == [(1, 2, 3)]


def test_names_of_columns_may_be_written_in_capitals(doris: Doris, tmp_path: Path) -> None:
    doris.sql(DUPLICATE.replace("made STRING NULL DEFAULT 'here'", "loaded_by STRING NULL"))
    values = [json.dumps({"id": 1, "who": {"name": "Zoë"}}).encode()]
    made = loading(doris, tmp_path, values, columns={"NAME": "who.name"}, audit_column="Loaded_By")
    made.run()
    [(name, label)] = doris.rows("t", "name, loaded_by")
    assert name == "Zoë"
    assert label.startswith("hr-load_er-t-")


def test_changes_in_ums_where_columns_say_what_is_deleted(doris: Doris, tmp_path: Path) -> None:
    doris.sql(UNIQUE.format(more="`_is_active_` TINYINT NULL, "))
    values = changes([("i", 10, 1, "one"), ("i", 11, 2, "two"), ("d", 12, 1, None)])
    loading(doris, tmp_path, values, messages=UMS).run()
    assert doris.rows("t", "id, `_is_active_`") == [(1, 0), (2, 1)]


def test_changes_in_ums_as_a_log_of_them(doris: Doris, tmp_path: Path) -> None:
    doris.sql(
        "CREATE TABLE t (id BIGINT NOT NULL, _ums_op_ STRING NULL, _ums_ts_ DATETIME(6) NULL, loaded_by STRING NULL)"
        " DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1"
    )
    values = changes([("i", 10, 1, "one"), ("i", 11, 2, "two"), ("d", 12, 1, None)])
    made = loading(doris, tmp_path, values, messages=UMS, audit_column="loaded_by")
    made.run()
    found = doris.rows("t", "id, _ums_op_, _ums_ts_")
    assert found == [(n, op, "2026-03-02 12:00:00.000000") for n, op in ((1, "d"), (1, "i"), (2, "i"))]
    with closing(made.store()) as store:
        assert {row[0] for row in doris.rows("t", "loaded_by")} == {row.label for row in store.rows("load_er", 1)}


def test_what_is_no_change_is_told(doris: Doris, tmp_path: Path) -> None:
    doris.sql(UNIQUE.format(more=""))
    writer = UmsWriter(Dialect.HEADRACE)
    values = [
        *changes([("i", 10, 1, "one")]), b"no UMS", None, writer.clear(Clear(ORDERS, 12, 0)).value,
        writer.clear(Clear(OTHERS, 12, 0)).value, *changes([("i", 13, 2, "two")]),
    ]  # fmt: skip
    made = loading(doris, tmp_path, values, messages=UMS, batch_rows=len(values), batch_wait=60)
    with pytest.raises(DataError, match="3 of 5 rows cannot be loaded"):
        made.run()
    made.settings["bad_rows"] = 0.6
    made.run()
    assert [row[0] for row in doris.rows("t")] == [1, 2]
    told = "\n".join(refused(made))
    emptied = f"{ORDERS.namespace} was emptied at its source"
    for reason in ("offset 1: not UMS", "offset 2: it has no value", emptied):
        assert reason in told


@pytest.mark.parametrize(
    ("table", "settings", "message"),
    [
        (DUPLICATE, {"messages": UMS}, "cannot say that a row was deleted"),
        (
            UNIQUE.format(more="").replace('= "_ums_id_"', '= "id"'),
            {"messages": UMS},
            "not _ums_id_ as its sequence",
        ),
        (HIDDEN.format(type="int"), {"messages": UMS}, "not _ums_id_ as its sequence"),
        (HIDDEN.format(type="bigint"), {}, "nothing says what it gets"),
        (HIDDEN.format(type="bigint"), {**LINES, "sequence": "at"}, "no field at that `sequence` asks for"),
        (DUPLICATE, {"sequence": "at"}, "no hidden sequence column"),
        (DUPLICATE, {"columns": {"nobody": "name"}}, "has no column nobody"),
        (DUPLICATE, {"audit_column": "nobody"}, "has no column nobody"),
        (
            DUPLICATE,
            {"messages": {"format": "csv", "fields": ["a"]}, "columns": {"id": "b"}},
            "no field is for the column id",
        ),
        (DUPLICATE, {"messages": {"format": "csv", "fields": ["a"]}}, "no field is for any column"),
        (DUPLICATE, {"partitions": {"unit": "day"}}, "has no range partitions"),
    ],
)
def test_what_does_not_fit_together_is_told_before_anything_is_sent(
    doris: Doris, tmp_path: Path, table: str, settings: dict[str, object], message: str
) -> None:
    doris.sql(table)
    with pytest.raises(ConfigError, match=message):
        loading(doris, tmp_path, [b"{}"], **settings).run()
    assert doris.transactions.begun == []
