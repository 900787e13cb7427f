"""Heartbeats of a MySQL or MariaDB source: sent on connections of their own, seen where changes are seen.

::

    Probe    asks the server where its log ends ───────> capture has read up to there ──> a heartbeat of the source
    Writer   writes a row for each table into a table ─> the row comes back in the log ─> a heartbeat of that table

What one proves: all that the server had committed when it was sent is before it in the log. The time is taken before the server
is asked (or written to), and a server lets nobody see a commit that is not in its log yet. What it does not prove is said at the
head of ums/change.py. A writer at the primary, with a standby that is read, proves the way through replication as well.

A proof by position also moves the commit time of a quiet source: the server's own clock was T when it was asked, so all that comes behind that
position was committed at T or later, whatever its log says of it; capture gives it no earlier time (`proven_us`). A row of the heartbeat table
has a commit time of its own.

Crash story: nothing is kept. What was sent and not seen when capture ends is forgotten (Probe), or seen by the next run with its
old time (Writer); the first heartbeat of a run is sent at once.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import NamedTuple

import pyarrow as pa

from headrace.capture.connection import quoted
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.position import BinlogPosition
from headrace.capture.replica import Replica
from headrace.capture.servers import connect_to_write
from headrace.errors import HeadraceError, SourceError
from headrace.ums.change import Heartbeat, Mark
from headrace.ums.schema import ID, OP, Namespace

_MOST_WAITING = 10_000
Ends = Callable[[BinlogPosition], None]
"""Told where the log of the server that is captured ends, whenever it is asked."""
_KEY = ("source", "schema_name", "table_name")
_CREATE = (
    "CREATE TABLE {table} (source VARCHAR(100) NOT NULL, schema_name VARCHAR(64) NOT NULL, table_name VARCHAR(64) NOT NULL,"
    " sent_us BIGINT NOT NULL, sequence BIGINT NOT NULL, PRIMARY KEY (source, schema_name, table_name)) CHARACTER SET utf8mb4"
)
_WRITE = (
    "INSERT INTO {table} (source, schema_name, table_name, sent_us, sequence) VALUES (%s, %s, %s, %s, %s)"
    " ON DUPLICATE KEY UPDATE sent_us = VALUES(sent_us), sequence = sequence + 1"
)


class Pulse(ABC):
    """Sends at the period, in a thread of its own: capture waits for no answer, and a heartbeat for no capture."""

    def __init__(self, connect: Callable[[], Replica], every_s: float) -> None:
        self._connect = connect
        self._every_s = every_s
        self._over = threading.Event()
        self._problem = ""
        self._told = ""

    def start(self) -> None:
        threading.Thread(target=self._run, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """Nothing is sent any more; an attempt under way is not waited for."""
        self._over.set()

    def beat(self) -> None:
        """Sends now, on a connection made for it (servers close idle ones); raises what stands against it."""
        with closing(self._connect()) as server:
            self.send(server, time.time_ns() // 1000)

    @abstractmethod
    def send(self, server: Replica, now_us: int) -> None:
        """Asks or writes."""

    def has_news(self) -> bool:
        """Something was sent that may have arrived already."""
        return False

    def arrived(self, mark: Mark) -> list[Heartbeat]:
        """What was sent and is proven by the log's being complete up to `mark`."""
        return []

    def proven_us(self) -> int:
        """What comes behind the last mark that `arrived` was asked for was committed at this time or later, by the server's clock."""
        return 0

    def notices(self) -> tuple[str, ...]:
        """Why no heartbeat could be sent, each reason once; empty while all is well."""
        problem, told, self._told = self._problem, self._told, self._problem
        return (f"no heartbeat can be sent: {problem}",) if problem not in ("", told) else ()

    def _run(self) -> None:
        while not self._over.is_set():
            began = time.monotonic()
            try:
                self.beat()
                self._problem = ""
            except HeadraceError as error:
                self._problem = error.message
            except Exception as error:  # told like the others: a thread that has ended would tell nothing
                self._problem = f"{type(error).__name__}: {error}"
            self._over.wait(max(0.0, self._every_s - (time.monotonic() - began)))


class _Asked(NamedTuple):
    """A question: when it was sent by our clock, when by the server's, and where the log ended."""

    sent_us: int
    clock_us: int
    end: BinlogPosition


class Probe(Pulse):
    """The way that writes nothing."""

    def __init__(self, connect: Callable[[], Replica], every_s: float, ends_at: Ends = lambda end: None) -> None:
        super().__init__(connect, every_s)
        self._ends_at = ends_at
        self._waiting: deque[_Asked] = deque(maxlen=_MOST_WAITING)
        self._proven_us = 0

    def send(self, server: Replica, now_us: int) -> None:
        clock_us = server.clock_us()  # before the position, see above
        end = server.end_for_comparison()
        self._waiting.append(_Asked(now_us, clock_us, end))
        if not self._over.is_set():
            self._ends_at(end)

    def proven_us(self) -> int:
        return self._proven_us

    def has_news(self) -> bool:
        return bool(self._waiting)

    def arrived(self, mark: Mark) -> list[Heartbeat]:
        found = []
        position = BinlogPosition.of(mark)
        while self._waiting and position.is_behind(self._waiting[0].end):
            asked = self._waiting.popleft()
            self._proven_us = max(self._proven_us, asked.clock_us)
            found.append(Heartbeat(mark.source, None, mark.id, asked.sent_us))
        return found


class Writer(Pulse):
    """The way through a table: one row per captured table, and one for the source as a whole (no schema, no table)."""

    def __init__(self, config: MySqlConfig, read: Callable[[], Replica], ends_at: Ends = lambda end: None) -> None:
        """`read` connects to the server that is captured, which knows the tables: who writes may see no other than his own."""
        assert config.heartbeat is not None
        assert config.heartbeat_table is not None
        super().__init__(lambda: connect_to_write(config), config.heartbeat.every)
        self._config = config
        self._read = read
        self._ends_at = ends_at
        self._table = ".".join(map(quoted, config.heartbeat_table.split(".")))
        self._write = _WRITE.format(table=self._table.replace("%", "%%"))

    def send(self, server: Replica, now_us: int) -> None:
        with closing(self._read()) as reading:
            captured = [name for name in reading.tables() if self._config.captures(*name)]
            end = reading.end_for_comparison()
        if not self._over.is_set():
            self._ends_at(end)
        rows = [(self._config.name, *name, now_us, 1) for name in [("", ""), *captured]]
        server.write(self._write, rows)

    def check(self) -> None:
        """Writes once; SourceError that says how the table is made when that fails."""
        try:
            self.beat()
        except HeadraceError as error:
            grant = f"GRANT SELECT, INSERT, UPDATE ON {self._table} TO …"
            raise SourceError(
                f"no heartbeat can be written: {error.message}",
                fix=f"at a server that may be written to: {_CREATE.format(table=self._table)}; {grant}",
            ) from error


def written_heartbeats(
    source: str, rows: pa.RecordBatch, tables: Mapping[tuple[str, str], Namespace]
) -> list[Heartbeat]:
    """What a batch of the heartbeat table's changes brings; `tables` are the namespaces that are known, by schema and table."""
    names = [*_KEY, "sent_us", ID, OP]
    missing = {*names} - {*rows.schema.names}
    if missing:
        raise SourceError(
            f"the heartbeat table lacks the column {min(missing)}",
            fix="drop it, and create it as `headrace check` says",
        )
    found = []
    for row in rows.select(names).to_pylist():
        if row["source"] != source or row[OP] == "d":
            continue
        name = (row["schema_name"], row["table_name"])
        table = None if name == ("", "") else tables.get(name, Namespace("mysql", source, *name))
        found.append(Heartbeat(source, table, row[ID], row["sent_us"]))
    return found
