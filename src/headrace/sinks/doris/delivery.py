"""One load until it is settled: sent, asked for, waited for, sent again under the same label.

::

    send --> Success, Publish Timeout -----------------------------------------> loaded (two phases: pre-committed)
      |----> Label Already Exists: FINISHED -----------------------------------> loaded before
      |                            PRECOMMITTED -------------------------------> ours: by the number of its transaction
      |                            RUNNING ----> wait until it has ended, at last abort it by label -------> send
      |----> no answer ----> ask for the label: VISIBLE, COMMITTED ------------> loaded
      |                                         PREPARE ---> wait, as RUNNING
      |                                         PRECOMMITTED, ABORTED, UNKNOWN ----------------------------> send
      |----> Fail: something that passes ----> pause ------------------------------------------------------> send
      `----> Fail: rows or settings ------------------------------------------> DataError, ConfigError

Why nothing is loaded twice. Only "send" makes rows visible, always under one label, and Doris takes a label once while it remembers it: it
checks when a load begins, and a label is free again only after an abort, whose rows nobody sees. So whatever the answer was lost by, sending
again ends as FINISHED, or as a load that is the first. UNKNOWN means "never seen" as long as the first attempt is younger than the memory of
labels; an attempt that is older is not begun here but settled by other means (window.py says when).

An abort may lose against the commit of the load that it was to end; so it is never believed, the label is asked for again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.crash import crash_point
from headrace.errors import ConfigError, DataError, FatalError, RetryableError
from headrace.retry import Backoff
from headrace.sinks.doris.answers import Kind, LabelState, LoadAnswer, Second
from headrace.sinks.doris.cluster import Cluster, Load
from headrace.sinks.doris.http import NoAnswerError

_UNKNOWN_FAILURES = 5
_LOADED = (LabelState.VISIBLE, LabelState.COMMITTED)


@dataclass(frozen=True, slots=True)
class Delivered:
    """A load that is settled.

    Counts and the transaction are None where the answer that had them was lost.
    """

    is_committed: bool
    """Else it is pre-committed: nothing is visible until `commit`."""
    is_visible: bool = False
    """Whether queries see it already; what is committed comes to be seen a little later."""
    transaction: int | None = None
    loaded: int | None = None
    refused: tuple[str, ...] = ()
    """Why rows were filtered, where some may be."""


class Delivery:
    """Delivers loads, one at a time. Several of them may share a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        give_up_after_s: float,
        running_s: float = 660.0,
        sleep: Callable[[float], None] = time.sleep,
        before_sending: Callable[[], None] = lambda: None,
    ) -> None:
        """`running_s`: how long a load of before may run until it is aborted. `before_sending`: asked each time, stops it by an error."""
        self._cluster = cluster
        self._give_up_after_s = give_up_after_s
        self._running_s = running_s
        self._sleep = sleep
        self._before_sending = before_sending

    def deliver(self, load: Load) -> Delivered:
        """RetryableError when Doris is away for too long; DataError: rows are refused; ConfigError: tables or settings are wrong."""
        backoff, unknown_failures = Backoff(self._give_up_after_s), 0
        while True:
            self._before_sending()
            crash_point("doris.before_send")
            try:
                answer = self._cluster.load(load)
            except NoAnswerError as error:
                if error.sent and (state := self._ended(load, backoff)) in _LOADED:
                    return Delivered(is_committed=True, is_visible=state is LabelState.VISIBLE)
                self._sleep(backoff.failed(error))
                continue
            crash_point("doris.after_send")
            if settled := self._settled(load, answer):
                return settled
            if answer.kind is Kind.RUNNING:
                self._ended(load, backoff)
                continue
            unknown_failures += answer.kind is Kind.UNKNOWN_FAILURE
            if unknown_failures > _UNKNOWN_FAILURES:
                raise FatalError(
                    f"Doris does not take a load for {load.database}.{load.table} (label {load.label}): {answer.message}",
                    fix="see the log of the backend for the reason, then start again",
                )
            passing = RetryableError(
                f"Doris does not take a load for {load.database}.{load.table} now: {answer.message}",
                fix="see the log of its frontends and backends",
                retry_after_s=0.2,
            )
            self._sleep(backoff.failed(passing))

    def _settled(self, load: Load, answer: LoadAnswer) -> Delivered | None:
        if answer.kind in (Kind.LOADED, Kind.COMMITTED, Kind.PRECOMMITTED):
            return Delivered(
                is_committed=answer.kind is not Kind.PRECOMMITTED,
                is_visible=answer.kind is Kind.LOADED,
                transaction=answer.transaction,
                loaded=answer.loaded,
                refused=tuple(self._cluster.error_lines(answer.error_url)) if answer.error_url else (),
            )
        if answer.kind is Kind.FINISHED_BEFORE:
            return Delivered(is_committed=True)
        if answer.kind is Kind.PRECOMMITTED_BEFORE:
            return self._owned(load, answer)
        if answer.kind is Kind.REFUSED:
            lines = self._cluster.error_lines(answer.error_url) if answer.error_url else []
            told = "".join(f"\n    {line}" for line in lines[:10])
            raise DataError(
                f"Doris refuses {answer.filtered} of {answer.total} rows for {load.database}.{load.table} (label {load.label}):"
                f" {answer.message}{told}",
                fix="correct the rows or the columns of the table",
            )
        if answer.kind is Kind.WRONG:
            raise ConfigError(
                f"Doris refuses loads for {load.database}.{load.table}: {answer.message}",
                fix="correct the table, its columns or the user's grants",
            )
        return None

    def _owned(self, load: Load, answer: LoadAnswer) -> Delivered | None:
        """What an earlier attempt has pre-committed. Where there is one phase only now, it is aborted and sent again."""
        if load.two_phase and answer.transaction is not None:
            return Delivered(is_committed=False, transaction=answer.transaction)
        self._cluster.abort(load.database, load.label)
        return None

    def state(self, load: Load) -> LabelState:
        """What Doris says of the label, as soon as it says something."""
        return self._asked(load, Backoff(self._give_up_after_s))

    def commit(self, load: Load, transaction: int) -> Second:
        """Commits what was pre-committed, until it is known what has become of it: COMMITTED, ABORTED (by the server, which waits an hour
        for it), or FORGOTTEN."""
        backoff = Backoff(self._give_up_after_s)
        while True:
            self._before_sending()
            try:
                said = self._cluster.commit(load.database, transaction)
            except NoAnswerError as error:
                self._sleep(backoff.failed(error))
                continue
            if said is not Second.RUNNING:
                return said
            running = RetryableError(
                f"the transaction {transaction} (label {load.label}) is not pre-committed yet",
                fix="see the frontend's log",
            )
            self._sleep(backoff.failed(running))

    def wait_visible(self, load: Load) -> None:
        """Until queries see what was committed; RetryableError when that takes too long."""
        backoff = Backoff(self._give_up_after_s)
        while (state := self._asked(load, backoff)) is LabelState.COMMITTED:
            late = RetryableError(
                f"rows for {load.database}.{load.table} are committed and not visible (label {load.label})",
                fix="see the frontend's log: replicas may be missing",
            )
            self._sleep(backoff.failed(late))
        if state is not LabelState.VISIBLE:
            raise RetryableError(
                f"the load {load.label} was committed, and Doris says now: {state}", fix="see the frontend's log"
            )

    def _ended(self, load: Load, backoff: Backoff) -> LabelState:
        """The state of the load under the label when it does not run any more; it is aborted when it does not end."""
        waited_s, pause_s = 0.0, 0.05
        while (state := self._asked(load, backoff)) is LabelState.PREPARE:
            if waited_s >= self._running_s:
                self._cluster.abort(load.database, load.label)
                return self._asked(load, backoff)
            self._sleep(pause_s)
            waited_s, pause_s = waited_s + pause_s, min(5.0, pause_s * 1.5)
        return state

    def _asked(self, load: Load, backoff: Backoff) -> LabelState:
        while True:
            try:
                return self._cluster.state(load.database, load.label)
            except NoAnswerError as error:
                self._sleep(backoff.failed(error))
