"""Statistics of a run as a source: its figures, a batch each minute, go on the log as changes and into any target that a flow names.

The run's driver writes batches into a spool, and capture takes them from there::

    STATE/sources/<name>/spool/<milliseconds since 1970, 20 digits>.json    {"began_s": …, "ended_s": …, "records": [{…}, …]}

Crash story: a file is whole or absent. Its number is the position on the log, so a batch is on the log once; it is removed when
that is durable (`confirm`). What the driver gathers in a period that it does not live to end is not told. The newest file stays,
so that numbers grow though the clock goes back; were the spool lost as well, they would go on from the clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field

from headrace.capture.base import Event
from headrace.errors import ConfigError, Finding, storage_error
from headrace.files import make_directories, replace_file
from headrace.model import Duration, SourceConfig
from headrace.ums.change import INSERT, ChangeBatch, Mark
from headrace.ums.schema import COMMIT_TS, ID, OP, RAW, TS, Column, Namespace, TableSchema

_WAIT_S = 0.2
_IDS_PER_BATCH = 100_000
_MOST_WAITING = 100_000
_INSTANT = pa.timestamp("us", "UTC")
_COLUMNS = (
    Column("id", pa.int64(), "bigint", nullable=False),
    Column("began_at", _INSTANT, "timestamp(6)", nullable=False),
    Column("ended_at", _INSTANT, "timestamp(6)", nullable=False),
    Column("source", pa.utf8(), "varchar(100)", nullable=False),
    Column("stage", pa.utf8(), "varchar(16)", nullable=False),
    Column("flow", pa.utf8(), "varchar(100)", nullable=False),
    Column("path", pa.utf8(), "varchar(300)", nullable=False),
    Column("changes", pa.int64(), "bigint", nullable=False),
    Column("failed", pa.int64(), "bigint", nullable=False),
    Column("bytes", pa.int64(), "bigint", nullable=False),
    Column("errors", pa.int64(), "bigint"),
    Column("latency_p50_ms", pa.float64(), "double"),
    Column("latency_p99_ms", pa.float64(), "double"),
    Column("lag_ms", pa.float64(), "double"),
    Column("heartbeat_at", _INSTANT, "timestamp(6)"),
    Column("heartbeat_ms", pa.float64(), "double"),
    Column("silent", pa.bool_(), "boolean"),
)
"""docs/how-to/monitoring.md says what they are."""
Record = dict[str, Any]


class StatisticsConfig(SourceConfig):
    """The figures of this flow file's own run: rows, bytes, latency, lag, errors and heartbeats per table and stage."""

    type: Literal["statistics"]
    every: Annotated[Duration, Field(ge=0.1)] = 60.0
    """How long a period is."""


class Spool:
    """Batches between the driver and the capture of a statistics source. `state` is the source's directory."""

    def __init__(self, state: Path) -> None:
        self._directory = state / "spool"

    def write(self, records: Sequence[Record], *, began_s: float, ended_s: float) -> None:
        """Adds a batch, in seconds since 1970. When nobody has taken any for long, the oldest one goes for it."""
        make_directories(self._directory)
        waiting = self._numbers()
        number = max([round(ended_s * 1000), *(one + 1 for one in waiting[-1:])])
        batch = {"began_s": began_s, "ended_s": ended_s, "records": records}
        replace_file(self._path(number), json.dumps(batch).encode())
        self._remove(waiting[:-_MOST_WAITING])

    def after(self, number: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """The batches with larger numbers that are there now, oldest first."""
        for each in self._numbers():
            if each > number:
                try:
                    yield each, json.loads(self._path(each).read_bytes())
                except OSError as error:
                    raise storage_error("read", self._path(each), error) from error

    def taken(self, number: int) -> None:
        """Batches up to this one are on the log."""
        self._remove([each for each in self._numbers()[:-1] if each <= number])

    def _remove(self, numbers: Sequence[int]) -> None:
        for each in numbers:
            self._path(each).unlink(missing_ok=True)

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self._directory.glob("[0-9]*.json"))

    def _path(self, number: int) -> Path:
        return self._directory / f"{number:020d}.json"


class StatisticsSource:
    """A `Source` over the figures of the run that it is part of."""

    Config = StatisticsConfig

    def __init__(self, config: StatisticsConfig, state: Path) -> None:
        self._name = config.name
        self._table = TableSchema(Namespace("statistics", config.name, "headrace", "stages"), _COLUMNS, ("id",))
        self._spool = Spool(state)

    def check(self, newest: Mark | None) -> Iterator[Finding]:
        """The figures come from the run: there is nothing that could be wrong or away."""
        return iter(())

    def tables(self) -> Sequence[TableSchema]:
        return [self._table]

    def tables_now(self) -> Iterator[TableSchema | Finding]:
        yield from self.tables()

    def follow(self, start: Mark | None) -> Iterator[Event]:
        mark = start or Mark(self._name, {"number": 0}, 0, 0)
        while True:
            for number, batch in self._spool.after(mark.position["number"]):
                changes = self._changes(number, batch)
                mark = Mark(self._name, {"number": number}, changes.id_range[1], number * 1000)
                yield Event([changes], mark)
            yield Event([], mark, caught_up=True)
            time.sleep(_WAIT_S)

    def skip(self, newest: Mark, to: str) -> Mark:
        raise ConfigError("statistics have no gap to skip", fix="name another source of the flow file")

    def confirm(self, mark: Mark) -> None:
        self._spool.taken(mark.position["number"])

    def close(self) -> None:
        """Nothing is held."""

    def _changes(self, number: int, batch: dict[str, Any]) -> ChangeBatch:
        ended_us = round(batch["ended_s"] * 1e6)
        rows = []
        for at, record in enumerate(batch["records"]):
            id_ = number * _IDS_PER_BATCH + at
            system = {ID: id_, TS: ended_us, OP: INSERT, COMMIT_TS: number * 1000, RAW: None}
            times = {"began_at": round(batch["began_s"] * 1e6), "ended_at": ended_us}
            rows.append({**record, **system, **times, "id": id_, "heartbeat_at": record["heartbeat_at_us"]})
        schema = self._table.arrow_schema()
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in schema]
        return ChangeBatch(self._table, pa.RecordBatch.from_arrays(columns, schema=schema))
