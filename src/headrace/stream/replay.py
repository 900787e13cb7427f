"""Delivering what a target had refused: the rows that wait in a flow's error ledgers, through the flow and its sink, as it is now.

Rows that are taken are entered as done; the others stay. A change that came later has the larger `_ums_id_` and stays what it is, so a
replay may be repeated, and be made while the flow runs.

Crash story: the rows are in the target before they are entered as done; a kill in between delivers them a second time.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.codec.error_ledger import LedgerName, found_in, row_of
from headrace.crash import crash_point
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.log.base import Entry, Log
from headrace.sinks.base import Position
from headrace.stream.parts import sink_opener
from headrace.stream.refused import Part, Refused, place_of, refused, waiting_places
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import COMMIT_TS

_TOGETHER_ROWS = 10_000


@dataclass
class Replayed:
    """What has become of the rows that waited."""

    delivered: Counter[str] = field(default_factory=Counter)
    """By namespace."""
    refused: list[str] = field(default_factory=list)
    """What the target said to each row that it still does not take."""


def replay(log: Log, topics: Sequence[str], flow: FlowSpec) -> Replayed:
    """Delivers the rows that wait in the flow's ledgers, of those among `topics`. Errors as of a follower, but for refused rows."""
    done = Replayed()
    for topic in topics:
        name = LedgerName.of(topic)
        if name is not None and name.flow == flow.name and not name.is_done:
            for parts in _together(_waiting(log, name, Shaper(flow))):
                _deliver(log, name, flow, parts, done)
    return done


def _waiting(log: Log, name: LedgerName, shaper: Shaper) -> Iterator[Part]:
    waiting = waiting_places(log, name.beside, name.flow)
    for found in found_in(log, str(name)):
        place = place_of(found)
        if place in waiting:
            waiting.remove(place)
            read = row_of(found)
            # A table that the flow takes no more has nothing to wait for, but that is for a person to decide: it stays.
            shaped = shaper.shape(read) if shaper.wants(read.key()) else None
            if isinstance(shaped, ChangeBatch):
                yield Part([place], read, shaped)


def _together(parts: Iterator[Part]) -> Iterator[list[Part]]:
    gathered: list[Part] = []
    for part in parts:
        gathered.append(part)
        if len(gathered) >= _TOGETHER_ROWS:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def _deliver(log: Log, name: LedgerName, flow: FlowSpec, parts: Sequence[Part], done: Replayed) -> None:
    new_sink = sink_opener(flow, refuses_invalid=True)
    still: list[Refused] = list(refused(parts, new_sink))
    done.refused += [found.named().message for found in still]
    places = {found.row.places[0] for found in still}
    taken = [part for part in parts if part.places[0] not in places]
    if not taken:
        return
    sink = new_sink()
    try:
        for table in dict.fromkeys(part.shaped.table for part in taken):
            sink.prepare(table)
        for part in taken:
            sink.write(part.shaped)
        sink.commit(_position(log, name, taken))
    finally:
        sink.close()
    crash_point("replay.delivered")
    now_ms = time.time_ns() // 1_000_000
    entries = [Entry(part.read.key(), json.dumps(part.places[0]._asdict()).encode(), now_ms) for part in taken]
    log.append(str(LedgerName(name.beside, name.flow, is_done=True)), 0, entries)
    done.delivered.update(str(part.read.table.namespace) for part in taken)


def _position(log: Log, name: LedgerName, taken: Sequence[Part]) -> Position:
    """The end of the ledger: it only grows, and positions in the flow's topics are the followers'."""
    newest = max((part.read for part in taken), key=lambda read: read.id_range)
    commit_ts_us: int = newest.data.column(COMMIT_TS).view(pa.int64())[0].as_py()
    end = sum(span.stop for span in log.spans(str(name)).values())
    return Position(str(name), 0, end, newest.id_range[0], commit_ts_us)
