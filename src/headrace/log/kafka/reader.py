"""Reading committed records: a cursor goes on where it ended, and seeks only when it must."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter

from confluent_kafka import KafkaError, Message, TopicPartition

from headrace._native import records_of_messages
from headrace.errors import CorruptError, FatalError
from headrace.log.base import Entry, Record
from headrace.log.kafka.cluster import Cluster

_BATCH = 500
_NEAR = 64
"""A record at most so many offsets ahead is come to by skipping, not by seeking."""
_MOST_IDLE = 8
_PAUSE_S = 0.1
_OFFSET = itemgetter(0)
"""Of a record."""


class Cursor:
    """Reads one partition forwards, by a connection of its own that fetches ahead. Belongs to one reader at a time."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self.place = (topic, partition)
        self._cluster = cluster
        self._name = f"partition {partition} of topic {topic}"
        self._consumer = cluster.consumer()
        self._ahead: list[Message] = []
        self._end = -1
        self._next = -1

    def is_near(self, offset: int) -> bool:
        """Whether `offset` is reached without seeking."""
        reached = (self._ahead[-1].offset() or 0) if self._ahead else self._next
        return 0 <= self._next <= offset <= reached + _NEAR

    def records(self, start: int, stop: int) -> Iterator[Record]:
        """The entries from `start` to before `stop`, which must not be beyond the end of what can be read.

        May be left in the middle: what is still ahead then is skipped or read by the next call.
        """
        self._seek(start)
        whole = _Assembly(self._name)
        while self._next < stop or whole.is_begun:
            self._fetch_more()
            ahead, at = self._ahead, 0
            while at < len(ahead):
                plain = records_of_messages(ahead, at, Message, Record, Entry)
                first, last = (bisect_left(plain, offset, key=_OFFSET) for offset in (start, stop))
                yield from plain[first:last]
                if last < len(plain) and not whole.is_begun:
                    self._ahead, self._next = ahead[at + last :], stop
                    return
                at += len(plain)
                if at == len(ahead):
                    self._next = plain[-1].offset + 1
                    break
                offset = ahead[at].offset() or 0
                if offset >= stop and not whole.is_begun:
                    self._ahead, self._next = ahead[at:], stop
                    return
                self._next = offset + 1
                if offset >= start and (record := self._with_headers(ahead[at], whole)) is not None:
                    yield record
                at += 1
            self._ahead = []
            self._next = max(self._next, self._end)

    def _with_headers(self, message: Message, whole: _Assembly) -> Record | None:
        said = {name: value for name, value in dict(message.headers() or ()).items() if isinstance(value, bytes)}
        if "end" in said:
            self._next += 1  # the marker of the transaction
        return whole.add(message.offset() or 0, message, said)

    def wait(self, offset: int, timeout_s: float) -> bool:
        """Whether a record at or behind `offset` is there, after waiting at most so long."""
        self._seek(offset)
        give_up_at = time.monotonic() + timeout_s
        while not self._ahead:
            left_s = give_up_at - time.monotonic()
            self._fetch(max(0.0, left_s))
            self._ahead = [message for message in self._ahead if (message.offset() or 0) >= offset]
            if left_s <= 0:
                break
        return bool(self._ahead)

    def close(self) -> None:
        """Ends the connection."""
        self._consumer.close()

    def _seek(self, offset: int) -> None:
        if self.is_near(offset):
            self._ahead = [message for message in self._ahead if (message.offset() or 0) >= offset]
            return
        self._ahead = []
        self._end = -1
        self._next = offset
        self._consumer.assign([TopicPartition(*self.place, offset)])

    def _fetch_more(self) -> None:
        """Fetches until something has come: records, or the news that there are none up to the end."""
        give_up_at = time.monotonic() + self._cluster.config.timeout
        before = self._end
        while not self._ahead and self._end == before:
            self._fetch(_PAUSE_S)
            if time.monotonic() > give_up_at:
                raise self._cluster.failure(KafkaError(KafkaError._TIMED_OUT), f"read {self._name}")

    def _fetch(self, timeout_s: float) -> None:
        found = self._consumer.consume(_BATCH, 0)
        if not found:
            message = self._consumer.poll(timeout_s)
            found = [] if message is None else [message]
        records = [message for message in found if message.error() is None]
        self._ahead += records
        if len(records) == len(found):
            return
        for message in found:
            error = message.error()
            if error is None:
                continue
            if error.code() == KafkaError._PARTITION_EOF:
                self._end = message.offset() or 0  # records that came before it are in `_ahead`
            elif error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
                raise no_longer_kept(self._name, self._next)
            elif error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:  # we are in no group
                raise self._cluster.failure(error, f"read {self._name}")


class _Assembly:
    """Makes entries of records that have headers, and of several records when an entry was cut."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._parts: list[bytes] = []
        self._first = 0

    @property
    def is_begun(self) -> bool:
        """Whether parts of an entry are there whose rest is to come."""
        return bool(self._parts)

    def add(self, offset: int, message: Message, headers: dict[str, bytes]) -> Record | None:
        """The entry that is whole with this record; None when it is not, or when its first parts were not read."""
        value = message.value() or b""
        if "part" in headers:
            number, _, count = headers["part"].partition(b"/")
            if int(number) == 1:
                self._first, self._parts = offset, []
            elif not self._parts:
                return None
            elif int(number) != len(self._parts) + 1:
                raise CorruptError(
                    f"{self._name} lacks a part of the entry at offset {self._first}",
                    fix="another program has written to the topic, or deleted from it: load the tables anew",
                )
            self._parts.append(value)
            if int(number) < int(count):
                return None
            value, offset = b"".join(self._parts), self._first
            self._parts = []
        time_ms = int(headers["time"]) if "time" in headers else message.timestamp()[1]
        return Record(offset, Entry(message.key() or b"", value, time_ms))


class Cursors:
    """Cursors that are not in use, each where it ended."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._idle: list[Cursor] = []
        self._lock = threading.Lock()

    @contextmanager
    def at(self, topic: str, partition: int, offset: int) -> Iterator[Cursor]:
        """A cursor of the partition, best one that is near the offset; kept for the next reader unless it failed."""
        cursor = self._take((topic, partition), offset) or Cursor(self._cluster, topic, partition)
        try:
            yield cursor
        except Exception:
            cursor.close()
            raise
        except GeneratorExit:
            self._give(cursor)
            raise
        else:
            self._give(cursor)

    def close(self) -> None:
        """Ends all connections. Idempotent."""
        while self._idle:
            self._idle.pop().close()

    def _take(self, place: tuple[str, int], offset: int) -> Cursor | None:
        with self._lock:
            here = [cursor for cursor in self._idle if cursor.place == place]
            found = next((cursor for cursor in here if cursor.is_near(offset)), here[0] if here else None)
            if found is not None:
                self._idle.remove(found)
            return found

    def _give(self, cursor: Cursor) -> None:
        with self._lock:
            self._idle.append(cursor)
            surplus = self._idle[:-_MOST_IDLE]
            del self._idle[:-_MOST_IDLE]
        for oldest in surplus:
            oldest.close()


class NoLongerKeptError(FatalError):
    """Offsets are gone that somebody wants to read."""


def no_longer_kept(name: str, offset: int) -> NoLongerKeptError:
    """The error of a reader that was too slow for the topic's retention."""
    return NoLongerKeptError(
        f"offset {offset} of {name} is no longer kept",
        fix="keep more (retention of the topic), or start the reader from the oldest entry, or load the tables anew",
    )
