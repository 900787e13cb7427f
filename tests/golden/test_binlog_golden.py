"""Recorded binary logs decode to exactly the values beside them, and what cannot be decoded row by row is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.capture.definitions import Definitions, decode_defined
from headrace.cli.jsonl import jsonl_lines
from headrace.codec.binlog import BinlogReader, Ddl, DefinedColumn, Definition, Rows
from headrace.errors import HeadraceError, SourceError
from headrace.ums.schema import SYSTEM_FIELDS

DATA = Path(__file__).parent / "binlog"


def lines(name: str) -> tuple[list[str], HeadraceError | None]:
    reader = BinlogReader(["*.*"], before_images=True)
    found: list[str] = []
    definitions = Definitions(lambda _schema, _table: True)
    try:
        with (DATA / name).open("rb") as file:
            for decoded in decode_defined(reader, definitions, file, name):
                found.extend(jsonl_lines(decoded.items))
        reader.finish()
    except HeadraceError as error:
        return found, error
    return found, None


def items(name: str, include: list[str]) -> tuple[Rows | Ddl, ...]:
    reader = BinlogReader(include)
    reader.start(name)
    reader.feed((DATA / name).read_bytes())
    return reader.take().items


@pytest.mark.parametrize(
    ("name", "expected"),
    [("mysql9-cut.000005", "mysql9-cut.jsonl"), ("mysql8-txpayload.000011", "mysql8-txpayload.jsonl")],
)
def test_every_type_of_mysql(name: str, expected: str) -> None:
    found, error = lines(name)
    assert error is None
    assert found == (DATA / expected).read_text().splitlines()


def test_a_log_without_names_is_read_with_its_own_statements() -> None:
    found, error = lines("mysql8-minmeta-cut.000013")
    assert error is None
    assert found == (DATA / "mysql8-minmeta-cut.jsonl").read_text().splitlines()


def test_a_log_without_names_is_refused_for_capture() -> None:
    reader = BinlogReader(["*.*"], names_required=True)
    reader.start("mysql8-minmeta-cut.000013")
    with pytest.raises(SourceError, match=r"000013 at \d+: table minmeta\.alltypes: the log does not say the names"):
        reader.feed((DATA / "mysql8-minmeta-cut.000013").read_bytes())


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((), r"it has 3 columns in the log, and 0 in its definition"),
        (
            (("a", "bigint"), ("b", "varchar"), ("c", "decimal")),
            r"column a is bigint in the definition .*, and not in the log",
        ),
        ((("a", "int"), ("b", "varchar"), ("c", "hypercube")), r"column c is hypercube in the definition"),
    ],
)
def test_a_definition_of_another_table_is_refused_for_capture(
    columns: tuple[tuple[str, str], ...], message: str
) -> None:
    defined = tuple(DefinedColumn(name, kind, False, "latin1", ()) for name, kind in columns)
    reader = BinlogReader(["minmeta.nopk"], names_required=True)
    reader.define("minmeta", "nopk", Definition(defined, ()))
    reader.start("mysql8-minmeta-cut.000013")
    with pytest.raises(SourceError, match=rf"at \d+: table minmeta\.nopk: {message}"):
        reader.feed((DATA / "mysql8-minmeta-cut.000013").read_bytes())


def test_what_was_decoded_before_a_refusal_is_kept() -> None:
    found, error = lines("maria-special.mariabin.000011")
    assert found == (DATA / "maria-special.jsonl").read_text().splitlines()
    assert isinstance(error, SourceError)
    assert error.message == (
        "maria-special.mariabin.000011 at 2132: INSERT INTO in schema 'cc' is in the log as a statement, without its rows"
    )


def test_logs_without_rows_are_refused() -> None:
    found, error = lines("mysql8-statement.binlog.000017")
    assert not found
    assert isinstance(error, SourceError)
    assert "at 715: INSERT INTO in schema 'st'" in error.message
    assert "binlog_format=ROW" in error.fix


def test_encrypted_files_are_refused() -> None:
    magic = b"\xfdbin"
    reader = BinlogReader(["*.*"])
    reader.start("binlog.000001")
    with pytest.raises(SourceError, match="encrypted"):
        reader.feed(magic)


def test_batches_begin_with_the_system_columns() -> None:
    for item in items("mysql9-cut.000005", ["*.*"]):
        if isinstance(item, Rows):
            item.data.validate(full=True)
            assert tuple(item.data.schema)[: len(SYSTEM_FIELDS)] == SYSTEM_FIELDS
            assert item.data.schema.names[len(SYSTEM_FIELDS) :] == [column.name for column in item.table.columns]


def test_a_minimal_row_image_shows_what_the_log_has() -> None:
    found, error = lines("maria10-minimal.000003")
    assert error is None
    images = [(change["op"], change["before"], change["after"]) for change in map(json.loads, found)]
    whole = {"id": 1, "a": 2, "b": "x"}
    assert images == [
        ("i", None, {"id": 1}),
        ("u", {"id": 1}, {"b": "x"}),
        ("u", {"id": 1}, {"id": 2}),
        ("d", {"id": 2}, None),
        ("i", None, whole),
        ("u", whole, whole | {"id": 7}),
        ("i", None, whole | {"id": 8}),
    ]


def test_rows_that_are_not_whole_are_refused_for_capture() -> None:
    with pytest.raises(
        SourceError, match=r"at 712: table md\.mi: a row of md\.mi has only 1 of its 3 columns"
    ) as raised:
        items("maria10-minimal.000003", ["*.*"])
    assert "binlog_row_image=FULL" in raised.value.fix


def test_a_changed_key_is_a_delete_and_an_insert() -> None:
    log = (DATA / "maria10-minimal.000003").read_bytes()
    first_whole = json.loads(lines("maria10-minimal.000003")[0][4])
    reader = BinlogReader(["md.*"])
    # The insert's GTID, annotation and table map stand before its row event.
    reader.start("maria10-minimal.000003", _transaction_start(log, first_whole["offset"]), head=log[:1024])
    reader.feed(log[_transaction_start(log, first_whole["offset"]) :])
    (rows,) = reader.take().items
    assert isinstance(rows, Rows)
    data = rows.data.to_pydict()
    assert data["_ums_op_"] == ["i", "d", "i", "i"]
    assert data["id"] == [1, 1, 7, 8]
    assert data["_ums_id_"] == sorted(data["_ums_id_"])
    assert data["_ums_raw_"] == [None] * 4


def _transaction_start(log: bytes, offset: int) -> int:
    """Where the GTID event (type 162) stands that opens the transaction around `offset`."""
    start = event = 4
    while event < offset:
        if log[event + 4] == 162:
            start = event
        event += int.from_bytes(log[event + 9 : event + 13], "little")
    return start


def test_ddl_stands_between_the_versions_of_a_table() -> None:
    found = items("mysql9-cut.000005", ["small.alltypes"])
    kinds = [item.sql.split()[0] if isinstance(item, Ddl) else f"v{item.index}" for item in found]
    versions = ["create", "create", "v0", "alter", "v1", "alter", "v2", "rename", "rename", "alter", "v3"]
    assert kinds[: len(versions)] == versions
    ids = [item.id if isinstance(item, Ddl) else item.data.column(0)[0].as_py() for item in found]
    assert ids == sorted(ids)


def test_tables_are_described() -> None:
    rows = next(item for item in items("mysql9-cut.000005", ["small.customer"]) if isinstance(item, Rows))
    assert rows.table.key == ("c_w_id", "c_d_id", "c_id")
    assert rows.table.named
    described = {column.name: column.source_type for column in rows.table.columns}
    assert described["c_discount"] == "decimal(4,4)"
    assert described["c_state"] == "char(2)"
    assert rows.data.schema.field("c_since").type == pa.timestamp("us")


def test_only_wanted_tables_are_decoded() -> None:
    names = {
        item.table.table for item in items("mysql9-cut.000005", ["small.order*", "other.*"]) if isinstance(item, Rows)
    }
    assert names == {"orders", "order_line"}
    assert not [item for item in items("mysql9-cut.000005", []) if isinstance(item, Rows)]
