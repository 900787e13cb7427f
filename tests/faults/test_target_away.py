"""A target that goes away and comes back: its flow waits where it is, another flow of the same stream goes on, and nothing is skipped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace import registry
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.log.base import Entry
from headrace.log.directory import DirectoryLog
from headrace.retry import Backoff
from headrace.sinks.base import Sink
from headrace.stream.deliver import Follower
from headrace.testing.sink import ORDERS, batch_of, order
from headrace.ums.change import MARK_KEY, Mark
from tests.patience import wait_until
from tests.servers.postgresql import PostgreSql


class Flow:
    """A flow in a thread of its own, as a delivering task runs it."""

    def __init__(self, log: DirectoryLog, over: Callable[[], bool], name: str, to: dict[str, Any]) -> None:
        spec = FlowSpec.model_validate({"name": name, "from": "mysql.db1", "to": to})

        def opened() -> Sink:
            sink: Sink = registry.load("sinks", spec.to.type)(spec.target(), name)
            return sink

        self.open = opened
        self.follower = Follower(opened, Shaper(spec), log, "db1", 0, start=None)
        self.errors: list[BaseException] = []

        def work() -> None:
            try:
                self.follower.run(over, lambda offset: False, Backoff(120))
            except BaseException as error:
                self.errors.append(error)

        self.thread = threading.Thread(target=work, daemon=True)
        self.thread.start()

    def rows(self) -> list[int]:
        with closing(self.open()) as sink:
            return sorted(key for batch in sink.scan(ORDERS) for key in batch.column("id").to_pylist())

    def has(self, newest: int) -> bool:
        position = self.follower.delivered.position
        return position is not None and position.id == newest

    def wait_for(self, condition: Callable[[], bool]) -> None:
        def fine() -> None:
            assert not self.errors, self.errors

        wait_until(condition, fine)


def append(log: DirectoryLog, first: int, behind: int) -> None:
    """Transactions of one row each."""
    for number in range(first, behind):
        batch, mark = batch_of(ORDERS, [order(number, number)]), Mark("db1", {}, number, number)
        log.append("db1", 0, [Entry(batch.key(), batch.to_block(), 0), Entry(MARK_KEY, mark.to_block(), 0)])


@pytest.mark.parametrize("how", ["stop", "kill9"])
def test_one_flow_waits_and_the_other_goes_on(how: str, tmp_path: Path) -> None:
    end = threading.Event()
    with (
        PostgreSql() as server,
        server.database() as database,
        closing(DirectoryLog(DirectoryLog.Config(type="directory", path=tmp_path / "log"))) as log,
    ):
        away = Flow(log, end.is_set, "away", {"type": "database", "url": server.url(database)})
        other = Flow(log, end.is_set, "other", {"type": "database", "url": f"sqlite:///{tmp_path}/mart.db"})
        try:
            append(log, 1, 20)
            for flow in (away, other):
                flow.wait_for(lambda flow=flow: flow.has(19))  # type: ignore[misc]
            getattr(server, how)()
            append(log, 20, 60)
            other.wait_for(lambda: other.has(59))
            away.wait_for(lambda: away.follower.delivered.retries > 1)
            assert away.has(19), "its position stays where it was"
            assert away.follower.delivered.problem
            server.start()
            away.wait_for(lambda: away.has(59))
            assert away.follower.delivered.problem == ""
            assert away.rows() == other.rows() == list(range(1, 60))
        finally:
            end.set()
            for flow in (away, other):
                flow.thread.join(60)
