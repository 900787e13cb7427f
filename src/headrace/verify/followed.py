"""The log between a source and a target, as verification needs it: where it ends, how far capture and flow are, and which rows of a table
it changes between two places.

Offsets of one table: of each partition of the source's topic, and of each lane of its full load (only waited for: what a lane brings
is what the source had).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headrace.capture.load.base import load_of
from headrace.capture.load.loading import lane_topics
from headrace.capture.load.plan import Plan, is_lane_topic
from headrace.capture.runner import resume_point
from headrace.codec.entries import EntryReader, table_of
from headrace.errors import ConfigError, RetryableError
from headrace.flow.spec import FlowSpec, PipelineSpec
from headrace.log.base import Log, Record, Span
from headrace.model import SourceConfig
from headrace.stream.readers import flow_positions
from headrace.stream.sole_run import is_running
from headrace.ums.change import ChangeBatch, Clear, End, Mark
from headrace.ums.schema import Namespace

_LOOK_EVERY_S = 0.1
Place = tuple[str, int]
"""A topic and one of its partitions."""
Offsets = dict[Place, int]


class TableMovedError(RetryableError):
    """The table itself was changed, emptied or replaced while it was looked at."""


@dataclass(frozen=True, slots=True)
class Found:
    """Changes of the table in an entry of the log."""

    place: Place
    offset: int
    change: ChangeBatch | Clear | End


class Followed:
    """Of one table (a namespace without version) on its way into one flow's target."""

    def __init__(
        self, pipeline: PipelineSpec, source: SourceConfig, flow: FlowSpec, table: Namespace, log: Log
    ) -> None:
        self._pipeline = pipeline
        self._source = source
        self._flow = flow
        self._table = table.all_versions
        self._log = log

    def refuse_open_load(self) -> None:
        """ConfigError while the table is being loaded: the target cannot have all of it yet."""
        plan = Plan(self._log, self._source.name)
        plan.refresh()
        name = ".".join(self._table.split(".")[2:])
        if any(not state.ended and state.load.name == name for state in plan.loads.values()):
            raise ConfigError(f"{name} is being loaded", fix="verify it when its load has ended")

    def ends(self) -> Offsets:
        """Where the log ends now."""
        load = load_of(self._source)
        lanes = [] if load is None else lane_topics(self._log, self._source.name, load)
        return {
            (topic, partition): span.stop
            for topic in (self._source.name, *lanes)
            for partition, span in self._log.spans(topic).items()
        }

    def wait_captured(self, has_come: Callable[[Mark], bool]) -> None:
        """Until what the source had is on the log. ConfigError when nobody captures."""

        def captured() -> bool:
            mark = resume_point(self._log, self._source.name)
            return mark is not None and has_come(mark)

        self._wait(captured, f"source {self._source.name} has more than was captured")

    def wait_delivered(self, ends: Offsets) -> Offsets:
        """Until the target has all changes of the table that lie before `ends`; how far the flow is then, at least."""
        needed = {place: self._behind_last(place, end) for place, end in ends.items()}

        def delivered() -> bool:
            reached = self.reached()
            return all(reached.get(place, 0) >= offset for place, offset in needed.items() if offset)

        self._wait(delivered, f"flow {self._flow.name} has not delivered all that is on the log")
        return self.reached()

    def reached(self) -> Offsets:
        """How far the flow has delivered, at least: what it told last."""
        told = flow_positions(self._pipeline)
        return {(at.topic, at.partition): at.offset for flow, at in told if flow == self._flow.name}

    def changes(self, begin: Offsets, end: Offsets) -> Iterator[Found]:
        """The changes that capture has put between two places, in the order of each partition."""
        reader = EntryReader()
        for place, stop in end.items():
            if is_lane_topic(place[0]):
                continue
            start = begin.get(place, 0)
            if start < self._log.spans(place[0])[place[1]].start:
                raise TableMovedError(
                    f"retention of the log has taken changes of {self._table} while it was looked at",
                    fix="let the log keep its entries for longer than a verification takes",
                )
            for record in self._entries(place, start, stop):
                change = reader.read(record.entry)
                if isinstance(change, ChangeBatch | Clear | End):
                    yield Found(place, record.offset, change)

    def _behind_last(self, place: Place, end: int) -> int:
        """Where the last entry of the table ends that the flow has not delivered; 0 when there is none."""
        last = 0
        for record in self._entries(place, self.reached().get(place, 0), end):
            last = record.offset + 1
        return last

    def _entries(self, place: Place, start: int, stop: int) -> Iterator[Record]:
        oldest = self._log.spans(place[0])[place[1]].start
        for record in self._log.read(*place, Span(max(start, oldest), stop)):
            if table_of(record.entry.key).decode().rsplit(".", 3)[0] == self._table:
                yield record

    def _wait(self, happened: Callable[[], bool], lacking: str) -> None:
        while not happened():
            if not is_running(self._pipeline.state):
                if happened():
                    return
                raise ConfigError(
                    f"{lacking}, and no run of the flow file is active", fix="start it, then verify again"
                )
            time.sleep(_LOOK_EVERY_S)
