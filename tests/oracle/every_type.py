"""Every column type with the values at its edges, for MySQL and for MariaDB, as SQL."""

from __future__ import annotations

import itertools

from tests.servers.binlog_server import BinlogServer
from tests.servers.mysql import MySql

Columns = dict[str, list[str]]
"""Column type -> SQL expressions of its values."""

_INTEGERS: Columns = {
    kind + sign: ["NULL", "0", "1", *edges]
    for kind, bits in (("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64))
    for sign, edges in (
        ("", [str(-(1 << bits - 1)), str((1 << bits - 1) - 1), "-1"]),
        (" UNSIGNED", [str((1 << bits) - 1), str(1 << bits - 1)]),
    )
}
_BITS: Columns = {
    f"BIT({size})": [
        "NULL",
        "b'0'",
        "b'1'",
        f"b'{'1' * size}'",
        f"b'{'10' * 32}'".replace("10" * 32, ("10" * 32)[:size]),
    ]
    for size in (1, 7, 8, 9, 24, 33, 64)
}
_DECIMALS: Columns = {
    f"DECIMAL({precision},{scale})": ["NULL", "0", "-0.5", "1", f"-{nines}", nines, "1e-30"]
    for precision, scale in ((1, 0), (5, 2), (9, 9), (10, 0), (18, 9), (38, 10), (39, 20), (65, 30), (65, 0), (30, 30))
    for nines in [f"{'9' * (precision - scale)}.{'9' * scale}"]
} | {"DECIMAL(20,5) UNSIGNED": ["NULL", "0", "123456789012345.12345"]}
_FLOATS: Columns = {
    "FLOAT": ["NULL", "0", "-0e0", "0.1", "-1.5", "3.4028234e38", "1.1754944e-38", "1e-45", "16777217"],
    "FLOAT UNSIGNED": ["NULL", "0", "0.3"],
    "DOUBLE": ["NULL", "0", "-0e0", "0.1", "1.7976931348623157e308", "2.2250738585072014e-308", "5e-324", "1e16", "123456.789"],
    "DOUBLE UNSIGNED": ["NULL", "1e100"],
}  # fmt: skip
_DATES: Columns = {
    "DATE": ["NULL", "'0000-00-00'", "'2024-00-15'", "'2024-02-00'", "'2023-02-31'", "'0001-01-01'", "'1000-01-01'",
             "'1969-12-31'", "'2024-02-29'", "'9999-12-31'"],
    "YEAR": ["NULL", "0", "1901", "2155", "2000"],
}  # fmt: skip
for _digits in range(7):
    _fraction = f".{'123456'[:_digits]}" if _digits else ""
    _last = f".{'9' * _digits}" if _digits else ""
    _tail = f".{'0' * (_digits - 1)}1" if _digits else ""
    _DATES |= {
        f"TIME({_digits})": ["NULL", "'0'", "'-00:00:01'", f"'-00:00:00{_tail}'", f"'-12:34:56{_fraction}'", f"'01:02:03{_fraction}'",
                             f"'-838:59:58{_last}'", f"'838:59:58{_last}'", "'838:59:59'", f"'-00:00:01{_last}'"],
        f"DATETIME({_digits})": ["NULL", "'0000-00-00'", f"'2024-00-00 01:02:03{_fraction}'", f"'2023-02-30 23:59:59{_last}'",
                                 f"'0001-01-01 00:00:00{_tail}'", f"'1969-12-31 23:59:59{_last}'", f"'9999-12-31 23:59:59{_last}'"],
        f"TIMESTAMP({_digits}) NULL": ["NULL", "'0000-00-00'", f"'1970-01-01 00:00:01{_tail}'", f"'2038-01-19 03:14:06{_last}'",
                                       f"'2024-02-29 23:59:59{_fraction}'"],
    }  # fmt: skip
_TEXTS: Columns = {
    "CHAR(1)": ["NULL", "''", "'x'", "'😀'", "' '"],
    "CHAR(255)": ["NULL", "''", "'a b  '", "REPEAT('😀', 255)"],
    "CHAR(200) CHARACTER SET latin1": ["NULL", "'é'", "REPEAT('ÿ', 200)"],
    "VARCHAR(0)": ["NULL", "''"],
    "VARCHAR(63)": ["NULL", "''", "'tail  '", "REPEAT('水', 63)"],
    "VARCHAR(64)": ["NULL", "''", "REPEAT('水', 64)"],
    "VARCHAR(255) CHARACTER SET latin1": ["NULL", "REPEAT('é', 255)"],
    "VARCHAR(256) CHARACTER SET latin1": ["NULL", "REPEAT('é', 256)"],
    "VARCHAR(300) CHARACTER SET utf8mb3": ["NULL", "'水渠'"],
    "TINYTEXT": ["NULL", "''", "REPEAT('x', 255)"],
    "TEXT": ["NULL", "'\\0\\n\\r\\t\\\"''\\\\'", "REPEAT('é', 30000)"],
    "TEXT CHARACTER SET gbk": ["NULL", "'中文\\\\'"],
    "MEDIUMTEXT": ["NULL", "REPEAT('😀', 17000)"],
    "LONGTEXT CHARACTER SET utf16": ["NULL", "'a😀水'"],
}
_BINARIES: Columns = {
    "BINARY(1)": ["NULL", "x'00'", "x'ff'", "''"],
    "BINARY(16)": ["NULL", "''", "x'0001'", "x'ff00'", "x'00000000000000000000000000000000'", "'    '"],
    "BINARY(255)": ["NULL", "x'20'", "REPEAT(x'ff', 255)"],
    "VARBINARY(9)": ["NULL", "''", "x'0000'", "x'2020'", "x'ff00ff'"],
    "VARBINARY(255)": ["NULL", "REPEAT(x'00', 255)"],
    "VARBINARY(256)": ["NULL", "REPEAT(x'80', 256)"],
    "TINYBLOB": ["NULL", "''", "REPEAT(x'00', 255)"],
    "BLOB": ["NULL", "''", "REPEAT(x'01', 256)", "REPEAT(x'fe', 65535)"],
    "MEDIUMBLOB": ["NULL", "REPEAT(x'fd', 65536)"],
    "LONGBLOB": ["NULL", "x'00'"],
}
_MANY_LABELS = ",".join(f"'l{number}'" for number in range(300))
_BIT_LABELS = ",".join(f"'b{number}'" for number in range(64))
_LABELS: Columns = {
    "ENUM('a','it''s','','ü,水')": ["NULL", "'a'", "'it''s'", "''", "'ü,水'", "'no such label'", "0", "4"],
    f"ENUM({_MANY_LABELS})": ["NULL", "1", "255", "256", "300"],
    "ENUM('é','ß') CHARACTER SET latin1": ["NULL", "'é'", "'ß'"],
    "SET('x','y','it''s')": ["NULL", "''", "'x'", "'y,x'", "7"],
    f"SET({_BIT_LABELS})": ["NULL", "0", "1", "1 << 63", "~0", "'b0,b9,b40'"],
    "SET('中','文') CHARACTER SET gbk": ["NULL", "'文'", "'中,文'"],
}
_SHAPES = ["NULL", "ST_GeomFromText('POINT(1.5 -2)')", "ST_GeomFromText('LINESTRING(0 0,1 1,2 5)', 0)"]
_GEOMETRIES: Columns = {
    "GEOMETRY": [*_SHAPES, "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))')"],
    "POINT": _SHAPES[:2],
    "LINESTRING": ["NULL", _SHAPES[2]],
    "POLYGON": ["NULL", "ST_GeomFromText('POLYGON((0 0,0 3,3 3,0 0))')"],
    "MULTIPOINT": ["NULL", "ST_GeomFromText('MULTIPOINT(1 1,2 2)')"],
    "MULTILINESTRING": ["NULL", "ST_GeomFromText('MULTILINESTRING((0 0,1 1),(2 2,3 3))')"],
    "MULTIPOLYGON": ["NULL", "ST_GeomFromText('MULTIPOLYGON(((0 0,0 3,3 3,0 0)))')"],
    "GEOMETRYCOLLECTION": ["NULL", "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1))')"],
}
_JSON = [
    "NULL", "'null'", "'true'", "'[]'", "'{}'", "'0'", "'-1'", "'65535'", "'-32769'", "'4294967296'", "'-9223372036854775808'",
    "'18446744073709551615'", "'18446744073709551616'", "'1.5'", "'1.0'", "'-0.0'", "'1e20'", "'1e-7'", "'123456789.125'", "'1e308'", "'5e-324'",
    "'0.1'", "'1e15'", "'1e16'", "'1e17'", "'123456789012345678'", "'\"\"'", "'\"😀 \\\\u0001 \\\\\" \\\\\\\\ / \\\\u2028\"'",
    "'{\"b\": 1, \"aa\": [1, \"x\", null, {\"\": {}}], \"a\": 2.5, \"水\": \"渠\"}'",
    "JSON_OBJECT('date', DATE'2024-02-29', 'time', TIME'-12:34:56.5', 'moment', TIMESTAMP'2024-02-29 01:02:03.000001')",
    "JSON_ARRAY(CAST('12345678901234567890.123456789' AS DECIMAL(40,20)), CAST(-0.5 AS DECIMAL(3,2)), CAST(7 AS DECIMAL(10)))",
    "JSON_ARRAY(CAST(TIMESTAMP'0000-00-00 00:00:00' AS JSON))", "JSON_ARRAY(x'cafe', b'101', CAST(18446744073709551615 AS UNSIGNED), TRUE)",
    "JSON_OBJECT('long', REPEAT('x', 70000), 'n', 1, 'i', 70000, 'd', -2.5)", "JSON_ARRAY(REPEAT('é', 100), REPEAT('y', 20000), 40000, -40000)",
    "CAST(ST_GeomFromText('POINT(1 2)') AS JSON)", "JSON_ARRAY(1.1e0, CAST(0.1 AS FLOAT), CAST(2024 AS YEAR))",
]  # fmt: skip
_MYSQL: Columns = {
    "JSON": _JSON,
    "VECTOR(3)": ["NULL", "TO_VECTOR('[1,2.5,-3]')", "TO_VECTOR('[0]')"],
    "VECTOR": ["NULL", "TO_VECTOR(CONCAT('[', REPEAT('0.5,', 2047), '1]'))"],
    "POINT SRID 4326": ["NULL", "ST_GeomFromText('POINT(50 10)', 4326)"],
    "BIGINT INVISIBLE": ["NULL", "7"],
}
_MARIADB: Columns = {
    "JSON": ["NULL", "'{\"a\":  [1, 2.50]}'"],
    "VARCHAR(2000) COMPRESSED": ["NULL", "''", "'short'", "REPEAT('long é ', 200)"],
    "VARCHAR(200) COMPRESSED": ["NULL", "'x'", "REPEAT('ab', 50)"],
    "TEXT COMPRESSED": ["NULL", "''", "REPEAT('水', 5000)"],
    "MEDIUMTEXT COMPRESSED CHARACTER SET latin1": ["NULL", "REPEAT('é', 50000)"],
    "BLOB COMPRESSED": ["NULL", "''", "REPEAT(x'00ff', 9000)"],
    "VARBINARY(300) COMPRESSED": ["NULL", "x'0000'", "REPEAT(x'20', 300)"],
    "UUID": ["NULL", "'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffff00'"],
    "INET6": ["NULL", "'::'", "'2001:db8::'", "'::ffff:1.2.3.4'", "'fe80::1'"],
    "INET4": ["NULL", "'0.0.0.0'", "'10.0.0.0'", "'255.255.255.255'"],
}  # fmt: skip


def _mixed(own: Columns) -> Columns:
    """Types side by side of which a log's lists of signs, character sets and labels count some and pass over others."""
    others = list(_TEXTS | _BINARIES | _INTEGERS | _LABELS)[::-3]
    odd = [*_GEOMETRIES, *own, *list(_DATES)[:2], *list(_BITS)[:3], *list(_FLOATS)]
    values = _GEOMETRIES | own | _DATES | _BITS | _FLOATS | _TEXTS | _BINARIES | _INTEGERS | _LABELS
    paired = [kind for pair in zip(odd, itertools.cycle(others), strict=False) for kind in pair]
    return {kind: values[kind] for kind in paired if "2000" not in kind and "255" not in kind and "256" not in kind}


def tables_of(server: BinlogServer) -> dict[str, Columns]:
    """Table name -> its columns: a row has at most 65,535 bytes, so the types are spread over several tables."""
    own = _MYSQL if isinstance(server, MySql) else _MARIADB
    return {
        "integers": _INTEGERS | _BITS,
        "numbers": _DECIMALS | _FLOATS,
        "dates": _DATES,
        "texts": _TEXTS,
        "binaries": _BINARIES,
        "labels": _LABELS,
        "geometries": _GEOMETRIES,
        "own": own,
        "mixed": _mixed(own),
    }


def statements(table: str, columns: Columns) -> list[str]:
    """A history of the table: in every row another value of each column, changed, changed back, deleted, put in again."""
    names = [f"c{number}" for number in range(len(columns))]
    created = ", ".join(f"{name} {kind}" for name, kind in zip(names, columns, strict=True))
    count = max(len(values) for values in columns.values())
    listed = ", ".join(names)

    def row(number: int, shift: int) -> list[str]:
        return [values[(number + shift) % len(values)] for values in columns.values()]

    found = [f"CREATE TABLE {table} (id INT PRIMARY KEY, {created})"]
    inserted = [f"({number}, {', '.join(row(number, 0))})" for number in range(count + 5)]
    found += [f"INSERT INTO {table} (id, {listed}) VALUES {', '.join(inserted)}"]
    for number in range(count):
        changed = ", ".join(f"{name} = {value}" for name, value in zip(names, row(number, 1), strict=True))
        found.append(f"UPDATE {table} SET {changed} WHERE id = {number}")
    found += [f"DELETE FROM {table} WHERE id % 7 = 3", f"UPDATE {table} SET {names[0]} = NULL WHERE id % 5 = 1"]
    some = names[len(names) // 2]
    found += [
        f"INSERT INTO {table} (id, {some}) SELECT id + 1000, {some} FROM {table}",
        f"UPDATE {table} SET id = id + 5000 WHERE id % 11 = 4",
        f"ALTER TABLE {table} ADD COLUMN more INT NOT NULL DEFAULT 5 FIRST",
        f"UPDATE {table} SET more = more + id",
        f"ALTER TABLE {table} DROP COLUMN {names[0]}, CHANGE more fewer BIGINT UNSIGNED NOT NULL AFTER id",
        f"UPDATE {table} SET fewer = fewer + 9223372036854775808",
        f"DELETE FROM {table} WHERE id % 13 = 2",
    ]
    return found
