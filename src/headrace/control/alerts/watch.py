"""Looks for alerts, on the server that leads: what every rule sees of every pipeline, against what was noted before (course.py)."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from headrace.control.alerts.book import AlertBook, NamedRule
from headrace.control.alerts.course import Alert, Reading, begun, next_of
from headrace.control.alerts.noted import Change, NotedAlerts
from headrace.control.alerts.readings import Scene, readings, server_disk
from headrace.control.alerts.rules import DiskFull, VerificationRed
from headrace.control.places import Places
from headrace.control.runs import Lease, Runs
from headrace.control.states import State, state_of
from headrace.control.verifications import Verification, Verifications
from headrace.errors import FencedError, HeadraceError

LOOK_EVERY_S = 2.0
_Key = tuple[str, str, str]
"""Rule, pipeline and subject."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look has found."""

    readings: Mapping[_Key, Reading]
    told: Mapping[str, bool]
    """Pipelines that are to run, and whether their processes tell anything at the moment."""

    def of(self, key: _Key) -> Reading | None:
        """What is seen of a subject; None when there is nothing to be watched."""
        _, pipeline, subject = key
        if key in self.readings or pipeline not in self.told:
            return self.readings.get(key)
        # A process that begins may not tell of all its stages at once: what is missing must be so for a while.
        return Reading(pipeline, subject, False if self.told[pipeline] else None, "it is not there any more")


@dataclass(frozen=True, slots=True)
class Seeing:
    """Where what is seen comes from."""

    runs: Runs
    places: Places
    verifications: Verifications


class AlertWatch:
    """One server's."""

    def __init__(self, book: AlertBook, noted: NotedAlerts, seeing: Seeing, lease: Callable[[], Lease | None]) -> None:
        """`lease`: by which this server leads at the moment."""
        self.trouble = ""
        """Why the last look came to nothing; empty when all is well."""
        self._book = book
        self._noted = noted
        self._seeing = seeing
        self._lease = lease

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(LOOK_EVERY_S):
            try:
                if (lease := self._lease()) is not None:
                    self.look(lease)
                self.trouble = ""
            except FencedError:
                continue  # another one looks
            except HeadraceError as error:  # the next look tries again, and /healthz tells
                self.trouble = str(error)
            except Exception as error:  # a fault of ours must not end all alerts
                self.trouble = f"{type(error).__name__}: {error}"
                traceback.print_exc(file=sys.stderr)

    def look(self, lease: Lease) -> None:
        """One look at everything. FencedError when another server leads."""
        rules = self._book.rules()
        active = self._noted.active()
        if not rules and not active:
            return
        now_us = self._noted.now_us()
        changes = list(self._changes(rules, active, self._seen(rules, now_us), now_us))
        if changes:
            self._noted.note(lease, changes)

    def _changes(
        self, rules: Sequence[NamedRule], active: Sequence[Alert], seen: Seen, now_us: int
    ) -> Iterator[Change]:
        by_name = {named.name: named.rule for named in rules}
        silences = self._book.silences()
        known = {(alert.rule, alert.pipeline, alert.subject): alert for alert in active}
        for key, reading in seen.readings.items():
            if key not in known and (new := begun(key[0], by_name[key[0]], reading, now_us)) is not None:
                known[key] = new
        for key, alert in known.items():
            rule = by_name.get(alert.rule)
            is_silenced = any(silence.holds(alert.rule, alert.pipeline, now_us) for silence in silences)
            after, told = next_of(alert, rule, seen.of(key), is_silenced=is_silenced, now_us=now_us)
            if _is_news(alert, after) or told:
                yield Change(alert if alert.id is not None else None, after, told, rule.note if rule else "")

    def _seen(self, rules: Sequence[NamedRule], now_us: int) -> Seen:
        found: dict[_Key, Reading] = {}
        told = {}
        active = [named for named in rules if named.rule.active]
        for scene in self._scenes(active, now_us):
            if scene.is_wanted:
                told[scene.pipeline] = bool(scene.told)
            for named in active:
                if fnmatchcase(scene.pipeline, named.rule.pipeline):
                    for reading in readings(named.rule, scene, now_us):
                        found[named.name, reading.pipeline, reading.subject] = reading
        for named in active:
            when = named.rule.when
            if isinstance(when, DiskFull) and fnmatchcase("", named.rule.pipeline):
                reading = server_disk(when, self._seeing.places.directory)
                found[named.name, "", reading.subject] = reading
        return Seen(found, told)

    def _scenes(self, rules: Sequence[NamedRule], now_us: int) -> Iterator[Scene]:
        verified: dict[str, list[Verification]] = {}
        if any(isinstance(named.rule.when, VerificationRed) for named in rules):
            for each in self._seeing.verifications.newest():
                verified.setdefault(each.pipeline, []).append(each)
        for pipeline, run in self._seeing.runs.newest():
            told = {}
            try:
                told = self._seeing.places.told(run)
                state = state_of(pipeline, run, lambda told=told: told, now_us)  # type: ignore[misc]
            except HeadraceError as error:  # of one pipeline's files
                state = State("stalled", now_us, error.message, error.fix)
            yield Scene(pipeline.name, pipeline.wanted == "running", state, told, verified.get(pipeline.name, ()))


def _is_news(before: Alert, after: Alert | None) -> bool:
    """Whether there is something to be kept: not for a figure alone, which changes at each look."""
    if after is None or before.id is None:
        return after is not None or before.id is not None
    return (before.state, before.well_us, before.told, before.severity) != (
        after.state, after.well_us, after.told, after.severity,
    )  # fmt: skip
