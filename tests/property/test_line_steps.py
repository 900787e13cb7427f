"""The operators of rules on whole columns do what plain Python does line by line, and no line is ever left out."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from headrace.capture.applog.followed import Piece
from headrace.capture.applog.pieces import lines_of
from headrace.capture.lines.columns import column_of, typed
from headrace.capture.lines.fields import Fields
from headrace.capture.lines.rules import Rule
from headrace.capture.lines.steps import AnyStep
from headrace.capture.lines.tables import LineTables
from headrace.capture.lines.times import TimeFormat
from headrace.capture.seen_tables import SeenTables
from headrace.ums.change import ChangeBatch
from tests.log_lines import texts

STEP: TypeAdapter[Any] = TypeAdapter(AnyStep)
LETTERS = st.text(st.sampled_from('ab=, ."{}[]:1é水😀'), max_size=12)
COLUMN = st.lists(st.one_of(st.none(), LETTERS), min_size=1, max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**20) | LETTERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
LINES = st.lists(
    st.sampled_from(["1 a", "2 b", "x", "", "[1,2]", "[]", '{"a":[3,4]}', "1", "9 " + "y" * 200]), max_size=20
)


def applied(values: list[str | None], **step: Any) -> list[tuple[int, dict[str, str | None]]]:
    """The rows that a step makes: which line each is of, and its fields."""
    found = STEP.validate_python(step).apply(Fields({"line": texts(values)}, pa.array(range(len(values)), pa.int64())))
    names = list(found.texts)
    columns = [found[name].to_pylist() for name in names]
    return [
        (line, dict(zip(names, row, strict=True))) for line, *row in zip(found.lines.to_pylist(), *columns, strict=True)
    ]


@settings(deadline=None)
@given(COLUMN, LETTERS.filter(bool))
def test_filter_keeps_what_fits(values: list[str | None], part: str) -> None:
    kept = [line for line, _ in applied(values, do="filter", contains=part)]
    assert kept == [line for line, text in enumerate(values) if text is not None and part in text]
    others = [line for line, _ in applied(values, do="filter", contains=part, keep=False)]
    assert sorted(kept + others) == list(range(len(values)))
    equal = [line for line, _ in applied(values, do="filter", equals=part)]
    assert equal == [line for line, text in enumerate(values) if text == part]


@settings(deadline=None)
@given(COLUMN)
def test_extract_is_that_of_re(values: list[str | None]) -> None:
    pattern = r"(?P<k>[a-bé水]+)[=:](?P<v>[0-9]*)"
    matches = [(line, re.search(pattern, text)) for line, text in enumerate(values) if text is not None]
    wanted = [(line, found["k"], found["v"]) for line, found in matches if found]
    assert [(line, row["k"], row["v"]) for line, row in applied(values, do="extract", regex=pattern)] == wanted


@settings(deadline=None)
@given(COLUMN, st.sampled_from([" ", ",", "=", ". "]), st.integers(2, 4))
def test_split_is_that_of_str(values: list[str | None], by: str, count: int) -> None:
    names = [f"p{number}" for number in range(count)]
    pieces = [(line, text.split(by, count - 1)) for line, text in enumerate(values) if text is not None]
    wanted = [(line, found) for line, found in pieces if len(found) == count]
    assert [
        (line, [row[name] for name in names]) for line, row in applied(values, do="split", by=by, to=names)
    ] == wanted


@settings(deadline=None)
@given(COLUMN, LETTERS.filter(bool), st.integers(-3, 4), st.none() | st.integers(0, 6))
def test_texts_are_those_of_str(values: list[str | None], part: str, start: int, stop: int | None) -> None:
    def wanted(change: Any) -> list[tuple[int, dict[str, str | None]]]:
        return [(line, {"line": None if text is None else change(text)}) for line, text in enumerate(values)]

    assert applied(values, do="trim", field="line", characters=part) == wanted(lambda text: text.strip(part))
    assert applied(values, do="replace", field="line", text=part, by="-") == wanted(
        lambda text: text.replace(part, "-")
    )
    assert applied(values, do="substring", field="line", start=start, stop=stop) == wanted(
        lambda text: text[start:stop]
    )
    joined = [f"<{text or ''}>{text or ''}" for text in values]
    assert [row["x"] for _, row in applied(values, do="concat", of="<{line}>{line}", to="x")] == joined


@settings(deadline=None)
@given(st.lists(JSON, min_size=1, max_size=5))
def test_json_and_flatten_are_those_of_json(values: list[Any]) -> None:
    lines: list[str | None] = [json.dumps(value, ensure_ascii=False, separators=(",", ":")) for value in values]

    def text(value: Any) -> str | None:
        if value is None or isinstance(value, str):
            return value
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

    objects = [(line, value) for line, value in enumerate(values) if isinstance(value, (dict, list))]
    wanted = [(line, text(value.get("a") if isinstance(value, dict) else None)) for line, value in objects]
    assert [(line, row["x"]) for line, row in applied(lines, do="json", to={"x": "a"})] == wanted
    elements = [(line, text(each)) for line, value in objects if isinstance(value, list) for each in value]
    assert [(line, row["x"]) for line, row in applied(lines, do="flatten", to="x")] == elements


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(-(2**40), 2**40).map(str), LETTERS), min_size=1, max_size=8))
def test_a_value_is_in_its_column_or_beside_it(values: list[str | None]) -> None:
    found, beyond = typed(texts(values), column_of("v", "int"), ["", "-"], 0)
    beside = beyond.to_pylist() if beyond is not None else [False] * len(values)
    for text, value, is_beside in zip(values, found.to_pylist(), beside, strict=True):
        assert not (is_beside and value is not None)
        assert text in (None, "", "-") or is_beside or int(text) == value


@settings(deadline=None)
@given(st.datetimes().filter(lambda at: at.year >= 1900), st.integers(-14 * 60, 14 * 60))
def test_times_are_those_of_strptime(at: Any, zone_minutes: int) -> None:
    zoned = at.replace(tzinfo=timezone(timedelta(minutes=zone_minutes)))
    wanted = (zoned - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    for form in ("%Y-%m-%dT%H:%M:%S.%f%z", "%d/%b/%Y:%H:%M:%S.%f %z"):
        text = zoned.strftime(form)
        for read in {form, "iso" if form.startswith("%Y") else form}:
            assert TimeFormat(read).micros(texts([text, "no time"]), 0).to_pylist() == [wanted, None]


@settings(deadline=None)
@given(LINES, st.integers(0, 3))
def test_every_line_becomes_a_row_and_ids_only_grow(values: list[str], cut: int) -> None:
    rules = [
        {
            "table": "a",
            "steps": [{"do": "extract", "regex": r"^(?P<n>\d+) (?P<w>.*)"}],
            "columns": {"n": "int", "w": "text"},
        },
        {"table": "b", "steps": [{"do": "flatten", "to": "e"}], "columns": {"e": "int"}},
        {"table": "c", "steps": [{"do": "flatten", "at": "a", "to": "e"}], "columns": {"e": "int"}},
    ]
    data = "".join(f"{value}\n" for value in values).encode()
    middle = data.find(b"\n", cut * len(data) // 4) + 1
    parts = [part for part in (data[:middle], data[middle:]) if part]
    pieces = [Piece("p", "h", 100 * number, part, len(part)) for number, part in enumerate(parts)]
    tables = LineTables(TypeAdapter(list[Rule]).validate_python(rules), SeenTables(Path(), "applog", "web"))
    lines = lines_of(pieces, 50, 100, "utf-8")
    batches = [change for change in tables.changes(lines, 1, 1) if isinstance(change, ChangeBatch)]
    rows = sorted((row for batch in batches for row in batch.data.to_pylist()), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == sorted({row["id"] for row in rows})
    assert all(4 * 50 < row["id"] < 4 * (50 + len(data)) for row in rows)
    expected = sum(2 if value in ("[1,2]", '{"a":[3,4]}') else bool(value) for value in values)
    assert len(rows) == expected
