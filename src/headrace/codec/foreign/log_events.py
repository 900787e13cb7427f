"""Lines of logs as shippers put them on Kafka: what each one's JSON says of the line, its host, its time, and where it stood.

::

    filebeat   {"@timestamp": ISO, "message": line, "host": {"name": …}, "log": {"offset": n, "file": {"path": …}}, "agent": {…}, …}
    vector     {"timestamp": ISO, "message": line, "host": …, "file": path, "source_type": "file", "offset": n (`offset_key`), …}
    fluentbit  {"@timestamp": seconds since 1970 or ISO, "log": line, "host" | "hostname": …, PATH_KEY: path, OFFSET_KEY: n, …}
    logstash   {"@timestamp": ISO, "message": line, "host": {"name": …}, "log": {"file": {"path": …}}, …}   older: "host": …, "path": …
    line       the line itself; its host is the message's key, its time the message's

The text that a shipper calls the line may be gone, when it has parsed the line itself: the line is then the whole object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from headrace.codec.foreign.reading import ForeignMessage, NotThisFormatError

Json = dict[str, Any]
T = TypeVar("T")
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_END_OF_TIME_S = 253_402_300_800


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A line. None stands for what the shipper does not say; `event`: the whole object as it came, None for a bare line."""

    line: str
    host: str | None
    time_us: int | None
    path: str | None
    offset: int | None
    event: str | None


Path = tuple[str, ...]


class _Shape:
    """Where a shipper keeps what; of several places the first that has it counts."""

    def __init__(self, **places: Sequence[str]) -> None:
        paths = {name: [tuple(place.split(".")) for place in found] for name, found in places.items()}
        self.line, self.time, self.host = paths["line"], paths["time"], paths["host"]
        self.path, self.offset = paths["path"], paths["offset"]


_SHAPES = {
    "filebeat": _Shape(
        line=("message",),
        time=("@timestamp",),
        host=("host.name", "host.hostname", "agent.name", "agent.hostname", "beat.hostname"),
        path=("log.file.path", "source"),
        offset=("log.offset", "offset"),
    ),
    "vector": _Shape(line=("message",), time=("timestamp",), host=("host",), path=("file",), offset=("offset",)),
    "fluentbit": _Shape(
        line=("log", "message", "MESSAGE"),
        time=("@timestamp", "date", "timestamp"),
        host=("host", "hostname", "_HOSTNAME", "kubernetes.host"),
        path=("path", "file", "filename", "filepath"),
        offset=("offset",),
    ),
    "logstash": _Shape(
        line=("message", "event.original"),
        time=("@timestamp",),
        host=("host.name", "host.hostname", "host"),
        path=("log.file.path", "path"),
        offset=("log.offset", "offset"),
    ),
}
"""Older shapes included: Filebeat up to 6 (`beat`, `source`, `offset`), Logstash without ECS (`host`, `path`)."""


def read_line(message: ForeignMessage) -> LogEvent:
    """A message that is the line itself; bytes that are no UTF-8 stand as ``\\xff``."""
    if message.value is None:
        raise NotThisFormatError("it is empty")
    line = message.value.decode("utf-8", "backslashreplace").rstrip("\r\n")
    host = message.key.decode("utf-8", "backslashreplace") if message.key else None
    return LogEvent(line, host, message.time_ms * 1000, None, None, None)


def _reader(shape: _Shape) -> Callable[[ForeignMessage], LogEvent]:
    def read(message: ForeignMessage) -> LogEvent:
        try:
            text = (message.value or b"").decode()
            found = json.loads(text)
            if "\\u" in text:
                json.dumps(found, ensure_ascii=False).encode()  # half of a character is none
        except (ValueError, RecursionError) as error:
            raise NotThisFormatError(f"it is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise NotThisFormatError("it is no object")
        line = _first(found, shape.line, str)
        offset = _first(found, shape.offset, int)
        return LogEvent(
            line=text if line is None else line.rstrip("\r\n"),
            host=_first(found, shape.host, str),
            time_us=_time_us(found, shape.time),
            path=_first(found, shape.path, str),
            offset=offset if offset is not None and 0 <= offset < 2**63 else None,
            event=text,
        )

    return read


def _first(event: Json, places: Sequence[Path], kind: type[T]) -> T | None:
    """The first of some members that is there, as a value of this kind."""
    for place in places:
        value = _member(event, place)
        if isinstance(value, kind):
            return value
    return None


def _member(event: Json, place: Path) -> object:
    value: Any = event
    for name in place:
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value


def _time_us(event: Json, places: Sequence[Path]) -> int | None:
    for place in places:
        value = _member(event, place)
        if isinstance(value, str):
            try:
                at = datetime.fromisoformat(value)
                return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND
            except (ValueError, OverflowError):
                continue
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < _END_OF_TIME_S:
            return round(value * 1e6)
    return None


LINE_READERS: dict[str, Callable[[ForeignMessage], LogEvent]] = {
    "line": read_line,
    **{name: _reader(shape) for name, shape in _SHAPES.items()},
}
"""By the names of `format`. NotThisFormatError for a message that is not of it."""
