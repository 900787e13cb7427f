"""MySQL and MariaDB: changes from the binlog, of a live server (as a replica) or from recorded files.

Whatever the bytes come from, the rest is one way (gather.py): decoder, schema history, events with their marks.

Crash story: the source keeps nothing but the schema history (history.py), which is never behind the log. Where it goes on is the
position of the newest mark on the log: the place in the server's files, and the transactions before it by name. A server that
names its transactions is asked by name, so another server of its group gives the same ones; else it is asked for the place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.capture.base import Event
from headrace.capture.binlog_files import BinlogFiles
from headrace.capture.commit_floor import CommitFloor
from headrace.capture.connection import Address
from headrace.capture.definitions import Definer
from headrace.capture.dump import learn_from_dump
from headrace.capture.gather import Gatherer
from headrace.capture.heartbeat import Probe, Pulse, Writer
from headrace.capture.history import History
from headrace.capture.load.base import Loader
from headrace.capture.log_numbers import LogNumbers
from headrace.capture.lost import position_lost, why_lost
from headrace.capture.mask import check_masks
from headrace.capture.mysql_config import MySqlConfig, Start, StartBehind, parsed_start
from headrace.capture.mysql_loader import MySqlLoader
from headrace.capture.position import BinlogPosition
from headrace.capture.reloads import rekeyed, returned
from headrace.capture.replica import Replica, default_server_id
from headrace.capture.server_check import check_server
from headrace.capture.server_definitions import learn_from_server
from headrace.capture.servers import connect, open_server, own_id, require
from headrace.capture.shapes_now import ShapesNow
from headrace.capture.tables_now import at_server, worth_reading
from headrace.codec.binlog import BinlogReader, Decoded, GtidSet
from headrace.errors import ConfigError, CorruptError, Finding, HeadraceError, RetryableError, SourceError
from headrace.ums.change import Mark
from headrace.ums.schema import TableSchema

_WAIT_S = 0.05
_SPEAK_S = 1.0
_NOTHING = memoryview(b"")
_BACKLOG_BYTES = 1 << 19
"""So much at once comes only from a server that has more: what is read next belongs into the same event."""


class MySqlSource:
    """A `Source` over the binlog. `state` is the directory in which schema versions are kept; with `before_images` changes have the
    rows before them as well (gather.with_befores)."""

    Config = MySqlConfig

    def __init__(self, config: MySqlConfig, state: Path, *, before_images: bool = False) -> None:
        self._config = config
        self._before_images = before_images
        self._schemas = state / "schemas.json"
        self._numbers = LogNumbers(state)
        self._replica: Replica | None = None
        self._pulse: Pulse | None = None

    def tables(self) -> Sequence[TableSchema]:
        return self._history().tables()

    def tables_now(self) -> Iterator[TableSchema | Finding]:
        history = self._history()
        if self._config.files is not None:
            yield from history.tables() or self._in_files(self._config.files)
            return
        replica = open_server(self._config, self._config.servers[0], self._id_of("check"))
        try:
            yield from at_server(replica, self._config, history)
        finally:
            replica.close()

    def _in_files(self, pattern: Path) -> Iterator[TableSchema | Finding]:
        with TemporaryDirectory() as state:
            reading = MySqlSource(worth_reading(self._config, pattern), Path(state))
            try:
                for event in reading.follow(None):
                    if event.caught_up:
                        break
            except (SourceError, CorruptError) as error:
                yield Finding.of(error)
            yield from reading.tables()

    def follow(self, start: Mark | None) -> Iterator[Event]:
        """A fault takes with it what was gathered before it, so it is gone to once more, a transaction at a time; then it is told."""
        mark = start
        try:
            for event in self._follow(start, one_transaction=False):
                mark = event.mark or mark
                yield event
        except (SourceError, CorruptError):
            yield from self._follow(mark, one_transaction=True)

    def _follow(self, start: Mark | None, *, one_transaction: bool) -> Iterator[Event]:
        if self._config.files is not None:
            return self._follow_files(self._config.files, start, one_transaction=one_transaction)
        return self._follow_server(start, one_transaction=one_transaction)

    def check(self, newest: Mark | None) -> Iterator[Finding]:
        position = BinlogPosition.of(newest) if newest is not None else None
        self._history()
        if self._config.files is not None:
            files = BinlogFiles(self._config.files)
            files.check()
            if position is None:
                self._first_in(files, self._config.start)
            else:
                yield from _told(lambda: self._require_file(files, position))
            return
        known: dict[str, Address] = {}
        for server in self._config.servers:
            # Under an id of its own, so that a capture of the same source is not disturbed.
            replica = open_server(self._config, server, self._id_of("check"))
            try:
                yield from _same_identity(replica, known.setdefault(replica.server, replica.address))
                yield from self._check_server(replica, newest)
                if self._config.mask:
                    columns = [one for one in replica.columns() if self._config.captures(*one[:2])]
                    yield from _told(partial(check_masks, self._config, columns))
            finally:
                replica.close()
        if self._config.heartbeat_table is not None:
            yield from _told(Writer(self._config, lambda: connect(self._config)).check)

    def _check_server(self, replica: Replica, newest: Mark | None) -> Iterator[Finding]:
        config = self._config
        findings = list(check_server(replica, config, own_id(config), newest, time.time()))
        for finding in findings:
            yield replace(finding, message=f"{replica.address}: {finding.message}")
        if any(finding.stops for finding in findings):
            return
        if newest is None:
            yield from _told(lambda: self._first_of(replica, config.start))
        else:
            position = BinlogPosition.of(newest)
            yield from _told(lambda: require(replica, config, position, self._captured_tables()))

    def skip(self, newest: Mark, to: str) -> Mark:
        before = BinlogPosition.of(newest)
        try:
            start = parsed_start(to)
        except ValueError as error:
            raise ConfigError(f"'{to}' is no place to go on at: {error}", fix="correct --to") from error
        if isinstance(start, datetime):
            fix = "name earliest, latest, FILE:OFFSET or a set of GTIDs"
            raise ConfigError("capture cannot go on at a time", fix=fix)
        skip_to = self._skip_in_files if self._config.files is not None else self._skip_at_server
        there = replace(skip_to(before, start), behind_gap=True)
        return Mark(self._config.name, there.to_json(), there.id, newest.commit_ts_us)

    def confirm(self, mark: Mark) -> None:
        """A server keeps its binlog whoever has read it: nothing to do."""

    def close(self) -> None:
        if self._replica is not None:
            self._replica.close()
            self._replica = None
        if self._pulse is not None:
            self._pulse.stop()
            self._pulse = None

    # --- recorded files

    def _follow_files(self, pattern: Path, start: Mark | None, *, one_transaction: bool) -> Iterator[Event]:
        files = BinlogFiles(pattern)
        position = BinlogPosition.of(start) if start is not None else self._first_in(files, self._config.start)
        with self._numbers.losses():
            self._require_file(files, position)
        history = self._history()
        gatherer = self._gatherer(history, start, network=False)
        gatherer.go_to(position, files.head(position.file))
        gatherer.tell(returned(self._config, history, self._schemas.parent))
        while True:
            goes_on = gatherer.in_payload
            used = gatherer.feed(_NOTHING if goes_on else files.read(position), one_transaction=one_transaction)
            position = replace(position, offset=position.offset + used)
            if gatherer.is_full or (one_transaction and gatherer.has_whole_transactions):
                yield gatherer.event()
            if used or goes_on or files.has_more(position):
                continue
            following = files.after(position.file)
            if following is not None:
                gatherer.finish()
                yield gatherer.event()
                position = gatherer.position_in(following)
                gatherer.go_to(position)
            elif gatherer.is_whole:
                yield gatherer.event(caught_up=True)
                time.sleep(_WAIT_S)
            else:
                size_bytes = files.size_bytes(position.file)
                yield from self._up_to_the_cut(files, gatherer, position.file)
                position = gatherer.position_in(position.file)
                while files.size_bytes(position.file) == size_bytes and files.after(position.file) is None:
                    time.sleep(_WAIT_S)
                    yield gatherer.event(caught_up=True)

    def _first_in(self, files: BinlogFiles, start: Start) -> BinlogPosition:
        first = self._first_of(files, start)
        counted = files.counted(first)
        if counted.offset != first.offset and start != "latest":
            raise ConfigError(
                f"`start: {first}` is within an event",
                fix=f"name a place where a transaction begins; the event before it begins at {counted.offset}",
            )
        return counted

    def _require_file(self, files: BinlogFiles, position: BinlogPosition) -> None:
        if not files.has(position.file):
            why = "the file is not there (bring it back if it is still somewhere)"
            tables = self._captured_tables() or self._config.tables
            raise position_lost(self._config.files, self._config.name, position, why, tables)

    def _skip_in_files(self, before: BinlogPosition, start: Start) -> BinlogPosition:
        assert self._config.files is not None
        files = BinlogFiles(self._config.files)
        there = self._first_in(files, start)
        if there.order <= before.order:
            raise _nothing_to_skip(before, there)
        return there.behind(replace(before, server=""))

    def _up_to_the_cut(self, files: BinlogFiles, gatherer: Gatherer, file: str) -> Iterator[Event]:
        """The newest file ends within a transaction, as it does while it is written or when its copy is cut off.

        What was gathered mixes whole transactions with the unfinished one, so it is read again from the last mark, one
        transaction at a time; what is unfinished stays in the file.
        """
        head = files.head(file)
        position = gatherer.position_in(file)
        gatherer.go_to(position, head)
        while True:
            goes_on = gatherer.in_payload
            used = gatherer.feed(_NOTHING if goes_on else files.read(position), one_transaction=True)
            if not used and not goes_on and not files.has_more(position):
                break
            position = replace(position, offset=position.offset + used)
            if gatherer.is_whole or gatherer.is_full:
                yield gatherer.event()
        position = gatherer.position_in(file)
        gatherer.go_to(position, head)
        told = (
            f"{file} ends in the middle of a transaction that begins at {position.offset}: it is captured when its rest is there"
            " (if the file is a copy, copy it again)"
        )
        yield replace(gatherer.event(caught_up=True), notices=(told,))

    # --- a live server

    def _follow_server(self, start: Mark | None, *, one_transaction: bool) -> Iterator[Event]:
        reached = BinlogPosition.of(start) if start is not None else None
        self._numbers.begin(reached)
        with self._numbers.losses():
            replica = self._connect(reached)
        goal = replica.last_position()
        self._numbers.ends_at(goal)
        position = self._resumed(replica, start) if start is not None else self._first_of(replica, self._config.start)
        history = self._history()
        gatherer = self._gatherer(history, start, network=True)
        known_from = learn_from_server(replica.another, gatherer.definitions, self._config.reads, position)
        if start is None and self._config.start == "latest":
            position = known_from
        gatherer.go_to(position)
        gatherer.tell(returned(self._config, history, self._schemas.parent))
        shapes = ShapesNow(self._config, history, replica.another)
        notices = shapes.describe(replica.tables()) if self._config.load is not None else ()
        replica.start_dump(position)
        pulse = self._start_pulse(replica)
        floor = CommitFloor(start.commit_ts_us if start is not None else 0)
        speak_at = time.monotonic()
        while True:
            data = _NOTHING if gatherer.in_payload else replica.read(_WAIT_S)
            is_behind = len(data) >= _BACKLOG_BYTES and not one_transaction
            replica.consumed(gatherer.feed(data, one_transaction=one_transaction))
            now = time.monotonic()
            news = gatherer.has_whole_transactions or (pulse is not None and pulse.has_news())
            is_due = (news and not is_behind) or gatherer.is_full or now >= speak_at
            if gatherer.is_too_large or (is_due and gatherer.is_whole):
                speak_at = now + _SPEAK_S
                event = gatherer.event()
                if event.mark is not None:
                    notices += shapes.passed(event.mark, gatherer.take_touched())
                event = replace(event, changes=[*event.changes, *shapes.ends()], notices=event.notices + notices)
                rekeyed(self._config, event.changes, self._schemas.parent)
                yield _completed(floor.raised(event), goal, pulse, floor)
                notices = ()

    def loader(self, newest: Callable[[], Mark | None]) -> Loader | None:
        if self._config.files is not None:
            return None
        return MySqlLoader(self._config, self._schemas, newest)

    def recorded(self) -> tuple[list[Path], BinlogPosition, int | None]:
        """Of a source of recorded files: those from the configured start on, the start, and the time (µs since 1970 UTC) before which
        transactions are passed over."""
        assert self._config.files is not None
        files = BinlogFiles(self._config.files)
        first = self._first_in(files, self._config.start)
        return files.paths_from(first.file), first, self._not_before_us

    @property
    def _not_before_us(self) -> int | None:
        start = self._config.start
        return round(start.timestamp() * 1_000_000) if isinstance(start, datetime) else None

    def decode(self, reader: BinlogReader) -> Iterator[Decoded]:
        """What `reader` (in network mode) makes of the server's log, from the configured start to the end that it has now.

        Nothing is kept, and it asks under an id of its own, so that a capture of the same source is not disturbed. What was decoded
        before a fault is yielded first. Errors as in `follow`.
        """
        replica = self._connect(server_id=self._id_of("decode"))
        goal, position = replica.last_position(), self._first_of(replica, self._config.start)
        definitions = self._history().definitions
        learn_from_server(replica.another, definitions, self._config.captures, position)
        definer = Definer(reader, definitions)
        reader.start(position.file, position.offset, gtids=position.gtids, skip_until_us=self._not_before_us)
        definer.at(position.id)
        replica.start_dump(position)
        while not position.is_behind(goal):
            data = _NOTHING if reader.in_payload else replica.read(_WAIT_S)
            try:
                used = reader.feed(data, stop_at_ddl=True)
            except HeadraceError:
                yield reader.take()
                raise
            replica.consumed(used)
            decoded = reader.take()
            definer.take_in(decoded)
            yield decoded
            if decoded.boundary is not None:
                boundary = decoded.boundary
                position = replace(position, file=boundary.file, offset=boundary.offset, gtids=boundary.gtids)

    def _connect(self, position: BinlogPosition | None = None, *, server_id: int | None = None) -> Replica:
        self.close()
        tables = self._captured_tables()
        self._replica = connect(self._config, position=position, tables=tables, server_id=server_id)
        return self._replica

    def _id_of(self, verb: str) -> int:
        """An id for a connection that must not disturb a capture of the same source."""
        return default_server_id(f"{self._config.name} {verb} {os.getpid()}")

    def _captured_tables(self) -> list[str]:
        """Names of the tables that were seen."""
        seen = [(table.namespace.schema, table.namespace.table) for table in self._history().tables()]
        return sorted(".".join(name) for name in seen if self._config.captures(*name))

    def _skip_at_server(self, before: BinlogPosition, start: Start) -> BinlogPosition:
        replica = self._connect(server_id=self._id_of("skip"))
        before = replace(before, server=before.server or replica.server)
        there = self._first_of(replica, start)
        by_name, is_here = bool(replica.names_transactions and before.gtids), before.server == replica.server
        has_all = by_name and not replica.missing_of(before.gtids)
        if why_lost(replica, before) is None and (has_all or (is_here and not by_name)):
            if start == "earliest" or (is_here and there.order <= before.order):
                raise _nothing_to_skip(before, there)
        elif start == "earliest" and has_all:
            # What was captured before the gap must not come again.
            known = GtidSet(before.gtids) | GtidSet(replica.purged_behind(before.gtids))
            there = replace(there, gtids=str(known))
        return there.behind(before)

    def _start_pulse(self, replica: Replica) -> Pulse | None:
        heartbeat = self._config.heartbeat
        if heartbeat is None:
            return None
        writes = heartbeat.table is not None
        pulse = self._pulse = (
            Writer(self._config, replica.another, self._numbers.ends_at)
            if writes
            else Probe(replica.another, heartbeat.every, self._numbers.ends_at)
        )
        pulse.start()
        return pulse

    def _resumed(self, replica: Replica, mark: Mark) -> BinlogPosition:
        """Where the newest mark is on the server that answers."""
        position = BinlogPosition.of(mark)
        if position.server in ("", replica.server):
            return replace(position, server=replica.server)
        if not (replica.names_transactions and position.gtids):
            raise SourceError(
                f"another server answers: {replica.server} instead of {position.server}, where capture stopped at {position};"
                " without GTIDs that place cannot be found in its log",
                fix="bring the first server back, or let capture go on at this one"
                f" (`headrace skip FLOW.yaml --source {self._config.name}`) and load the tables again",
            )
        return position.on_another_server(replica.server, replica.first_position().file)

    # --- both

    def _gatherer(self, history: History, start: Mark | None, *, network: bool) -> Gatherer:
        config = self._config
        not_before = config.start if isinstance(config.start, datetime) else None
        reader = BinlogReader(
            config.read_patterns, network=network, names_required=True, before_images=self._before_images
        )
        if start is not None:
            history.forget_told(start.id)
            if (position := BinlogPosition.of(start)).behind_gap:
                history.definitions.forget_from(position.id)
        return Gatherer(
            config.name,
            reader,
            history,
            config.helped,
            start=start,
            not_before=not_before,
            heartbeat_table=config.heartbeat_table,
            before_images=self._before_images,
        )

    def _history(self) -> History:
        history = History.load(self._schemas, self._config.reads, self._config.helped)
        if self._config.dump is not None:
            learn_from_dump(self._config.dump, history.definitions)
        return history

    def _first_of(self, log: BinlogFiles | Replica, start: Start) -> BinlogPosition:
        last = log.last_position()
        if start == "latest":
            return last
        first = log.first_position()
        if isinstance(start, datetime):
            return log.position_before(start)
        if isinstance(start, StartBehind):
            if not isinstance(log, Replica):
                raise ConfigError("recorded files have no sets of GTIDs to start behind", fix="name FILE:OFFSET")
            _require_gtids(log, start.gtids)
            return replace(first, gtids=start.gtids)
        if not isinstance(start, BinlogPosition):
            return first
        if not first.order <= start.order <= last.order:
            raise ConfigError(
                f"`start: {start}` is not in the source's log, which goes from {first} to {last}",
                fix="name a position in between, or earliest or latest",
            )
        return replace(first, file=start.file, offset=start.offset)


def _require_gtids(replica: Replica, gtids: str) -> None:
    if replica.missing_of(gtids):
        raise ConfigError(
            f"`start: {gtids}` names transactions that the server does not have",
            fix="name a set that it has executed (MySQL: @@gtid_executed, MariaDB: @@gtid_binlog_pos), or earliest",
        )
    if purged := replica.purged_behind(gtids):
        raise ConfigError(
            f"behind `start: {gtids}` transactions are missing that {replica.address} has purged: {purged}",
            fix="name a set that has them too, or earliest",
        )


def _nothing_to_skip(before: BinlogPosition, there: BinlogPosition) -> ConfigError:
    return ConfigError(
        f"capture stopped at {before} and can go on from there; {there} is not behind it",
        fix="start the capture; or name a place behind it, such as latest (--to)",
    )


def _same_identity(replica: Replica, first: Address) -> Iterator[Finding]:
    """Servers of a group are told apart by their ids: places in the log of one mean nothing in that of another."""
    if replica.address != first:
        message = f"{first} and {replica.address} are one server, or two with the same identity ({replica.server})"
        fix = "give each server of the group an id of its own (MariaDB: server_id; MySQL: remove auto.cnf of the copied data)"
        yield Finding(message, fix, stops=True)


def _told(attempt: Callable[[], object]) -> Iterator[Finding]:
    """What an attempt ends with, as a finding."""
    try:
        attempt()
    except (ConfigError, SourceError, RetryableError) as error:
        yield Finding.of(error)


def _completed(event: Event, goal: BinlogPosition, pulse: Pulse | None, floor: CommitFloor) -> Event:
    """An event of a server with what its mark says: whether the goal is reached, and which heartbeats have arrived."""
    mark, notices = event.mark, event.notices + (pulse.notices() if pulse is not None else ())
    if mark is None:
        return replace(event, notices=notices)
    caught_up = BinlogPosition.of(mark).is_behind(goal)
    event = replace(event, caught_up=caught_up, notices=notices)
    if pulse is None:
        return event
    heartbeats = (*event.heartbeats, *pulse.arrived(mark))
    return floor.prove(replace(event, heartbeats=heartbeats), pulse.proven_us())
