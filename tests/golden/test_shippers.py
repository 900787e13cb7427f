"""Messages in the shapes that shippers give them, older versions and settings included: `shippers/` has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.codec.foreign.log_events import LINE_READERS, LogEvent
from headrace.codec.foreign.reading import ForeignMessage, NotThisFormatError
from tests.log_lines import micros

MESSAGES = Path(__file__).parent / "shippers"
LOG = "/var/log/shop/app.log"
LINES = [
    "2026-03-02T12:00:00.100Z INFO cart added item=7",
    "2026-03-02T12:00:00.200Z WARN cart slow item=8",
    "2026-03-02T12:00:00.300Z INFO pay done item=9",
]
TIMES = ["2026-03-02 12:00:01.234", "2026-03-02 12:00:02", "2026-03-02 12:00:03"]
WANTED: dict[str, list[tuple[str | None, str | None, int | None]]] = {
    "filebeat": [("web1", LOG, 0), ("web1.internal", LOG, 47), ("web2", LOG, 504)],
    "vector": [("web1", LOG, None), ("web1", LOG, 47), ("web2", LOG, 504)],
    "fluentbit": [("web1", LOG, 0), ("web1", None, None), ("web2", LOG, None)],
    "logstash": [("web1", LOG, None), ("web1", LOG, None), ("web2", LOG, 504)],
}


def read(form: str, value: bytes | None, key: bytes | None = None) -> LogEvent:
    return LINE_READERS[form](ForeignMessage("logs", key, value, 1500))


@pytest.mark.parametrize("form", WANTED)
def test_every_shape(form: str) -> None:
    messages = (MESSAGES / f"{form}.jsonl").read_bytes().splitlines()
    found = [read(form, message) for message in messages]
    assert [(event.host, event.path, event.offset) for event in found] == WANTED[form]
    assert [event.line for event in found] == LINES
    assert [event.time_us is not None and event.time_us // 1000 for event in found] == [
        micros(text) // 1000 for text in TIMES
    ]
    assert [json.loads(event.event or "") for event in found] == [json.loads(message) for message in messages]


def test_a_bare_line() -> None:
    assert read("line", b"caf\xc3\xa9 \xff\r\n", b"web1") == LogEvent(r"café \xff", "web1", 1_500_000, None, None, None)
    assert read("line", b"x").host is None
    with pytest.raises(NotThisFormatError, match="empty"):
        read("line", None)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"hello", "no JSON"),
        (b"[1]", "no object"),
        (b"\xff{}", "no JSON"),
        (b'{"log": "\\ud800"}', "no JSON"),
        (None, "no JSON"),
    ],
)
@pytest.mark.parametrize("form", WANTED)
def test_what_is_no_message(form: str, message: bytes | None, reason: str) -> None:
    with pytest.raises(NotThisFormatError, match=reason):
        read(form, message)


@pytest.mark.parametrize("form", WANTED)
def test_members_that_are_missing_or_strange(form: str) -> None:
    text = '{"message": 5, "@timestamp": "soon", "timestamp": true, "host": 7, "offset": -1, "path": ["x"], "log": {}, "file": {}}'
    assert read(form, text.encode()) == LogEvent(text, None, None, None, None, text)
