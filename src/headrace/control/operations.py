"""Operations: what somebody asks for that may take its time. A thread of the server that was asked runs the command, and the store keeps what
came of it.

While it works, the row is said to be alive again and again. When its server dies, nobody says so any more, and the operation counts as lost:
all of them may be asked for again, as the commands may be repeated.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import RowMapping, delete, insert, select, update

from headrace.control.commands import Answer, ask
from headrace.control.journal import Actor, audit
from headrace.control.pipelines import Revision, UnknownError
from headrace.control.places import Places
from headrace.control.tables import KEPT_US, OPERATIONS, ControlDatabase
from headrace.control.verifications import record
from headrace.errors import HeadraceError, RetryableError
from headrace.retry import retrying

Kind = Literal["check", "verify", "replay", "load", "load_pause", "load_resume", "load_cancel", "backfill"]
State = Literal["running", "done", "failed", "lost"]
_ALIVE_S = 30.0
_AT_ONCE = 4
_MOST_LINES = 2_000


@dataclass(frozen=True, slots=True)
class Operation:
    """One of them. `result` has the JSON lines that the command printed; `code` is its exit code."""

    id: str
    pipeline: str
    kind: Kind
    options: dict[str, Any]
    user: str
    asked_us: int
    until_us: int
    ended_us: int | None
    code: int | None
    result: list[dict[str, Any]]
    why: str
    fix: str

    def state(self, now_us: int) -> State:
        if self.ended_us is None:
            return "running" if now_us < self.until_us else "lost"
        return "done" if self.code == 0 else "failed"


class Operations:
    """All operations of a store; `begin` runs them here."""

    def __init__(self, database: ControlDatabase, places: Places, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._places = places
        self._clock = clock
        self._places_free = threading.BoundedSemaphore(_AT_ONCE)
        self._alive: set[str] = set()
        self._over = threading.Event()

    def open(self) -> None:
        """Begins to say which operations of this server are alive."""
        threading.Thread(target=self._say_alive, name="operations", daemon=True).start()

    def close(self) -> None:
        """Nobody waits for those that run: what comes of them is lost, and they count as that."""
        self._over.set()

    def begin(self, revision: Revision, kind: Kind, options: Mapping[str, Any], actor: Actor) -> Operation:
        """Takes it on; it works as soon as fewer than four others do."""
        id_, now_us = uuid4().hex, self.now_us()
        said = json.dumps({key: value for key, value in options.items() if value not in (None, [], False)})
        values = {"pipeline": revision.pipeline, "kind": kind, "options": said, "user": actor.user, "result": "[]"}
        with self._database.transaction() as connection:
            until_us = now_us + round(_ALIVE_S * 1e6)
            connection.execute(
                insert(OPERATIONS).values(id=id_, asked_us=now_us, until_us=until_us, why="", fix="", **values)
            )
            old = (OPERATIONS.c.pipeline == revision.pipeline, OPERATIONS.c.asked_us < now_us - KEPT_US)
            connection.execute(delete(OPERATIONS).where(*old))
            audit(connection, now_us, actor, kind, revision.pipeline, detail=said)
        self._alive.add(id_)
        arguments = command(kind, self._places.file(revision), options)
        work = threading.Thread(
            target=self._work, args=(id_, kind, revision, arguments), name=f"operation {kind}", daemon=True
        )
        work.start()
        return self.get(revision.pipeline, id_)

    def get(self, pipeline: str, id_: str) -> Operation:
        """UnknownError when the pipeline has none of that id."""
        with self._database.transaction() as connection:
            wanted = select(OPERATIONS).where(OPERATIONS.c.id == id_, OPERATIONS.c.pipeline == pipeline)
            row = connection.execute(wanted).mappings().first()
        if row is None:
            raise UnknownError(f"pipeline {pipeline} has no operation {id_}", fix="list its operations")
        return _operation(row)

    def of(self, pipeline: str, *, kind: Kind | None = None, limit: int = 50) -> list[Operation]:
        """The newest first."""
        wanted = select(OPERATIONS).where(OPERATIONS.c.pipeline == pipeline).order_by(OPERATIONS.c.asked_us.desc())
        if kind is not None:
            wanted = wanted.where(OPERATIONS.c.kind == kind)
        with self._database.transaction() as connection:
            return [_operation(row) for row in connection.execute(wanted.limit(limit)).mappings()]

    def _work(self, id_: str, kind: Kind, revision: Revision, arguments: list[str]) -> None:
        try:
            file = self._places.file(revision)
            with self._places_free:
                secrets = self._places.secrets.values()
                answer = ask(arguments, cwd=file.parent, secrets=secrets, limit=_MOST_LINES)
        except HeadraceError as error:
            answer = Answer(error.exit_code, [], error.message, error.fix)
        except Exception as error:  # of whatever kind: who asked must hear of it
            answer = Answer(1, [], f"{type(error).__name__}: {error}", "")
        try:
            retrying(lambda: self._end(id_, kind, revision.pipeline, answer), give_up_after_s=_ALIVE_S)
        except RetryableError:
            pass  # the store is away: nobody says that it is alive, so it counts as lost
        finally:
            self._alive.discard(id_)

    def _end(self, id_: str, kind: Kind, pipeline: str, answer: Answer) -> None:
        values = {"ended_us": self.now_us(), "code": answer.code, "why": answer.why, "fix": answer.fix}
        done = update(OPERATIONS).where(OPERATIONS.c.id == id_).values(result=json.dumps(answer.lines), **values)
        with self._database.transaction() as connection:
            if connection.execute(done).rowcount and kind == "verify":  # no row: its pipeline has been removed
                record(connection, pipeline, id_, self.now_us(), answer.lines)

    def _say_alive(self) -> None:
        while not self._over.wait(_ALIVE_S / 3):
            until_us = self.now_us() + round(_ALIVE_S * 1e6)
            for id_ in list(self._alive):
                try:
                    self._note(id_, until_us=until_us)
                except HeadraceError:
                    break  # said again soon

    def _note(self, id_: str, **values: object) -> None:
        with self._database.transaction() as connection:
            connection.execute(update(OPERATIONS).where(OPERATIONS.c.id == id_).values(**values))

    def now_us(self) -> int:
        """The time that operations are measured by."""
        return round(self._clock() * 1e6)


def command(kind: Kind, file: Path, options: Mapping[str, Any]) -> list[str]:
    """The command line, without `headrace`, that does an operation."""
    heads: dict[Kind, list[str]] = {
        "check": ["check", str(file), "--json"],
        "verify": ["verify", str(file), "--json"],
        "replay": ["errors", "replay", str(file), "--json"],
        "load": ["load", str(file)],
        "load_pause": ["load", str(file), "--pause"],
        "load_resume": ["load", str(file), "--resume"],
        "load_cancel": ["load", str(file), "--cancel"],
        "backfill": ["lake", "backfill", str(file), "--json"],
    }
    return [*heads[kind], *(word for name, value in options.items() for word in _words(name, value))]


def _words(name: str, value: object) -> list[str]:
    """An option as it is written: ``--to-flow=mart``, so that no value is taken for an option."""
    option = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    return [f"{option}={each}" for each in (value if isinstance(value, list) else [value])]


def _operation(row: RowMapping) -> Operation:
    return Operation(**{**row, "options": json.loads(row["options"]), "result": json.loads(row["result"])})
