"""The conformance suite of sinks.

A plug-in subclasses `SinkConformance` in its own tests and says how to open its store; every test below then runs against it.
What a store cannot do it declares in its capabilities, and the tests go by them::

    class TestMySink(SinkConformance):
        @pytest.fixture
        def open_sink(self, tmp_path):
            return lambda: MySink(MySink.Config(type="my", path=tmp_path / "store"), "flow")
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ConfigError, DataError, FatalError, Finding, HeadraceError, RetryableError
from headrace.retry import Backoff
from headrace.sinks.base import Position, Sink
from headrace.testing.awkward import AWKWARD
from headrace.ums.change import ChangeBatch, Clear, empty_batch
from headrace.ums.schema import SYSTEM_FIELDS, Column, Namespace, TableSchema
from headrace.ums.values import to_text

OpenSink = Callable[[], Sink]
Values = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Change:
    """One row of a batch: op (i, u or d), `_ums_id_`, the row's values."""

    op: str
    id: int
    values: Values


ORDERS = TableSchema(
    Namespace("mysql", "db1", "shop", "orders"),
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("note", pa.utf8(), "varchar(40)"),
        Column("amount", pa.decimal128(12, 2), "decimal(12,2)"),
    ),
    ("id",),
)

_MICROS = pa.timestamp("us")
_MICROS_UTC = pa.timestamp("us", "UTC")


def _days(*days: int | None) -> pa.Array[Any]:
    return pa.array(days, pa.int32()).view(pa.date32())


def _micros(kind: pa.DataType, *micros: int | None) -> pa.Array[Any]:
    return pa.array(micros, pa.int64()).view(kind)


_END_OF_9999_US = 253402300799_999_999
_START_OF_YEAR_0_US = -62167219200_000_000
_LONGEST_TIME_US = (838 * 3600 + 59 * 60 + 59) * 1_000_000
_NASTY_TEXT = (
    "",
    "NULL",
    "\\N",
    "\\.",
    "a\n\\.\nb",
    "tab\tquote'double\"back\\slash`percent%s%%comma,",
    "ünï😀",
    " padded ",
    "\r\n",
    "'; DROP TABLE orders; --",
)

TYPES: Mapping[str, tuple[str, pa.Array[Any]]] = {
    # What a column is at the source, and values to be found again exactly (the last one is null).
    "bool": ("boolean", pa.array([True, False, None])),
    **{
        f"int{bits}": (
            f"int({bits})",
            pa.array([-(2 ** (bits - 1)), 0, 2 ** (bits - 1) - 1, None], getattr(pa, f"int{bits}")()),
        )
        for bits in (8, 16, 32, 64)
    },
    **{
        f"uint{bits}": (
            f"int({bits}) unsigned",
            pa.array([0, 2**bits - 1, 2 ** (bits - 1), None], getattr(pa, f"uint{bits}")()),
        )
        for bits in (8, 16, 32, 64)
    },
    "float32": ("float", pa.array([0.1, -3.4e38, 1.17549435e-38, 16777217.0, None], pa.float32())),
    "float64": ("double", pa.array([0.1, -1.7976931348623157e308, 2.2250738585072014e-308, 1 / 3, None], pa.float64())),
    "decimal": (
        "decimal(12,2)",
        pa.array([Decimal("9999999999.99"), Decimal("-0.01"), Decimal(0), None], pa.decimal128(12, 2)),
    ),
    "decimal_fraction": (
        "decimal(30,20)",
        pa.array([Decimal("1e-20"), Decimal("-9999999999.99999999999999999999"), None], pa.decimal128(30, 20)),
    ),
    "decimal256": (
        "decimal(65,30)",
        pa.array([Decimal("9" * 35 + "." + "9" * 30), Decimal("-1e-30"), None], pa.decimal256(65, 30)),
    ),
    "text": ("text", pa.array([*_NASTY_TEXT, None], pa.utf8())),
    "varchar": ("varchar(60)", pa.array([*_NASTY_TEXT, None], pa.utf8())),
    "blob": ("blob", pa.array([b"", b"\0\xff'\\\n", bytes(range(256)), None], pa.binary())),
    "varbinary": ("varbinary(20)", pa.array([b"", b"\0\xff'\\\n", b"\0\0", None], pa.binary())),
    "date": ("date", _days(0, 19723, -719528, 2932896, None)),
    "datetime": (
        "datetime(6)",
        _micros(_MICROS, 0, -1, 1704067199_999_999, _START_OF_YEAR_0_US, _END_OF_9999_US, None),
    ),
    "timestamp": ("timestamp(6)", _micros(_MICROS_UTC, 0, 1, 1704067199_999_999, _END_OF_9999_US, None)),
    "time": ("time(6)", _micros(pa.duration("us"), 0, 1, -1, 86400_000_000, _LONGEST_TIME_US, -_LONGEST_TIME_US, None)),
}


def batch_of(table: TableSchema, changes: Sequence[Change]) -> ChangeBatch:
    """A batch of changes; columns that a change does not name are null."""
    times = pa.array([1_700_000_000_000_000 + change.id for change in changes], pa.int64()).view(_MICROS_UTC)
    system: dict[str, list[Any]] = {
        "_ums_id_": [c.id for c in changes],
        "_ums_op_": [c.op for c in changes],
        "_ums_raw_": [None] * len(changes),
    }
    arrays: list[pa.Array[Any]] = [
        pa.array(system[field.name], field.type) if field.name in system else times for field in SYSTEM_FIELDS
    ]
    for column in table.columns:
        values: list[Any] = [change.values.get(column.name) for change in changes]
        arrays.append(pa.array(values, column.type))
    return ChangeBatch(table, pa.RecordBatch.from_arrays(arrays, schema=table.arrow_schema()))


def order(change_id: int, key: int, op: str = "i", note: str | None = None) -> Change:
    """A change of `ORDERS` whose values tell which change it was."""
    return Change(op, change_id, {"id": key, "note": note or f"by {change_id}", "amount": Decimal(change_id)})


def version_of(table: TableSchema, version: int, *columns: Column) -> TableSchema:
    """A later version of a table with other columns."""
    return replace(table, columns=columns).with_version(version)


class SinkConformance(ABC):
    """Subclass it, give `open_sink`, get every test."""

    @pytest.fixture
    @abstractmethod
    def open_sink(self) -> OpenSink:
        """Opens the store, which is empty at the start of a test; all sinks that it returns share the store and the flow."""

    @pytest.fixture
    def deliver(self, open_sink: OpenSink) -> Callable[..., None]:
        """Opens a sink, writes the changes (each prepared first), commits and closes it."""
        offsets = count(1)

        def run(*changes: ChangeBatch | Clear) -> None:
            with closing(open_sink()) as sink:
                for change in changes:
                    sink.prepare(change.table)
                    sink.clear(change) if isinstance(change, Clear) else sink.write(change)
                sink.commit(_position(next(offsets)))

        return run

    @pytest.fixture
    def live(self, open_sink: OpenSink) -> Callable[[TableSchema], list[tuple[Any, ...]]]:
        """The live rows of a table, sorted. A sink that cannot be scanned overrides this fixture with its store's own query."""

        def rows(table: TableSchema) -> list[tuple[Any, ...]]:
            with closing(open_sink()) as sink:
                found = [batch.to_pylist() for batch in sink.scan(table)]
            columns = [column.name for column in table.columns]
            return sorted((tuple(row[name] for name in columns) for part in found for row in part), key=repr)

        return rows

    # --- the rule of idempotence

    def test_committed_rows_are_there_after_reopening(self, deliver: Deliver, live: Live) -> None:
        deliver(batch_of(ORDERS, [order(1, 10), order(2, 20)]))
        assert live(ORDERS) == [(10, "by 1", Decimal(1)), (20, "by 2", Decimal(2))]

    def test_what_was_not_committed_is_gone(self, open_sink: OpenSink, deliver: Deliver, live: Live) -> None:
        deliver(batch_of(ORDERS, [order(1, 10)]))
        with closing(open_sink()) as sink:
            sink.prepare(ORDERS)
            sink.write(batch_of(ORDERS, [order(2, 10), order(3, 30)]))
        assert live(ORDERS) == [(10, "by 1", Decimal(1))]

    def test_what_is_flushed_comes_with_the_commit(self, open_sink: OpenSink, live: Live) -> None:
        with closing(open_sink()) as sink:
            sink.flush()
            sink.prepare(ORDERS)
            sink.write(batch_of(ORDERS, [order(1, 10)]))
            sink.flush()
            sink.write(batch_of(ORDERS, [order(2, 10, "u"), order(3, 20)]))
            sink.flush()
            sink.flush()
            sink.commit(_position(1))
        assert live(ORDERS) == [(10, "by 2", Decimal(2)), (20, "by 3", Decimal(3))]

    def test_an_older_change_loses(self, deliver: Deliver, live: Live) -> None:
        deliver(batch_of(ORDERS, [order(5, 10)]))
        deliver(batch_of(ORDERS, [order(4, 10, "u")]))
        assert live(ORDERS) == [(10, "by 5", Decimal(5))]

    def test_ids_of_the_first_load_are_negative_and_lose_against_the_log(self, deliver: Deliver, live: Live) -> None:
        deliver(batch_of(ORDERS, [order(-7, 10), order(-6, 20)]))
        deliver(batch_of(ORDERS, [order(3, 10, "u")]), batch_of(ORDERS, [order(-7, 10)]))
        assert live(ORDERS) == [(10, "by 3", Decimal(3)), (20, "by -6", Decimal(-6))]

    def test_a_tombstone_beats_an_older_change_that_comes_later(self, deliver: Deliver, live: Live) -> None:
        deliver(batch_of(ORDERS, [order(1, 10), order(2, 20)]))
        deliver(batch_of(ORDERS, [order(9, 10, "d"), order(8, 30, "d")]))
        deliver(batch_of(ORDERS, [order(3, 10, "u"), order(7, 30)]))
        assert live(ORDERS) == [(20, "by 2", Decimal(2))]
        deliver(batch_of(ORDERS, [order(11, 10)]))
        assert live(ORDERS) == [(10, "by 11", Decimal(11)), (20, "by 2", Decimal(2))]

    def test_a_changed_key_is_a_delete_and_an_insert(self, deliver: Deliver, live: Live) -> None:
        deliver(batch_of(ORDERS, [order(1, 10)]))
        deliver(batch_of(ORDERS, [order(2, 10, "d"), order(3, 11)]))
        assert live(ORDERS) == [(11, "by 3", Decimal(3))]

    @pytest.mark.parametrize("seed", range(6))
    def test_any_order_repetition_and_split_ends_the_same(self, seed: int, deliver: Deliver, live: Live) -> None:
        chance = random.Random(seed)
        history, expected = _random_history(chance)
        for attempt in range(3):
            replayed = [*history, *chance.choices(history, k=len(history) // 2)]
            chance.shuffle(replayed)
            for part in _split(replayed if attempt else history[::2], chance):
                deliver(*(batch_of(ORDERS, piece) for piece in _split(part, chance)))
        assert live(ORDERS) == expected

    def test_writers_at_the_same_time_end_as_one(self, open_sink: OpenSink, live: Live) -> None:
        history, expected = _random_history(random.Random(7))

        def write(number: int) -> None:
            chance = random.Random(number)
            shuffled = chance.sample(history, len(history))
            with closing(open_sink()) as sink:
                sink.prepare(ORDERS)
                for offset, part in enumerate(_split(shuffled, chance), start=1):
                    sink.write(batch_of(ORDERS, part))
                    sink.commit(replace(_position(offset), partition=number))

        in_threads(*(partial(retried, partial(write, number)) for number in range(3)))
        assert live(ORDERS) == expected

    def test_a_clear_ends_the_rows_before_it_and_none_after(self, deliver: Deliver, live: Live) -> None:
        cleared = Clear(ORDERS, 5, 5_000_000)
        deliver(batch_of(ORDERS, [order(1, 10), order(2, 20)]))
        deliver(cleared, batch_of(ORDERS, [order(9, 20)]))
        assert live(ORDERS) == [(20, "by 9", Decimal(9))]
        deliver(
            batch_of(ORDERS, [order(1, 10), order(2, 20)]), cleared, batch_of(ORDERS, [order(9, 20), order(11, 10)])
        )
        assert live(ORDERS) == [(10, "by 11", Decimal(11)), (20, "by 9", Decimal(9))]

    def test_a_row_from_before_a_clear_that_comes_behind_it_loses(self, deliver: Deliver, live: Live) -> None:
        deliver(batch_of(ORDERS, [order(1, 10)]))
        deliver(Clear(ORDERS, 5, 5_000_000))
        deliver(batch_of(ORDERS, [order(-9, 40), order(-8, 10), order(6, 30)]))
        assert live(ORDERS) == [(30, "by 6", Decimal(6))]
        deliver(Clear(ORDERS, 3, 3_000_000), batch_of(ORDERS, [order(4, 50), order(7, 60)]))
        assert live(ORDERS) == [(30, "by 6", Decimal(6)), (60, "by 7", Decimal(7))]

    def test_a_batch_may_hold_a_change_twice_and_many_changes_of_a_key(self, deliver: Deliver, live: Live) -> None:
        changes = [order(1, 10), order(2, 10, "u"), order(1, 10), order(2, 10, "u"), order(2, 20)]
        deliver(batch_of(ORDERS, changes), batch_of(ORDERS, changes), empty_batch(ORDERS))
        assert live(ORDERS) == [(10, "by 2", Decimal(2)), (20, "by 2", Decimal(2))]

    def test_thousands_of_rows_in_one_commit(self, deliver: Deliver, live: Live) -> None:
        deliver(batch_of(ORDERS, [order(n, n) for n in range(1, 7001)]))
        deliver(batch_of(ORDERS, [order(n + 10_000, n, "d" if n % 3 == 0 else "u") for n in range(1, 7001, 2)]))
        rows = live(ORDERS)
        assert len(rows) == 7000 - len(range(3, 7001, 6))
        assert {row[1] for row in rows if row[0] % 2} == {f"by {n + 10_000}" for n in range(1, 7001, 2) if n % 3}

    # --- types and names

    @pytest.mark.parametrize("kind", TYPES)
    def test_values_of_every_type_are_found_again(self, kind: str, open_sink: OpenSink) -> None:
        source_type, values = TYPES[kind]
        columns = (Column("id", pa.int64(), "bigint"), Column("value", values.type, source_type))
        table = TableSchema(Namespace("mysql", "db1", "shop", f"t_{kind}"), columns, ("id",))
        with closing(open_sink()) as sink:
            in_year_0 = [str(text).startswith("0000-") for text in to_text(values).to_pylist()]
            stands = [sink.capabilities.has_year_0 or not is_in for is_in in in_year_0]
        if not all(stands):
            with pytest.raises(DataError):
                _deliver_once(open_sink, ChangeBatch(table, _rows_with(table, values)))
            values = values.filter(pa.array(stands))
        data = _rows_with(table, values)
        for batch in (ChangeBatch(table, data), ChangeBatch(table, _many(data))):
            _deliver_once(open_sink, batch)
            found = _scan_table(open_sink, table).sort_by("id")
            assert found.schema.field("value").type == values.type
            assert found.column("value").slice(0, len(values)).combine_chunks().equals(values)

    def test_text_keys_differ_by_case_blanks_and_accents(self, deliver: Deliver, live: Live) -> None:
        columns = (
            Column("code", pa.utf8(), "varchar(20)"),
            Column("at", _MICROS, "datetime(6)"),
            Column("n", pa.int32(), "int"),
        )
        table = TableSchema(Namespace("mysql", "db1", "shop", "codes"), columns, ("code", "at"))
        codes = ["a", "A", "a ", "ä", "", "a'\\"]
        moment = pa.scalar(1_704_067_199_999_999, pa.int64()).cast(_MICROS).as_py()
        deliver(batch_of(table, [Change("i", n + 1, {"code": c, "at": moment, "n": n}) for n, c in enumerate(codes)]))
        deliver(batch_of(table, [Change("d", 100, {"code": "A", "at": moment, "n": 1})]))
        assert sorted(row[2] for row in live(table)) == [0, 2, 3, 4, 5]

    def test_names_may_be_anything(self, deliver: Deliver, live: Live) -> None:
        names = ("select", "Größe", "a\"b'c`d", "100%s", "x; DROP TABLE orders", "Upper", "ключ")
        columns = tuple(Column(name, pa.int32(), "int") for name in names)
        for number, name in enumerate(('order "by"', "Таблица", "t%d`")):
            table = TableSchema(Namespace("mysql", "db1", "shop", name), columns, ("select", "100%s"))
            row = {name: n + number for n, name in enumerate(names)}
            deliver(batch_of(table, [Change("i", 1, row)]))
            deliver(batch_of(table, [Change("u", 2, row)]))
            assert live(table) == [tuple(row.values())]

    # --- tables

    def test_many_tables_in_one_commit(self, deliver: Deliver, live: Live) -> None:
        tables = [replace(ORDERS, namespace=Namespace("mysql", "db1", "shop", f"orders_{n}")) for n in range(5)]
        deliver(*(batch_of(table, [order(n + 1, n)]) for n, table in enumerate(tables)))
        assert [live(table) for table in tables] == [[(n, f"by {n + 1}", Decimal(n + 1))] for n in range(5)]

    def test_preparing_again_and_at_the_same_time_is_safe(self, open_sink: OpenSink, live: Live) -> None:
        later = version_of(ORDERS, 1, *ORDERS.columns, Column("extra", pa.int32(), "int", initial_default="7"))
        for table in (ORDERS, later):
            in_threads(*[partial(_prepare_once, open_sink, table)] * 4)
        assert live(later) == []

    def test_an_added_column_has_its_default_in_old_rows(self, deliver: Deliver, live: Live) -> None:
        added = [
            Column("size", pa.int32(), "int", initial_default="-7"),
            Column("label", pa.utf8(), "varchar(20)", initial_default="it's 100%"),
            Column("long", pa.utf8(), "text", initial_default="none"),
            Column("price", pa.decimal128(8, 3), "decimal(8,3)", initial_default="1.500"),
            Column("day", pa.date32(), "date", initial_default="2024-02-29"),
            Column("at", _MICROS, "datetime(6)", initial_default="2024-02-29 23:59:59.000001"),
            Column("zero", pa.date32(), "date", initial_default="0000-00-00"),
            Column("empty", pa.int32(), "int"),
            Column("raw", pa.binary(), "varbinary(4)", initial_default="AP8="),
        ]
        deliver(batch_of(ORDERS, [order(1, 10)]))
        later = version_of(ORDERS, 1, *ORDERS.columns, *added)
        deliver(batch_of(later, [Change("i", 2, {"id": 20, "size": 3})]))
        deliver(
            batch_of(ORDERS, [order(3, 30)]), batch_of(ORDERS, [order(1, 10)])
        )  # a task that lags behind, and a replay
        rows = live(later)
        assert [(row[0], row[3], row[4], row[5], row[9], row[10]) for row in rows] == [
            (10, -7, "it's 100%", "none", None, None),
            (20, 3, None, None, None, None),
            (30, -7, "it's 100%", "none", None, None),
        ]
        assert rows[0][11] == b"\x00\xff"
        assert [str(value) for value in rows[0][6:9]] == ["1.500", "2024-02-29", "2024-02-29 23:59:59.000001"]

    def test_a_dropped_column_no_longer_matters(self, deliver: Deliver, live: Live) -> None:
        deliver(batch_of(ORDERS, [order(1, 10), order(2, 20)]))
        later = version_of(ORDERS, 1, ORDERS.columns[0], ORDERS.columns[2])
        deliver(batch_of(later, [order(3, 10, "u")]))
        assert live(later) == [(10, Decimal(3)), (20, Decimal(2))]

    def test_a_renamed_column_keeps_its_values(self, deliver: Deliver, live: Live) -> None:
        key, note, amount = ORDERS.columns
        old = [batch_of(ORDERS, [order(1, 10), order(2, 20)])]
        deliver(*old)
        later = version_of(ORDERS, 1, key, replace(note, name="text", born_as="note"), amount)
        deliver(batch_of(later, [Change("i", 3, {"id": 30, "text": "new", "amount": Decimal(3)})]))
        expected = [(10, "by 1", Decimal(1)), (20, "by 2", Decimal(2)), (30, "new", Decimal(3))]
        assert live(later) == expected
        deliver(*old, batch_of(later, [Change("d", 4, {"id": 10})]))
        assert live(later) == expected[1:]

    def test_columns_exchange_names_and_a_new_one_takes_an_old_name(self, deliver: Deliver, live: Live) -> None:
        key, note, amount = ORDERS.columns
        other = Column("other", pa.utf8(), "text", initial_default="none")
        versions = [
            ORDERS,
            version_of(ORDERS, 1, key, note, other, amount),
            version_of(ORDERS, 2, key, replace(other, name="note", born_as="other"), replace(note, name="other", born_as="note"), amount),
            version_of(ORDERS, 3, key, replace(note, name="text", born_as="note"), replace(note, born_as="note@9"), amount),
        ]  # fmt: skip
        deliver(batch_of(ORDERS, [order(1, 10)]))
        deliver(batch_of(versions[1], [Change("i", 2, {"id": 20, "note": "n", "other": "o", "amount": Decimal(2)})]))
        deliver(batch_of(versions[2], [Change("i", 3, {"id": 30, "note": "o3", "other": "n3", "amount": Decimal(3)})]))
        assert live(versions[2]) == [
            (10, "none", "by 1", Decimal(1)),
            (20, "o", "n", Decimal(2)),
            (30, "o3", "n3", Decimal(3)),
        ]
        deliver(batch_of(versions[3], [Change("i", 4, {"id": 40, "text": "t", "note": "n4", "amount": Decimal(4)})]))
        assert live(versions[3]) == [
            (10, "by 1", None, Decimal(1)),
            (20, "n", None, Decimal(2)),
            (30, "n3", None, Decimal(3)),
            (40, "t", "n4", Decimal(4)),
        ]

    @pytest.mark.parametrize(
        ("narrow", "wide"),
        [
            (("int", pa.int32()), ("bigint", pa.int64())),
            (("int", pa.int32()), ("decimal(20,4)", pa.decimal128(20, 4))),
            (("varchar(5)", pa.utf8()), ("varchar(50)", pa.utf8())),
            (("varchar(5)", pa.utf8()), ("text", pa.utf8())),
            (("decimal(8,2)", pa.decimal128(8, 2)), ("decimal(12,4)", pa.decimal128(12, 4))),
            (("float", pa.float32()), ("double", pa.float64())),
            (("bigint", pa.int64()), ("bigint unsigned", pa.uint64())),
            (("int", pa.int32()), ("varchar(20)", pa.utf8())),
        ],
        ids=lambda pair: pair[0],
    )
    def test_a_column_becomes_wider_and_may_become_narrower(
        self, narrow: tuple[str, pa.DataType], wide: tuple[str, pa.DataType], deliver: Deliver, open_sink: OpenSink
    ) -> None:
        key = Column("id", pa.int64(), "bigint")
        tables = [
            TableSchema(Namespace("mysql", "db1", "shop", "t", version), (key, Column("v", kind, source_type)), ("id",))
            for version, (source_type, kind) in enumerate((narrow, wide, narrow))
        ]
        for n, table in enumerate(tables):
            value = pa.array(["12"]).cast(table.columns[1].type)[0].as_py()
            deliver(batch_of(table, [Change("i", n + 1, {"id": n, "v": value})]))
        for table in tables[1:]:
            found = _scan_table(open_sink, table)
            assert found.column("v").cast(pa.float64()).to_pylist() == [12.0, 12.0, 12.0]

    def test_a_table_without_a_key(self, open_sink: OpenSink) -> None:
        table = replace(ORDERS, key=())
        with closing(open_sink()) as sink:
            if sink.capabilities.needs_key:
                with pytest.raises(ConfigError, match="key"):
                    sink.prepare(table)
            else:
                sink.prepare(table)
                sink.write(batch_of(table, [order(1, 10), order(2, 10)]))
                sink.commit(_position(1))

    # --- what a store cannot hold

    @pytest.mark.parametrize("kind", AWKWARD)
    def test_what_prepare_would_refuse_is_told_before(self, kind: str, open_sink: OpenSink) -> None:
        table = AWKWARD[kind]
        told = _stopping(open_sink, table)
        assert _stopping(open_sink, table) == told, "asking changes nothing"
        refusal = _refusal(open_sink, batch_of(table, [Change("i", 1, dict.fromkeys(table.key or ("id",), "x"))]))
        assert bool(told) == (refusal is not None), (told, refusal)
        if refusal is not None:
            assert any(refusal.message in finding.message for finding in told)
            assert all(finding.fix for finding in told)

    def test_what_fits_is_not_told_and_nothing_is_made_by_asking(self, open_sink: OpenSink, deliver: Deliver) -> None:
        key, note, amount = ORDERS.columns
        later = version_of(ORDERS, 1, key, replace(note, name="text", born_as="note"), amount)
        assert _stopping(open_sink, later) == []
        deliver(batch_of(ORDERS, [order(1, 10)]))
        assert _stopping(open_sink, ORDERS) == []
        assert _stopping(open_sink, later) == []
        deliver(batch_of(ORDERS, [order(2, 10, "u")]), batch_of(later, [Change("i", 3, {"id": 20})]))
        assert _stopping(open_sink, later) == []

    @pytest.mark.parametrize("name", [("shop", "ORDERS"), ("other", "orders")])
    def test_two_tables_in_one_place_are_told_or_both_are_there(
        self, name: tuple[str, str], open_sink: OpenSink, deliver: Deliver, live: Live
    ) -> None:
        other = replace(ORDERS, namespace=Namespace("mysql", "db1", *name))
        batches = [batch_of(ORDERS, [order(1, 10)]), batch_of(other, [order(2, 10)])]
        if _stopping(open_sink, ORDERS, other):
            with pytest.raises(ConfigError):
                deliver(*batches)
        else:
            deliver(*batches)
            assert [live(table) for table in (ORDERS, other)] == [
                [(10, "by 1", Decimal(1))],
                [(10, "by 2", Decimal(2))],
            ]

    # --- position, scan, close

    def test_the_position_is_remembered_or_not_as_declared(self, open_sink: OpenSink, deliver: Deliver) -> None:
        with closing(open_sink()) as sink:
            assert sink.position("topic", 0) is None
            sink.prepare(ORDERS)
            sink.write(batch_of(ORDERS, [order(1, 10)]))
            sink.commit(_position(1))
            sink.write(batch_of(ORDERS, [order(2, 10)]))
        with closing(open_sink()) as sink:
            remembered = sink.capabilities.remembers_position
            assert sink.position("topic", 0) == (_position(1) if remembered else None)
            assert sink.position("topic", 1) is None

    def test_scan_hands_out_whole_columns_or_says_that_it_cannot(self, open_sink: OpenSink, deliver: Deliver) -> None:
        deliver(batch_of(ORDERS, [order(1, 10)]))
        with closing(open_sink()) as sink:
            if not sink.capabilities.scans:
                with pytest.raises(TypeError):
                    sink.scan(ORDERS)
                return
        found = _scan_table(open_sink, ORDERS)
        assert found.schema.names == ["id", "note", "amount"]
        assert found.schema.types == [column.type for column in ORDERS.columns]

    def test_closing_twice_is_fine(self, open_sink: OpenSink) -> None:
        sink = open_sink()
        sink.close()
        sink.close()


Deliver = Callable[..., None]
Live = Callable[[TableSchema], list[tuple[Any, ...]]]


def _position(offset: int) -> Position:
    return Position("topic", 0, offset, offset, 1_700_000_000_000_000 + offset)


def _random_history(chance: random.Random) -> tuple[list[Change], list[tuple[Any, ...]]]:
    """Changes of a few keys as a source makes them, and the live rows at their end."""
    state: dict[int, Change | None] = {}
    history = []
    for change_id in range(1, 60):
        key = chance.randrange(8)
        ops = "i" if state.get(key) is None else "uud"
        change = order(change_id, key, chance.choice(ops))
        history.append(change)
        state[key] = None if change.op == "d" else change
    rows = [(key, f"by {change.id}", Decimal(change.id)) for key, change in state.items() if change]
    return history, sorted(rows, key=repr)


def _split(changes: Sequence[Change], chance: random.Random) -> Iterator[Sequence[Change]]:
    start = 0
    while start < len(changes):
        stop = start + chance.randint(1, 1 + len(changes) // 2)
        yield changes[start:stop]
        start = stop


def _rows_with(table: TableSchema, values: pa.Array[Any]) -> pa.RecordBatch:
    """Rows of a table whose last column has these values."""
    plain = batch_of(table, [Change("i", n + 1, {"id": n}) for n in range(len(values))])
    return plain.data.set_column(plain.data.num_columns - 1, table.arrow_schema().field("value"), values)


def _many(data: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, newer, with so many others behind them that a sink takes its way for large sets."""
    size = data.num_rows
    rows = data.take(pa.array([n % size for n in range(600)]))
    ids = pa.array(range(1000, 1600), pa.int64())
    keys = pa.array(range(600), pa.int64())
    return rows.set_column(0, rows.schema.field(0), ids).set_column(5, rows.schema.field(5), keys)


def _stopping(open_sink: OpenSink, *tables: TableSchema) -> list[Finding]:
    """What would stop a run that delivers these tables."""
    with closing(open_sink()) as sink:
        return [finding for finding in sink.misfits(tables) if finding.stops]


def _refusal(open_sink: OpenSink, batch: ChangeBatch) -> HeadraceError | None:
    """What the store says to a batch that it does not take."""
    try:
        _deliver_once(open_sink, batch)
    except (ConfigError, DataError, FatalError) as error:
        return error
    return None


def _deliver_once(open_sink: OpenSink, batch: ChangeBatch) -> None:
    with closing(open_sink()) as sink:
        sink.prepare(batch.table)
        sink.write(batch)
        sink.commit(_position(batch.id_range[1]))


def _prepare_once(open_sink: OpenSink, table: TableSchema) -> None:
    def attempt() -> None:
        with closing(open_sink()) as sink:
            sink.prepare(table)

    retried(attempt)


def retried(action: Callable[[], None]) -> None:
    """Repeats the action as long as its store says that it may."""
    backoff = Backoff(give_up_after_s=60)
    while True:
        try:
            return action()
        except RetryableError as error:
            time.sleep(backoff.failed(error))


def _scan_table(open_sink: OpenSink, table: TableSchema) -> pa.Table:
    with closing(open_sink()) as sink:
        return pa.Table.from_batches(list(sink.scan(table)))


def in_threads(*actions: Callable[[], None]) -> None:
    """Runs the actions at the same time; the first error comes out."""
    with ThreadPoolExecutor(len(actions)) as pool:
        for done in [pool.submit(action) for action in actions]:
            done.result()
