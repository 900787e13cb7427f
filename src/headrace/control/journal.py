"""What happened (events, of pipelines) and who did it (audit, of people): rows that are only added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, Table, insert, select

from headrace.control.tables import AUDIT, EVENTS, ControlDatabase


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a pipeline's processes did, or what was found of them."""

    id: int
    at_us: int
    pipeline: str
    run: str | None
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that a person did."""

    id: int
    at_us: int
    user: str
    address: str
    action: str
    object: str
    detail: str


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something, and from where."""

    user: str
    address: str = ""


class Journal:
    """The two lists, newest first."""

    def __init__(self, database: ControlDatabase) -> None:
        self._database = database

    def events(self, *, pipeline: str | None = None, before: int | None = None, limit: int = 50) -> list[Event]:
        return [Event(**row) for row in self._page(EVENTS, {"pipeline": pipeline}, before, limit)]

    def deeds(self, *, user: str | None = None, before: int | None = None, limit: int = 50) -> list[Deed]:
        return [Deed(**row) for row in self._page(AUDIT, {"user": user}, before, limit)]

    def _page(self, table: Table, equal: Mapping[str, str | None], before: int | None, limit: int) -> list[dict[str, Any]]:  # fmt: skip
        page = select(table).order_by(table.c.id.desc()).limit(limit)
        for name, value in equal.items():
            if value is not None:
                page = page.where(table.c[name] == value)
        if before is not None:
            page = page.where(table.c.id < before)
        with self._database.transaction() as connection:
            return [dict(row) for row in connection.execute(page).mappings()]


def tell(connection: Connection, now_us: int, pipeline: str, *, kind: str, message: str, run: str) -> None:
    """Adds an event to a transaction."""
    values = {"at_us": now_us, "pipeline": pipeline, "run": run, "kind": kind, "message": message}
    connection.execute(insert(EVENTS).values(**values))


def audit(connection: Connection, now_us: int, actor: Actor, action: str, object_: str, *, detail: str = "") -> None:
    """Adds to a transaction who does it."""
    values = {"at_us": now_us, **asdict(actor), "action": action, "object": object_, "detail": detail}
    connection.execute(insert(AUDIT).values(**values))
