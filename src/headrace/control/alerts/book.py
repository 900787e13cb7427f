"""What people write down of alerts: channels, rules, silences. Each change is one transaction, with the audit row of who made it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from sqlalchemy import Connection, RowMapping, Table, delete, insert, select

from headrace.control.alerts.rules import CHANNEL, Channel, Rule
from headrace.control.journal import Actor, audit
from headrace.control.pipelines import ConflictError, UnknownError
from headrace.control.tables import ALERT_CHANNELS, ALERT_RULES, ALERT_SILENCES, KEPT_US, ControlDatabase
from headrace.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Written:
    """A channel or a rule with its name, and who wrote it."""

    name: str
    author: str
    changed_us: int


@dataclass(frozen=True, slots=True)
class NamedChannel(Written):
    channel: Channel


@dataclass(frozen=True, slots=True)
class NamedRule(Written):
    rule: Rule


@dataclass(frozen=True, slots=True)
class Silence:
    """From when until when nobody is told of alerts whose rule and pipeline match."""

    id: int
    rule: str
    pipeline: str
    reason: str
    author: str
    from_us: int
    until_us: int

    def holds(self, rule: str, pipeline: str, now_us: int) -> bool:
        matches = fnmatchcase(rule, self.rule) and fnmatchcase(pipeline, self.pipeline)
        return matches and self.from_us <= now_us < self.until_us


class AlertBook:
    """All of a store."""

    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    # --- channels

    def channels(self) -> list[NamedChannel]:
        with self._database.transaction() as connection:
            return [_channel(row) for row in _all(connection, ALERT_CHANNELS)]

    def put_channel(self, name: str, channel: Channel, actor: Actor) -> NamedChannel:
        """Adds it, or puts it in the place of the one of that name: what waits for it goes the new way."""
        with self._database.transaction() as connection:
            now_us = self._put(connection, ALERT_CHANNELS, name, channel.model_dump_json(), actor)
            audit(connection, now_us, actor, "alert channel", name, detail=channel.place)
        return NamedChannel(name, actor.user, now_us, channel)

    def remove_channel(self, name: str, actor: Actor) -> None:
        """ConflictError while a rule names it."""
        with self._database.transaction() as connection:
            users = [named.name for row in _all(connection, ALERT_RULES) if name in (named := _rule(row)).rule.channels]
            if users:
                raise ConflictError(f"rule {users[0]} tells by channel {name}", fix="take it out of the rule first")
            self._remove(connection, ALERT_CHANNELS, name, "channel", actor)

    # --- rules

    def rules(self) -> list[NamedRule]:
        with self._database.transaction() as connection:
            return [_rule(row) for row in _all(connection, ALERT_RULES)]

    def put_rule(self, name: str, rule: Rule, actor: Actor) -> NamedRule:
        """Adds it, or puts it in the place of the one of that name, whose alerts go on by the new one. ConfigError for channels that are not there."""
        with self._database.transaction() as connection:
            there = {row["name"] for row in _all(connection, ALERT_CHANNELS)}
            for channel in sorted(rule.channels - there):
                raise ConfigError(f"there is no channel {channel}", fix="add it first, or take it out of the rule")
            now_us = self._put(connection, ALERT_RULES, name, rule.model_dump_json(), actor)
            audit(connection, now_us, actor, "alert rule", name, detail=rule.model_dump_json(exclude_defaults=True))
        return NamedRule(name, actor.user, now_us, rule)

    def remove_rule(self, name: str, actor: Actor) -> None:
        """Its alerts are over."""
        with self._database.transaction() as connection:
            self._remove(connection, ALERT_RULES, name, "rule", actor)

    # --- silences

    def silences(self) -> list[Silence]:
        """Those that hold, and those of before, the newest first."""
        with self._database.transaction() as connection:
            rows = connection.execute(select(ALERT_SILENCES).order_by(ALERT_SILENCES.c.id.desc())).mappings()
            return [Silence(**row) for row in rows]

    def silence(self, rule: str, pipeline: str, seconds: int, reason: str, actor: Actor) -> Silence:
        """From now on, for so long."""
        now_us = self._now_us()
        until_us = now_us + seconds * 1_000_000
        new = insert(ALERT_SILENCES).values(
            rule=rule, pipeline=pipeline, reason=reason, author=actor.user, from_us=now_us, until_us=until_us
        )
        with self._database.transaction() as connection:
            [id_] = connection.execute(new).inserted_primary_key or [0]
            connection.execute(delete(ALERT_SILENCES).where(ALERT_SILENCES.c.until_us < now_us - KEPT_US))
            audit(connection, now_us, actor, "silence", rule, detail=f"pipelines {pipeline}, {seconds} s: {reason}")
        return Silence(id_, rule, pipeline, reason, actor.user, now_us, until_us)

    def end_silence(self, id_: int, actor: Actor) -> Silence:
        """Now; who was to be told is told. Idempotent."""
        now_us = self._now_us()
        with self._database.transaction() as connection:
            row = connection.execute(select(ALERT_SILENCES).where(ALERT_SILENCES.c.id == id_)).mappings().first()
            if row is None:
                raise UnknownError(f"there is no silence {id_}", fix="list the silences")
            until_us = min(now_us, row["until_us"])
            ended = ALERT_SILENCES.update().where(ALERT_SILENCES.c.id == id_).values(until_us=until_us)
            connection.execute(ended)
            audit(connection, now_us, actor, "end of silence", row["rule"], detail=f"pipelines {row['pipeline']}")
            return Silence(**{**row, "until_us": until_us})

    # --- rows

    def _put(self, connection: Connection, table: Table, name: str, options: str, actor: Actor) -> int:
        now_us = self._now_us()
        connection.execute(delete(table).where(table.c.name == name))
        connection.execute(insert(table).values(name=name, options=options, author=actor.user, changed_us=now_us))
        return now_us

    def _remove(self, connection: Connection, table: Table, name: str, what: str, actor: Actor) -> None:
        if not connection.execute(delete(table).where(table.c.name == name)).rowcount:
            raise UnknownError(f"there is no {what} {name}", fix=f"list the {what}s to see their names")
        audit(connection, self._now_us(), actor, f"no alert {what}", name)

    def _now_us(self) -> int:
        return round(self._clock() * 1e6)


def _all(connection: Connection, table: Table) -> list[RowMapping]:
    return list(connection.execute(select(table).order_by(table.c.name)).mappings())


def _channel(row: RowMapping) -> NamedChannel:
    return NamedChannel(row["name"], row["author"], row["changed_us"], CHANNEL.validate_json(row["options"]))


def _rule(row: RowMapping) -> NamedRule:
    return NamedRule(row["name"], row["author"], row["changed_us"], Rule.model_validate_json(row["options"]))
