"""What the store keeps of alerts and of notices: that there is one, and who must still be told.

::

    notice   waiting ──taken into a message──> waiting, message M, attempt 1 ──sent──> sent
                                                  ^          └──not taken by the channel──> refused
                                                  └──away: attempt 2, 3, … ──┘   └──for a day──> given up

**Crash story.** An alert's change and the notices that it makes are one transaction under the fence of the server that leads: both are there, or neither. To
send, the server takes the notices that wait for a channel into a *message*, under the fence: it has a new id, which is noted with the time until
which nobody else may try. Only then it is sent. Who dies

- *before it is noted*: the next leader takes the same notices.
- *after, before it is sent* or *after it is sent, before that is noted*: nobody can tell these apart. The next one sends the same notices under the same id
  (Message-ID, webhook-id), when the time has passed. So nothing is lost, and a receiver that looks at ids gets nothing twice.
- *not at all, but slowly* (its machine was asleep): it begins no sending when its time is nearly up, and what it notes late is refused by the number of the
  attempt. Two servers that live never send the same: the second one cannot take what the first one has taken.

In a channel notices are sent in their order: while a message of it waits to be sent again, no later one is made, so that the end of an alert never
overtakes its beginning. Those that come meanwhile go together when the channel is back.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal
from uuid import uuid4

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from headrace.control.alerts.course import Alert, State, Told
from headrace.control.journal import Actor, audit
from headrace.control.pipelines import ConflictError, UnknownError
from headrace.control.runs import Lease, Runs
from headrace.control.tables import ALERT_CHANNELS, ALERTS, KEPT_US, NOTICES, ControlDatabase

NoticeState = Literal["waiting", "sent", "refused", "given up"]
TAKEN_US = 45_000_000
"""For so long a message is one server's."""
_MOST_IN_A_MESSAGE = 100
_GIVE_UP_US = 86_400_000_000
_LONGEST_PAUSE_S = 300.0


@dataclass(frozen=True, slots=True)
class Notice:
    """That a channel is told something of an alert; of none, when somebody wants to see whether the channel works."""

    id: int
    alert: int | None
    channel: str
    kind: str
    content: dict[str, Any]
    made_us: int
    state: NoticeState
    message: str | None
    attempts: int
    next_us: int
    sent_us: int | None
    why: str


@dataclass(frozen=True, slots=True)
class Message:
    """Notices that go to a channel together, at one attempt."""

    id: str
    channel: str
    attempt: int
    notices: Sequence[Notice]


@dataclass(frozen=True, slots=True)
class Change:
    """What has become of an alert: `after` is None when it is forgotten."""

    before: Alert | None
    after: Alert | None
    told: Sequence[Told]
    note: str = ""
    """What its rule says there is to do."""


class NotedAlerts:
    """All of a store."""

    def __init__(self, database: ControlDatabase, runs: Runs, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._runs = runs
        self._clock = clock

    # --- alerts

    def active(self) -> list[Alert]:
        """Those that are not over."""
        with self._database.transaction() as connection:
            rows = connection.execute(select(ALERTS).where(ALERTS.c.state != "over").order_by(ALERTS.c.id)).mappings()
            return [_alert(row) for row in rows]

    def page(self, state: State | None, *, before: int | None, limit: int) -> list[Alert]:
        """The newest first."""
        wanted = select(ALERTS).order_by(ALERTS.c.id.desc()).limit(limit)
        wanted = wanted if state is None else wanted.where(ALERTS.c.state == state)
        wanted = wanted if before is None else wanted.where(ALERTS.c.id < before)
        with self._database.transaction() as connection:
            return [_alert(row) for row in connection.execute(wanted).mappings()]

    def note(self, lease: Lease, changes: Sequence[Change]) -> None:
        """Keeps what has become of alerts, with the notices of that. FencedError when another server has led since."""
        now_us = self.now_us()
        with self._runs.fenced(lease) as connection:
            channels = set(connection.scalars(select(ALERT_CHANNELS.c.name)))
            for change in changes:
                id_ = _keep(connection, change)
                for told in change.told if change.after is not None and id_ is not None else ():
                    for channel in (name for name in told.channels if name in channels):
                        content = _content(change, told)
                        _add_notice(connection, now_us, alert=id_, channel=channel, kind=told.kind, content=content)
            if any(change.told for change in changes):
                _forget_old(connection, now_us)

    def acknowledge(self, id_: int, actor: Actor) -> Alert:
        """Somebody sees to it: it is not told again, and goes no further. ConflictError when it does not fire."""
        with self._database.transaction() as connection:
            row = connection.execute(select(ALERTS).where(ALERTS.c.id == id_).with_for_update()).mappings().first()
            if row is None:
                raise UnknownError(f"there is no alert {id_}", fix="list the alerts")
            if row["state"] != "firing":
                raise ConflictError(f"alert {id_} does not fire", fix="nothing needs to be done")
            if row["acknowledged_by"] is None:
                now_us = self.now_us()
                values = {"acknowledged_by": actor.user, "acknowledged_us": now_us}
                connection.execute(update(ALERTS).where(ALERTS.c.id == id_).values(**values))
                audit(connection, now_us, actor, "acknowledge", row["rule"], detail=f"alert {id_}: {row['subject']}")
                row = connection.execute(select(ALERTS).where(ALERTS.c.id == id_)).mappings().one()
            return _alert(row)

    # --- notices

    def notices(self, *, alert: int | None, before: int | None, limit: int) -> list[Notice]:
        """The newest first."""
        wanted = select(NOTICES).order_by(NOTICES.c.id.desc()).limit(limit)
        wanted = wanted if alert is None else wanted.where(NOTICES.c.alert == alert)
        wanted = wanted if before is None else wanted.where(NOTICES.c.id < before)
        with self._database.transaction() as connection:
            return [_notice(row) for row in connection.execute(wanted).mappings()]

    def try_channel(self, channel: str, actor: Actor) -> Notice:
        """Has something sent that says that it works. UnknownError when there is no such channel."""
        now_us = self.now_us()
        with self._database.transaction() as connection:
            if connection.scalar(select(ALERT_CHANNELS.c.name).where(ALERT_CHANNELS.c.name == channel)) is None:
                raise UnknownError(f"there is no channel {channel}", fix="list the channels to see their names")
            content = {"text": f"{actor.user} wants to see whether the channel {channel} works"}
            id_ = _add_notice(connection, now_us, alert=None, channel=channel, kind="test", content=content)
            audit(connection, now_us, actor, "try alert channel", channel)
            return _notice(connection.execute(select(NOTICES).where(NOTICES.c.id == id_)).mappings().one())

    def waiting(self) -> dict[str, int]:
        """How many notices wait for each channel."""
        counted = (
            select(NOTICES.c.channel, func.count()).where(NOTICES.c.state == "waiting").group_by(NOTICES.c.channel)
        )
        with self._database.transaction() as connection:
            return {row[0]: row[1] for row in connection.execute(counted)}

    def take(self, lease: Lease, channel: str) -> Message | None:
        """A message that is to be sent now, which is this server's for `TAKEN_US`."""
        now_us = self.now_us()
        of = select(NOTICES).where(NOTICES.c.state == "waiting", NOTICES.c.channel == channel).order_by(NOTICES.c.id)
        with self._runs.fenced(lease) as connection:
            waiting = [_notice(row) for row in connection.execute(of.limit(_MOST_IN_A_MESSAGE)).mappings()]
            begun = [notice for notice in waiting if notice.message is not None]
            taken = begun or waiting
            if not taken or taken[0].next_us > now_us:
                return None
            message = Message(taken[0].message or uuid4().hex, channel, taken[0].attempts + 1, taken)
            values = {"message": message.id, "attempts": message.attempt, "next_us": now_us + TAKEN_US}
            ids = [notice.id for notice in taken]
            connection.execute(update(NOTICES).where(NOTICES.c.id.in_(ids)).values(**values))
            return message

    def sent(self, message: Message) -> None:
        self._end(message, {"state": "sent", "sent_us": self.now_us(), "why": ""})

    def refused(self, message: Message, why: str) -> None:
        """The channel will never take it."""
        self._end(message, {"state": "refused", "why": why})

    def away(self, message: Message, why: str) -> None:
        """It is tried again, later and later, for a day."""
        now_us = self.now_us()
        if now_us - message.notices[0].made_us > _GIVE_UP_US:
            self._end(message, {"state": "given up", "why": why})
            return
        pause_s = min(_LONGEST_PAUSE_S, 2.0 ** min(message.attempt, 10))
        self._end(message, {"next_us": now_us + round(pause_s * 1e6), "why": why})

    def _end(self, message: Message, values: Mapping[str, Any]) -> None:
        """Nothing when another server has tried it since."""
        mine = (NOTICES.c.message == message.id, NOTICES.c.attempts == message.attempt, NOTICES.c.state == "waiting")
        with self._database.transaction() as connection:
            connection.execute(update(NOTICES).where(*mine).values(**values))

    def now_us(self) -> int:
        """The time that alerts are measured by."""
        return round(self._clock() * 1e6)


def _keep(connection: Connection, change: Change) -> int | None:
    if change.after is None:
        if change.before is not None and change.before.id is not None:
            connection.execute(delete(ALERTS).where(ALERTS.c.id == change.before.id))
        return None
    values = {**asdict(change.after), "told": json.dumps(change.after.told)}
    id_: int | None = values.pop("id")
    if id_ is None:
        [id_] = connection.execute(insert(ALERTS).values(**values)).inserted_primary_key or [None]
        return id_
    # Somebody may have acknowledged it since it was read.
    known = {key: value for key, value in values.items() if key not in {"acknowledged_by", "acknowledged_us"}}
    connection.execute(update(ALERTS).where(ALERTS.c.id == id_).values(**known))
    return id_


def _content(change: Change, told: Told) -> dict[str, Any]:
    """What of an alert is told, as it is now: it goes on while a channel is away."""
    assert change.after is not None
    names = ("rule", "pipeline", "subject", "severity", "text", "began_us", "over_us")
    return {name: getattr(change.after, name) for name in names} | {"note": change.note}


def _add_notice(
    connection: Connection, now_us: int, *, alert: int | None, channel: str, kind: str, content: dict[str, Any]
) -> int:
    values = {"alert": alert, "channel": channel, "kind": kind, "content": json.dumps(content), "made_us": now_us}
    start = {"state": "waiting", "attempts": 0, "next_us": now_us, "why": ""}
    [id_] = connection.execute(insert(NOTICES).values(**values, **start)).inserted_primary_key or [0]
    return int(id_)


def _forget_old(connection: Connection, now_us: int) -> None:
    old = select(ALERTS.c.id).where(ALERTS.c.state == "over", ALERTS.c.over_us < now_us - KEPT_US)
    connection.execute(delete(NOTICES).where(NOTICES.c.made_us < now_us - KEPT_US, NOTICES.c.state != "waiting"))
    connection.execute(delete(NOTICES).where(NOTICES.c.alert.in_(old)))
    connection.execute(delete(ALERTS).where(ALERTS.c.state == "over", ALERTS.c.over_us < now_us - KEPT_US))


def _alert(row: RowMapping) -> Alert:
    return Alert(**{**row, "told": tuple(json.loads(row["told"]))})


def _notice(row: RowMapping) -> Notice:
    return Notice(**{**row, "content": json.loads(row["content"])})
