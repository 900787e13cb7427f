"""Bodies of loads that the native core makes mean what the messages meant; CSV is read by the reader of the stand-in for Doris."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.codec.bodies import BodyLines, Separated, of_columns, of_json, of_separated
from tests.servers.doris.csv import Csv

TEXTS = st.text(st.sampled_from('ab"\\N\n\r\t|,\x01ä\U0001f600'), max_size=6) | st.text(max_size=12)
VALUES = st.none() | TEXTS | st.just("\\N")
ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=8)
SEPARATORS = st.sampled_from([("\t", "\n"), (",", "\n"), ("||", "|\n"), ("\x01", "\x02"), ("aba", "\r\n"), (";", "\r")])
UNUSED = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
Row = Sequence[str | None]


@given(ROWS, st.lists(UNUSED, min_size=8, max_size=8), st.booleans(), st.sampled_from([None, 1]))
def test_lines_of_json_hold_what_stands_in_the_messages(
    rows: list[Row], unused: list[object], ascii_: bool, indent: int | None
) -> None:
    objects = [
        {"x": unused[n], "a": row[0], "in": {"b": row[1], "x": unused[n]}, 'c"\n': row[2]} for n, row in enumerate(rows)
    ]
    texts = [json.dumps(one, ensure_ascii=ascii_, indent=indent).encode() for one in objects]
    lines = BodyLines.json(["a", "b", 'c"\n', "by"])
    made = of_json(lines, texts, [["a"], ["in", "b"], ['c"\n']], ['"me"'])
    read = [json.loads(line) for line in made.data.decode().split("\n")[:-1]]
    assert made.rows == len(rows)
    assert made.refused == []
    assert read == [{"a": a, "b": b, 'c"\n': c, "by": '"me"'} for a, b, c in rows]


def test_values_that_are_no_text_keep_all_their_signs() -> None:
    text = b'{"n": 1.50e3, "big": 123456789012345678901234567890, "t": true, "o": {"a": [1, "x y"]}, "n": 7}'
    made = of_json(BodyLines.json(["n", "big", "t", "o"]), [text], [["n"], ["big"], ["t"], ["o"]], [])
    expected = {"n": "7", "big": "123456789012345678901234567890", "t": "true", "o": '{"a":[1,"x y"]}'}
    assert json.loads(made.data) == expected


def test_keys_may_change_their_order_from_message_to_message() -> None:
    texts = [b'{"a":1,"b":2}', b'{"b":3,"a":4}', b'{"x":{"a":9},"a":5}', b'{"b":6}', b'{"a":7,"b":8,"a":null}']
    made = of_json(BodyLines.csv(",", ";", None), texts, [["a"], ["b"]], [])
    assert made.data == b"1,2;4,3;5,\\N;\\N,6;\\N,8;"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "it has no value"),
        (b"\xff{}", "not UTF-8"),
        (b"[1]", "not a JSON object"),
        (b"", "not a JSON object"),
        (b'{"a":1', "not a JSON object"),
        (b'{"a":1} {}', "not a JSON object"),
    ],
)
def test_what_is_no_object_is_refused_by_its_number(text: bytes | None, reason: str) -> None:
    made = of_json(BodyLines.json(["a"]), [b'{"a":"x"}', text, b" {}"], [["a"]], [])
    assert (made.data, made.rows, made.refused) == (b'{"a":"x"}\n{"a":null}\n', 2, [(1, reason)])


@given(ROWS, SEPARATORS, st.sampled_from([None, ('"', "\\"), ("'", "^"), ('"', "N")]))
def test_csv_is_read_as_it_was_meant_or_the_row_is_refused(
    rows: list[Row], separators: tuple[str, str], enclosed: tuple[str, str] | None
) -> None:
    separator, end = separators
    lines = BodyLines.csv(separator, end, None if enclosed is None else (ord(enclosed[0]), ord(enclosed[1])))
    columns = {str(n): pa.array([row[n] for row in rows], pa.utf8()) for n in range(3)}
    made = of_columns(lines, columns, [])
    headers = {"column_separator": f"\\x{separator.encode().hex()}", "line_delimiter": f"\\x{end.encode().hex()}"}
    if enclosed is not None:
        headers |= {"enclose": enclosed[0], "escape": enclosed[1], "trim_double_quotes": "true"}
        assert all("\\N" in rows[number] and enclosed[1] == "^" for number, _ in made.refused)
    read = [
        tuple(None if value is None else value.decode() for value in row) for row in Csv.of(headers).rows(made.data)
    ]
    refused = {number for number, _ in made.refused}
    assert read == [row for number, row in enumerate(rows) if number not in refused]
    assert made.rows == len(read)
    assert not any(_is_harmless(row) for number, row in enumerate(rows) if number in refused)


def _is_harmless(row: Row) -> bool:
    """Of letters only that stand in no separator."""
    return all(value is None or (value.isalnum() and "a" not in value) for value in row)


@given(st.lists(st.none() | TEXTS, max_size=6), st.booleans())
def test_one_column_of_csv(values: list[str | None], is_enclosed: bool) -> None:
    lines = BodyLines.csv("\t", "\n", (ord('"'), ord("\\")) if is_enclosed else None)
    made = of_columns(lines, {"a": pa.array(values, pa.utf8())}, [])
    headers = {"enclose": '"', "escape": "\\", "trim_double_quotes": "true"} if is_enclosed else {}
    read = [None if row[0] is None else row[0].decode() for row in Csv.of(headers).rows(made.data)]
    refused = {number for number, _ in made.refused}
    assert read == [value for number, value in enumerate(values) if number not in refused]
    assert not (refused and is_enclosed)


@given(st.lists(ROWS, max_size=4), SEPARATORS, st.booleans(), st.sampled_from(["\\N", "", "NULL"]))
def test_records_of_separated_values_are_read(
    messages: list[list[Row]], separators: tuple[str, str], doubles: bool, null: str
) -> None:
    separator, end = separators
    form = Separated(separator, end, '"', None if doubles else "\\", null, 3)
    texts = [
        end.join(separator.join(_field(value, null, doubles) for value in row) for row in rows) for rows in messages
    ]
    made = of_separated(BodyLines.json(["c", "a"]), [text.encode() for text in texts], form, [2, 0], [])
    read = [json.loads(line) for line in made.data.decode().split("\n")[:-1]]
    assert made.refused == []
    assert read == [{"c": c, "a": a} for rows in messages for a, _, c in rows]


def _field(value: str | None, null: str, doubles: bool) -> str:
    if value is None:
        return null
    return '"' + (value.replace('"', '""') if doubles else value.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def test_records_that_make_no_sense_are_refused() -> None:
    form = Separated(",", "\n", '"', None, "\\N", 2)
    texts = [b"a,b\nc\n1,2", b'"a,b', b'"a"b,c', b"", None]
    made = of_separated(BodyLines.csv("\t", "\n", None), texts, form, [0, 1], ["me"])
    assert made.data == b"a\tb\tme\n1\t2\tme\n"
    assert made.refused == [
        (0, "a record has more or fewer fields than `fields`"),
        (1, "an enclosure is not closed"),
        (2, "something stands behind an enclosure"),
        (4, "it has no value"),
    ]


@given(st.lists(st.none() | st.binary(max_size=12) | TEXTS.map(str.encode), max_size=6), SEPARATORS)
def test_any_bytes_are_records_or_refused(texts: list[bytes | None], separators: tuple[str, str]) -> None:
    form = Separated(*separators, '"', "\\", "\\N", 1)
    made = of_separated(BodyLines.json(["a"]), texts, form, [0], [])
    rows = [json.loads(line) for line in made.data.decode().split("\n")[:-1]]
    assert len(rows) == made.rows
    numbers = {number for number, _ in made.refused}
    assert numbers <= set(range(len(texts)))
    assert numbers >= {number for number, text in enumerate(texts) if text is None}
