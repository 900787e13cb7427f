"""A wide table with nearly every column type: inserts, updates, partial JSON updates, ALTERs in between, deletes.

VECTOR is left out: decoders that stop at the first one would have no figure at all.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pymysql

ROWS = 100_000
"""Rows inserted at scale 1."""

_INSERT_ROWS = 50
_TRANSACTION_ROWS = 200
_JSON_ROWS = 2_000
_WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "水渠",
    "データ",
    "ünïcode",
    "😀",
    "river",
    "mill",
    "sluice",
    "实时",
    "数据",
    "stream",
    "lake",
    "log",
    "table",
    "wheel",
]
_LATIN1_WORDS = ["café", "naïve", "plain", "straße"]
_EPOCH = datetime(2020, 1, 1)  # noqa: DTZ001 - DATETIME has no time zone

Value = Callable[[Random, int], Any]
"""Makes a column's value for the row with a number."""


def _words(most: int, least: int | None = None) -> Value:
    return lambda random, _: " ".join(random.choices(_WORDS, k=random.randint(most if least is None else least, most)))


def _latin1(most: int) -> Value:
    return lambda random, _: " ".join(random.choices(_LATIN1_WORDS, k=random.randint(0, most)))


def _range(low: int, high: int) -> Value:
    """The ends of a type's range, zero, or anything between."""
    return lambda random, _: random.choice([low, high, 0, random.randint(low, high)])


def _one_of(*values: Any) -> Value:
    """One of the values; those that are makers are asked for one."""

    def value(random: Random, number: int) -> Any:
        chosen = random.choice(values)
        return chosen(random, number) if callable(chosen) else chosen

    return value


def _bytes(least: int, most: int) -> Value:
    return lambda random, _: random.randbytes(random.randint(least, most))


def _moment(random: Random, _: int) -> str:
    return str(_EPOCH + timedelta(seconds=random.randint(0, 200_000_000)))


def _moment_us(random: Random, _: int) -> str:
    return str(_EPOCH + timedelta(seconds=random.randint(0, 200_000_000), microseconds=random.randint(1, 999_999)))


def _day(random: Random, number: int) -> str:
    return _moment(random, number)[:10]


def _time(random: Random, _: int) -> str:
    sign = random.choice(["", "-"])
    return f"{sign}{random.randint(0, 837):03d}:{random.randint(0, 59):02d}:{random.randint(0, 59):02d}"


def _time_us(random: Random, number: int) -> str:
    return f"{_time(random, number)}.{random.randint(0, 999_999):06d}"


def _wide_decimal(random: Random, _: int) -> Decimal:
    sign = random.choice(["", "-"])
    return Decimal(f"{sign}{random.randint(0, 10**34)}.{random.randint(0, 10**30 - 1):030d}")


def _document(random: Random, number: int) -> str:
    return json.dumps(
        {
            "id": number,
            "name": " ".join(random.choices(_WORDS, k=2)),
            "tags": [random.randint(0, 9) for _ in range(4)],
            "nested": {"a": 1.5 * number, "b": None, "t": True, "big": 2**60 + number},
            "s": "x" * random.randint(0, 60),
        }
    )


def _json(random: Random, number: int) -> str:
    if random.random() > 0.05:
        return _document(random, number)
    lists = "[1,-2,65536,4294967296,18446744073709551615,-9223372036854775808,1e300]"
    return random.choice(["null", "true", "3.14", '"s"', "[]", "{}", lists])


COLUMNS: dict[str, tuple[str, Value]] = {
    "t1": ("TINYINT", _range(-128, 127)),
    "t1u": ("TINYINT UNSIGNED", _range(0, 255)),
    "t2": ("SMALLINT", _range(-(2**15), 2**15 - 1)),
    "t2u": ("SMALLINT UNSIGNED", _range(0, 2**16 - 1)),
    "t3": ("MEDIUMINT", _range(-(2**23), 2**23 - 1)),
    "t3u": ("MEDIUMINT UNSIGNED", _range(0, 2**24 - 1)),
    "t4": ("INT", _range(-(2**31), 2**31 - 1)),
    "t4u": ("INT UNSIGNED", _range(0, 2**32 - 1)),
    "t8": ("BIGINT", _range(-(2**63), 2**63 - 1)),
    "t8u": ("BIGINT UNSIGNED", _range(0, 2**64 - 1)),
    "b1": ("BOOLEAN", _range(0, 1)),
    "d1": ("DECIMAL(10,2)", lambda random, _: Decimal(random.randint(-(10**9), 10**9)) / 100),
    "d2": ("DECIMAL(65,30)", _wide_decimal),
    "d3": ("DECIMAL(18,0) UNSIGNED", _range(0, 10**17)),
    "f4": ("FLOAT", _one_of(0, 1.5, -3.25, lambda random, _: random.random() * 1e3)),
    "f8": ("DOUBLE", _one_of(0, -0.1, lambda random, _: random.random() * 1e200)),
    "bt1": ("BIT(1)", _range(0, 1)),
    "bt13": ("BIT(13)", _range(0, 2**13 - 1)),
    "bt64": ("BIT(64)", _range(0, 2**64 - 1)),
    "dd": ("DATE", _one_of("0000-00-00", "1000-01-01", "9999-12-31", "2024-00-15", _day)),
    "tm": ("TIME", _time),
    "tm3": ("TIME(3)", _time_us),
    "tm6": ("TIME(6)", _time_us),
    "dt": ("DATETIME", _one_of("0000-00-00 00:00:00", "1000-01-01 00:00:00", _moment)),
    "dt3": ("DATETIME(3)", _moment_us),
    "dt6": ("DATETIME(6)", _one_of("9999-12-31 23:59:59.499999", _moment_us)),
    "ts": ("TIMESTAMP NULL", _one_of("0000-00-00 00:00:00", "1970-01-01 00:00:01", "2038-01-19 03:14:07", _moment)),
    "ts6": ("TIMESTAMP(6) NULL", _moment_us),
    "yy": ("YEAR", _one_of(0, 1901, 2155, 2024)),
    "ch": ("CHAR(20)", _words(1)),
    "vc": ("VARCHAR(300)", _words(8, 0)),
    "vl": ("VARCHAR(60) CHARACTER SET latin1", _latin1(4)),
    "vg": ("VARCHAR(30) CHARACTER SET gbk", _one_of("中文", "数据abc", "")),
    "bn": ("BINARY(8)", _bytes(5, 8)),
    "vb": ("VARBINARY(40)", _bytes(0, 40)),
    "tb": ("TINYBLOB", _bytes(0, 50)),
    "bb": ("BLOB", _bytes(0, 100)),
    "mb": ("MEDIUMBLOB", _bytes(20, 20)),
    "lb": ("LONGBLOB", _bytes(20, 20)),
    "tx": ("TEXT", _words(12)),
    "txl": ("TEXT CHARACTER SET latin1", _latin1(5)),
    "ltx": ("LONGTEXT", _words(20)),
    "en": ("ENUM('a','b','c-é','')", _one_of("a", "b", "c-é", "")),
    "st": ("SET('x','y','z','w')", _one_of("x", "x,y", "x,y,z,w", "", "w")),
    "js": ("JSON", _json),
    "ge": ("GEOMETRY", _one_of("POINT(1 -2.5)", "POLYGON((0 0,10 0,10 10,0 10,0 0))", None)),
}
"""Column -> its declaration and its values."""


def load(connection: pymysql.Connection[Any], scale: float) -> None:
    """Creates `every_type` in the connection's database and changes it; the connection does not commit by itself."""
    random = Random(42)
    rows = int(ROWS * scale)
    with connection.cursor() as cursor:
        # Zero and partial dates are values too.
        cursor.execute("SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'")
        declared = ", ".join(f"{name} {declaration}" for name, (declaration, _) in COLUMNS.items())
        cursor.execute(f"CREATE TABLE every_type (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, {declared})")
        columns = list(COLUMNS)
        _insert(cursor, columns, random, 0, rows // 2)
        cursor.execute(
            "UPDATE every_type SET t4 = COALESCE(t4, 0) XOR 1, vc = CONCAT(LEFT(COALESCE(vc, ''), 40), '-u'), dt6 = NOW(6) "
            "WHERE id % 3 = 0"
        )
        connection.commit()
        _update_json(cursor, rows)
        cursor.execute(
            "ALTER TABLE every_type ADD COLUMN n1 INT UNSIGNED NOT NULL DEFAULT 7, ADD COLUMN n2 VARCHAR(20) DEFAULT 'x' AFTER t1"
        )
        _insert(cursor, columns, random, rows, rows // 4)
        cursor.execute("ALTER TABLE every_type MODIFY COLUMN t2 BIGINT, DROP COLUMN t3")
        columns.remove("t3")
        _insert(cursor, columns, random, 2 * rows, rows // 8)
        cursor.execute("RENAME TABLE every_type TO renamed")
        cursor.execute("RENAME TABLE renamed TO every_type")
        cursor.execute("ALTER TABLE every_type RENAME COLUMN n2 TO n3")
        _insert(cursor, columns, random, 3 * rows, rows // 8)
        cursor.execute("DELETE FROM every_type WHERE id % 11 = 0")
        connection.commit()


def _insert(cursor: Any, columns: list[str], random: Random, first: int, count: int) -> None:
    row = ", ".join("ST_GeomFromText(%s)" if name == "ge" else "%s" for name in columns)
    for start in range(0, count, _INSERT_ROWS):
        numbers = range(first + start, first + min(start + _INSERT_ROWS, count))
        values = [value for number in numbers for value in _row(columns, random, number)]
        rows = ", ".join([f"({row})"] * len(numbers))
        cursor.execute(f"INSERT INTO every_type ({', '.join(columns)}) VALUES {rows}", values)
        if start % _TRANSACTION_ROWS == 0:
            cursor.connection.commit()
    cursor.connection.commit()


def _row(columns: list[str], random: Random, number: int) -> list[Any]:
    """Three rows in ten have NULL in a third of their columns."""
    empty = set(random.sample(columns, len(columns) // 3)) if random.random() < 0.3 else set()
    return [None if name in empty else COLUMNS[name][1](random, number) for name in columns]


def _update_json(cursor: Any, rows: int) -> None:
    """Updates that the log holds as differences of the document only, then values that JSON text cannot have."""
    cursor.execute("SET SESSION binlog_row_value_options = PARTIAL_JSON")
    for low in range(0, rows, _JSON_ROWS):
        chosen = f"id BETWEEN {low} AND {low + _JSON_ROWS - 1} AND JSON_TYPE(js) = 'OBJECT'"
        cursor.execute(
            "UPDATE every_type SET js = JSON_SET(js, '$.name', CONCAT('renamed', id), '$.nested.a', JSON_ARRAY(1, id), "
            f"'$.new', JSON_OBJECT('k', NULL)) WHERE {chosen} AND id % 2 = 0"
        )
        cursor.execute(f"UPDATE every_type SET js = JSON_REMOVE(js, '$.tags[0]', '$.s') WHERE {chosen} AND id % 5 = 0")
        cursor.connection.commit()
    cursor.execute("SET SESSION binlog_row_value_options = ''")
    cursor.execute(
        "UPDATE every_type SET js = JSON_OBJECT('d', CAST('2024-02-29' AS DATE), "
        "'dt', CAST('2024-02-29 01:02:03.000456' AS DATETIME(6)), 't', CAST('-12:34:56.789' AS TIME(3)), "
        "'dec', CAST(12345.678900 AS DECIMAL(20,6)), 'bin', CAST(x'00ff10' AS BINARY), 'geo', ST_GeomFromText('POINT(1 2)')) "
        "WHERE id % 97 = 0"
    )
    cursor.connection.commit()
