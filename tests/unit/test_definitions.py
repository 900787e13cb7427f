"""What statements make of tables, kept by position."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.capture.ddl import Ddl
from headrace.capture.ddl_statements import read
from headrace.capture.definition import TableDefinition
from headrace.capture.definitions import Definitions
from headrace.capture.dump import learn_from_dump
from headrace.capture.history import History
from headrace.capture.tokens import without_literals
from headrace.errors import ConfigError


def everything(_schema: str, _table: str) -> bool:
    return True


def run(definitions: Definitions, *statements: str, first_id: int = 10) -> None:
    for id_, sql in enumerate(statements, start=first_id):
        ddl = Ddl("shop", sql, id_, 0, server_charset="latin1")
        definitions.statement(read(ddl), ddl)


def after(*statements: str) -> TableDefinition | None:
    definitions = Definitions(everything)
    run(definitions, "CREATE DATABASE shop CHARACTER SET utf8mb4", *statements)
    return definitions.newest(("shop", "t"))


def shown(definition: TableDefinition | None) -> list[str]:
    assert definition is not None
    return [
        " ".join(
            [
                one.name,
                one.kind,
                *(["unsigned"] if one.unsigned else []),
                *([one.charset] if one.charset else []),
                *one.labels,
            ]
        )
        for one in definition.for_decoder().columns
    ]


T = "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(9), b INT UNSIGNED)"


@pytest.mark.parametrize(
    ("statements", "columns"),
    [
        ([T], ["id int", "a varchar utf8mb4", "b int unsigned"]),
        (["CREATE TABLE t (id SERIAL, x BOOL, y DEC(5) ZEROFILL, z DOUBLE PRECISION)"], ["id bigint unsigned", "x tinyint", "y decimal unsigned", "z double"]),
        (["CREATE TABLE t (a TEXT, b TEXT COLLATE gbk_chinese_ci, c CHAR(3) ASCII, d NCHAR(3), e CHAR BYTE, f BLOB) CHARSET cp1251"], ["a text cp1251", "b text gbk", "c char latin1", "d char utf8mb3", "e char binary", "f blob binary"]),
        (["CREATE TABLE t (e ENUM('a ', 'it''s', 0x62), s SET('x','y') NOT NULL DEFAULT 'x', j JSON, u UUID)"], ["e enum a it's b", "s set x y", "j json utf8mb4", "u uuid"]),
        (["CREATE TABLE t (id INT, v INT AS (id + 1) VIRTUAL, `key` INT COMMENT 'a, unsigned', KEY k (v), CHECK (id > 0)) COMMENT='CHARSET=x'"], ["id int", "v int", "key int"]),
        (["CREATE TABLE s (a INT) CHARSET=latin1", "CREATE TABLE t LIKE s", "ALTER TABLE t ADD b TEXT"], ["a int", "b text latin1"]),
        (["CREATE TABLE s (a INT)", "CREATE TABLE t (LIKE shop.s)"], ["a int"]),
        (["CREATE TABLE s.t (a INT)", "CREATE TABLE x (b INT)", "RENAME TABLE x TO y, y TO t"], ["b int"]),
        ([T, "CREATE TABLE u (c INT)", "RENAME TABLE t TO x, u TO t, x TO u"], ["c int"]),
        ([T, "ALTER TABLE t ADD c INT FIRST, ADD d INT AFTER id, ADD (e INT, f INT)"], ["c int", "id int", "d int", "a varchar utf8mb4", "b int unsigned", "e int", "f int"]),
        ([T, "ALTER TABLE t DROP a, CHANGE b c BIGINT FIRST, MODIFY id SMALLINT UNSIGNED"], ["c bigint", "id smallint unsigned"]),
        ([T, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"], ["id int", "b varchar utf8mb4", "a int unsigned"]),
        ([T, "ALTER TABLE t CONVERT TO CHARACTER SET gbk, ADD c TEXT"], ["id int", "a varchar gbk", "b int unsigned", "c text gbk"]),
        ([T, "ALTER TABLE t DEFAULT CHARSET=gbk", "ALTER TABLE t ADD c TEXT"], ["id int", "a varchar utf8mb4", "b int unsigned", "c text gbk"]),
        ([T, "ALTER TABLE t DROP IF EXISTS z, ADD IF NOT EXISTS A INT"], ["id int", "a varchar utf8mb4", "b int unsigned"]),
        ([T, "ALTER DATABASE shop CHARACTER SET latin2", "CREATE OR REPLACE TABLE t (a TEXT)"], ["a text latin2"]),
        ([T, "CREATE TABLE IF NOT EXISTS t (other INT)"], ["id int", "a varchar utf8mb4", "b int unsigned"]),
        ([T, "ALTER TABLE t ADD SYSTEM VERSIONING", "ALTER TABLE t DROP a"], ["id int", "b int unsigned", "row_start timestamp", "row_end timestamp"]),
        ([T, "ALTER TABLE t FORCE", "TRUNCATE t", "ANALYZE TABLE t"], ["id int", "a varchar utf8mb4", "b int unsigned"]),
    ],
)  # fmt: skip
def test_columns(statements: list[str], columns: list[str]) -> None:
    assert shown(after(*statements)) == columns


@pytest.mark.parametrize(
    ("statements", "keys"),
    [
        ([T], [("id",)]),
        (["CREATE TABLE t (a INT, B INT, UNIQUE (a), KEY (b), CONSTRAINT c PRIMARY KEY USING BTREE (b, A DESC), UNIQUE u (a(3)))"], [("B", "a"), ("a",)]),
        ([T, "ALTER TABLE t DROP PRIMARY KEY, ADD UNIQUE INDEX k (a, b)"], [("a", "b")]),
        ([T, "CREATE UNIQUE INDEX k ON t (a)", "ALTER TABLE t RENAME INDEX k TO l, RENAME COLUMN a TO c", "DROP INDEX k ON t"], [("id",), ("c",)]),
        ([T, "CREATE UNIQUE INDEX k ON t (a)", "DROP INDEX k ON t"], [("id",)]),
        ([T, "ALTER TABLE t ADD c INT UNIQUE, ADD d INT", "ALTER TABLE t DROP COLUMN c"], [("id",)]),
        ([T, "ALTER TABLE t DROP COLUMN id, ADD n INT AUTO_INCREMENT PRIMARY KEY FIRST"], [("n",)]),
        (["CREATE TABLE t (id INT PRIMARY KEY) WITH SYSTEM VERSIONING"], [("id", "row_end")]),
    ],
)  # fmt: skip
def test_keys(statements: list[str], keys: list[tuple[str, ...]]) -> None:
    definition = after(*statements)
    assert definition is not None
    assert list(definition.for_decoder().keys) == keys


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE t",
        "DROP DATABASE shop",
        "RENAME TABLE t TO u",
        "ALTER TABLE t DROP nothing",
        "ALTER TABLE t ADD A INT",
        "ALTER TABLE t ADD c INT AFTER nothing",
        "ALTER TABLE t FROBNICATE a",
        "MUTATE TABLE t",
        "CREATE OR REPLACE TABLE t (a",
        "CREATE OR REPLACE TABLE t LIKE unknown",
    ],
)
def test_a_table_that_is_gone_or_beyond_reading_is_not_known(statement: str) -> None:
    assert after(T, statement) is None


def test_labels_that_a_server_may_bend_are_not_guessed() -> None:
    table = "CREATE TABLE t (e ENUM('é') CHARACTER SET latin1)"
    assert after(table, "ALTER TABLE t CONVERT TO CHARACTER SET cp1251") is None
    assert after(table, "ALTER TABLE t ADD b INT") is not None


def test_answers_are_by_position_and_outlive_a_restart(tmp_path: Path) -> None:
    history = History(tmp_path / "schemas.json", everything)
    run(history.definitions, T, "ALTER TABLE t DROP a", "DROP TABLE t", "CREATE TABLE t (e ENUM('x','y'))")
    history.save()
    again = History.load(tmp_path / "schemas.json", everything).definitions
    found = [again.at(("shop", "t"), id_) for id_ in range(9, 15)]
    assert [one and [column.name for column in one.columns] for one in found] == [
        None,
        ["id", "a", "b"],
        ["id", "b"],
        None,
        ["e"],
        ["e"],
    ]
    run(again, "ALTER TABLE t DROP a", "DROP TABLE t", first_id=11)
    assert [again.at(("shop", "t"), id_) for id_ in range(9, 15)] == found
    assert not again.changed


def test_a_table_that_is_not_captured_may_become_one_that_is() -> None:
    definitions = Definitions(lambda _schema, table: table == "t")
    run(
        definitions,
        T,
        "CREATE TABLE _t_gho LIKE t",
        "ALTER TABLE _t_gho ADD c INT",
        "RENAME TABLE t TO _t_del, _t_gho TO t",
    )
    run(definitions, "DROP TABLE _t_del", first_id=20)
    assert [name for name, _ in definitions.captured_at(30)] == [("shop", "t")]
    assert shown(definitions.newest(("shop", "t")))[-1] == "c int"
    assert definitions.names() == [("shop", "t")]


def test_a_schema_that_may_have_been_there_has_no_certain_character_set() -> None:
    definitions = Definitions(everything)
    run(
        definitions,
        "CREATE DATABASE a",
        "CREATE DATABASE IF NOT EXISTS b",
        "CREATE DATABASE IF NOT EXISTS c COLLATE gbk_bin",
    )
    assert [definitions.newest_charset(schema) for schema in "abc"] == ["latin1", None, "gbk"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("CREATE TABLE t (a INT);", "does not say in which schema"), ("SELECT 1", "has no CREATE TABLE"), ("", "has no CREATE TABLE")],
)  # fmt: skip
def test_a_dump_that_tells_nothing_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "dump.sql").write_text(text)
    with pytest.raises(ConfigError, match=message):
        learn_from_dump(tmp_path / "dump.sql", Definitions(everything))


@pytest.mark.parametrize(
    ("statement", "shown"),
    [
        ("ALTER TABLE t ADD c VARCHAR(9) DEFAULT 'se''cret'", "ALTER TABLE t ADD c VARCHAR(…) DEFAULT …"),
        ("ALTER TABLE `ab` ADD c INT DEFAULT \"1\" /* secret */, ADD d BIT(3) DEFAULT b'1'", None),
        ("ALTER TABLE t PARTITION BY RANGE (y) (PARTITION p VALUES LESS THAN (1990)) -- secret", None),
        (r"ALTER TABLE t ADD c INT DEFAULT 'a\' COMMENT 'secret'", "ALTER TABLE t ADD c INT DEFAULT …"),
        (r"ALTER TABLE t ADD c TEXT DEFAULT 'a\'secret'", None),
    ],
)
def test_a_statement_is_shown_without_literals(statement: str, shown: str | None) -> None:
    found = without_literals(statement)
    assert shown in (None, found)
    for literal in ("secret", "1990", "FF", '"1"'):
        assert literal not in found


def test_a_dump_of_several_schemas(tmp_path: Path) -> None:
    (tmp_path / "dump.sql").write_text(
        "/*!40101 SET NAMES utf8mb4 */;\nCREATE DATABASE /*!32312 IF NOT EXISTS*/ `a` /*!40100 DEFAULT CHARACTER SET latin1 */;\n"
        "USE `a`;\nDROP TABLE IF EXISTS `t`;\nCREATE TABLE `t` (`x` text COMMENT 'a;b') ;\nUSE b;\nCREATE TABLE t (y INT);\n"
    )
    definitions = Definitions(everything)
    learn_from_dump(tmp_path / "dump.sql", definitions)
    assert shown(definitions.at(("a", "t"), -100)) == ["x text latin1"]
    assert shown(definitions.at(("b", "t"), -100)) == ["y int"]
    with pytest.raises(ConfigError, match="cannot read the dump"):
        learn_from_dump(tmp_path / "nothing.sql", definitions)
