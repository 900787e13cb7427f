"""What steps make of tables and changes, on the real engine."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import TypeAdapter

from headrace.compute.engine import Engine
from headrace.compute.steps import AnyStep, Sql, Step
from headrace.compute.transform import Transform
from headrace.errors import ConfigError, DataError
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, TS, Column, Namespace, TableSchema

ORDERS = TableSchema(
    Namespace("mysql", "db1", "shop", "orders"),
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("status", pa.utf8(), "varchar(16)"),
        Column("amount", pa.decimal128(12, 2), "decimal(12,2)"),
        Column("note", pa.utf8(), "json"),
        Column("day", pa.date32(), "date"),
        Column("took", pa.duration("us"), "time"),
        Column("huge", pa.decimal256(50, 2), "decimal(50,2)"),
    ),
    ("id",),
)
EMPTY: dict[str, Any] = {column.name: None for column in ORDERS.columns}


def changes(*rows: dict[str, Any], table: TableSchema = ORDERS) -> ChangeBatch:
    """Rows with `op`; ids count up."""
    system = [
        {ID: n, TS: n, OP: row.get("op", "i"), COMMIT_TS: n, RAW: row.get("raw")} for n, row in enumerate(rows, 1)
    ]
    values = [{column.name: row.get(column.name) for column in table.columns} for row in rows]
    data = [one | two for one, two in zip(system, values, strict=True)]
    return ChangeBatch(table, pa.RecordBatch.from_pylist(data, schema=table.arrow_schema()))


def steps(*written: dict[str, Any]) -> list[Step]:
    return [TypeAdapter[Step](AnyStep).validate_python(one) for one in written]


def computed(batch: ChangeBatch, *written: dict[str, Any] | str) -> ChangeBatch:
    """What comes out of a flow with such steps, or such SQL."""
    made = [Sql(do="sql", query=one) if isinstance(one, str) else steps(one)[0] for one in written]
    transform = Transform("f", made)
    out = transform.changes(batch)
    assert out.data.schema == out.table.arrow_schema()
    assert transform.table(batch.table) == out.table
    return out


def rows(batch: ChangeBatch, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in (OP, *names)) for row in batch.data.to_pylist()]


def test_a_change_becomes_one_change_with_its_id_or_none() -> None:
    batch = changes(
        {"id": 1, "status": "paid"},
        {"id": 2, "status": "new"},
        {"id": 1, "status": "new", "op": "u"},
        {"id": 2, "status": "paid", "op": "u"},
        {"id": 3, "op": "d"},
        {"id": 2, "status": "paid", "op": "d"},
    )
    out = computed(batch, "SELECT id, upper(status) AS state FROM orders WHERE status = 'paid'")
    assert rows(out, ID, "id", "state") == [
        ("i", 1, 1, "PAID"), ("d", 3, 1, None), ("u", 4, 2, "PAID"), ("d", 5, 3, None), ("d", 6, 2, "PAID"),
    ]  # fmt: skip
    assert out.table.namespace == ORDERS.namespace
    assert out.table.key == ("id",)


def test_inserts_of_sources_that_cannot_tell_them_from_updates() -> None:
    table = TableSchema(Namespace("hbase", "hb", "shop", "orders"), ORDERS.columns, ("id",))
    out = computed(changes({"id": 1, "status": "new"}, table=table), "SELECT * FROM input WHERE status = 'paid'")
    assert rows(out, "id") == [("d", 1)]


def test_a_table_without_a_key_has_nothing_to_delete() -> None:
    table = TableSchema(ORDERS.namespace, ORDERS.columns)
    out = computed(
        changes({"id": 1}, {"id": 2, "op": "u"}, table=table), "SELECT status, id + 1 AS next FROM input WHERE id = 5"
    )
    assert len(out) == 0
    assert out.table.key == ()


def test_nothing_that_is_only_handed_on_is_changed() -> None:
    row = {
        "id": 1,
        "huge": Decimal("123456789012345678901234567890123456789012345678.99"),
        "took": 838 * 3_600_000_000,
        "op": "u",
    }
    out = computed(changes(row), "SELECT o.took AS time_taken, o.* FROM orders AS o")
    assert out.data.column("huge").to_pylist() == [row["huge"]]
    assert out.data.column("time_taken").equals(out.data.column("took"))
    assert [column.source_type for column in out.table.columns if column.name in ("huge", "took")] == [
        "time",
        "decimal(50,2)",
    ]


def test_types_of_what_is_computed() -> None:
    query = """SELECT id, amount * 2 AS twice, count_if AS n, day + INTERVAL 1 DAY AS next, day::TIMESTAMPTZ AS at, CAST('10:00' AS TIME) AS clock,
        'x'::ENUM ('x', 'y') AS e, huge || '!' AS loud, took AS took, _ums_ts_ AS changed
        FROM (SELECT 1)"""
    with pytest.raises(ConfigError, match="FROM of anything but one table"):
        computed(changes({"id": 1}), query)
    query = query.replace("count_if", "id::INTEGER").replace("(SELECT 1)", "orders")
    out = computed(changes({"id": 1, "amount": Decimal("1.25"), "day": 10, "huge": Decimal("1.50")}), query)
    types = {column.name: (column.type, column.source_type) for column in out.table.columns}
    assert types["twice"] == (pa.decimal128(18, 2), "decimal(18,2)")
    assert types["n"] == (pa.int32(), "int")
    assert types["next"] == (pa.timestamp("us"), "datetime(6)")
    assert types["at"] == (pa.timestamp("us", "UTC"), "timestamp(6)")
    assert types["clock"] == (pa.duration("us"), "time(6)")
    assert types["e"] == (pa.utf8(), "text")
    assert out.data.column("loud").to_pylist() == ["1.50!"]
    assert out.data.column("changed").cast(pa.int64()).to_pylist() == [1]
    assert out.data.column("clock").cast(pa.int64()).to_pylist() == [36_000_000_000]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT count(*) AS n FROM orders", "the aggregate count_star"),
        ("SELECT id, sum(amount) AS s FROM orders GROUP BY id", "GROUP BY"),
        ("SELECT DISTINCT id FROM orders", "DISTINCT"),
        ("SELECT id FROM orders ORDER BY id", "ORDER BY"),
        ("SELECT id FROM orders LIMIT 1", "LIMIT"),
        ("SELECT o.id FROM orders o JOIN customers c USING (id)", "FROM of anything"),
        ("SELECT id, row_number() OVER () AS n FROM orders", "a window function"),
        ("SELECT id FROM orders WHERE id IN (SELECT 1)", "a subquery"),
        ("SELECT id FROM orders UNION ALL SELECT id FROM orders", "a set operation"),
        ("WITH x AS (SELECT 1) SELECT id FROM orders", "WITH"),
        ("SELECT id, unnest([1, 2]) AS n FROM orders", "UNNEST"),
        ("SELECT COLUMNS('i.*') FROM orders", r"COLUMNS\(…\)"),
        ("SELECT id FROM orders; SELECT 1", "2 statements"),
        ("DELETE FROM orders", "no SELECT"),
        ("SELEC id", "no SELECT"),
        ("SELECT id, amount * 2 FROM orders", "has no name"),
        ("SELECT id FROM customers", "reads from customers"),
        ("SELECT status FROM orders", "leaves out the column id"),
        ("SELECT id + 1 AS id FROM orders", "leaves out the column id"),
        ("SELECT id, colour FROM orders", "colour"),
        ("SELECT id, [1] AS several FROM orders", "to_json"),
        ("SELECT id, status AS x, amount AS X FROM orders", "two columns"),
        ("SELECT *, id AS status FROM orders", "two columns status"),
        ("SELECT * RENAME (status AS amount) FROM orders", "two columns amount"),
        ("SELECT id, content AS c FROM read_text('/etc/hostname')", "FROM of anything"),
    ],
)  # fmt: skip
def test_what_is_refused(query: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as refused:
        computed(changes({"id": 1}), query)
    assert "flow f, table mysql.db1.shop.orders" in refused.value.message
    assert refused.value.fix


def test_a_value_on_which_the_sql_fails() -> None:
    with pytest.raises(DataError, match="Conversion Error"):
        computed(changes({"id": 1, "status": "x"}), "SELECT id, status::INT AS n FROM orders")


def test_steps_one_after_the_other() -> None:
    batch = changes(
        {"id": 1, "amount": Decimal(5), "note": json.dumps({"a": {"city": "Łódź"}, "n": [3, 4]})},
        {"id": 2, "amount": Decimal(50), "note": "{}"},
        {"id": 3, "amount": Decimal(500), "op": "u"},
    )
    out = computed(
        batch,
        {
            "do": "flatten",
            "column": "note",
            "to": {"city": {"path": "$.a.city"}, "second": {"path": "$.n[1]", "type": "int"}},
        },
        {"do": "filter", "where": "amount < 100 -- not the large ones"},
        {"do": "set", "columns": {"amount": "amount * 10", "old": "amount"}},
        {"do": "drop", "columns": ["day", "took", "huge"]},
        "SELECT id AS number, * EXCLUDE (id) REPLACE (coalesce(city, '?') AS city) FROM input",
    )
    assert out.table.key == ("number",)
    assert [column.name for column in out.table.columns] == ["number", "status", "amount", "city", "second", "old"]
    assert rows(out, "number", "amount", "city", "second", "old") == [
        ("i", 1, Decimal(50), "Łódź", 4, Decimal(5)),
        ("i", 2, Decimal(500), "?", None, Decimal(50)),
        ("d", 3, None, None, None, Decimal(500)),
    ]


def test_a_document_that_is_not_json_is_refused() -> None:
    with pytest.raises(DataError, match="JSON"):
        computed(changes({"id": 1, "note": "{"}), {"do": "flatten", "column": "note", "to": {"a": {"path": "$.a"}}})


def test_columns_keep_their_identity() -> None:
    renamed = TableSchema(
        ORDERS.namespace, (ORDERS.columns[0], Column("total", pa.int64(), "bigint", born_as="amount")), ("id",)
    )
    out = computed(changes({"id": 1, "total": 7}, table=renamed), "SELECT id, amount, amount * 2 AS total FROM orders")
    assert rows(out, "amount", "total") == [("i", 7, 14)]
    assert [column.identity for column in out.table.columns] == ["id", "amount", "total"]
    out = computed(changes({"id": 1, "total": 7}, table=renamed), "SELECT *, total AS again, 1 AS amount FROM orders")
    assert [column.identity for column in out.table.columns] == ["id", "amount", "again@sql", "amount@sql"]


def test_values_beside_their_columns_go_with_them() -> None:
    raw = json.dumps({"day": "0000-00-00", "took": "?"})
    out = computed(changes({"id": 1, "raw": raw}, {"id": 2}), "SELECT id, day AS on_day FROM orders")
    assert out.data.column(RAW).to_pylist() == ['{"on_day":"0000-00-00"}', None]


def test_names_that_sql_takes_for_one() -> None:
    table = TableSchema(ORDERS.namespace, (*ORDERS.columns, Column("ID", pa.int64(), "bigint")), ("id",))
    with pytest.raises(ConfigError, match="two columns ID"):
        computed(changes({"id": 1}, table=table), "SELECT id FROM orders")


def test_many_rows_stay_in_their_order() -> None:
    batch = changes(*({"id": n, "status": "x" * (n % 7), "op": "u"} for n in range(20_000)))
    out = computed(batch, "SELECT id, length(status) AS n FROM input WHERE status <> 'xx'")
    assert rows(out, ID, "id", "n") == [
        ("d" if n % 7 == 2 else "u", n + 1, n, None if n % 7 == 2 else n % 7) for n in range(20_000)
    ]


def test_buffers_that_begin_anywhere_are_read_in_silence(capfd: pytest.CaptureFixture[str]) -> None:
    """As those of a block on the log do."""
    sink = pa.BufferOutputStream()
    written = pa.table({"n": pa.array(range(1000), pa.int64())})
    with pa.ipc.new_stream(sink, written.schema) as writer:
        writer.write_table(written)
    log = pa.py_buffer(b"log" + sink.getvalue().to_pybytes())
    read = pa.ipc.open_stream(log.slice(3)).read_all()
    assert Engine().rows("SELECT count(*) AS n FROM t WHERE n > 5", {"t": read}).to_pylist() == [{"n": 994}]
    assert capfd.readouterr().err == ""
