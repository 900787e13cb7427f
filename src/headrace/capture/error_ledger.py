"""Rows that could not be captured because a mask failed on them, masked everywhere else: into the error ledger of their topic.

The form and the crash story of ledgers are at the head of codec/error_ledger.py. A lane of a full load has a ledger of its own. An entry
says besides::

    column    where the mask failed: null in the row          mask    the pattern, ``shop.customers.phone``
    reason    the kind of the fault; its message is left out, because it may quote the value
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headrace.capture.mask import Failed, Masker
from headrace.codec import error_ledger
from headrace.codec.error_ledger import LedgerName
from headrace.log.base import Entry, Log
from headrace.ums.change import ChangeBatch, Clear, End

_PARTITION = 0


def masked_for(
    topic: str, changes: Sequence[ChangeBatch | Clear | End], masker: Masker, log: Log, now_ms: int
) -> tuple[list[ChangeBatch | Clear | End], list[Failed]]:
    """The changes as they may be appended to `topic`, and the rows that are not among them.

    On return those rows are in the ledger, and the record of masks is durable. Errors as in `Masker.mask`.
    """
    masked = [masker.mask(change) for change in changes]
    masker.save()
    failed = [failure for one in masked for failure in one.failed]
    if failed:
        log.append(str(LedgerName(topic)), _PARTITION, entries_of(failed, now_ms))
    return [one.change for one in masked if one.change is not None], failed


def entries_of(failures: Sequence[Failed], now_ms: int) -> list[Entry]:
    """An entry for every row."""
    return [
        entry
        for failure in failures
        for entry in error_ledger.entries_of(
            failure.rows, {"column": failure.column, "mask": failure.pattern, "reason": failure.reason}, now_ms
        )
    ]


def told(failure: Failed) -> str:
    """What a person must know of rows that are not on the log."""
    namespace, (low, high) = failure.rows.table.namespace, failure.rows.id_range
    return (
        f"mask `{failure.pattern}` failed ({failure.reason}) on {len(failure.rows)} rows of {namespace.schema}.{namespace.table}, ids {low} to"
        f" {high}: they are in the error ledger instead of the targets (`headrace errors ls`)"
    )


def counted(failures: Sequence[Failed]) -> Counter[str]:
    """How many rows per namespace."""
    rows: Counter[str] = Counter()
    for failure in failures:
        rows[str(failure.rows.table.namespace)] += len(failure.rows)
    return rows
