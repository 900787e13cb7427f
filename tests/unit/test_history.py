"""Schema versions, what statements are reported as, and a file that is damaged or belongs elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.capture.ddl import Ddl
from headrace.capture.history import History, NoticeKind
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
    assert history.table(ORDERS, 300) == ORDERS.with_version(2)
    assert history.at("shop", "orders", 250) == changed.with_version(1)
    assert history.at("shop", "nothing", 1) is None


def test_tables_have_versions_of_their_own(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    history.table(with_column(ORDERS, "more", pa.int32(), "int"), 200)
    lines = replace(ORDERS, namespace=replace(ORDERS.namespace, table="lines"))
    assert history.table(lines, 300).namespace.version == 0
    assert [table.namespace.version for table in history.tables()] == [1, 0]


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


def test_statements_follow_each_other(tmp_path: Path) -> None:
    history = fresh(tmp_path)
    told(history, "ALTER TABLE orders ADD a INT DEFAULT 1, ADD b INT DEFAULT 2", 200)
    told(history, "ALTER TABLE orders DROP a", 210)
    told(history, "ALTER TABLE orders ADD IF NOT EXISTS b INT DEFAULT 9, ADD IF NOT EXISTS a INT DEFAULT 8", 220)
    assert told(history, "ALTER TABLE orders CHANGE b c BIGINT", 230) == [("column renamed", "orders", "b")]
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
        ("CREATE OR REPLACE TABLE orders (id INT)", [("dropped", "orders", "")]),
        ("CREATE TABLE orders (id INT)", []),
        ("RENAME TABLE orders TO old, new TO orders", [("renamed", "orders", ""), ("renamed", "new", "")]),
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
        ("ALTER TABLE orders RENAME COLUMN name TO title", [("column renamed", "orders", "name")]),
        ("ALTER TABLE orders CHANGE name name TEXT, MODIFY id INT", []),
        ("ALTER TABLE orders DROP name, ADD name INT DEFAULT 4", [("column replaced", "orders", "name")]),
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
    (notice,) = fresh(tmp_path).statement(Ddl("other", "RENAME TABLE `a``b` TO shop.`orders`", 200, 0))
    assert (notice.kind, notice.schema, notice.table) == (NoticeKind.RENAMED, "other", "a`b")
    assert (notice.new_schema, notice.new_name) == ("shop", "orders")


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
