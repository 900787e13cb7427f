"""As-of against an oracle that keeps all changes in memory: random changes, schema versions, commits and restarts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.lake.asof import as_of
from headrace.lake.commit import Manifest
from headrace.lake.parquet import verify_file
from headrace.sinks.lake import LakeSink
from headrace.storage.location import tree_at
from headrace.ums.schema import Column, TableSchema
from tests.lake_tables import ORDERS, at, changes, ids_in, open_sink, rows, table, time_of

ID32, ID64 = Column("id", pa.int32(), "int"), Column("id", pa.int64(), "bigint")
A32, A64 = Column("a", pa.int32(), "int"), Column("a", pa.int64(), "bigint")
B = Column("b", pa.utf8(), "text", initial_default="b0")
B_AGAIN = Column("b", pa.utf8(), "text", initial_default="b1")
PRICE = Column("p", pa.decimal128(8, 1), "decimal(8,1)", initial_default="1.5")
PRICE_WIDE = Column("p", pa.decimal128(12, 3), "decimal(12,3)", initial_default="1.500")
NOTE, C = replace(B_AGAIN, name="note", born_as="b"), replace(A64, name="c", born_as="a")
A_NEW = replace(A64, born_as="a@9", initial_default="7")
VERSIONS: list[TableSchema] = [
    table(*columns, version=version)
    for version, columns in enumerate(
        [
            (ID32, A32),
            (ID32, A32, B),
            (ID32, A64, B, PRICE),
            (ID64, A64, PRICE),
            (B_AGAIN, ID64, A64, PRICE_WIDE),
            (NOTE, ID64, C, A_NEW, PRICE_WIDE),
            (ID64, replace(C, name="a"), replace(A_NEW, name="c")),
        ]
    )
]


@dataclass(frozen=True)
class Change:
    id: int
    operation: str
    version: int
    values: dict[str, Any]


@dataclass
class Scenario:
    """A log of transactions, and what befalls the writer after each: "", "commit", or "restart"."""

    transactions: list[list[Change]] = field(default_factory=list)
    then: list[str] = field(default_factory=list)

    @property
    def changes(self) -> list[Change]:
        return [change for transaction in self.transactions for change in transaction]


def values_of(draw: st.DrawFn, version: int) -> dict[str, Any]:
    strategies: dict[str, st.SearchStrategy[Any]] = {
        "id": st.integers(1, 4),
        "a": st.none() | st.integers(-9, 9),
        "b": st.sampled_from([None, "x", "y"]),
        "c": st.none() | st.integers(-9, 9),
        "note": st.sampled_from([None, "x", "y"]),
        "p": st.none() | st.integers(-99, 99).map(lambda n: Decimal(n).scaleb(-1)),
    }
    return {column.name: draw(strategies[column.name]) for column in VERSIONS[version].columns}


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Ids grow; a first load beside the stream has negative ones, in any order. The version never goes back."""
    scenario, version, stream_id, load_ids = Scenario(), 0, 0, draw(st.permutations(range(-9, 0)))
    for _ in range(draw(st.integers(1, 14))):
        version = min(version + draw(st.sampled_from([0, 0, 0, 1, 2])), len(VERSIONS) - 1)
        transaction = []
        for _ in range(draw(st.integers(1, 4))):
            if load_ids and draw(st.integers(0, 3)) == 0:
                id_, operation = load_ids.pop(), "i"
            else:
                stream_id += draw(st.integers(1, 3))
                id_, operation = stream_id, draw(st.sampled_from("iuud"))
            transaction.append(Change(id_, operation, version, values_of(draw, version)))
        scenario.transactions.append(transaction)
        scenario.then.append(draw(st.sampled_from(["", "", "commit", "commit", "restart"])))
    return scenario


def deliver(scenario: Scenario, path: Path) -> None:
    """A follower in small: reads from the sink's position; a restart forgets what was not committed."""
    then = dict(enumerate(scenario.then))
    sink = open_sink(path)
    offset = 0
    while offset < len(scenario.transactions):
        write(sink, scenario.transactions[offset])
        event = then.pop(offset, "")
        offset += 1
        if event == "commit":
            sink.commit(at(offset))
        elif event == "restart":
            sink.close()
            sink = open_sink(path)
            position = sink.position("db1", 0)
            offset = 0 if position is None else position.offset
    sink.commit(at(offset))
    sink.close()


def write(sink: LakeSink, transaction: list[Change]) -> None:
    schema = VERSIONS[transaction[0].version]
    sink.write(changes(schema, *((c.id, c.operation, *c.values.values()) for c in transaction)))


def expected(happened: list[Change]) -> list[tuple[Any, ...]]:
    newest: dict[int, Change] = {}
    for change in sorted(happened, key=lambda change: change.id):
        newest[change.values["id"]] = change
    seen = sorted({change.version for change in happened})
    target = VERSIONS[seen[-1]].columns
    live = [change for change in newest.values() if change.operation != "d"]
    return sorted((tuple(value_in(c, change, seen) for c in target) for change in live), key=repr)


def value_in(column: Column, change: Change, seen: list[int]) -> Any:
    since = [VERSIONS[version] for version in seen if version >= change.version]
    if all(column.identity in [c.identity for c in schema.columns] for schema in since):
        names = {c.identity: c.name for c in VERSIONS[change.version].columns}
        value = change.values[names[column.identity]]
    else:
        text = column.initial_default
        is_text = text is None or pa.types.is_string(column.type)
        value = text if is_text else Decimal(text) if pa.types.is_decimal(column.type) else int(text)
    if isinstance(value, Decimal) and pa.types.is_decimal(column.type):
        return value.quantize(Decimal(1).scaleb(-column.type.scale))
    return value


@settings(max_examples=60, deadline=None)
@given(scenario=scenarios(), data=st.data())
def test_as_of_any_moment_is_what_a_replay_gives(scenario: Scenario, data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory)
        deliver(scenario, path)
        assert sorted(ids_in(path)) == sorted(change.id for change in scenario.changes), "nothing lost, nothing twice"
        for file in Manifest.open(path).files():
            verify_file(tree_at(path), file)
        assert rows(as_of(path, ORDERS)) == expected(scenario.changes)
        all_ids = [change.id for change in scenario.changes]
        for id_ in data.draw(st.lists(st.integers(min(all_ids), max(all_ids)), max_size=4)):
            check(path, scenario, id_)


def check(path: Path, scenario: Scenario, id_: int) -> None:
    by_id = [change for change in scenario.changes if change.id <= id_]
    by_time = [change for change in scenario.changes if time_of(change.id) <= time_of(id_)]
    if by_id:
        assert rows(as_of(path, ORDERS, id=id_)) == expected(by_id)
    if by_time:
        assert rows(as_of(path, ORDERS, time=time_of(id_))) == expected(by_time)
