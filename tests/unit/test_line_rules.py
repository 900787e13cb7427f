"""What rules make of lines: the operators, times, types, and what no rule fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from headrace.capture.lines.rules import Rule, tables_of
from headrace.capture.lines.tables import LineTables
from headrace.capture.lines.times import TimeFormat
from headrace.capture.seen_tables import SeenTables
from headrace.capture.topic_lines import lines_of
from headrace.codec.foreign.log_events import LogEvent
from headrace.ums.change import ChangeBatch
from tests.log_lines import micros, texts

NOW_US = micros("2026-11-21 12:00:00")


def rows(lines: list[str | dict[str, Any]], *rules: dict[str, Any], table: str | None = None) -> list[dict[str, Any]]:
    """The rows that rules make; those of `table` only."""
    events = []
    for line in lines:
        given = {"line": line} if isinstance(line, str) else line
        events.append(LogEvent(**{"host": "h", "time_us": 7, "path": "p", "offset": 3, "event": None} | given))
    tables = LineTables(TypeAdapter(list[Rule]).validate_python(list(rules)), SeenTables(Path(), "kafka", "up"))
    found = []
    for batch in tables.changes(lines_of(events, [100_000 * n for n in range(len(events))]), NOW_US, NOW_US):
        if isinstance(batch, ChangeBatch):
            found += [row | {"table": batch.table.namespace.table} for row in batch.data.to_pylist()]
    found.sort(key=lambda row: row["id"])
    return [row for row in found if table in (None, row["table"])]


def made(line: str, *steps: dict[str, Any], **columns: str) -> list[dict[str, Any]]:
    """The columns of the rows that steps make of one line; none when they do not fit."""
    wanted = columns or {"line": "text"}
    found = rows([line], {"table": "t", "steps": list(steps), "columns": wanted}, table="t")
    return [{name: row[name] for name in wanted} for row in found]


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        ({"equals": "a b"}, True),
        ({"equals": ["x", "a b"]}, True),
        ({"equals": "a"}, False),
        ({"contains": " "}, True),
        ({"contains": "."}, False),
        ({"matches": "^a"}, True),
        ({"matches": "b$", "keep": False}, False),
        ({"field": "event", "contains": "a"}, False),
        ({"field": "event", "contains": "a", "keep": False}, True),
    ],
)
def test_filter(options: dict[str, Any], fits: bool) -> None:
    assert bool(made("a b", {"do": "filter", **options})) == fits


def test_extract_and_split() -> None:
    extract = {"do": "extract", "regex": r"(?P<k>\w+)=(?P<v>\d+)?"}
    assert made("see n=12 here", extract, k="text", v="int") == [{"k": "n", "v": 12}]
    assert made("see n= here", extract, k="text", v="int") == [{"k": "n", "v": None}]
    assert made("nothing", extract, k="text") == []
    split = {"do": "split", "by": "||", "to": ["a", "b", "c"]}
    assert made("1||2||3||4", split, a="int", b="text", c="text") == [{"a": 1, "b": "2", "c": "3||4"}]
    assert made("1||2", split, a="int") == []


def test_json_and_flatten() -> None:
    line = '{"a": {"b": [1.50, "x", null]}, "c.d": true, "n": null, "big": 123456789012345678901, "o": {"z": 1.0}}'
    places = {"p": "a.b[0]", "q": "$.a.b[1]", "r": '["c.d"]', "n": "n", "big": "big", "o": "o", "none": "a.b[7]"}
    step = {"do": "json", "to": places}
    assert made(line, step, **dict.fromkeys(places, "text")) == [
        {"p": "1.50", "q": "x", "r": "true", "n": None, "big": "123456789012345678901", "o": '{"z":1.0}', "none": None}
    ]
    assert made("12", {"do": "json", "to": {"p": "a"}}, p="text") == []
    assert made('{"p": "\\ud800"}', {"do": "json", "to": {"p": "p"}}, p="text") == []
    flatten = {"do": "flatten", "at": "items", "to": "item"}
    assert made(
        '{"items": [{"id": 1}, {"id": "2"}]}', flatten, {"do": "json", "field": "item", "to": {"key": "id"}}, key="int"
    ) == [
        {"key": 1},
        {"key": 2},
    ]
    assert made('{"items": []}', flatten, item="text") == []
    assert made("[1, [2], null]", {"do": "flatten", "to": "item"}, item="text") == [
        {"item": "1"},
        {"item": "[2]"},
        {"item": None},
    ]


def test_ums_out_of_a_line() -> None:
    """DBus's flattenUms: a row per tuple, its values by their places."""
    line = '{"schema": {"namespace": "mysql.db.s.t.0.0.0"}, "payload": [{"tuple": [1, "i", "a"]}, {"tuple": [2, "u", "b"]}]}'
    steps = [
        {"do": "json", "to": {"namespace": "schema.namespace"}},
        {"do": "flatten", "at": "payload", "to": "row"},
        {"do": "json", "field": "row", "to": {"ums_id": "tuple[0]", "op": "tuple[1]", "v": "tuple[2]"}},
    ]
    assert made(line, *steps, namespace="text", ums_id="bigint", v="text") == [
        {"namespace": "mysql.db.s.t.0.0.0", "ums_id": 1, "v": "a"},
        {"namespace": "mysql.db.s.t.0.0.0", "ums_id": 2, "v": "b"},
    ]


def test_texts() -> None:
    assert made("  x ", {"do": "trim", "field": "line"}) == [{"line": "x"}]
    assert made("--x--", {"do": "trim", "field": "line", "characters": "-", "side": "left"}) == [{"line": "x--"}]
    assert made("a.b.c", {"do": "replace", "field": "line", "text": ".", "by": "/"}) == [{"line": "a/b/c"}]
    swap = {"do": "replace", "field": "line", "regex": "(.)(.)", "by": r"\2\1"}
    assert made("abcd", swap) == [{"line": "badc"}]
    assert made("日本語", {"do": "substring", "field": "line", "start": 1, "stop": 2, "to": "x"}, x="text") == [
        {"x": "本"}
    ]
    assert made("abc", {"do": "substring", "field": "line", "start": -2}) == [{"line": "bc"}]
    assert made("x", {"do": "concat", "of": "<{line}:{event}>", "to": "y"}, y="text") == [{"y": "<x:>"}]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("int", "-5", -5), ("int", "", None), ("int", "-", None), ("bigint", "9223372036854775807", 2**63 - 1),
        ("double", "1e3", 1000.0), ("boolean", "true", True), ("text", "-", "-"),
    ],
)  # fmt: skip
def test_types(kind: str, text: str, value: object) -> None:
    [row] = rows(
        [f"<{text}>"], {"table": "t", "steps": [{"do": "extract", "regex": "<(?P<v>.*)>"}], "columns": {"v": kind}}
    )
    assert row["v"] == value
    assert row["_ums_raw_"] is None


def test_what_a_type_cannot_hold_is_kept_beside() -> None:
    steps = [{"do": "split", "by": " ", "to": ["a", "b", "c"]}]
    columns = {"a": "int", "b": "decimal(5,2)", "c": "timestamp"}
    found = rows(
        ["1 2.50 2026-01-02T03:04:05+01:00", "3000000000 1.234 soon", "x - -"],
        {"table": "t", "steps": steps, "columns": columns},
    )
    assert [(row["a"], str(row["b"]), row["c"] and row["c"].hour) for row in found] == [
        (1, "2.50", 2),
        (None, "None", None),
        (None, "None", None),
    ]
    assert [row["_ums_raw_"] for row in found] == [
        None,
        '{"a": "3000000000", "b": "1.234", "c": "soon"}',
        '{"a": "x"}',
    ]


@pytest.mark.parametrize(
    ("form", "text", "found"),
    [
        ("iso", "2026-01-02T03:04:05Z", "2026-01-02 03:04:05"),
        ("iso", "2026-01-02 03:04:05,123", "2026-01-02 03:04:05.123"),
        ("iso", "2026-01-02T03:04:05.123456789+0530", "2026-01-01 21:34:05.123456"),
        ("iso", "2026-01-02T03:04", "2026-01-02 03:04:00"),
        ("iso", "2026-02-30T03:04:05Z", None),
        ("iso", "yesterday", None),
        ("unix", "1767323045.25", "2026-01-02 03:04:05.25"),
        ("unix_ms", "1767323045250", "2026-01-02 03:04:05.25"),
        ("unix_ns", "1767323045250000000", "2026-01-02 03:04:05.25"),
        ("unix", "1e30", None),
        ("unix", "-", None),
        ("%d/%b/%Y:%H:%M:%S %z", "02/Jan/2026:03:04:05 -0100", "2026-01-02 04:04:05"),
        ("%d/%b/%Y:%H:%M:%S %z", "02/Foo/2026:03:04:05 -0100", None),
        ("%a %b %e %H:%M:%S.%f %Y", "Fri Jan  2 03:04:05.5 2026", "2026-01-02 03:04:05.5"),
        ("%Y%m%d-%H%M", "20260102-0304", "2026-01-02 03:04:00"),
        ("%b %d %H:%M:%S", "Nov 22 11:00:00", "2026-11-22 11:00:00"),
        ("%b %d %H:%M:%S", "Dec 31 23:59:59", "2025-12-31 23:59:59"),
    ],
)  # fmt: skip
def test_times(form: str, text: str, found: str | None) -> None:
    assert TimeFormat(form).micros(texts([text]), NOW_US).to_pylist() == [None if found is None else micros(found)]


def test_times_in_a_zone() -> None:
    berlin = TimeFormat("%Y-%m-%d %H:%M:%S", "Europe/Berlin")
    summer, winter = berlin.micros(texts(["2026-07-01 12:00:00", "2026-01-01 12:00:00"]), NOW_US).to_pylist()
    assert (summer, winter) == (micros("2026-07-01 10:00:00"), micros("2026-01-01 11:00:00"))
    mixed = TimeFormat("iso", "Asia/Shanghai").micros(
        texts(["2026-01-01T12:00:00", "2026-01-01T12:00:00Z", None]), NOW_US
    )
    assert mixed.to_pylist() == [micros("2026-01-01 04:00:00"), micros("2026-01-01 12:00:00"), None]


def test_the_first_rule_that_fits_takes_the_line() -> None:
    found = rows(
        ["ERROR disk", "ok disk", "ERROR net", "what"],
        {"table": "errors", "steps": [{"do": "extract", "regex": "^ERROR (?P<on>.*)"}], "columns": {"on": "text"}},
        {
            "table": "all",
            "steps": [{"do": "extract", "regex": "^(?P<level>ok) (?P<on>.*)"}],
            "columns": {"level": "text"},
        },
    )
    assert [(row["table"], row.get("on"), row.get("level"), row.get("line")) for row in found] == [
        ("errors", "disk", None, None),
        ("all", None, "ok", None),
        ("errors", "net", None, None),
        ("_unmatched_", None, None, "what"),
    ]
    unmatched = found[-1]
    assert (unmatched["reason"], unmatched["host"], unmatched["path"], unmatched["offset"]) == (
        "no rule fits",
        "h",
        "p",
        3,
    )


def test_two_rules_may_fill_one_table() -> None:
    one = {"table": "t", "steps": [{"do": "extract", "regex": "^a(?P<a>.)"}], "columns": {"a": "int"}}
    two = {"table": "t", "steps": [{"do": "extract", "regex": "^b(?P<b>.)"}], "columns": {"b": "text"}}
    found = rows(["b1", "a2", "b3"], one, two)
    assert [(row["a"], row["b"]) for row in found] == [(None, "1"), (2, None), (None, "3")]
    with pytest.raises(ValueError, match="in two types"):
        tables_of(
            TypeAdapter(list[Rule]).validate_python(
                [one, two | {"columns": {"b": "text"}}, one | {"columns": {"a": "text"}}]
            )
        )


def test_a_time_that_is_none_is_no_fit() -> None:
    rule = {
        "table": "t",
        "steps": [{"do": "split", "by": " ", "to": ["at", "b"]}],
        "time": "at",
        "columns": {"b": "text"},
    }
    good, bad = rows(["2026-01-01T00:00:00Z x", "never x"], rule)
    assert good["_ums_ts_"] == good["time"]
    assert (bad["table"], bad["line"]) == ("_unmatched_", "never x")
    assert bad["time"] is not None, "the shipper said one"


def test_a_line_without_a_time_has_that_of_its_arrival() -> None:
    [row] = rows([{"line": "x", "time_us": None}], {"table": "t", "columns": {"line": "text"}})
    assert row["time"] is None
    assert row["_ums_ts_"] == row["_ums_commit_ts_"]


def test_a_host_out_of_the_line() -> None:
    step = {"do": "extract", "regex": r"^(?P<host>\S+) (?P<rest>.*)"}
    [row] = rows(["web7 hello"], {"table": "t", "steps": [step], "columns": {"rest": "text"}})
    assert (row["host"], row["rest"]) == ("web7", "hello")


def test_more_rows_than_ids() -> None:
    flatten = {"table": "t", "steps": [{"do": "flatten", "to": "x"}], "columns": {"x": "int"}}
    found = rows(["[1,2]", "[" + ",".join("1" * 50_000) + "]"], flatten)
    assert [row["id"] for row in found] == [0, 2, 100_000]
    assert found[-1]["table"] == "_unmatched_"
    assert found[-1]["reason"] == "it would become more rows than it has ids"


def test_rows_that_would_repeat_too_much() -> None:
    steps = [{"do": "concat", "of": "{line}", "to": "whole"}, {"do": "flatten", "to": "x"}]
    found = rows(
        ["[" + ",".join("1" * 49_000) + "]", "[3]"],
        {"table": "t", "steps": steps, "columns": {"x": "int", "whole": "text"}},
    )
    assert [row["table"] for row in found] == ["_unmatched_", "t"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"columns": {"x": "text"}}, "no step makes the field x"),
        ({"columns": {"host": "text"}}, "`columns` has host"),
        ({"columns": {"line": "blob"}}, "there is no type 'blob'"),
        ({"columns": {"line": "decimal(3,4)"}}, "there is no type"),
        ({"steps": [{"do": "guess"}]}, "guess"),
        ({"steps": [{"do": "trim", "field": "x"}]}, "step trim needs the field x"),
        ({"steps": [{"do": "extract", "regex": "(?P<a>x"}]}, "no regular expression"),
        ({"steps": [{"do": "extract", "regex": "(?P<a>x)(y)"}]}, "every group needs a name"),
        ({"steps": [{"do": "extract", "regex": "x"}]}, "no group"),
        ({"steps": [{"do": "extract", "regex": "(?P<a>x(?=y))"}]}, "no regular expression"),
        ({"steps": [{"do": "flatten", "to": "x"}]}, "no step makes the field line"),
        ({"steps": [{"do": "filter"}]}, "write one of equals"),
        ({"steps": [{"do": "replace", "field": "line"}]}, "write one of text and regex"),
        ({"steps": [{"do": "replace", "field": "line", "regex": "x", "by": r"\3"}]}, "does not fit"),
        ({"steps": [{"do": "json", "to": {"a": "a..b"}}]}, "no place in JSON"),
        ({"time": {"field": "line", "format": "%Y-%q"}}, "%q is not known"),
        ({"time": {"field": "line", "format": "%Y-%m-%d"}}, "is no time"),
        ({"time": {"field": "line", "zone": "Mars/Base"}}, "no time zone"),
        ({"table": "_unmatched_"}, "should match pattern"),
    ],
)  # fmt: skip
def test_rules_that_are_wrong_are_refused(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Rule.model_validate({"table": "t", "columns": {"line": "text"}} | rule)
