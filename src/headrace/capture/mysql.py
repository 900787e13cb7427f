"""MySQL and MariaDB: changes from the binlog, of a live server (as a replica) or from recorded files.

Whatever the bytes come from, the rest is one way (gather.py): decoder, schema history, events with their marks.

Crash story: the source keeps nothing but the schema history (history.py), which is never behind the log. Where it goes on is the
position of the newest mark on the log: the place in the server's files, and the transactions before it by name. A server that
names its transactions is asked by name, so another server of its group gives the same ones; else it is asked for the place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from headrace.capture.base import Event
from headrace.capture.binlog_files import BinlogFiles
from headrace.capture.definitions import Definer
from headrace.capture.dump import learn_from_dump
from headrace.capture.gather import Gatherer
from headrace.capture.history import History
from headrace.capture.mysql_config import MySqlConfig, StartBehind
from headrace.capture.position import BinlogPosition
from headrace.capture.replica import Address, Replica, default_server_id
from headrace.capture.server_definitions import learn_from_server
from headrace.codec.binlog import BinlogReader, Decoded, GtidSet
from headrace.errors import ConfigError, CorruptError, HeadraceError, RetryableError, SourceError
from headrace.ums.change import Mark
from headrace.ums.schema import TableSchema

_WAIT_S = 0.05
_HEARTBEAT_S = 1.0
_NOTHING = memoryview(b"")


class MySqlSource:
    """A `Source` over the binlog. `state` is the directory in which schema versions are kept."""

    Config = MySqlConfig

    def __init__(self, config: MySqlConfig, state: Path) -> None:
        self._config = config
        self._schemas = state / "schemas.json"
        self._replica: Replica | None = None

    def tables(self) -> Sequence[TableSchema]:
        return self._history().tables()

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

    def check(self) -> None:
        self._history()
        if self._config.files is not None:
            files = BinlogFiles(self._config.files)
            files.check()
            self._first_in(files)
            return
        try:
            for server in self._config.servers:
                self._first_of(self._connect_to(server))
        finally:
            self.close()

    def confirm(self, mark: Mark) -> None:
        """A server keeps its binlog whoever has read it: nothing to do."""

    def close(self) -> None:
        if self._replica is not None:
            self._replica.close()
            self._replica = None

    # --- recorded files

    def _follow_files(self, pattern: Path, start: Mark | None, *, one_transaction: bool) -> Iterator[Event]:
        files = BinlogFiles(pattern)
        position = BinlogPosition.of(start) if start is not None else self._first_in(files)
        gatherer = self._gatherer(start, network=False)
        gatherer.go_to(position, files.head(position.file))
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

    def _first_in(self, files: BinlogFiles) -> BinlogPosition:
        first = self._first_of(files)
        counted = files.counted(first)
        if counted.offset != first.offset and self._config.start != "latest":
            raise ConfigError(
                f"`start: {first}` is within an event",
                fix=f"name a place where a transaction begins; the event before it begins at {counted.offset}",
            )
        return counted

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
        replica = self._connect(BinlogPosition.of(start).gtids if start is not None else "")
        goal = replica.last_position()
        position = self._resumed(replica, start) if start is not None else self._first_of(replica)
        gatherer = self._gatherer(start, network=True)
        known_from = learn_from_server(replica.another, gatherer.definitions, self._config.captures, position)
        if start is None and self._config.start == "latest":
            position = known_from
        gatherer.go_to(position)
        replica.start_dump(position)
        speak_at = time.monotonic()
        while True:
            data = _NOTHING if gatherer.in_payload else replica.read(_WAIT_S)
            replica.consumed(gatherer.feed(data, one_transaction=one_transaction))
            now = time.monotonic()
            if gatherer.has_whole_transactions or gatherer.is_full or now >= speak_at:
                speak_at = now + _HEARTBEAT_S
                event = gatherer.event()
                yield replace(
                    event, caught_up=event.mark is not None and _is_behind(BinlogPosition.of(event.mark), goal)
                )

    def decode(self, reader: BinlogReader) -> Iterator[Decoded]:
        """What `reader` (in network mode) makes of the server's log, from the configured start to the end that it has now.

        Nothing is kept, and it asks under an id of its own, so that a capture of the same source is not disturbed. What was decoded
        before a fault is yielded first. Errors as in `follow`.
        """
        replica = self._connect(server_id=default_server_id(f"{self._config.name} decode {os.getpid()}"))
        goal, position = replica.last_position(), self._first_of(replica)
        definitions = self._history().definitions
        learn_from_server(replica.another, definitions, self._config.captures, position)
        definer = Definer(reader, definitions)
        start = self._config.start
        not_before_us = round(start.timestamp() * 1_000_000) if isinstance(start, datetime) else None
        reader.start(position.file, position.offset, gtids=position.gtids, skip_until_us=not_before_us)
        definer.at(position.id)
        replica.start_dump(position)
        while not _is_behind(position, goal):
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

    def _connect(self, gtids: str = "", server_id: int | None = None) -> Replica:
        """To the first of the servers that answers and has all of `gtids`; what the last one says when none does."""
        *others, last = self._config.servers
        for server in others:
            try:
                return self._connect_to(server, gtids, server_id)
            except (RetryableError, SourceError):
                continue
        return self._connect_to(last, gtids, server_id)

    def _connect_to(self, server: tuple[str, int], gtids: str = "", server_id: int | None = None) -> Replica:
        self.close()
        config = self._config
        assert config.user is not None
        server_id = server_id or config.server_id or default_server_id(config.name)
        address = Address(*server, config.user, config.password.get_secret_value(), server_id, config.tls)
        replica = self._replica = Replica(address)
        replica.connect()
        replica.check_settings()
        if gtids and replica.names_transactions:
            replica.must_have(gtids)
        return replica

    def _resumed(self, replica: Replica, mark: Mark) -> BinlogPosition:
        """Where the newest mark is on the server that answers."""
        position = BinlogPosition.of(mark)
        if position.server in ("", replica.server):
            return replace(position, server=replica.server)
        if not (replica.names_transactions and position.gtids):
            raise SourceError(
                f"another server answers: {replica.server} instead of {position.server}, where capture stopped at {position};"
                " without GTIDs that place cannot be found in its log",
                fix="bring the first server back, or capture this one under a new source name and load the tables again",
            )
        return position.on_another_server(replica.server, replica.first_position().file)

    # --- both

    def _gatherer(self, start: Mark | None, *, network: bool) -> Gatherer:
        config = self._config
        not_before = config.start if isinstance(config.start, datetime) else None
        reader = BinlogReader(config.tables, network=network, names_required=True)
        return Gatherer(config.name, reader, self._history(), start=start, not_before=not_before)

    def _history(self) -> History:
        history = History.load(self._schemas, self._config.captures)
        if self._config.dump is not None:
            learn_from_dump(self._config.dump, history.definitions)
        return history

    def _first_of(self, log: BinlogFiles | Replica) -> BinlogPosition:
        start, last = self._config.start, log.last_position()
        if start == "latest":
            return last
        first = log.first_position()
        if isinstance(start, datetime):
            return log.position_before(start)
        if isinstance(start, StartBehind):
            assert isinstance(log, Replica)
            try:
                log.must_have(start.gtids)
            except RetryableError as error:
                raise ConfigError(
                    f"`start: {start.gtids}` names transactions that the server does not have",
                    fix="name a set that it has executed (MySQL: @@gtid_executed, MariaDB: @@gtid_binlog_pos), or earliest",
                ) from error
            return replace(first, gtids=start.gtids)
        if not isinstance(start, BinlogPosition):
            return first
        if not first.order <= start.order <= last.order:
            raise ConfigError(
                f"`start: {start}` is not in the source's log, which goes from {first} to {last}",
                fix="name a position in between, or earliest or latest",
            )
        return replace(first, file=start.file, offset=start.offset)


def _is_behind(position: BinlogPosition, goal: BinlogPosition) -> bool:
    """By place or by name: a server that is asked by GTIDs does not send the last places of its log when nothing happened there."""
    if position.server == goal.server and position.order >= goal.order:
        return True
    return bool(goal.gtids and position.gtids) and GtidSet(goal.gtids) <= GtidSet(position.gtids)
