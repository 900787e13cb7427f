"""What sinks share whose fields never move: the side of the writer in the protocol of growing.py."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from headrace.errors import Finding
from headrace.sinks import growing
from headrace.sinks.base import Places, refused
from headrace.sinks.gathered import GatheringSink
from headrace.sinks.growing import Record, Records
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import Namespace, TableSchema


class GrowingSink(GatheringSink):
    """Writes rows by the record of their table that it knows, and again by each newer one."""

    def __init__(self, most_rows: int, tell_apart: str) -> None:
        """`tell_apart`: how a flow file gives tables places of their own."""
        super().__init__(most_rows)
        self._tell_apart = tell_apart
        self._places = Places(tell_apart)
        self._records: dict[Namespace, Record] = {}

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        places = Places(self._tell_apart)
        for table in tables:
            findings = list(refused(*self._checks(table, places)))
            yield from findings or self._rehearsed(table)

    @property
    @abstractmethod
    def _kept(self) -> Records:
        """Where the store keeps records."""

    @abstractmethod
    def _checks(self, table: TableSchema, places: Places) -> list[Callable[[], object]]:
        """What raises of a table without a look at the store."""

    @abstractmethod
    def _rehearse(self, table: TableSchema) -> None:
        """Raises what `prepare` would of what the store has, and leaves it as it is."""

    @abstractmethod
    def _settled(self, table: TableSchema) -> Record:
        """The record of a table when the store has all fields of the version (`growing.settled`)."""

    @abstractmethod
    def _put(self, batch: ChangeBatch, record: Record) -> None:
        """Writes rows by a record."""

    def _rehearsed(self, table: TableSchema) -> Iterator[Finding]:
        return refused(partial(self._rehearse, table))

    def _send(self, batch: ChangeBatch) -> None:
        table, record = batch.table, self._records[batch.table.namespace]
        growing.refuse_null_keys(batch)
        newest = batch.newest_per_key()
        self._put(record.not_cleared(newest), record)
        while self._kept.read(table).number != record.number:
            record = self._records[table.namespace] = self._settled(table)
            self._put(record.not_cleared(newest), record)
            self._put(record.overtaken(newest), record)
