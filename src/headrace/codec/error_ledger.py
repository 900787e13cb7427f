"""The error ledger: rows that are not where they belong, and why. One form for rows that a mask fails on and rows that a target refuses.

A ledger is a topic of the log, beside the one that its rows come from or were for; each has one writer::

    db1                     changes of source db1
    db1.errors              rows that capture left out, because a mask failed on them          (capture/error_ledger.py)
    db1.errors.mart         rows that the target of flow mart refused, by partitions as in db1 (stream/refused.py)
    db1.errors.mart.done    of these, the ones that were delivered since                       (stream/replay.py)

An entry is one row (key: the table's namespace, value: JSON)::

    {"namespace": "mysql.db1.shop.customers.0.0.0", "id": 3000000001234, "reason": "ValueError", …, "row": a UMS message of that one row}

    id     the row's `_ums_id_`          row   docs/formats/ums.md          …   what the writer says besides

Crash story: a row's entry is durable before anything goes on without the row. A crash between the two enters the row again: the ledger
may hold a row twice and never lacks one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.codec.ums import Limits, UmsReader, UmsRows, UmsWriter
from headrace.codec.ums_schema import Dialect
from headrace.errors import CorruptError
from headrace.log.base import Entry, Log, Span
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import ID

_ERRORS = "errors"
_DONE = "done"
_ONE_ROW = Limits(rows=1, size_bytes=1 << 20)


@dataclass(frozen=True, slots=True)
class LedgerName:
    """What the name of a ledger's topic says. `flow` is empty where a mask failed."""

    beside: str
    flow: str = ""
    is_done: bool = False

    def __str__(self) -> str:
        return ".".join([self.beside, _ERRORS, *filter(None, [self.flow, _DONE if self.is_done else ""])])

    @property
    def source(self) -> str:
        return self.beside.partition(".")[0]

    @classmethod
    def of(cls, topic: str) -> LedgerName | None:
        """None when the topic is no ledger. Names of sources and flows have no dots."""
        beside, *rest = topic.split(f".{_ERRORS}", 1)
        if not rest or (rest[0] and not rest[0].startswith(".")):
            return None
        _, *parts = rest[0].split(".")
        return cls(beside, parts[0] if parts else "", parts[1:] == [_DONE])


def entries_of(rows: ChangeBatch, said: Mapping[str, object], now_ms: int) -> Iterator[Entry]:
    """An entry for each row; `said`: what is the same in all of them, `reason` for one."""
    ids: list[Any] = rows.data.column(ID).to_pylist()
    messages = UmsWriter(Dialect.HEADRACE, limits=_ONE_ROW).rows(rows)
    for id_, (_, message) in zip(ids, messages, strict=True):
        found = {"namespace": str(rows.table.namespace), "id": id_, **said, "row": json.loads(message)}
        yield Entry(rows.key(), json.dumps(found, ensure_ascii=False).encode(), now_ms)


def found_in(log: Log, topic: str) -> Iterator[dict[str, Any]]:
    """What the entries of a ledger, or of what is done of one, say."""
    for partition, span in sorted(log.spans(topic).items()):
        for record in log.read(topic, partition, Span(span.start, span.stop)):
            try:
                yield json.loads(record.entry.value)
            except ValueError as error:
                raise CorruptError(
                    f"the error ledger {topic} has something else at offset {record.offset} of partition {partition}: {error}",
                    fix="see what else writes to that topic; only headrace may",
                ) from error


def row_of(found: Mapping[str, Any]) -> ChangeBatch:
    """The row of an entry."""
    [read] = UmsReader().read([json.dumps(found["row"], ensure_ascii=False).encode()])
    assert isinstance(read, UmsRows)
    return read.batch
