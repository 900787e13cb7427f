"""Backfill (回灌): a range of a lake is delivered once more, into any target, by the code that delivers the log.

To a follower (deliver.py) the lake's range is a log: `LakeLog` has its changes as entries, in log order, with marks between transactions. So
shapes, `on_change`, retries and the targets' idempotence are those of live delivery. Nothing is remembered: whoever runs the same backfill again,
because it was killed or to be sure, writes the same changes again, and by their `_ums_id_` they change nothing.

A lake keeps every change that it is given, so there a range is replaced instead, table by table in one commit each (lake/replace.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from typing import ClassVar

from headrace.crash import crash_point
from headrace.errors import ConfigError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.lake.backfill import Range, changes_in
from headrace.lake.commit import Manifest
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.log.base import Entry, Record, Span
from headrace.retry import Backoff
from headrace.sinks.lake import LakeConfig
from headrace.stream.deliver import Follower
from headrace.stream.parts import sink_opener
from headrace.ums.change import MARK_KEY, ChangeBatch, Clear, End, Mark
from headrace.ums.schema import ID, Namespace

_END = 2**62
"""Behind the last entry of every range."""
_TOPIC = ".backfill"


@dataclass(frozen=True, slots=True)
class Backfill:
    """A range of a flow's lake, and the flow that is to get it."""

    lake: LakeConfig
    to: FlowSpec
    range: Range
    tables: tuple[str, ...] = ()
    """Patterns ``schema.table``; none for all that the flow takes."""
    replace: bool = False
    """Put the range in the place of what the target, a lake, has of it."""
    give_up_after_s: float = 60.0


@dataclass(slots=True)
class Filled:
    """What was done."""

    rows: dict[str, int] = field(default_factory=dict)
    """Changes by table that the target was given."""
    notices: list[str] = field(default_factory=list)
    """What a person should know of rows that are not valid."""
    replaced: list[str] = field(default_factory=list)
    """Tables whose range in the target was another before; only of lakes."""


def fill(job: Backfill) -> Filled:
    """Does a backfill. ConfigError when there is nothing that fits, or the target cannot take it; errors of delivery."""
    manifest = Manifest.open(job.lake.tree())
    tables = _tables(manifest, job)
    for table in tables:
        _must_be_kept(manifest, table, job)
    if isinstance(job.to.to, LakeConfig):
        if not job.replace:
            raise ConfigError(
                f"the target of flow {job.to.name} is a lake, which keeps every change it is given: a backfill would double its rows",
                fix="replace the range in it, with --replace",
            )
        return _replaced(manifest, job, job.to.to, tables)
    if job.replace:
        raise ConfigError(
            f"the target of flow {job.to.name} is no lake: it takes changes by their ids, and nothing is to be replaced",
            fix="leave --replace out",
        )
    return _delivered(manifest, job, tables)


def _tables(manifest: Manifest, job: Backfill) -> list[str]:
    shaper = Shaper(job.to)
    spaces = {table: Namespace.parse(f"{table}.0.0.0") for table, files in sorted(manifest.tables.items()) if files}
    taken = {table: space for table, space in spaces.items() if shaper.wants(str(space).encode())}
    found = [
        table
        for table, space in taken.items()
        if not job.tables or any(fnmatchcase(f"{space.schema}.{space.table}", pattern) for pattern in job.tables)
    ]
    if not found:
        raise ConfigError(
            f"the lake {manifest.lake.root} has no table {' or '.join(job.tables) or 'at all'} that flow {job.to.name} takes",
            fix=f"it takes {', '.join(taken)}"
            if taken
            else "see `headrace lake ls`, and what `from` of the flow names",
        )
    return found


def _must_be_kept(manifest: Manifest, table: str, job: Backfill) -> None:
    """ConfigError when the range begins before what retention has left of a table.

    A store may ask for all that is left; put in the place of a lake's range, it would thin that as well.
    """
    horizon, low = manifest.horizons.get(table), job.range.low
    if horizon is None or (low is None and not job.replace):
        return
    kept = horizon.id if job.range.column == ID else horizon.commit_ts_us
    if low is None or low <= kept:
        raise ConfigError(
            f"the lake keeps all changes of {table} behind id {horizon.id} only; what was overwritten before is gone",
            fix="begin later"
            if job.replace
            else "begin later, or leave --from out: then what is left of the time before is delivered as well",
        )


def _delivered(manifest: Manifest, job: Backfill, tables: Sequence[str]) -> Filled:
    done, flow = Filled(), _without_ledgers(job.to)
    for source, several in _by_source(tables).items():
        log = LakeLog(manifest, several, job.range)
        follower = Follower(
            sink_opener(flow),
            Shaper(flow),
            log,
            f"{source}{_TOPIC}",
            LakeLog.PARTITION,
            start=None,
            may_repeat=False,
            asks_sink=False,
        )
        follower.run(lambda: False, lambda offset: offset >= _END, Backoff(job.give_up_after_s))
        for namespace, rows in follower.delivered.rows.items():
            done.rows[namespace] = done.rows.get(namespace, 0) + rows
        done.notices += follower.delivered.notices
    return done


def _without_ledgers(flow: FlowSpec) -> FlowSpec:
    """The flow without what it keeps on its log, for a lake is none: what rows lack is not waited for, and a row that the target refuses ends the
    backfill. ConfigError when rows would have to be kept."""
    flow = flow.model_copy(update={"set_aside": None})
    if flow.validity is None:
        return flow
    if flow.validity.action == "alert":
        raise ConfigError(
            f"flow {flow.name} keeps rows that lack {', '.join(flow.validity.check)} in the error ledger of its log, and a backfill has no log",
            fix="write `action: drop` or `action: send` into a copy of the flow file, and backfill by that",
        )
    return flow.model_copy(update={"validity": flow.validity.model_copy(update={"timeout": 0.0})})


def _by_source(tables: Sequence[str]) -> dict[str, list[str]]:
    """Ids of several sources say nothing of their order."""
    found: dict[str, list[str]] = {}
    for table in tables:
        found.setdefault(Namespace.parse(f"{table}.0.0.0").source, []).append(table)
    return found


def _replaced(manifest: Manifest, job: Backfill, target: LakeConfig, tables: Sequence[str]) -> Filled:
    done = Filled()
    if job.to.computing or job.to.validity is not None:
        raise ConfigError(
            f"flow {job.to.name} computes or checks its rows, and a range is replaced by rows as they are in the other lake",
            fix="leave `--replace` out, or name a flow into the lake that does neither",
        )
    lake = Manifest.open_to_write(target.tree()).lake
    caretaker = Caretaker(lake, target.care or Policy())
    for table in tables:
        if caretaker.replace(table, job.range, _shaped(manifest, job, table, done)):
            done.replaced.append(table)
    return done


def _shaped(manifest: Manifest, job: Backfill, table: str, done: Filled) -> Iterator[ChangeBatch | Clear]:
    shaper = Shaper(job.to)
    for change in changes_in(manifest, [table], job.range):
        shaped = None if isinstance(change, Mark) else shaper.shape(change)
        if isinstance(shaped, ChangeBatch):
            name = str(shaped.table.namespace)
            done.rows[name] = done.rows.get(name, 0) + len(shaped)
        if shaped is not None and not isinstance(shaped, End):
            yield shaped


class LakeLog:
    """A range of a lake as a log of one topic, ``<source>.backfill``, with one partition. It can only be read."""

    PARTITION: ClassVar[int] = 0
    takes_parts: ClassVar[bool] = False

    def __init__(self, manifest: Manifest, tables: Sequence[str], range_: Range) -> None:
        """The manifest stays as it is, so that reading again gives the same."""
        self._manifest = manifest
        self._tables = tables
        self._range = range_

    def append(self, topic: str, partition: int, entries: Sequence[Entry]) -> Span:
        """Not for this one."""
        raise TypeError("a lake is not written as a log")

    def append_together(self, topic: str, parts: Mapping[int, Sequence[Entry]]) -> Mapping[int, Span]:
        """Not for this one."""
        raise TypeError("a lake is not written as a log")

    def read(self, topic: str, partition: int, span: Span) -> Iterator[Record]:
        """The entries of the range; those before the span are read as well, which happens only after an outage of the target."""
        for offset, change in enumerate(islice(self._changes(), span.stop)):
            if offset >= span.start:
                yield Record(offset, _entry(change))
                crash_point("backfill.read")

    def spans(self, topic: str) -> Mapping[int, Span]:
        """All of it; how many entries it has is not known before they are read. Nothing of other topics, such as those of rows that wait."""
        return {self.PARTITION: Span(0, _END)} if topic.endswith(_TOPIC) else {}

    def wait(self, topic: str, partition: int, offset: int, timeout_s: float) -> bool:
        """Nothing comes any more."""
        return offset < _END

    def close(self) -> None:
        """Holds nothing."""

    def _changes(self) -> Iterator[ChangeBatch | Clear | End | Mark]:
        return changes_in(self._manifest, self._tables, self._range)


def _entry(change: ChangeBatch | Clear | End | Mark) -> Entry:
    key = MARK_KEY if isinstance(change, Mark) else change.key()
    return Entry(key, change.to_block(), round(time.time() * 1000))
