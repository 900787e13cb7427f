"""What answers hold of alerts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headrace.control.alerts.book import NamedChannel, Silence
from headrace.control.alerts.course import Alert, State, Telling
from headrace.control.alerts.noted import NoticeState
from headrace.control.alerts.rules import Channel, Rule, Severity
from headrace.control.api.answers import Answer, Moment, moment


class AlertAnswer(Answer):
    id: int
    rule: str
    pipeline: str
    """Empty: the server's own."""
    subject: str
    """A flow, a path, a disk; empty: the pipeline as a whole."""
    severity: Severity
    state: State
    text: str
    """As it was when something was noted of it last."""
    began: Moment = moment("began")
    fired: Moment | None = moment("fired")
    well: Moment | None = moment("well")
    """Since when it is well again, though not for long enough."""
    over: Moment | None = moment("over")
    told: list[str]
    """Channels that know of it."""
    acknowledged_by: str | None
    acknowledged: Moment | None = moment("acknowledged")
    silenced: bool

    @classmethod
    def of(cls, alert: Alert, silences: Sequence[Silence], now_us: int) -> AlertAnswer:
        is_silenced = any(silence.holds(alert.rule, alert.pipeline, now_us) for silence in silences)
        return cls.model_validate({**asdict(alert), "silenced": is_silenced and alert.state != "over"})


class RuleAnswer(Answer):
    name: str
    rule: Rule
    author: str
    changed: Moment = moment("changed")


class ChannelAnswer(Answer):
    name: str
    channel: Channel
    author: str
    changed: Moment = moment("changed")
    waiting: int
    """Notices that are still to be sent."""

    @classmethod
    def of(cls, named: NamedChannel, waiting: Mapping[str, int]) -> ChannelAnswer:
        return cls.model_validate(
            {
                "name": named.name,
                "channel": named.channel,
                "author": named.author,
                "changed_us": named.changed_us,
                "waiting": waiting.get(named.name, 0),
            }
        )


class SilenceAnswer(Answer):
    id: int
    rule: str
    pipeline: str
    """Patterns, both."""
    reason: str
    author: str
    began: Moment = moment("from")
    until: Moment = moment("until")


class NoticeAnswer(Answer):
    """That a channel is told something of an alert; of none, when somebody has tried the channel."""

    id: int
    alert: int | None
    channel: str
    kind: Telling
    content: dict[str, Any]
    made: Moment = moment("made")
    state: NoticeState
    attempts: int
    next: Moment = moment("next")
    """When it is tried again, while it waits."""
    sent: Moment | None = moment("sent")
    why: str
    """What came of the last attempt, when it was not sent."""
