"""From a topic into a table, each offset exactly once.

::

    first start --> a row of nothing says where (else `latest` would be later after a crash)
    take --> cut a range --> row in the store --> send under the range's label --> row says: loaded --(runs of 60)--> offsets to Kafka
                             (durable)            (delivery.py; up to `in_flight` at once, in any order)

    two phases:              row --> pre-commit --> row says: transaction n --> commit n --> row says: loaded

A start first settles the rows that do not say "loaded", then goes on behind the last row. The crash story, by what was left behind (the
tests kill at each of these, in one phase and in two):

=== =================================== =========================== ==============================================================
 #  crash                               left behind                 what the next start does
=== =================================== =========================== ==============================================================
 1  before the row is durable           nothing                     cuts a range anew
 2  row durable, nothing sent           label UNKNOWN               reads those offsets again, sends
 3  while the body is going             PREPARE, then ABORTED       sends; waits, or aborts by label, while it is PREPARE
 4  loader dead, its request not        PREPARE, VISIBLE later      waits until it has ended: loaded
 5  committed, the answer lost          COMMITTED, VISIBLE          loaded
 6  answer "Publish Timeout"            COMMITTED                   loaded; visible later
 7  some of several loads done          mixed                       sends the missing ones only
 8  pre-committed, row without number   PRECOMMITTED                sends: "already exists", and takes its number
 9  row has the number, no commit       PRECOMMITTED                commits by the number
10  between the commits of two          mixed                       the same; "already visible" is done
11  committed, row not "loaded"         VISIBLE                     the same
12  row has the number, an hour later   ABORTED by the server       takes the number out of the row, sends under the same label
13  longer than labels are remembered   UNKNOWN                     undecided: see below
14  the backend dies with the load      ABORTED                     sends to another one
15  another frontend becomes master     as before                   asks until it is answered
16  Kafka has removed the offsets       the row                     stops, and names them; `accept` (of a load) or `skip` go on
17  the table's columns have changed    the row                     sends by the columns of now: of all attempts under a label Doris
                                                                    takes one, so two of them are never mixed
18  the store was put back to older     labels that it has no row   stops when Doris remembers newer labels of this loader; a row that
                                        of                          is there again is settled by its label
=== =================================== =========================== ==============================================================

Undecided is a load whose label may have been forgotten (window.py). A table with a unique key and a sequence column takes it again;
else the audit column says whether it is there; else the loader stops, and an operator says so: `headrace doris accept` or `load`.
It never guesses. What an operator says counts once: a load that is sent by it begins anew, and may be undecided again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Protocol, TypeAlias
from uuid import uuid4

from headrace.crash import crash_point
from headrace.doris.config import LoaderConfig
from headrace.doris.cut import Cut, ordered
from headrace.doris.messages import Bodies, Body
from headrace.doris.partitions import make_ahead
from headrace.doris.ranges import Job, Offsets, Range
from headrace.doris.store import Lease, LoadRow, LoadStore
from headrace.doris.target import Target
from headrace.doris.window import Memory
from headrace.errors import ConfigError, DataError, FatalError, RetryableError
from headrace.log.kafka.tail import Taken
from headrace.sinks.doris.answers import LabelState, Second
from headrace.sinks.doris.cluster import Cluster, Load
from headrace.sinks.doris.delivery import Delivered, Delivery
from headrace.sinks.doris.sql import Sql, literal, quoted

_TAKE_S = 0.2
_ALIVE_S = 5.0
"""How often it says that it runs."""
_ATTEMPT_S = 60.0
"""So long a load is tried; then the loader begins again, and looks whether its label can have been forgotten."""


Flights: TypeAlias = "dict[Future[None], Target]"
"""Loads under way, and the tables that they were made for."""


class Source(Protocol):
    """Messages of topics, by their offsets."""

    def begin(self, offsets: Offsets, *, latest: bool) -> dict[str, int]:
        """Goes there; says where it is, of all partitions."""

    def grown(self) -> dict[str, int]:
        """Partitions that were added, with their first offsets."""

    def take(self, timeout_s: float) -> list[Taken]:
        """What is there, after waiting at most so long."""

    def again(self, range_: Range) -> list[Taken]:
        """Exactly the messages of a range; FatalError when they are not kept any more."""

    def commit(self, offsets: Offsets) -> None:
        """Tells those who look at lags."""


class _StoppedError(Exception):
    """It is to stop, and Doris is away: what is open is settled by the next start."""


class UndecidedError(FatalError):
    """A load may be in Doris or not, and nothing but a person can say."""


class Loader:
    """One loader, from `run` until it ends."""

    def __init__(
        self,
        config: LoaderConfig,
        store: LoadStore,
        source: Source,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = config
        self._store = store
        self._source = source
        self._clock = clock
        self._cluster = Cluster(config.doris)
        self._sql = Sql(config.doris, config.database)
        self._sleep = sleep
        self._stopped: Callable[[], bool] = lambda: False
        self._newest = 0
        """The newest transaction of the cluster that is known."""
        self._lease: Lease
        self._job: Job
        self._target: Target
        self._delivery: Delivery
        self._bodies: Bodies | None = None
        self._look_at = 0.0
        self._alive_at = 0.0

    def run(self, stopped: Callable[[], bool]) -> None:
        """Loads until it is to stop, and ends what is under way."""
        self._stopped = stopped
        try:
            self._open()
            self._repair()
            self._follow()
        except _StoppedError:
            return
        finally:
            self._sql.close()

    # --- start

    def _open(self) -> None:
        config = self._config
        self._lease = self._store.take(config.name)
        self._job = Job(config.name, self._lease.incarnation, config.database, config.table)
        self._delivery = Delivery(
            self._cluster,
            give_up_after_s=min(_ATTEMPT_S, config.give_up_after),
            sleep=self._pause,
            before_sending=lambda: self._store.check(self._lease),
        )
        self._refuse_other_table()
        self._look()
        self._newest = self._probe()
        self._refuse_older_store()

    def _look(self) -> None:
        """At the table as it is now; makes the partitions that are missing."""
        target = Target.of(self._sql, self._config.database, self._config.table)
        if self._bodies is None or target != self._target:
            self._target, self._bodies = target, Bodies(self._config, target)
        if self._config.partitions is not None:
            make_ahead(self._sql, self._config.partitions, target, self._clock())
        self._look_at = time.monotonic() + self._config.look_every

    def _probe(self) -> int:
        """Loads nothing, for the number that its transaction gets."""
        assert self._bodies is not None
        database, table = self._config.database, self._config.table
        while True:
            load = Load(database, table, f"{self._job.prefix}probe-{uuid4().hex}", self._bodies.headers_of_nothing, b"")
            if (number := self._delivery.deliver(load).transaction) is not None:
                return number

    def _refuse_other_table(self) -> None:
        """ConfigError when the loads of before were for another one: its labels and offsets say nothing of this one."""
        last = self._store.last(self._config.name)
        if last is not None and last.label != self._job.label(last.sequence, last.range):
            raise ConfigError(
                f"the loader '{self._config.name}' has loaded into another table so far than {self._config.database}.{self._config.table}",
                fix="put `database` and `table` back; or give the loader a new `name`: it begins anew then, by `start`",
            )

    def _refuse_older_store(self) -> None:
        """FatalError when Doris remembers loads of this loader that the store has never heard of."""
        last = self._store.last(self._config.name)
        newest = 0 if last is None else last.sequence
        of_ours = re.compile(rf"{re.escape(self._job.prefix)}(\d+)-[0-9a-f]{{20}}")
        database, pattern = quoted(self._config.database), literal(f"{self._job.prefix}%")
        for row in self._sql.run(f"SHOW TRANSACTION FROM {database} WHERE LABEL LIKE {pattern}"):
            label, state = str(row[1]), str(row[3])
            found = of_ours.fullmatch(label)
            if found is not None and int(found[1]) > newest and state != LabelState.ABORTED:
                raise FatalError(
                    f"Doris has the load {label}, and the store of loads ends before it: it is an older copy, or another one",
                    fix="put back the newest copy of the store; or empty the table and give the loader a new name, to load all again",
                )

    # --- what was left behind

    def _repair(self) -> None:
        rows = self._store.unloaded(self._config.name)
        memory = Memory.of(self._sql) if rows else Memory()
        for row in rows:
            crash_point("doris.repairing")
            self._tell_alive()
            self._settle(row, memory)
            crash_point("doris.repaired")
        self._commit_run()

    def _settle(self, row: LoadRow, memory: Memory) -> None:
        """Ends a load of before."""
        if row.verdict == "accept":
            self._store.loaded(self._lease, row.sequence, None, ())
            return
        if row.transaction is not None and (row := self._decided(row)).is_loaded:
            return
        state = self._delivery.state(self._load(row, b"", {}))
        if state in (LabelState.VISIBLE, LabelState.COMMITTED):
            self._store.loaded(self._lease, row.sequence, None, ())
            return
        age_s = self._clock() - row.begun_us / 1e6
        since = self._newest - row.transaction_before if row.transaction_before and self._newest else None
        if state is LabelState.UNKNOWN and not memory.covers(age_s, since) and self._is_there(row):
            self._store.loaded(self._lease, row.sequence, None, ())
            return
        if row.verdict == "load":
            self._store.begin_again(self._lease, self._row(row.sequence, row.range))
            crash_point("doris.begun_again")
        self._deliver(row, self._body(row, ordered(self._source.again(row.range))))

    def _decided(self, row: LoadRow) -> LoadRow:
        """A load whose transaction was to be committed: it is now, or is to be sent again."""
        assert row.transaction is not None
        said = self._delivery.commit(self._load(row, b"", {}), row.transaction)
        if said is Second.COMMITTED:
            self._store.loaded(self._lease, row.sequence, None, ())
            return replace(row, is_loaded=True)
        if said is Second.ABORTED:
            self._store.decide(self._lease, row.sequence, None)
            return replace(row, transaction=None)
        # Forgotten: the transaction has ended, one way or the other, and UNKNOWN does not say which, however young it is.
        return replace(row, transaction_before=0)

    def _is_there(self, row: LoadRow) -> bool:
        """Of a load whose label Doris may have forgotten; UndecidedError when nothing says."""
        if row.verdict == "load" or self._target.sequence.takes_repeats:
            return False
        if (column := self._config.audit_column) is not None:
            table = quoted(self._config.table)
            found = self._sql.run(f"SELECT 1 FROM {table} WHERE {quoted(column)} = {literal(row.label)} LIMIT 1")
            return bool(found)
        raise UndecidedError(
            f"Doris may have forgotten the load {row.sequence} of the loader '{self._config.name}' ({row.range}; label {row.label}),"
            " so nobody knows whether its rows are there",
            fix=f"look for them in {self._config.database}.{self._config.table}; then `headrace doris accept` (they are there)"
            f" or `headrace doris load` (they are not), each with the loader's file and {row.sequence}",
        )

    # --- going on

    def _follow(self) -> None:
        last = self._store.last(self._config.name)
        before = last.range.end if last else {}
        # Topics that were taken out of the file go on where they were when they come back.
        at = {**before, **self._source.begin(before, latest=self._config.kafka.start == "latest")}
        if last is None:
            self._store.pass_over(self._lease, self._row(0, Range(at, at)))
            crash_point("doris.begun")
        sequence = last.sequence if last else 0
        with ThreadPoolExecutor(max_workers=self._config.in_flight) as pool:
            flights: Flights = {}
            cut = Cut(self._config, at)
            try:
                while not self._stopped():
                    self._tell_alive()
                    cut.add(self._source.grown(), self._source.take(_TAKE_S))
                    while cut.is_due():
                        flights = self._land(flights, self._most_in_flight)
                        sequence += 1
                        range_, messages = cut.take()
                        row = self._row(sequence, range_)
                        self._store.begin(self._lease, row)
                        crash_point("doris.row_durable")
                        body = self._body(row, messages)
                        flights[pool.submit(self._deliver, row, body)] = self._target
                    flights = self._land(flights, 0, wait_s=0)
            finally:
                self._land(flights, 1)
        self._commit_run(least=1)

    def _deliver(self, row: LoadRow, body: Body) -> None:
        """Until the row says that it is loaded."""
        load = self._load(row, body.data, body.headers)
        while True:
            delivered = self._delivery.deliver(load)
            if delivered.is_committed or self._second(row, load, delivered):
                break
        crash_point("doris.before_loaded")
        self._newest = max(self._newest, delivered.transaction or 0)
        rows = body.rows if delivered.loaded is None else delivered.loaded
        self._store.loaded(self._lease, row.sequence, rows, (*body.bad, *delivered.refused))
        crash_point("doris.loaded")

    def _second(self, row: LoadRow, load: Load, delivered: Delivered) -> bool:
        """Commits what is pre-committed. False: the server has aborted it meanwhile."""
        assert delivered.transaction is not None
        self._store.decide(self._lease, row.sequence, delivered.transaction)
        crash_point("doris.decided")
        said = self._delivery.commit(load, delivered.transaction)
        crash_point("doris.committed")
        if said is Second.FORGOTTEN:
            raise FatalError(
                f"Doris does not know the transaction {delivered.transaction} any more (label {load.label}) that it has just pre-committed",
                fix="start again: the load is settled first",
            )
        if said is Second.ABORTED:
            self._store.decide(self._lease, row.sequence, None)
        return said is Second.COMMITTED

    # --- pieces

    @property
    def _most_in_flight(self) -> int:
        return 1 if self._target.sequence.wants_order else self._config.in_flight

    def _land(self, flights: Flights, most: int, wait_s: float | None = None) -> Flights:
        """Takes in flights that have ended, until there is room for one more below `most`; with `wait_s` 0 only those. Errors come out."""
        while flights and (wait_s == 0 or len(flights) >= most):
            self._tell_alive()
            done, _ = wait(flights, timeout=_ALIVE_S if wait_s is None else wait_s, return_when=FIRST_COMPLETED)
            for one in done:
                self._taken_in(one, flights[one])
            flights = {one: target for one, target in flights.items() if one not in done}
            if done:
                self._commit_run()
            elif wait_s == 0:
                break
        return flights

    def _pause(self, seconds: float) -> None:
        """Between two attempts."""
        if self._stopped():
            raise _StoppedError
        self._sleep(seconds)

    def _tell_alive(self) -> None:
        if time.monotonic() >= self._alive_at:
            self._store.alive(self._lease)
            self._alive_at = time.monotonic() + _ALIVE_S

    def _taken_in(self, flight: Future[None], target: Target) -> None:
        """Raises what it ended with. What Doris does not take for the table as it was may be right for the table as it is."""
        try:
            flight.result()
        except (ConfigError, DataError) as error:
            self._look()
            if self._target == target:
                raise
            raise RetryableError(
                f"{target.name} has changed: {error.message}", fix="nothing: the load is made for the new columns"
            ) from error

    def _row(self, sequence: int, range_: Range) -> LoadRow:
        label = self._job.label(sequence, range_)
        return LoadRow(sequence, label, range_, round(self._clock() * 1e6), self._newest)

    def _load(self, row: LoadRow, data: bytes, headers: Mapping[str, str]) -> Load:
        config = self._config
        return Load(config.database, config.table, row.label, headers, data, config.two_phase)

    def _body(self, row: LoadRow, messages: Sequence[Taken]) -> Body:
        if time.monotonic() >= self._look_at:
            self._look()
        assert self._bodies is not None
        try:
            return self._bodies.of(messages, row.label)
        except DataError as error:
            fix = f"{error.fix}; `headrace doris accept` with the loader's file and {row.sequence} leaves all of the load out"
            raise DataError(f"load {row.sequence} ({row.range}): {error.message}", fix=fix) from error

    def _commit_run(self, least: int = 0) -> None:
        """Tells Kafka of loads that follow one another, when they are enough."""
        last = self._store.run_of(self._config.name, least or self._config.commit_every)
        if last is not None:
            self._source.commit(last.range.end)
            self._store.committed(self._lease, last.sequence, self._config.keep)
