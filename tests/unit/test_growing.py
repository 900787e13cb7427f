"""Where columns go in stores whose fields never move."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.on_change import OnChange
from headrace.sinks import growing
from headrace.sinks.cassandra import columns as cassandra_columns
from headrace.sinks.growing import Record, Records
from headrace.sinks.opensearch import documents as opensearch_documents
from headrace.testing.sink import ORDERS, batch_of, order, version_of
from headrace.ums.schema import Column, TableSchema
from headrace.ums.system_columns import USUAL

KEY, NOTE, AMOUNT = ORDERS.columns
OTHER = Column("other", pa.utf8(), "text", initial_default="none")


class Kept(Records):
    """A record in this process, by way of the form that stores keep."""

    def __init__(self) -> None:
        self.text = Record().to_json()
        self.filled: list[Record] = []

    def read(self, table: TableSchema) -> Record:
        return Record.from_json(self.text)

    def replace(self, table: TableSchema, old: Record, new: Record) -> bool:
        self.text = new.to_json()
        return True

    grow = replace

    def fill(self, table: TableSchema, record: Record) -> None:
        self.filled.append(record)


def settled(*versions: TableSchema) -> tuple[Record, list[Record]]:
    kept = Kept()
    for table in versions:
        growing.settled(kept, table, cassandra_columns.kind_of, OnChange(), USUAL)
    return kept.read(versions[-1]), kept.filled


def fields(record: Record) -> dict[str, str]:
    return {identity: place.name for identity, place in record.places.items()}


def test_a_renamed_column_goes_on_under_its_new_name() -> None:
    record, filled = settled(ORDERS, version_of(ORDERS, 1, KEY, replace(NOTE, name="text", born_as="note"), AMOUNT))
    assert fields(record) == {"id": "id", "note": "text", "amount": "amount"}
    assert (record.left, record.number) == ({"note": "text"}, 2)
    assert [(fill.name, fill.source) for fill in filled[0].fills] == [("text", "note")]
    assert record.fills == ()


def test_no_field_is_given_to_another_column() -> None:
    record, _ = settled(
        ORDERS,
        version_of(ORDERS, 1, KEY, NOTE, OTHER, AMOUNT),
        version_of(ORDERS, 2, KEY, replace(OTHER, name="note", born_as="other"), replace(NOTE, name="other", born_as="note"), AMOUNT),
        version_of(ORDERS, 3, KEY, replace(NOTE, name="text", born_as="note"), replace(NOTE, born_as="note@9"), AMOUNT),
    )  # fmt: skip
    assert fields(record) == {"id": "id", "note": "text", "amount": "amount", "other": "other", "note@9": "note_v3"}


def test_an_older_version_changes_nothing() -> None:
    later = version_of(ORDERS, 1, KEY, NOTE, OTHER, AMOUNT)
    assert settled(later, ORDERS)[0] == settled(later)[0]


def test_a_clear_overtakes_what_is_older() -> None:
    record = Record(cleared=5, cleared_us=7_000_000)
    batch = batch_of(ORDERS, [order(4, 1), order(5, 2), order(6, 3)])
    assert record.not_cleared(batch).data.column("id").to_pylist() == [2, 3]
    ended = record.overtaken(batch).data
    assert [ended.column(name).to_pylist() for name in ("id", "_ums_id_", "_ums_op_")] == [[1], [5], ["d"]]
    assert not len(Record().overtaken(batch))


@pytest.mark.parametrize(
    ("column", "held", "cassandra", "opensearch"),
    [
        (Column("c", pa.int32(), "int"), None, "bigint", "long"),
        (Column("c", pa.int64(), "bigint"), "bigint", "bigint", None),
        (Column("c", pa.uint64(), "bigint unsigned"), None, "varint", "unsigned_long"),
        (Column("c", pa.uint64(), "bigint unsigned"), "bigint", "varint", None),
        (Column("c", pa.uint64(), "bigint unsigned"), "long", None, "double"),
        (Column("c", pa.utf8(), "varchar(9)"), "bigint", "text", None),
        (Column("c", pa.utf8(), "varchar(9)"), "double", "text", "keyword"),
        (Column("c", pa.utf8(), "varchar(9)"), "text", "text", "text"),
        (Column("c", pa.utf8(), "longtext"), None, "text", "text"),
        (Column("c", pa.timestamp("us"), "datetime"), None, "timestamp", "date"),
        (Column("c", pa.timestamp("us"), "datetime(4)"), None, "text", "date"),
        (Column("c", pa.timestamp("us"), "datetime(4)"), "timestamp", "text", None),
    ],
)
def test_types_hold_what_was_and_what_comes(
    column: Column, held: str | None, cassandra: str | None, opensearch: str | None
) -> None:
    if cassandra is not None:
        assert cassandra_columns.kind_of(column, held) == cassandra
    if opensearch is not None:
        assert opensearch_documents.kind_of(column, held, unsigned_long=True) == opensearch


def test_binary_does_not_become_text() -> None:
    text = Column("c", pa.utf8(), "text")
    assert cassandra_columns.kind_of(text, "blob") is None
    assert opensearch_documents.kind_of(text, "binary", unsigned_long=True) is None
