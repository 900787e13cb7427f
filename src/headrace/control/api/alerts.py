"""Alerts: those there are, rules and channels, silences, and what was told to whom."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from headrace.control.alerts.course import State
from headrace.control.alerts.rules import Channel, ChannelName, Rule
from headrace.control.api.access import Admin, Operator, ThePlane, Viewer
from headrace.control.api.alert_answers import AlertAnswer, ChannelAnswer, NoticeAnswer, RuleAnswer, SilenceAnswer
from headrace.control.api.bodies import NewSilence, Page

router = APIRouter(prefix="/alerts", tags=["alerts"])
ChannelPath = Annotated[ChannelName, Path()]
RulePath = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
Id = Annotated[int, Path(ge=1, le=2**31 - 1)]


class Alerts(Page):
    """Which alerts."""

    state: State | None = None


class Notices(Page):
    """Which notices."""

    alert: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None


@router.get("")
def list_alerts(page: Annotated[Alerts, Query()], plane: ThePlane, _: Viewer) -> list[AlertAnswer]:
    """Those that fire or may soon, and those that are over, the newest first."""
    now_us, silences = plane.alerts.now_us(), plane.book.silences()
    found = plane.alerts.page(page.state, before=page.before, limit=page.limit)
    return [AlertAnswer.of(alert, silences, now_us) for alert in found]


@router.post("/{alert}/acknowledge")
def acknowledge_alert(alert: Id, plane: ThePlane, caller: Operator) -> AlertAnswer:
    """Says that somebody sees to it: it is not told again, and goes to no further channels."""
    return AlertAnswer.of(plane.alerts.acknowledge(alert, caller.actor), plane.book.silences(), plane.alerts.now_us())


@router.get("/notices")
def list_notices(page: Annotated[Notices, Query()], plane: ThePlane, _: Viewer) -> list[NoticeAnswer]:
    """What was told or is to be told, by which channel, and what came of it, the newest first."""
    found = plane.alerts.notices(alert=page.alert, before=page.before, limit=page.limit)
    return [NoticeAnswer.model_validate(notice) for notice in found]


@router.get("/rules")
def list_rules(plane: ThePlane, _: Viewer) -> list[RuleAnswer]:
    return [RuleAnswer.model_validate(named) for named in plane.book.rules()]


@router.put("/rules/{rule}")
def put_rule(rule: RulePath, body: Rule, plane: ThePlane, caller: Admin) -> RuleAnswer:
    """Adds a rule, or puts it in the place of the one of that name. It holds for all pipelines that match, also for those that come later."""
    return RuleAnswer.model_validate(plane.book.put_rule(rule, body, caller.actor))


@router.delete("/rules/{rule}", status_code=204)
def remove_rule(rule: RulePath, plane: ThePlane, caller: Admin) -> None:
    """Its alerts are over."""
    plane.book.remove_rule(rule, caller.actor)


@router.get("/channels")
def list_channels(plane: ThePlane, _: Viewer) -> list[ChannelAnswer]:
    """With the names of their secrets only."""
    waiting = plane.alerts.waiting()
    return [ChannelAnswer.of(named, waiting) for named in plane.book.channels()]


@router.put("/channels/{channel}")
def put_channel(channel: ChannelPath, body: Channel, plane: ThePlane, caller: Admin) -> ChannelAnswer:
    """Adds a channel, or puts it in the place of the one of that name."""
    return ChannelAnswer.of(plane.book.put_channel(channel, body, caller.actor), plane.alerts.waiting())


@router.delete("/channels/{channel}", status_code=204)
def remove_channel(channel: ChannelPath, plane: ThePlane, caller: Admin) -> None:
    """One that no rule names."""
    plane.book.remove_channel(channel, caller.actor)


@router.post("/channels/{channel}/try", status_code=202)
def try_channel(channel: ChannelPath, plane: ThePlane, caller: Operator) -> NoticeAnswer:
    """Sends a test; the notice tells what came of it."""
    return NoticeAnswer.model_validate(plane.alerts.try_channel(channel, caller.actor))


@router.get("/silences")
def list_silences(plane: ThePlane, _: Viewer) -> list[SilenceAnswer]:
    """Those that hold, and those of before, the newest first."""
    return [SilenceAnswer.model_validate(silence) for silence in plane.book.silences()]


@router.post("/silences", status_code=201)
def add_silence(body: NewSilence, plane: ThePlane, caller: Operator) -> SilenceAnswer:
    """For a while nobody is told of alerts that match; they are shown all the same. Who was to be told is told when it ends."""
    silence = plane.book.silence(body.rule, body.pipeline, body.seconds, body.reason, caller.actor)
    return SilenceAnswer.model_validate(silence)


@router.post("/silences/{silence}/end")
def end_silence(silence: Id, plane: ThePlane, caller: Operator) -> SilenceAnswer:
    """Now."""
    return SilenceAnswer.model_validate(plane.book.end_silence(silence, caller.actor))
