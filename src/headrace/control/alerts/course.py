"""How an alert goes: a pure function of what was noted of it, what is seen, and what its rule says.

::

    (none) ──bad──> pending ──bad for `holds_s`──> firing ──well for `settles_s`──> over
       ^               │                             │ ^ │                            ^
       └──────well─────┘                             └─┘ └──nothing to watch any more─┘
                                              told, again, further channels

**Once**: of a rule and a subject there is one alert that is not over. Each channel is told of it once when it fires, again only after `again_s`, and
once that it is over. **Not known is not well**: while nothing is seen of a subject (its process begins anew, a file cannot be read) its alert stays as
it is. **Silence** keeps it from being told, not from being: who was to be told is told when the silence ends. Who was told of it is told that it is over, even in
silence, so that nobody looks for what has gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from headrace.control.alerts.rules import Rule, Severity

State = Literal["pending", "firing", "over"]
Telling = Literal["firing", "again", "over", "test"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What is seen of a subject (a flow, a path, a disk; empty: the pipeline) in the light of a rule. `is_bad` is None when that is not known."""

    pipeline: str
    subject: str
    is_bad: bool | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """One of a rule, from when it came up until it was over."""

    id: int | None
    """None: not noted yet."""
    rule: str
    pipeline: str
    """Empty: the server's own."""
    subject: str
    severity: Severity
    state: State
    text: str
    began_us: int
    fired_us: int | None = None
    well_us: int | None = None
    """Since when it is well again, though not long enough."""
    over_us: int | None = None
    told: tuple[str, ...] = ()
    """Channels that know of it."""
    told_us: int | None = None
    acknowledged_by: str | None = None
    acknowledged_us: int | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """That channels are to be told something of an alert."""

    kind: Telling
    channels: tuple[str, ...]


def begun(rule_name: str, rule: Rule, seen: Reading, now_us: int) -> Alert | None:
    """A new alert when there must be one."""
    if not seen.is_bad:
        return None
    return Alert(None, rule_name, seen.pipeline, seen.subject, rule.severity, "pending", seen.text, now_us)


def next_of(
    alert: Alert, rule: Rule | None, seen: Reading | None, *, is_silenced: bool, now_us: int
) -> tuple[Alert | None, Sequence[Told]]:
    """What becomes of an alert that is not over, and who is told. `rule` is None when there is none any more, and `seen` when there is nothing to
    be watched; None in place of an alert: it never fired, and is forgotten.
    """
    if rule is None or not rule.active or seen is None:
        return _over(alert, "it is not watched any more", now_us)
    found = _seen(alert, seen, now_us)
    if found.state == "pending":
        if seen.is_bad is False:
            return None, ()
        if not seen.is_bad or now_us - found.began_us < rule.holds_s * 1_000_000:
            return found, ()
        found = replace(found, state="firing", fired_us=now_us)
    if found.well_us is not None and now_us - found.well_us >= rule.settles_s * 1_000_000:
        return _over(found, found.text, now_us)
    return (found, ()) if is_silenced else _told(found, rule, now_us)


def _seen(alert: Alert, seen: Reading, now_us: int) -> Alert:
    if seen.is_bad is None:
        return alert
    if seen.is_bad:
        return replace(alert, well_us=None, text=seen.text)
    return alert if alert.well_us is not None else replace(alert, well_us=now_us)


def _over(alert: Alert, text: str, now_us: int) -> tuple[Alert | None, Sequence[Told]]:
    if alert.state == "pending":
        return None, ()
    ended = replace(alert, state="over", over_us=now_us, text=text)
    return ended, (Told("over", alert.told),) if alert.told else ()


def _told(alert: Alert, rule: Rule, now_us: int) -> tuple[Alert, Sequence[Told]]:
    """An alert that fires: those who do not know of it, and those who are to hear it again."""
    new = tuple(channel for channel in _due(alert, rule, now_us) if channel not in alert.told)
    again: tuple[str, ...] = ()
    if rule.again_s is not None and alert.told_us is not None and alert.acknowledged_by is None:
        again = alert.told if now_us - alert.told_us >= rule.again_s * 1_000_000 else ()
    if not new and not again:
        return alert, ()
    # A further channel does not put off when the first ones hear of it again.
    told_us = now_us if again or alert.told_us is None else alert.told_us
    known = replace(alert, told=(*alert.told, *new), told_us=told_us)
    return known, [told for told in (Told("firing", new), Told("again", again)) if told.channels]


def _due(alert: Alert, rule: Rule, now_us: int) -> list[str]:
    assert alert.fired_us is not None
    due = list(rule.to)
    if alert.acknowledged_by is None:
        passed_s = (now_us - alert.fired_us) / 1e6
        due += [channel for step in rule.escalate if passed_s >= step.after_s for channel in step.to]
    return list(dict.fromkeys(due))
