"""Schema versions, what statements are reported as, and a file that is damaged or belongs elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.capture.ddl import Ddl
from headrace.capture.history import History, NoticeKind
from headrace.capture.online_ddl import helped_table
from headrace.errors import CorruptError, SourceError
from headrace.ums.schema import Column, Namespace, TableSchema

ID = Column("id", pa.int64(), "bigint", nullable=False)
NAME = Column("name", pa.utf8(), "varchar(20)")
ORDERS = TableSchema(Namespace("mysql", "db1", "shop", "orders"), (ID, NAME), ("id",))


def captured(schema: str, table: str) -> bool:
    return schema == "shop" and table != "other"


def fresh(path: Path) -> History:
    history = History(path / "schemas.json", captured)
    history.table(ORDERS, 100)
    return history


def with_column(table: TableSchema, name: str, kind: pa.DataType, source_type: str) -> TableSchema:
    return replace(table, columns=(*table.columns, Column(name, kind, source_type)))


def told(history: History, sql: str, id_: int = 200) -> list[tuple[str, str, str]]:
    return [(notice.kind.value, notice.table, notice.column) for notice in history.statement(Ddl("shop", sql, id_, 0))]


def test_compatible_changes_keep_the_version_and_renew_the_description(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    longer = replace(ORDERS, columns=(ID, replace(NAME, source_type="varchar(200)", nullable=False)))
    assert history.table(longer, 200).namespace.version == 0
    assert history.tables() == [longer]
    assert history.table(ORDERS, 150) == ORDERS
    assert history.tables() == [longer], "an older description does not take the newer one's place"


@pytest.mark.parametrize(
    "changed",
    [
        replace(ORDERS, key=()),
        replace(ORDERS, columns=(NAME, ID)),
        replace(ORDERS, columns=(ID,)),
        replace(ORDERS, columns=(replace(ID, type=pa.int32()), NAME)),
        with_column(ORDERS, "more", pa.int32(), "int"),
    ],
)
def test_another_shape_is_the_next_version(tmp_path: Path, changed: TableSchema) -> None:
    history = fresh(tmp_path)
    assert history.table(changed, 200) == changed.with_version(1)
    assert history.table(ORDERS, 199) == ORDERS
    again = history.table(ORDERS, 300)
    assert again.namespace.version == 2
    assert [(c.name, c.type) for c in again.columns] == [(c.name, c.type) for c in ORDERS.columns]
    dropped = {c.name for c in ORDERS.columns} - {c.name for c in changed.columns}
    assert {c.name: c.born_as for c in again.columns if c.born_as} == {name: f"{name}@300" for name in dropped}
    assert history.before("shop", "orders", 250) == changed.with_version(1)
    assert history.before("shop", "nothing", 1) is None


def test_tables_have_versions_of_their_own(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    history.table(with_column(ORDERS, "more", pa.int32(), "int"), 200)
    lines = replace(ORDERS, namespace=replace(ORDERS.namespace, table="lines"))
    assert history.table(lines, 300).namespace.version == 0
    assert [table.namespace.version for table in history.tables()] == [1, 0]


@pytest.mark.demand(1)
def test_an_added_column_has_the_statement_s_default(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    sql = (
        "ALTER TABLE shop.orders ADD COLUMN `Size` INT NOT NULL DEFAULT 3 AFTER id, ADD (x CHAR(2) DEFAULT 'é', y INT)"
    )
    assert told(history, sql) == []
    columns = (
        ID,
        Column("Size", pa.int32(), "int"),
        NAME,
        Column("x", pa.utf8(), "char(2)"),
        Column("y", pa.int32(), "int"),
    )
    table = history.table(replace(ORDERS, columns=columns), 300)
    assert [column.initial_default for column in table.columns] == [None, "3", None, "é", None]
    later = history.table(with_column(replace(ORDERS, columns=columns), "z", pa.int32(), "int"), 400)
    assert [column.initial_default for column in later.columns] == [None, "3", None, "é", None, None]


def test_current_timestamp_is_the_statement_s_start_in_the_session_s_zone(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    sql = "ALTER TABLE orders ADD a DATETIME(3) DEFAULT NOW(3), ADD b TIMESTAMP DEFAULT CURRENT_TIMESTAMP, ADD c DATE DEFAULT '2024-1-5'"
    assert history.statement(Ddl("shop", sql, 200, 0, 1772445600_123456, "Asia/Shanghai")) == []
    columns = [(name, pa.utf8(), "") for name in "abc"]
    table = history.table(replace(ORDERS, columns=(*ORDERS.columns, *(Column(*column) for column in columns))), 300)
    defaults = [column.initial_default for column in table.columns[2:]]
    assert defaults == ["2026-03-02 18:00:00.123", "2026-03-02 10:00:00", "2024-01-05"]


def test_a_statement_behind_a_saved_position_is_remembered(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    told(history, "ALTER TABLE orders ADD COLUMN size INT DEFAULT 3")
    history.save()
    again = History.load(tmp_path / "schemas.json", captured)
    table = again.table(with_column(ORDERS, "size", pa.int32(), "int"), 300)
    assert table.column("size").initial_default == "3"


@pytest.mark.demand(2)
def test_statements_follow_each_other(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    told(history, "ALTER TABLE orders ADD a INT DEFAULT 1, ADD b INT DEFAULT 2", 200)
    told(history, "ALTER TABLE orders DROP a", 210)
    told(history, "ALTER TABLE orders ADD IF NOT EXISTS b INT DEFAULT 9, ADD IF NOT EXISTS a INT DEFAULT 8", 220)
    assert told(history, "ALTER TABLE orders CHANGE b c BIGINT", 230) == []
    table = with_column(with_column(ORDERS, "c", pa.int64(), "bigint"), "a", pa.int32(), "int")
    assert [column.initial_default for column in history.table(table, 300).columns] == [None, None, "2", "8"]


def test_two_columns_that_change_names(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    told(history, "ALTER TABLE orders ADD a INT DEFAULT 1, ADD b INT DEFAULT 2", 200)
    told(history, "ALTER TABLE orders RENAME COLUMN a TO b, RENAME COLUMN b TO a", 210)
    table = history.table(with_column(with_column(ORDERS, "b", pa.int32(), ""), "a", pa.int32(), ""), 300)
    assert [column.initial_default for column in table.columns] == [None, None, "1", "2"]


@pytest.mark.parametrize(
    ("sql", "notices"),
    [
        ("TRUNCATE TABLE orders", [("truncated", "orders", "")]),
        ("truncate `shop`.`orders`", [("truncated", "orders", "")]),
        ("TRUNCATE other", []),
        ("DROP TABLE IF EXISTS `other`, `orders` /* generated by server */", [("dropped", "orders", "")]),
        ("DROP TEMPORARY TABLE orders", []),
        ("DROP DATABASE shop", [("dropped", "orders", "")]),
        ("DROP DATABASE elsewhere", []),
        ("CREATE OR REPLACE TABLE orders (id INT)", [("dropped", "orders", ""), ("created", "orders", "")]),
        ("CREATE TABLE orders (id INT)", [("created", "orders", "")]),
        ("CREATE TABLE orders LIKE other", [("created", "orders", "")]),
        ("CREATE TABLE IF NOT EXISTS orders (id INT)", []),
        ("CREATE TABLE fresh (id INT)", []),
        ("RENAME TABLE orders TO old, new TO orders", [("renamed", "orders", ""), ("renamed", "new", ""), ("created", "orders", "")]),
        ("RENAME TABLE other TO elsewhere.x", []),
        ("ALTER TABLE orders RENAME TO archive.orders", [("renamed", "orders", "")]),
        ("ALTER TABLE orders RENAME INDEX a TO b", []),
        ("ALTER TABLE orders DROP PARTITION p1", [("rows replaced", "orders", "")]),
        ("ALTER TABLE orders TRUNCATE PARTITION ALL", [("rows replaced", "orders", "")]),
        ("ALTER TABLE orders EXCHANGE PARTITION p WITH TABLE other", [("rows replaced", "orders", "")]),
        ("ALTER TABLE orders ADD PARTITION (PARTITION p2 VALUES LESS THAN (10))", []),
        ("ALTER TABLE orders PARTITION BY RANGE (id) (PARTITION a VALUES LESS THAN (1), PARTITION b VALUES LESS THAN (2))", []),
        ("ALTER TABLE orders CONVERT TO CHARACTER SET utf8mb4", []),
        ("ALTER TABLE orders ENGINE=InnoDB, ROW_FORMAT=DYNAMIC, ADD UNIQUE KEY k (id), DROP PRIMARY KEY, DROP FOREIGN KEY f", []),
        ("ALTER TABLE orders ADD CONSTRAINT c CHECK (id > 0), ALTER COLUMN name SET DEFAULT 'x', ORDER BY id", []),
        ("ALTER TABLE orders SOME_NEW_OPTION = 5", []),
        ("ALTER TABLE orders RENAME COLUMN name TO title", []),
        ("ALTER TABLE orders CHANGE name name TEXT, MODIFY id INT", []),
        ("ALTER TABLE orders DROP name, ADD name INT DEFAULT 4", []),
        ("ALTER TABLE orders ADD u CHAR(36) DEFAULT (uuid())", [("column filled", "orders", "u")]),
        ("ALTER TABLE orders ADD n INT AUTO_INCREMENT UNIQUE", [("column filled", "orders", "n")]),
        ("ALTER TABLE orders ADD n DECIMAL(x,y) NOT NULL, ADD e ENUM NOT NULL", [("column filled", "orders", "n"), ("column filled", "orders", "e")]),
        ("ALTER TABLE orders ADD p POINT NOT NULL", [("column filled", "orders", "p")]),
        ("ALTER TABLE other ADD n INT AUTO_INCREMENT UNIQUE", []),
        ("ALTER TABLE orders ADD at DATETIME DEFAULT CURRENT_TIMESTAMP", [("column filled", "orders", "at")]),
        ("ALTER TABLE orders ADD at TIMESTAMP DEFAULT CURRENT_TIMESTAMP", [("column filled", "orders", "at")]),
        ("ALTER TABLE orders FROBNICATE COLUMN name", [("not read", "orders", "")]),
        ("ALTER TABLE orders ADD COLUMN 'a", [("not read", "orders", "")]),
        ("MUTATE TABLE orders", [("not read", "orders", "")]),
        ("MUTATE TABLE nothing", []),
        ("'orders", [("not read", "orders", "")]),
        ("SET STATEMENT max_statement_time=1 FOR TRUNCATE TABLE orders", [("truncated", "orders", "")]),
        ("/*!50100 TRUNCATE TABLE orders */", [("truncated", "orders", "")]),
        ("/* TRUNCATE */ -- x\n# y\nTRUNCATE orders", [("truncated", "orders", "")]),
        ("CREATE INDEX orders ON orders (id)", []),
        ("CREATE VIEW v AS SELECT 'TRUNCATE TABLE orders'", []),
        ("GRANT ALL ON shop.orders TO x", []),
        ("", []),
    ],
)  # fmt: skip
def test_what_is_told_of_a_statement(tmp_path: Path, sql: str, notices: list[tuple[str, str, str]]) -> None:
    history = fresh(tmp_path)
    assert told(history, sql) == notices
    assert told(history, sql) == notices, "and again when it is read again"


def test_a_rename_tells_both_names(tmp_path: Path) -> None:
    notice, created = fresh(tmp_path).statement(Ddl("other", "RENAME TABLE `a``b` TO shop.`orders`", 200, 0))
    assert (created.kind, created.schema, created.table) == (NoticeKind.CREATED, "shop", "orders")
    assert (notice.kind, notice.schema, notice.table) == (NoticeKind.RENAMED, "other", "a`b")
    assert (notice.new_schema, notice.new_name) == ("shop", "orders")


def test_another_table_under_the_name(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    assert history.replaced_at("shop", "orders") is None
    assert history.replaced_at("shop", "nothing") is None
    swap = "RENAME TABLE orders TO old, other TO orders"
    for _ in range(2):
        told(history, "TRUNCATE TABLE orders", 201)
        told(history, swap, 202)
        assert told(history, "CREATE TABLE IF NOT EXISTS orders (id INT)", 203) == [], "it is there"
        told(history, "DROP TABLE orders", 204)
        told(history, "CREATE TABLE orders (id INT)", 205)
        assert history.replaced_at("shop", "orders") == 202, "all rows of a table that is made are in the log"
        history.save()
        history = History.load(tmp_path / "schemas.json", captured)
    told(history, "ALTER TABLE other RENAME TO orders", 206)
    assert history.replaced_at("shop", "orders") == 206


def test_quoted_names_and_ansi_quotes(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    told(history, 'ALTER TABLE "orders" ADD COLUMN "a b" INT DEFAULT 5')
    table = history.table(with_column(ORDERS, "a b", pa.int32(), "int"), 300)
    assert table.column("a b").initial_default == "5"


def test_nothing_is_written_when_nothing_is_new(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    history.save()
    path = tmp_path / "schemas.json"
    path.unlink()
    history.table(ORDERS, 300)
    told(history, "CREATE VIEW x AS SELECT 1")
    told(history, "ALTER TABLE orders ENGINE=InnoDB")
    history.save()
    assert not path.exists()


def test_another_log_under_the_same_name_is_refused(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    with pytest.raises(SourceError, match=r"mysql\.db1\.shop\.orders at position 100 is not as it was"):
        history.table(with_column(ORDERS, "more", pa.int32(), "int"), 100)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"format": 2}', '{"format": 1, "tables": [{}]}'])
def test_a_damaged_file_is_an_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "schemas.json"
    path.write_text(content)
    with pytest.raises(CorruptError, match=r"schemas\.json is damaged"):
        History.load(path, captured)


def helped(schema: str, table: str) -> str:
    of = helped_table(table)
    return of if of is not None and captured(schema, of) else ""


def with_helpers(path: Path) -> History:
    history = History(path / "schemas.json", captured, helped)
    history.table(ORDERS, 100)
    return history


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("_orders_gho", "orders"), ("_orders_ghc", "orders"), ("_orders_del", "orders"), ("_orders_20240229235959_del", "orders"),
        ("_orders_new", "orders"), ("__orders_new", "orders"), ("_orders_old", "orders"), ("_a_b_old", "a_b"),
        ("orders_old", None), ("_orders", None), ("_orders_newer", None), ("__new", None),
    ],
)  # fmt: skip
def test_names_of_helpers(name: str, table: str | None) -> None:
    assert helped_table(name) == table


@pytest.mark.demand(2)
def test_what_is_altered_in_a_helper_is_altered_when_it_becomes_the_table(tmp_path: Path) -> None:
    history = with_helpers(tmp_path)
    for id_, sql in enumerate(
        (
            "CREATE TABLE _orders_gho LIKE orders",
            "ALTER TABLE _orders_gho ADD wrong INT DEFAULT 1, DROP name",
            "DROP TABLE IF EXISTS _orders_gho",
            "CREATE TABLE _orders_gho LIKE orders",
            "ALTER TABLE _orders_gho ADD more INT DEFAULT 5, CHANGE name title VARCHAR(20)",
        ),
        start=200,
    ):
        assert told(history, sql, id_) == []
        history.save()
        history = History.load(tmp_path / "schemas.json", captured, helped)
    assert history.table(ORDERS, 300) == ORDERS, "rows of the table itself have its old shape until then"
    assert told(history, "RENAME TABLE orders TO _orders_del, _orders_gho TO orders", 400) == []
    assert told(history, "DROP TABLE _orders_del", 401) == []
    title, more = replace(NAME, name="title"), Column("more", pa.int32(), "int")
    table = history.table(replace(ORDERS, columns=(ID, title, more)), 500)
    assert table.columns == (ID, replace(title, born_as="name"), replace(more, initial_default="5"))
    ended, statement = history.ended_by(table, 500) or (None, None)
    assert ended == ORDERS
    assert statement is not None
    assert statement.sql.startswith("ALTER TABLE _orders_gho ADD more")


def test_a_helper_takes_the_table_s_place_in_two_steps(tmp_path: Path) -> None:
    history = with_helpers(tmp_path)
    told(history, "CREATE TABLE _orders_gho LIKE orders", 200)
    told(history, "ALTER TABLE _orders_gho ADD more INT DEFAULT 5", 201)
    assert told(history, "ALTER TABLE orders RENAME _orders_del", 202) == [("renamed", "orders", "")]
    assert told(history, "ALTER TABLE _orders_gho RENAME orders", 203) == []
    assert told(history, "CREATE TABLE IF NOT EXISTS orders (id INT)", 204) == []
    assert history.replaced_at("shop", "orders") == 203, "between the steps there was nothing to load"
    table = history.table(with_column(ORDERS, "more", pa.int32(), "int"), 300)
    assert table.column("more").initial_default == "5"


def test_a_column_of_a_helper_that_only_the_source_can_fill_is_told_of_the_table(tmp_path: Path) -> None:
    history = with_helpers(tmp_path)
    told(history, "CREATE TABLE _orders_new (id BIGINT, name VARCHAR(20))", 200)
    assert told(history, "ALTER TABLE _orders_new ADD u CHAR(36) DEFAULT (uuid())", 201) == [
        ("column filled", "orders", "u")
    ]


def test_a_table_that_is_made_anew_is_told_again_when_it_is_read_again(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    for _ in range(2):
        assert told(history, "CREATE TABLE IF NOT EXISTS orders (id INT)", 200) == []
        assert told(history, "DROP TABLE orders", 201) == [("dropped", "orders", "")]
        assert told(history, "CREATE TABLE IF NOT EXISTS orders (id INT)", 202) == [("created", "orders", "")]
        assert told(history, "CREATE TABLE IF NOT EXISTS orders (id INT)", 203) == []
        history.save()
        history = History.load(tmp_path / "schemas.json", captured)


def test_what_lies_before_the_first_row_of_a_table_tells_nothing_when_it_is_read_again(tmp_path: Path) -> None:
    """As when a capture is killed when its history is on disk, and what it had read is not on the log."""
    history = History(tmp_path / "schemas.json", captured, helped)
    for _ in range(2):
        assert told(history, "DROP DATABASE shop", 91) == []
        assert told(history, "CREATE TABLE orders (id INT)", 92) == []
        assert told(history, "CALL something(orders)", 93) == []
        for id_, sql in ((94, "DROP TABLE orders"), (95, "RENAME TABLE other TO orders"), (96, "TRUNCATE orders")):
            told(history, sql, id_)
            assert history.before("shop", "orders", id_) is None, "there is nothing that it could end"
        assert told(history, "DROP TABLE orders", 97) == [("dropped", "orders", "")]
        assert told(history, "CREATE TABLE orders (id INT, name VARCHAR(20))", 98) == []
        assert history.table(ORDERS, 100) == ORDERS
        assert told(history, "CREATE TABLE IF NOT EXISTS orders (id INT)", 101) == [], "it is there"
        assert not history.has_past("shop", "orders")
        history.save()
        history = History.load(tmp_path / "schemas.json", captured, helped)


def test_what_is_loaded_waits_for_the_version_that_a_statement_makes(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    assert history.like(ORDERS) == ORDERS
    told(history, "ALTER TABLE orders DROP name, ADD name VARCHAR(20) DEFAULT 'x'", 200)
    assert history.like(ORDERS) is None, "the column has its name, and is another one"
    history.learn(ORDERS, 250)
    loaded = history.like(ORDERS)
    assert loaded is not None
    assert loaded.namespace.version == 1
    assert history.table(ORDERS, 300) == loaded
    assert history.ended_by(loaded, 300) is not None, "its first row in the log ends the version before"
    assert history.ended_by(loaded, 301) is None


@pytest.mark.parametrize("has_rows", [True, False])
def test_the_end_of_a_version_tells_what_changed_in_versions_without_rows_too(tmp_path: Path, has_rows: bool) -> None:
    history = fresh(tmp_path)
    assert not has_rows or history.ended_by(ORDERS, 100) is None
    told(history, "ALTER TABLE orders RENAME COLUMN name TO title", 200)
    renamed = replace(ORDERS, columns=(ID, replace(NAME, name="title")))
    history.learn(renamed, 250)
    told(history, "ALTER TABLE orders ADD more INT", 300)
    history.save()
    history = History.load(tmp_path / "schemas.json", captured)
    for _ in range(2):
        newest = history.table(with_column(renamed, "more", pa.int32(), "int"), 400)
        assert newest.namespace.version == 2
        ended, _statement = history.ended_by(newest, 400) or (None, None)
        assert ended == ORDERS, "an end of the version with the new name would tell nobody of the rename"
        history.save()
        history = History.load(tmp_path / "schemas.json", captured)
