"""Pipelines: flow files that the store keeps, in revisions, and what is wanted of each.

Every method is one transaction, with the audit row of who asked for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sqlalchemy import Connection, RowMapping, delete, insert, select, update

from headrace.control.journal import Actor, audit
from headrace.control.placement import Placement, read_placement
from headrace.control.tables import (
    EVENTS,
    OPERATIONS,
    PIPELINES,
    REVISIONS,
    RUNS,
    SCHEDULES,
    VERIFICATIONS,
    ControlDatabase,
)
from headrace.errors import ConfigError

Wanted = Literal["running", "stopped"]


class UnknownError(ConfigError):
    """What was named is not there."""


class ConflictError(ConfigError):
    """It is there, and cannot be done as it is now."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """What is wanted of a pipeline. `run` is the newest that was begun for it."""

    name: str
    revision: int
    wanted: Wanted
    generation: int
    placement: Placement
    run: str | None
    changed_us: int


@dataclass(frozen=True, slots=True)
class Revision:
    """A text of a pipeline's flow file. It never changes."""

    pipeline: str
    number: int
    text: str
    author: str
    at_us: int


class Pipelines:
    """All pipelines of a store."""

    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def all(self) -> list[Pipeline]:
        with self._database.transaction() as connection:
            return [
                read_pipeline_row(row)
                for row in connection.execute(select(PIPELINES).order_by(PIPELINES.c.name)).mappings()
            ]

    def get(self, name: str) -> Pipeline:
        """UnknownError when there is none of that name."""
        with self._database.transaction() as connection:
            return _locked(connection, name)

    def revision(self, name: str, number: int | None = None) -> Revision:
        """The newest revision, or the one of a number; UnknownError when there is none."""
        of = select(REVISIONS).where(REVISIONS.c.pipeline == name).order_by(REVISIONS.c.number.desc()).limit(1)
        with self._database.transaction() as connection:
            row = (
                connection.execute(of if number is None else of.where(REVISIONS.c.number == number)).mappings().first()
            )
        if row is None:
            raise UnknownError(f"pipeline {name} has no revision {number or ''}".rstrip(), fix="list what there is")
        return Revision(**row)

    def revisions(self, name: str) -> list[Revision]:
        """The newest first."""
        self.get(name)
        with self._database.transaction() as connection:
            of = select(REVISIONS).where(REVISIONS.c.pipeline == name).order_by(REVISIONS.c.number.desc())
            return [Revision(**row) for row in connection.execute(of).mappings()]

    def create(self, name: str, text: str, placement: Placement, actor: Actor) -> Pipeline:
        """Keeps a new pipeline, stopped. ConflictError when the name is taken."""
        with self._database.transaction() as connection:
            if connection.scalar(select(PIPELINES.c.name).where(PIPELINES.c.name == name)) is not None:
                raise ConflictError(
                    f"there is a pipeline {name} already", fix="choose another name, or change that one"
                )
            state = {"revision": 0, "wanted": "stopped", "generation": 0, "run": None, "changed_us": self._now_us()}
            connection.execute(insert(PIPELINES).values(name=name, placement=placement.model_dump_json(), **state))
            self._add_revision(connection, _locked(connection, name), text, actor, "create")
            return _locked(connection, name)

    def change(self, name: str, text: str, base: int, actor: Actor) -> Pipeline:
        """Keeps a new revision, made of revision `base`. ConflictError when there is a newer one. A process goes on as it is."""
        with self._database.transaction() as connection:
            found = _locked(connection, name)
            if found.revision != base:
                raise ConflictError(
                    f"pipeline {name} has revision {found.revision} by now, and this change was made of {base}",
                    fix="look at the newer revision, and make the change in that one",
                )
            self._add_revision(connection, found, text, actor, "change")
            return _locked(connection, name)

    def start(self, name: str, actor: Actor) -> Pipeline:
        """Wants it running. One that runs stays as it is; one that has failed is tried anew at once."""
        with self._database.transaction() as connection:
            found = _locked(connection, name)
            runs = found.wanted == "running" and found.run is not None and _is_active(connection, found.run)
            return self._want(connection, found, actor, "start", wanted="running", anew=not runs)

    def stop(self, name: str, actor: Actor) -> Pipeline:
        """Wants it stopped."""
        with self._database.transaction() as connection:
            return self._want(connection, _locked(connection, name), actor, "stop", wanted="stopped", anew=False)

    def restart(self, name: str, actor: Actor) -> Pipeline:
        """Wants a new process, of the newest revision, in place of the one that runs."""
        with self._database.transaction() as connection:
            return self._want(connection, _locked(connection, name), actor, "restart", wanted="running", anew=True)

    def drift(self, name: str, placement: Placement, actor: Actor) -> Pipeline:
        """Wants it at another place: when it runs, it stops here and goes on there."""
        with self._database.transaction() as connection:
            found = _locked(connection, name)
            moved = update(PIPELINES).where(PIPELINES.c.name == name).values(placement=placement.model_dump_json())
            connection.execute(moved)
            return self._want(connection, found, actor, "drift", wanted=found.wanted, anew=found.wanted == "running")

    def remove(self, name: str, actor: Actor) -> None:
        """Forgets a pipeline with its revisions and runs; its data and its state stay. ConflictError while it runs."""
        with self._database.transaction() as connection:
            found = _locked(connection, name)
            if found.wanted == "running" or (found.run is not None and _is_active(connection, found.run)):
                raise ConflictError(f"pipeline {name} runs", fix="stop it, wait until it has stopped, then remove it")
            for table in (RUNS, REVISIONS, OPERATIONS, EVENTS, VERIFICATIONS, SCHEDULES):
                connection.execute(delete(table).where(table.c.pipeline == name))
            connection.execute(delete(PIPELINES).where(PIPELINES.c.name == name))
            audit(connection, self._now_us(), actor, "remove", name)

    def _add_revision(self, connection: Connection, of: Pipeline, text: str, actor: Actor, action: str) -> None:
        number, now_us = of.revision + 1, self._now_us()
        values = {"pipeline": of.name, "number": number, "text": text, "author": actor.user, "at_us": now_us}
        connection.execute(insert(REVISIONS).values(**values))
        connection.execute(
            update(PIPELINES).where(PIPELINES.c.name == of.name).values(revision=number, changed_us=now_us)
        )
        audit(connection, now_us, actor, action, of.name, detail=f"revision {number}")

    def _want(
        self, connection: Connection, of: Pipeline, actor: Actor, action: str, *, wanted: Wanted, anew: bool
    ) -> Pipeline:
        values = {"wanted": wanted, "generation": of.generation + anew, "changed_us": self._now_us()}
        connection.execute(update(PIPELINES).where(PIPELINES.c.name == of.name).values(**values))
        audit(connection, self._now_us(), actor, action, of.name)
        return _locked(connection, of.name)

    def _now_us(self) -> int:
        return round(self._clock() * 1e6)


def _locked(connection: Connection, name: str) -> Pipeline:
    row = connection.execute(select(PIPELINES).where(PIPELINES.c.name == name).with_for_update()).mappings().first()
    if row is None:
        raise UnknownError(f"there is no pipeline {name}", fix="list the pipelines to see their names")
    return read_pipeline_row(row)


def read_pipeline_row(row: RowMapping) -> Pipeline:
    """A row of the table."""
    return Pipeline(**{**row, "placement": read_placement(row["placement"])})


def _is_active(connection: Connection, run: str) -> bool:
    return connection.scalar(select(RUNS.c.state).where(RUNS.c.id == run)) not in {"ended", None}
