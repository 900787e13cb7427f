"""Transactions and labels as a Doris frontend keeps them, by a clock that tests move.

::

    PREPARE ----------------> COMMITTED --(published)--> VISIBLE
       \\---> PRECOMMITTED ---^
        \\         \\---------------> ABORTED

What has ended is forgotten after `keep_s`, and beyond the newest `keep_loads` of its database; then its label is as if it never was. A
label whose transactions were all aborted may be used again.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

Apply = Callable[[], None]


class State(StrEnum):
    PREPARE = "PREPARE"
    PRECOMMITTED = "PRECOMMITTED"
    COMMITTED = "COMMITTED"
    VISIBLE = "VISIBLE"
    ABORTED = "ABORTED"


_ENDED = (State.VISIBLE, State.ABORTED)
_EXISTING = {
    State.PREPARE: "RUNNING",
    State.PRECOMMITTED: "PRECOMMITTED",
    State.COMMITTED: "FINISHED",
    State.VISIBLE: "FINISHED",
}


class Clock:
    """Seconds since 1970, where tests say how many."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Transaction:
    """`apply` makes its rows visible."""

    id: int
    database: str
    table: str
    label: str
    begun_at: float
    timeout_s: float
    state: State = State.PREPARE
    reason: str = ""
    apply: Apply = lambda: None
    visible_at: float = 0.0
    changed_at: float = 0.0


class LabelTakenError(Exception):
    """The label is in use; `existing` is what Doris says of it."""

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(f"Label [{transaction.label}] has already been used, relate to txn [{transaction.id}]")
        self.existing = _EXISTING[transaction.state]


class TransactionError(Exception):
    """What a frontend says to a commit or an abort that cannot be."""


@dataclass
class Limits:
    """The frontend's settings (their names in fe.conf stand in `sql.py`)."""

    keep_s: float = 43_200
    keep_loads: int = 2_000
    precommit_timeout_s: float = 3_600
    running: int = 1_000


@dataclass
class Transactions:
    """All of a cluster's. Every method is called with the lock held, or takes it."""

    clock: Clock
    limits: Limits = field(default_factory=Limits)
    lock: threading.RLock = field(default_factory=threading.RLock)
    all: dict[int, Transaction] = field(default_factory=dict)
    _labels: dict[tuple[str, str], list[Transaction]] = field(default_factory=lambda: defaultdict(list))
    _last: int = 1000
    _open: dict[int, Transaction] = field(default_factory=dict)
    _ended: dict[str, deque[Transaction]] = field(default_factory=lambda: defaultdict(deque))
    """By database, in the order in which they ended."""
    begun: list[Transaction] = field(default_factory=list)
    """Every one that ever began, for tests to look at: also what the frontend has forgotten."""

    def begin(self, database: str, table: str, label: str, timeout_s: float = 600.0) -> Transaction:
        with self.lock:
            self.tick()
            if blocking := [one for one in self._labels[database, label] if one.state is not State.ABORTED]:
                raise LabelTakenError(blocking[-1])
            running = [one for one in self._open.values() if one.database == database and one.state is State.PREPARE]
            if len(running) >= self.limits.running:
                limit = self.limits.running
                raise TransactionError(f"current running txns on db {database} is {limit}, larger than limit {limit}")
            self._last += 1
            made = Transaction(self._last, database, table, label, self.clock.now, timeout_s)
            made.changed_at = self.clock.now
            self.all[made.id] = self._open[made.id] = made
            self._labels[database, label].append(made)
            self.begun.append(made)
            return made

    def precommit(self, transaction: Transaction) -> None:
        with self.lock:
            self._must_run(transaction)
            self._move(transaction, State.PRECOMMITTED)

    def commit(self, transaction: Transaction, delay_s: float = 0.0) -> None:
        """From PREPARE; visible at once, or after a while of the clock."""
        with self.lock:
            self._must_run(transaction)
            self._publish(transaction, delay_s)

    def abort(self, transaction: Transaction, reason: str) -> None:
        """Nothing happens to one that has been committed, or aborted before."""
        with self.lock:
            if transaction.state in (State.PREPARE, State.PRECOMMITTED):
                transaction.reason = reason
                self._move(transaction, State.ABORTED)

    # --- the requests of two phases

    def commit_by_id(self, id_: int, delay_s: float = 0.0) -> str:
        with self.lock:
            self.tick()
            one = self.all.get(id_)
            if one is None:
                raise TransactionError(f"transaction [{id_}] not found")
            if one.state is State.ABORTED:
                raise TransactionError(f"transaction [{id_}] is already aborted. abort reason: {one.reason}")
            if one.state is State.PREPARE:
                raise TransactionError(f"transaction [{id_}] is prepare, not pre-committed.")
            if one.state is not State.PRECOMMITTED:
                raise TransactionError(f"transaction [{id_}] is already {one.state.lower()}, not pre-committed.")
            self._publish(one, delay_s)
            return f"transaction [{id_}] commit successfully."

    def abort_by_id(self, id_: int) -> str:
        with self.lock:
            self.tick()
            one = self.all.get(id_)
            if one is None:
                raise TransactionError(f"transaction [{id_}] not found")
            if one.state is State.ABORTED:
                raise TransactionError(f"transaction [{id_}] is already aborted, abort reason: {one.reason}")
            if one.state in (State.COMMITTED, State.VISIBLE):
                raise TransactionError(f"transaction [{id_}] is already {one.state}, could not abort.")
            self.abort(one, "User Abort")
            return f"transaction [{id_}] abort successfully."

    def by_label(self, database: str, label: str, operation: str, delay_s: float = 0.0) -> str:
        """Commits or aborts what is in a state for it, and knows nothing of what has been."""
        with self.lock:
            self.tick()
            wanted = (State.PRECOMMITTED,) if operation == "commit" else (State.PRECOMMITTED, State.PREPARE)
            known = self._labels.get((database, label), [])
            found = [one for one in known if one.state in wanted]
            if not found:
                raise TransactionError(f"{'running ' if known else ''}transaction not found, label={label}")
            if operation == "commit":
                self._publish(found[-1], delay_s)
            else:
                self.abort(found[-1], "User Abort")
            return f"label [{label}] {operation} successfully."

    def state(self, database: str, label: str) -> str:
        with self.lock:
            self.tick()
            known = self._labels.get((database, label), [])
            return str(known[-1].state) if known else "UNKNOWN"

    # --- time

    def tick(self) -> None:
        """Does what is due by the clock."""
        with self.lock:
            now = self.clock.now
            for one in list(self._open.values()):
                if one.state is State.COMMITTED and one.visible_at <= now:
                    self._show(one)
                elif (one.state is State.PRECOMMITTED and one.changed_at + self.limits.precommit_timeout_s < now) or (
                    one.state is State.PREPARE and one.begun_at + one.timeout_s < now
                ):
                    self.abort(one, "timeout by txn manager")
            self._forget(now)

    def _forget(self, now: float) -> None:
        for ended in self._ended.values():
            while ended and (len(ended) > self.limits.keep_loads or ended[0].changed_at + self.limits.keep_s < now):
                one = ended.popleft()
                del self.all[one.id]
                left = self._labels[one.database, one.label]
                left.remove(one)
                if not left:
                    del self._labels[one.database, one.label]

    def _must_run(self, transaction: Transaction) -> None:
        if transaction.state is not State.PREPARE:
            raise TransactionError(
                f"transaction [{transaction.id}] is already {transaction.state.lower()}. "
                f"abort reason: {transaction.reason}"
            )

    def _publish(self, transaction: Transaction, delay_s: float) -> None:
        self._move(transaction, State.COMMITTED)
        transaction.visible_at = self.clock.now + delay_s
        if not delay_s:
            self._show(transaction)

    def _show(self, transaction: Transaction) -> None:
        transaction.apply()
        self._move(transaction, State.VISIBLE)

    def _move(self, transaction: Transaction, state: State) -> None:
        transaction.state, transaction.changed_at = state, self.clock.now
        if state in _ENDED:
            del self._open[transaction.id]
            self._ended[transaction.database].append(transaction)
