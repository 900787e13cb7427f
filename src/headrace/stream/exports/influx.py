"""Figures of each period in InfluxDB's line protocol.

::

    headrace_stages,source=db1,stage=delivered,flow=mart changes=12i,failed=0i,bytes=840i,errors=0i,lag_ms=812.5,silent=false 1760000000000000000
    headrace_tables,source=db1,stage=delivered,flow=mart,table=mysql.db1.shop.orders changes=12i,failed=0i,bytes=840i,latency_p50_ms=4.5 …

The time, in nanoseconds, is the end of the period; counts are those of the period. What is not known has no field.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from headrace.errors import Finding, HeadraceError, storage_error
from headrace.files import make_directories
from headrace.flow.monitoring import InfluxSpec
from headrace.flow.spec import PipelineSpec
from headrace.stream.exports.base import Tell
from headrace.stream.exports.outbox import Outbox, Poster
from headrace.stream.figures import Json
from headrace.stream.statistics import Period, observed

_SPECIAL = re.compile(r"([,= \\])")
_TAGS = ("source", "stage", "flow")


class _Way(Protocol):
    def open(self) -> None: ...

    def put(self, body: bytes) -> None: ...

    def close(self) -> None: ...

    def check(self) -> Iterator[Finding]: ...


class Exporter:
    """An `Export` of one flow file."""

    def __init__(self, pipeline: PipelineSpec, tell: Tell, clock: Callable[[], float] = time.time) -> None:
        assert pipeline.influx is not None
        self._spec = pipeline.influx
        self._sources = observed(pipeline)
        self._clock = clock
        self._way: _Way = _File(self._spec.path, tell) if self._spec.path is not None else _Server(self._spec, tell)
        self._period = Period(self, self._spec.every, clock())
        self._newest: dict[str, Json] = {}

    def begin(self) -> None:
        self._way.open()

    def look(self, figures: dict[str, Json]) -> None:
        self._newest = figures
        self._period.look(figures, self._sources, self._clock())

    def end(self, error: BaseException | None) -> None:
        if self._newest:
            self._period.end(self._newest, self._sources, self._clock())
        self._way.close()

    def check(self) -> Iterator[Finding]:
        return self._way.check()

    def write(self, records: Sequence[Json], *, began_s: float, ended_s: float) -> None:
        """A period is over (statistics.Taker)."""
        lines = [line_of(record, self._spec.tags, round(ended_s * 1e9)) for record in records]
        self._way.put("".join(f"{line}\n" for line in lines).encode())


class _Server:
    def __init__(self, spec: InfluxSpec, tell: Tell) -> None:
        assert spec.url is not None
        headers = {"content-type": "text/plain; charset=utf-8"}
        if spec.token is not None:
            headers["authorization"] = f"Token {spec.token.get_secret_value()}"
        self._poster = Poster(spec.url, headers, spec.ca)
        self._tell = tell
        self._outbox: Outbox | None = None

    def open(self) -> None:
        self._outbox = Outbox("influx", self._poster, self._tell)

    def put(self, body: bytes) -> None:
        assert self._outbox is not None
        self._outbox.put(body)

    def close(self) -> None:
        assert self._outbox is not None
        self._outbox.close()

    def check(self) -> Iterator[Finding]:
        return self._poster.check()


class _File:
    """Whole lines only: each period is one write at the end of the file, which another program may take away at any time."""

    def __init__(self, path: Path, tell: Tell) -> None:
        self._path = path
        self._tell = tell
        self._problem = ""

    def open(self) -> None: ...

    def put(self, body: bytes) -> None:
        problem = ""
        try:
            make_directories(self._path.parent)
            _append(self._path, body)
        except OSError as error:
            problem = storage_error("append to", self._path, error).message
        except HeadraceError as error:
            problem = error.message
        if problem not in ("", self._problem):
            self._tell(f"influx: {problem}")
        self._problem = problem

    def close(self) -> None: ...

    def check(self) -> Iterator[Finding]:
        there = next(path for path in (self._path, *self._path.absolute().parents) if path.exists())
        if not os.access(there, os.W_OK) or (there != self._path and not there.is_dir()):
            yield Finding(
                f"{self._path} cannot be written", "give this user the right to, or choose another path", stops=False
            )


def _append(path: Path, body: bytes) -> None:
    """All of it, or nothing: of a disk that is full, half a line would spoil the next one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        before = os.fstat(descriptor).st_size
        if os.write(descriptor, body) < len(body):
            os.ftruncate(descriptor, before)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    finally:
        os.close(descriptor)


def line_of(record: Mapping[str, Any], tags: Mapping[str, str], at_ns: int) -> str:
    """A record of statistics as a line."""
    table = record["path"]
    found = {**tags, **{name: record[name] for name in _TAGS if record[name]}, **({"table": table} if table else {})}
    keys = "".join(f",{_escaped(name)}={_escaped(value)}" for name, value in sorted(found.items()))
    fields = {name: value for name, value in record.items() if name not in (*_TAGS, "path") and value is not None}
    values = ",".join(f"{name}={_value(value)}" for name, value in fields.items())
    return f"headrace_{'tables' if table else 'stages'}{keys} {values} {at_ns}"


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text.replace("\n", " "))


def _value(value: bool | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value}i" if isinstance(value, int) else repr(value)
