"""How fast lines of logs become rows, beside a plain Python loop over the same lines in the same run on one core.

    python -m bench.applog [--lines N]

Access logs (one regular expression with nine groups, a time with a zone), JSON lines (four members), and the messages of Filebeat that have
those access logs. The loop does with re, strptime and orjson (the fastest reader for Python) what the rules do, into tuples. Five rounds in turns, medians of CPU seconds.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import orjson

from bench.machine import write_results
from bench.ums import measure
from headrace.capture.applog.followed import Piece
from headrace.capture.applog.pieces import lines_of
from headrace.capture.lines.rules import Rule
from headrace.capture.lines.tables import Lines, LineTables
from headrace.capture.seen_tables import SeenTables
from headrace.capture.topic_lines import lines_of as lines_of_events
from headrace.codec.foreign.log_events import LINE_READERS
from headrace.codec.foreign.reading import ForeignMessage

REGEX = (
    r'^(?P<ip>\S+) \S+ (?P<user>\S+) \[(?P<at>[^\]]+)\] "(?P<method>\S+) (?P<url>\S+) [^"]*" (?P<status>\d{3}) (?P<bytes>\S+)'
    r' "(?P<referer>[^"]*)" "(?P<agent>[^"]*)"$'
)
STRFTIME = "%d/%b/%Y:%H:%M:%S %z"
ACCESS = {
    "table": "access",
    "steps": [{"do": "extract", "regex": REGEX}],
    "time": {"field": "at", "format": STRFTIME},
    "columns": dict.fromkeys(("ip", "user", "method", "url", "referer", "agent"), "text")
    | {"status": "int", "bytes": "bigint"},
}
JSON = {
    "table": "app",
    "steps": [{"do": "json", "to": {"at": "ts", "level": "level", "user": "user.id", "took": "took_ms"}}],
    "time": "at",
    "columns": {"level": "text", "user": "bigint", "took": "double"},
}


def access_lines(count: int) -> list[str]:
    pick = Random(7)
    return [
        f"10.{pick.randrange(256)}.{pick.randrange(256)}.7 - user{pick.randrange(500)} [{1 + n % 28:02}/Oct/2026:{n % 24:02}:{n % 60:02}:{n * 7 % 60:02}"
        f' +0200] "GET /shop/items/{pick.randrange(100_000)}?page={n % 50} HTTP/1.1" {pick.choice([200, 200, 304, 404, 500])}'
        f' {pick.randrange(100_000) if n % 9 else "-"} "https://shop.example/start" "Mozilla/5.0 (X11; Linux x86_64) Chrome/120.0"'
        for n in range(count)
    ]


def json_lines(count: int) -> list[str]:
    pick = Random(7)
    return [
        json.dumps(
            {
                "ts": f"2026-10-02T{n % 24:02}:{n % 60:02}:{n * 7 % 60:02}.{n % 1000:03}Z",
                "level": pick.choice(["info", "warn"]),
                "user": {"id": pick.randrange(10**6), "name": f"user{n % 500}"},
                "msg": "item was put into the cart",
                "took_ms": round(pick.random() * 100, 3),
            }
        )
        for n in range(count)
    ]


def filebeat(line: str) -> bytes:
    event = {
        "@timestamp": "2026-10-02T12:00:01.234Z",
        "@metadata": {"beat": "filebeat", "type": "_doc", "version": "8.17.0"},
        "log": {"offset": 4711, "file": {"path": "/var/log/shop/access.log", "device_id": "64769", "inode": "1054211"}},
        "message": line,
        "input": {"type": "filestream"},
        "host": {"name": "web1"},
        "agent": {
            "id": "5b28d885-1389-4e32-a3a9-3c5e8f9063b0",
            "name": "web1",
            "type": "filebeat",
            "version": "8.17.0",
        },
        "ecs": {"version": "8.0.0"},
    }
    return json.dumps(event).encode()


def rows(rule: dict[str, Any], lines: Lines) -> int:
    tables = LineTables([Rule.model_validate(rule)], SeenTables(Path(), "applog", "web"))
    changes = list(tables.changes(lines, 1, 1))
    return sum(len(change) for change in changes if change.table.namespace.table == rule["table"])


def of_file(rule: dict[str, Any], data: bytes) -> int:
    return rows(rule, lines_of([Piece("a.log", "h", 0, data, len(data))], 0, 1 << 20, "utf-8"))


def of_topic(rule: dict[str, Any], messages: Sequence[bytes]) -> int:
    read = LINE_READERS["filebeat"]
    events = [read(ForeignMessage("logs", None, message, 1)) for message in messages]
    return rows(rule, lines_of_events(events, [100_000 * number for number in range(len(events))]))


def access_loop(lines: Sequence[str]) -> int:
    pattern, found = re.compile(REGEX), []
    for line in lines:
        match = pattern.match(line)
        if match is not None:
            ip, user, at, method, url, status, size, referer, agent = match.groups()
            time = datetime.strptime(at, STRFTIME)  # noqa: DTZ007 - it has one
            found.append((time, ip, user, method, url, int(status), None if size == "-" else int(size), referer, agent))
    return len(found)


def json_loop(lines: Sequence[str]) -> int:
    found = []
    for line in lines:
        event = orjson.loads(line)
        time = datetime.fromisoformat(event["ts"])
        found.append((time, event["level"], event["user"]["id"], event["took_ms"]))
    return len(found)


def topic_loop(messages: Sequence[bytes]) -> int:
    return access_loop([orjson.loads(message)["message"] for message in messages])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=50_000)
    count = parser.parse_args().lines
    access, app = access_lines(count), json_lines(count)
    messages = [filebeat(line) for line in access]
    data = {"access": "\n".join([*access, ""]).encode(), "json": "\n".join([*app, ""]).encode()}
    actions: dict[str, Callable[[], int]] = {
        "access log": partial(of_file, ACCESS, data["access"]),
        "access log, loop": partial(access_loop, access),
        "JSON lines": partial(of_file, JSON, data["json"]),
        "JSON lines, loop": partial(json_loop, app),
        "Filebeat's messages": partial(of_topic, ACCESS, messages),
        "Filebeat's messages, loop": partial(topic_loop, messages),
    }
    assert {action() for action in actions.values()} == {count}
    took = measure(dict(actions))
    lines = ["| | lines per CPU-s | plain Python | ratio |", "|---|---|---|---|"]
    for name in ("access log", "JSON lines", "Filebeat's messages"):
        ours_s, loop_s = took[name][0], took[f"{name}, loop"][0]
        lines.append(f"| {name} | {count / ours_s:,.0f} | {count / loop_s:,.0f} | {loop_s / ours_s:.1f} |")
    write_results(
        "applog", [f"{count:,} lines, {len(data['access']) // count} bytes each in the access log:", "", *lines]
    )


if __name__ == "__main__":
    main()
