"""The meta table of loaders, in SQLite, PostgreSQL or MySQL.

::

    headrace_doris_loaders   name, incarnation, epoch: who is the one that loads (each start takes the next); wanted: false when a person has
                             stopped it in the service; alive_us; rows_loaded, rows_refused: of all its loads
    headrace_doris_loads     loader, sequence, label, start_offsets, end_offsets (JSON, all partitions), begun_us, transaction_before,
                             doris_transaction (pre-committed: to be committed and nothing else), doris_loaded, kafka_committed,
                             verdict (of an operator; `skip`: Kafka had lost the offsets), rows_loaded, rows_refused
    headrace_doris_refused   loader, sequence, number, reason: rows that were not loaded, and were few enough to go on

The first row of a loader, number 0, is of no messages: it says where it began. A load's row is durable before anything of it is sent. `start_offsets` of a row are the `end_offsets` of the one before, so no offset is
between two rows. Rows are removed when they and all before them are loaded and committed to Kafka for `keep`; the newest one stays.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Integer,
    MetaData,
    Row,
    String,
    Table,
    Text,
    func,
    select,
)

from headrace.doris.ranges import Range
from headrace.errors import FencedError
from headrace.own_database import OwnDatabase

_meta = MetaData()
_loaders = Table(
    "headrace_doris_loaders",
    _meta,
    Column("name", String(100), primary_key=True),
    Column("incarnation", String(32), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("wanted", Boolean, nullable=False),
    Column("alive_us", BigInteger),
    Column("rows_loaded", BigInteger, nullable=False),
    Column("rows_refused", BigInteger, nullable=False),
)
_loads = Table(
    "headrace_doris_loads",
    _meta,
    Column("loader", String(100), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("label", String(128), nullable=False),
    Column("start_offsets", Text, nullable=False),
    Column("end_offsets", Text, nullable=False),
    Column("begun_us", BigInteger, nullable=False),
    Column("transaction_before", BigInteger, nullable=False),
    Column("doris_transaction", BigInteger),
    Column("doris_loaded", Boolean, nullable=False, default=False),
    Column("kafka_committed", Boolean, nullable=False, default=False),
    Column("verdict", String(10)),
    Column("rows_loaded", BigInteger),
    Column("rows_refused", BigInteger),
)
_refused = Table(
    "headrace_doris_refused",
    _meta,
    Column("loader", String(100), primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("reason", Text, nullable=False),
)


@dataclass(frozen=True, slots=True)
class Lease:
    """What a start has got: it is the one that loads as long as nobody takes the next epoch."""

    name: str
    incarnation: str
    epoch: int


@dataclass(frozen=True, slots=True)
class LoaderRow:
    """What is kept of a loader as a whole."""

    is_wanted: bool = True
    alive_us: int | None = None
    """When it last said that it runs."""
    rows_loaded: int = 0
    rows_refused: int = 0
    """Left out. Both lack the rows of loads whose answer was lost with the process."""


@dataclass(frozen=True, slots=True)
class LoadRow:
    """A row of the meta table."""

    sequence: int
    label: str
    range: Range
    begun_us: int
    transaction_before: int
    """The newest transaction of the cluster that was known before it was begun; 0: none."""
    transaction: int | None = None
    is_loaded: bool = False
    is_committed: bool = False
    """To Kafka, for those who look at lags."""
    verdict: str | None = None
    rows_loaded: int | None = None
    rows_refused: int | None = None


class LoadStore(OwnDatabase):
    """One database. Every method is a transaction. RetryableError when it cannot be reached."""

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        super().__init__(url, _meta, "store of loads")
        self._clock = clock

    # --- who loads

    def take(self, name: str) -> Lease:
        """Takes over a loader: whoever had it before is told at its next step."""
        with self._transaction() as connection:
            self._make(connection, name)
            mine = _loaders.c.name == name
            connection.execute(_loaders.update().where(mine).values(epoch=_loaders.c.epoch + 1))
            incarnation, epoch = connection.execute(select(_loaders.c.incarnation, _loaders.c.epoch).where(mine)).one()
            return Lease(name, incarnation, epoch)

    def alive(self, lease: Lease) -> None:
        """The loader runs. FencedError as `check`."""
        with self._transaction() as connection:
            self._must_have(connection, lease)
            now_us = round(self._clock() * 1e6)
            connection.execute(_loaders.update().where(_loaders.c.name == lease.name).values(alive_us=now_us))

    def want(self, name: str, *, is_wanted: bool) -> None:
        """What a person says: it is to run, or not to."""
        with self._transaction() as connection:
            self._make(connection, name)
            connection.execute(_loaders.update().where(_loaders.c.name == name).values(wanted=is_wanted))

    def loader(self, name: str) -> LoaderRow:
        """What is kept of a loader."""
        with self._transaction() as connection:
            found = connection.execute(select(_loaders).where(_loaders.c.name == name)).one_or_none()
            if found is None:
                return LoaderRow()
            return LoaderRow(found.wanted, found.alive_us, found.rows_loaded, found.rows_refused)

    def check(self, lease: Lease) -> None:
        """FencedError when another start has taken the loader over."""
        with self._transaction() as connection:
            self._must_have(connection, lease)

    # --- loads

    def pass_over(self, lease: Lease, row: LoadRow) -> None:
        """A row that nothing is loaded for: where a loader begins that has no load yet, or what it skips."""
        with self._transaction() as connection:
            self._must_have(connection, lease)
            connection.execute(_loads.insert().values(_values(lease, row) | {"doris_loaded": True}))

    def begin(self, lease: Lease, row: LoadRow) -> None:
        """Durable before anything is sent."""
        with self._transaction() as connection:
            self._must_have(connection, lease)
            connection.execute(_loads.insert().values(_values(lease, row)))

    def decide(self, lease: Lease, sequence: int, doris_transaction: int | None) -> None:
        """From now on the transaction is committed, and nothing else; or, with None, there is none any more."""
        with self._transaction() as connection:
            self._must_have(connection, lease)
            self._set(connection, lease.name, sequence, doris_transaction=doris_transaction)

    def begin_again(self, lease: Lease, row: LoadRow) -> None:
        """Before a load is sent that was said not to be there: the verdict was of what was sent before, and says nothing of what is sent now."""
        with self._transaction() as connection:
            self._must_have(connection, lease)
            begun = {"begun_us": row.begun_us, "transaction_before": row.transaction_before}
            self._set(connection, lease.name, row.sequence, verdict=None, doris_transaction=None, **begun)

    def loaded(self, lease: Lease, sequence: int, rows: int | None, refused: Sequence[str]) -> None:
        """The load is in Doris, with what was left out of it."""
        with self._transaction() as connection:
            self._must_have(connection, lease)
            self._set(connection, lease.name, sequence, doris_loaded=True, rows_loaded=rows, rows_refused=len(refused))
            more = {
                "rows_loaded": _loaders.c.rows_loaded + (rows or 0),
                "rows_refused": _loaders.c.rows_refused + len(refused),
            }
            connection.execute(_loaders.update().where(_loaders.c.name == lease.name).values(more))
            mine = (_refused.c.loader == lease.name, _refused.c.sequence == sequence)
            connection.execute(_refused.delete().where(*mine))
            if refused:
                connection.execute(
                    _refused.insert(),
                    [
                        {"loader": lease.name, "sequence": sequence, "number": n, "reason": reason}
                        for n, reason in enumerate(refused)
                    ],
                )

    def last(self, name: str) -> LoadRow | None:
        """The newest load."""
        found = self.rows(name, newest=1)
        return found[0] if found else None

    def unloaded(self, name: str) -> list[LoadRow]:
        """Loads that are not known to be in Doris, oldest first."""
        with self._transaction() as connection:
            wanted = (_loads.c.loader == name, _loads.c.doris_loaded.is_(False))
            return [_row(one) for one in connection.execute(select(_loads).where(*wanted).order_by(_loads.c.sequence))]

    def rows(self, name: str, newest: int) -> list[LoadRow]:
        """The newest loads, the newest first."""
        with self._transaction() as connection:
            of = select(_loads).where(_loads.c.loader == name).order_by(_loads.c.sequence.desc()).limit(newest)
            return [_row(one) for one in connection.execute(of)]

    def refused(self, name: str, newest: int) -> list[tuple[int, str]]:
        """Rows that were left out, the newest first: the sequence of their load, and why."""
        with self._transaction() as connection:
            of = select(_refused.c.sequence, _refused.c.reason).where(_refused.c.loader == name)
            newest_first = of.order_by(_refused.c.sequence.desc(), _refused.c.number).limit(newest)
            return [(sequence, reason) for sequence, reason in connection.execute(newest_first)]

    def judge(self, name: str, sequence: int, verdict: str) -> bool:
        """What an operator says of a load that nobody can decide: it is there (`accept`), or it is not (`load`). False: no such load."""
        with self._transaction() as connection:
            return self._set(connection, name, sequence, only=_loads.c.doris_loaded.is_(False), verdict=verdict)

    # --- Kafka

    def run_of(self, name: str, least: int) -> LoadRow | None:
        """The last of the loads that follow one another, are loaded and not committed to Kafka yet, when they are so many."""
        with self._transaction() as connection:
            wanted = (_loads.c.loader == name, _loads.c.kafka_committed.is_(False))
            run = []
            for one in connection.execute(select(_loads).where(*wanted).order_by(_loads.c.sequence)):
                if not one.doris_loaded:
                    break
                run.append(one)
            return _row(run[-1]) if run and len(run) >= least else None

    def committed(self, lease: Lease, sequence: int, keep_s: float) -> None:
        """All loads up to this one are committed to Kafka; those that were begun so long ago are forgotten, but never the newest."""
        with self._transaction() as connection:
            self._must_have(connection, lease)
            up_to = (_loads.c.loader == lease.name, _loads.c.sequence <= sequence)
            connection.execute(_loads.update().where(*up_to).values(kafka_committed=True))
            newest = connection.scalar(select(func.max(_loads.c.sequence)).where(_loads.c.loader == lease.name))
            before_us = round((self._clock() - keep_s) * 1e6)
            old = (*up_to, _loads.c.sequence < newest, _loads.c.begun_us < before_us)
            gone = connection.scalar(select(func.max(_loads.c.sequence)).where(*old))
            if gone is not None:
                connection.execute(_loads.delete().where(*old))
                of_gone = (_refused.c.loader == lease.name, _refused.c.sequence <= gone)
                connection.execute(_refused.delete().where(*of_gone))

    # --- private

    @staticmethod
    def _make(connection: Connection, name: str) -> None:
        if connection.scalar(select(_loaders.c.name).where(_loaders.c.name == name)) is None:
            counts = {"epoch": 0, "rows_loaded": 0, "rows_refused": 0}
            connection.execute(_loaders.insert().values(name=name, incarnation=uuid4().hex, wanted=True, **counts))

    def _must_have(self, connection: Connection, lease: Lease) -> None:
        epoch = connection.scalar(select(_loaders.c.epoch).where(_loaders.c.name == lease.name))
        if epoch != lease.epoch:
            raise FencedError(
                f"another process has taken over the loader '{lease.name}'", fix="let only one run; this one stops"
            )

    @staticmethod
    def _set(connection: Connection, name: str, sequence: int, only: object = True, **values: object) -> bool:
        of = _loads.update().where(_loads.c.loader == name, _loads.c.sequence == sequence)
        of = of if only is True else of.where(only)  # type: ignore[arg-type]
        return connection.execute(of.values(**values)).rowcount > 0


def _values(lease: Lease, row: LoadRow) -> dict[str, object]:
    return {
        "loader": lease.name,
        "sequence": row.sequence,
        "label": row.label,
        "start_offsets": json.dumps(dict(row.range.start)),
        "end_offsets": json.dumps(dict(row.range.end)),
        "begun_us": row.begun_us,
        "transaction_before": row.transaction_before,
        "verdict": row.verdict,
    }


def _row(found: Row[tuple[object, ...]]) -> LoadRow:
    return LoadRow(
        found.sequence,
        found.label,
        Range(json.loads(found.start_offsets), json.loads(found.end_offsets)),
        found.begun_us,
        found.transaction_before,
        found.doris_transaction,
        found.doris_loaded,
        found.kafka_committed,
        found.verdict,
        found.rows_loaded,
        found.rows_refused,
    )
