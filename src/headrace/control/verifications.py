"""What verifications of targets have found, and when the next ones are due."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from headrace.control.journal import Actor, audit
from headrace.control.pipelines import UnknownError
from headrace.control.tables import KEPT_US, PIPELINES, SCHEDULES, VERIFICATIONS, ControlDatabase

_COUNTS = ("expected_rows", "actual_rows", "differing_keys", "changed")


@dataclass(frozen=True, slots=True)
class Verification:
    """One table of one flow's target, held against its source or another target. Counts are None when it could not be compared."""

    id: int
    pipeline: str
    flow: str
    source_table: str
    operation: str
    at_us: int
    ok: bool
    expected_rows: int | None
    actual_rows: int | None
    differing_keys: int | None
    changed: int | None
    took_s: float
    differences: list[dict[str, Any]]
    problem: str
    fix: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often the targets of a pipeline are verified, and how."""

    pipeline: str
    every_s: int
    options: dict[str, Any]
    author: str
    next_us: int


class Verifications:
    """All results and schedules of a store."""

    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def of(
        self, pipeline: str, *, flow: str | None, table: str | None, before: int | None, limit: int
    ) -> list[Verification]:
        """The newest first."""
        wanted = select(VERIFICATIONS).where(VERIFICATIONS.c.pipeline == pipeline)
        for column, value in ((VERIFICATIONS.c.flow, flow), (VERIFICATIONS.c.source_table, table)):
            wanted = wanted if value is None else wanted.where(column == value)
        wanted = wanted if before is None else wanted.where(VERIFICATIONS.c.id < before)
        with self._database.transaction() as connection:
            rows = connection.execute(wanted.order_by(VERIFICATIONS.c.id.desc()).limit(limit)).mappings()
            return [_verification(row) for row in rows]

    def newest(self) -> list[Verification]:
        """Of each table of each flow the newest."""
        each = (VERIFICATIONS.c.pipeline, VERIFICATIONS.c.flow, VERIFICATIONS.c.source_table)
        newest = select(func.max(VERIFICATIONS.c.id)).group_by(*each)
        with self._database.transaction() as connection:
            wanted = select(VERIFICATIONS).where(VERIFICATIONS.c.id.in_(newest)).order_by(*each)
            return [_verification(row) for row in connection.execute(wanted).mappings()]

    def schedule(self, pipeline: str) -> Schedule | None:
        with self._database.transaction() as connection:
            row = connection.execute(select(SCHEDULES).where(SCHEDULES.c.pipeline == pipeline)).mappings().first()
            return None if row is None else _schedule(row)

    def put_schedule(self, pipeline: str, every_s: int, options: Mapping[str, Any], actor: Actor) -> Schedule:
        """The first is due at once."""
        now_us = round(self._clock() * 1e6)
        said = json.dumps(dict(options))
        with self._database.transaction() as connection:
            _require(connection, pipeline)
            connection.execute(delete(SCHEDULES).where(SCHEDULES.c.pipeline == pipeline))
            values = {
                "pipeline": pipeline,
                "every_s": every_s,
                "options": said,
                "author": actor.user,
                "next_us": now_us,
            }
            connection.execute(insert(SCHEDULES).values(**values))
            audit(connection, now_us, actor, "schedule", pipeline, detail=f"every {every_s} s {said}")
        return Schedule(pipeline, every_s, dict(options), actor.user, now_us)

    def remove_schedule(self, pipeline: str, actor: Actor) -> None:
        """Idempotent."""
        with self._database.transaction() as connection:
            _require(connection, pipeline)
            connection.execute(delete(SCHEDULES).where(SCHEDULES.c.pipeline == pipeline))
            audit(connection, round(self._clock() * 1e6), actor, "unschedule", pipeline)

    def take_due(self) -> list[Schedule]:
        """Those that are due, each of them to one server only; they are due again after their period."""
        now_us = round(self._clock() * 1e6)
        taken = []
        with self._database.transaction() as connection:
            due = select(SCHEDULES).where(SCHEDULES.c.next_us <= now_us)
            for found in [_schedule(row) for row in connection.execute(due).mappings()]:
                same = (SCHEDULES.c.pipeline == found.pipeline, SCHEDULES.c.next_us == found.next_us)
                again = update(SCHEDULES).where(*same).values(next_us=now_us + found.every_s * 1_000_000)
                if connection.execute(again).rowcount:
                    taken.append(found)
        return taken


def record(
    connection: Connection, pipeline: str, operation: str, now_us: int, lines: Sequence[Mapping[str, Any]]
) -> None:
    """Adds to a transaction what an operation has found of tables; the last line of each counts, which is the one behind a repair."""
    found = {(line["flow"], line["table"]): line for line in lines if "flow" in line}
    for (flow, table), line in found.items():
        values = {name: line.get(name) for name in _COUNTS}
        values |= {name: line[name] for name in ("ok", "took_s", "problem", "fix")}
        values |= {"pipeline": pipeline, "flow": flow, "source_table": table, "operation": operation, "at_us": now_us}
        connection.execute(insert(VERIFICATIONS).values(**values, differences=json.dumps(line.get("differences", []))))
    old = (VERIFICATIONS.c.pipeline == pipeline, VERIFICATIONS.c.at_us < now_us - KEPT_US)
    connection.execute(delete(VERIFICATIONS).where(*old))


def _require(connection: Connection, pipeline: str) -> None:
    if connection.scalar(select(PIPELINES.c.name).where(PIPELINES.c.name == pipeline)) is None:
        raise UnknownError(f"there is no pipeline {pipeline}", fix="list the pipelines to see their names")


def _verification(row: RowMapping) -> Verification:
    return Verification(**{**row, "differences": json.loads(row["differences"])})


def _schedule(row: RowMapping) -> Schedule:
    return Schedule(**{**row, "options": json.loads(row["options"])})
