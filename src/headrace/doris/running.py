"""A loader that runs until it is stopped, through outages; and what is known of one, whether it runs or not."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.doris.config import LoaderConfig
from headrace.doris.loader import Loader
from headrace.doris.ranges import Job, Range
from headrace.doris.store import LoadRow, LoadStore
from headrace.doris.topic import TopicSource
from headrace.errors import ConfigError, RetryableError
from headrace.log.base import Span
from headrace.retry import Backoff

_NEWEST = 10


def run(config: LoaderConfig, stopped: Callable[[], bool], told: Callable[[str], None]) -> None:
    """Loads until it is to stop. `told`: hears of outages. RetryableError when one lasts, other errors at once."""
    backoff, before, said = Backoff(config.give_up_after), -1, ""
    with closing(LoadStore(config.store)) as store:
        while True:
            try:
                store.open()
                with closing(TopicSource(config)) as source:
                    return Loader(config, store, source).run(stopped)
            except RetryableError as error:
                last = _last_sequence(store, config.name)
                if last != before:
                    backoff.worked()
                    before = last
                pause_s = backoff.failed(error)
                if stopped():
                    return None
                if error.message != said:
                    said = error.message
                    told(f"{said}; trying again")
                time.sleep(pause_s)


def _last_sequence(store: LoadStore, name: str) -> int:
    """How far it has come; -1 when the store is what is away."""
    try:
        last = store.last(name)
    except RetryableError:
        return -1
    return 0 if last is None else last.sequence


@dataclass(frozen=True, slots=True)
class Status:
    """What the store and Kafka know of a loader. Offsets are by ``topic/partition``."""

    name: str
    alive_us: int | None
    """When it last said that it runs, in µs since 1970."""
    offsets: dict[str, int]
    """Up to here all is in Doris."""
    lag: dict[str, int] | None
    """So many offsets are behind that; None when Kafka does not say."""
    unloaded: list[LoadRow]
    newest: list[LoadRow]
    rows_loaded: int
    rows_refused: int

    def told(self) -> dict[str, object]:
        """As JSON."""
        return {
            "name": self.name, "alive": None if self.alive_us is None else _time(self.alive_us), "offsets": self.offsets,
            "lag": self.lag, "rows_loaded": self.rows_loaded, "rows_refused": self.rows_refused,
            "unloaded": [_told(row) for row in self.unloaded], "newest": [_told(row) for row in self.newest],
        }  # fmt: skip


def status(config: LoaderConfig) -> Status:
    """As it is now."""
    with closing(LoadStore(config.store)) as store, closing(TopicSource(config)) as source:
        store.open()
        try:
            kept = source.kept()
        except RetryableError:
            kept = None
        return status_of(config.name, store, kept)


def status_of(name: str, store: LoadStore, kept: Mapping[str, Span] | None) -> Status:
    """What an open store has; `kept`: what each partition has, when that is known."""
    newest, unloaded, loader = store.rows(name, _NEWEST), store.unloaded(name), store.loader(name)
    at = unloaded[0].range.start if unloaded else newest[0].range.end if newest else {}
    lag = (
        None if kept is None else {place: max(0, span.stop - at.get(place, span.start)) for place, span in kept.items()}
    )
    return Status(name, loader.alive_us, dict(at), lag, unloaded, newest, loader.rows_loaded, loader.rows_refused)


def skip(config: LoaderConfig) -> Range:
    """Goes on behind offsets that Kafka does not keep any more, which are loaded by nobody; says which. A loader that runs is taken over."""
    with closing(LoadStore(config.store)) as store, closing(TopicSource(config)) as source:
        store.open()
        last = store.last(config.name)
        before = {} if last is None else last.range.end
        starts = {place: span.start for place, span in source.kept().items()}
        gone = {place: start for place, start in starts.items() if before.get(place, start) < start}
        if last is None or not gone:
            raise ConfigError(
                f"Kafka has all that the loader '{config.name}' reads next", fix="start it; there is nothing to skip"
            )
        lease, range_ = store.take(config.name), Range(before, {**before, **gone})
        label = Job(config.name, lease.incarnation, config.database, config.table).label(last.sequence + 1, range_)
        store.pass_over(lease, LoadRow(last.sequence + 1, label, range_, round(time.time() * 1e6), 0, verdict="skip"))
        return range_


def _told(row: LoadRow) -> dict[str, object]:
    return {"sequence": row.sequence, "label": row.label, "range": row.range.moved(), "begun": _time(row.begun_us), "loaded": row.is_loaded, "verdict": row.verdict,
            "kafka_committed": row.is_committed, "transaction": row.transaction, "rows": row.rows_loaded, "refused": row.rows_refused}  # fmt: skip


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat()
