"""The log of a real HBase while its regions split, merge, move and lose their server, and its table is dropped and made again: what was captured, what
was replicated, and what a Spark query has in its sink whose driver is killed meanwhile, is what scans find. A query on MySQL dies and goes on with it. On the
local file system a flow file brings the second table into a lake, a database and another HBase meanwhile.

`HEADRACE_HISTORIES` says how many rounds of writing and upheaval there are, `HEADRACE_KILLS` how often drivers are killed; with many, on the local file
system too.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.capture.hbase.client import HBaseWalClient, RowChange
from headrace.capture.hbase.source import HBaseSource
from headrace.capture.mask import Masker
from headrace.capture.mysql import MySqlSource
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.runner import Captured, run_capture
from headrace.codec.entries import EntryReader
from headrace.log.directory import DirectoryLog
from headrace.retry import Backoff
from headrace.sinks.base import Position
from headrace.sinks.hbase.replica import HBaseReplicaSink
from headrace.storage.options import HdfsOptions
from headrace.ums.change import ChangeBatch
from tests.faults.hbase_flow import HBaseFlow
from tests.faults.killed_queries import KilledQueries
from tests.flows.command import kill_group, wait_for
from tests.hbase_replay import QUICK, SMALL, Cells, assert_in_order, replayed, scanned
from tests.servers.hbase import HBase, RegionServer
from tests.servers.hbase_console import HBaseConsole
from tests.servers.hdfs import Hdfs
from tests.servers.mysql import MySql
from tests.servers.s3 import S3

ROUNDS = max(8, int(os.environ.get("HEADRACE_HISTORIES", "0")) // 100)
KILLS = min(20, int(os.environ.get("HEADRACE_KILLS", "1")))
MANY = 10
TABLE, COPY = "shop:orders", "copy:orders"
Rows = list[dict[str, Any]]
_PAUSE_S = 1.0
KEPT = {"hbase.master.logcleaner.ttl": str(24 * 3600 * 1000)}
"""Files of the log stay for the last reader, who begins when all others are through."""
UPHEAVALS = ("split", "move", "merge", "flush", "move", "roll")


class Place:
    """An HBase, and a log that its changes are captured into."""

    def __init__(self, directory: Path, server: HBase, config: dict[str, Any]) -> None:
        self.directory = directory
        self.server = server
        self.web: str | None = config.get("hdfs", {}).get("web")
        columns = {"n": {"cell": "b:count", "type": "long"}, "text": {"cell": "a:text"}}
        self.config = {"name": "crm", "tables": {TABLE: {"row": "text", "columns": columns}}} | config

    def capture(self) -> Captured:
        """All that the log of HBase has now, by a capture that begins where the one before stopped."""
        config = HBaseSource.Config.model_validate(self.config)
        log = DirectoryLog(DirectoryLog.Config(path=self.directory / "log"))
        try:
            return run_capture(
                HBaseSource(config, self.directory / "state"),
                log,
                "crm",
                Masker(config, None),
                source_type="hbase",
                over=lambda: False,
                until_idle=True,
                backoff=Backoff(5),
                progress=lambda _: None,
            )
        finally:
            log.close()

    def changes(self) -> list[ChangeBatch]:
        log, reader = DirectoryLog(DirectoryLog.Config(path=self.directory / "log")), EntryReader()
        entries = [reader.read(record.entry) for record in log.read("crm", 0, log.spans("crm")[0])]
        log.close()
        return [entry for entry in entries if isinstance(entry, ChangeBatch)]

    def rows(self) -> list[dict[str, Any]]:
        return [row for change in self.changes() for row in change.data.to_pylist()]

    @contextmanager
    def copied(self, since: datetime, dropped: set[str]) -> Iterator[Callable[[Rows, Callable[[], bool]], None]]:
        """What was written `since` goes into `COPY`, and by a flow file into a lake and a database where a query has no driver: what is yielded asserts
        that it has come, given all rows and whether a scan of `COPY` finds them."""
        if self.web is not None:

            def replicated(_rows: Rows, is_there: Callable[[], bool]) -> None:
                replicate(self, but_not=dropped)
                assert is_there()

            yield replicated
            return
        flow = HBaseFlow(self.directory / "flow", self.config, TABLE, self.server.url, since)
        with flow.at_work() as run:

            def arrived(rows: Rows, is_there: Callable[[], bool]) -> None:
                flow.assert_arrived(rows, run)
                wait_for(is_there, run, every_s=1)
                kill_group(run)
                flow.assert_certificates_hold(rows)

            yield arrived


@pytest.fixture(params=["local", "hdfs"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """On local files, one log per server; on HDFS with two per server, and all compression that there is."""
    with ExitStack() as stack:
        if request.param == "local":
            server = stack.enter_context(HBase(QUICK | KEPT))
            yield Place(tmp_path, server, {"root": str(server.data_path / "wal")})
            return
        hdfs: Hdfs = request.getfixturevalue("hdfs")
        root = hdfs.place()
        directories = {"hbase.rootdir": f"{root}/root", "hbase.wal.dir": f"{root}/wal"}
        server = stack.enter_context(HBase(QUICK | KEPT | SMALL | directories))
        yield Place(tmp_path, server, {"root": f"{root}/wal", "hdfs": {"web": hdfs.web}})


@dataclass
class History:
    """What is done to a table of an HBase."""

    console: HBaseConsole
    directory: Path
    rounds: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def round(self) -> None:
        number, upheaval = self.rounds, UPHEAVALS[self.rounds % len(UPHEAVALS)]
        self.console.ask("write", TABLE, number, 60)
        words = [upheaval] if upheaval == "roll" else [upheaval, TABLE, number]
        self.done[upheaval] += self.console.try_to(*words)
        self.rounds += 1

    def make_again(self) -> tuple[Cells, datetime]:
        """Drops the table and makes it anew; what was in it, and a time between the two."""
        found = self.scanned()
        self.console.ask("drop", TABLE)
        between = datetime.now(UTC)
        self.console.ask("create", TABLE)
        return found, between

    def scanned(self, table: str = TABLE) -> Cells:
        return scanned(self.console, table, self.directory / "scan")


class Shop:
    """A table of a MySQL, changed in transactions."""

    def __init__(self, server: MySql, database: str) -> None:
        self._server = server
        self._database = database
        self.options = {
            "host": server.host, "port": server.port, "user": server.user, "password": server.password,
            "tables": f"{database}.t",
        }  # fmt: skip
        server.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)", database=database)

    def transaction(self, number: int) -> None:
        values = ", ".join(f"({number * 20 + row}, {number})" for row in range(20))
        self._server.execute(
            "BEGIN",
            f"INSERT INTO t VALUES {values}",
            f"UPDATE t SET n = n + 1 WHERE id % 5 = {number % 5}",
            f"DELETE FROM t WHERE id % 7 = {number % 7}",
            "COMMIT",
            database=self._database,
        )

    def changes(self) -> list[int]:
        """The ids of all that was done to it, by a capture without Spark."""
        raw = self.options | {"type": "mysql", "name": "shop", "tables": [f"{self._database}.t"], "heartbeat": None}
        ids: list[int] = []
        with TemporaryDirectory() as state:
            source = MySqlSource(MySqlConfig.model_validate(raw), Path(state))
            for event in source.follow(None):
                batches = [change for change in event.changes if isinstance(change, ChangeBatch)]
                ids += [id_ for batch in batches for id_ in batch.data["_ums_id_"].to_pylist()]
                if event.caught_up:
                    break
            source.close()
        return ids

    def assert_is(self, rows: list[dict[str, Any]]) -> None:
        """Rows of changes, replayed, are the table."""
        table: dict[int, int] = {}
        for row in rows:
            table[row["id"]] = row["n"]
            if row["_ums_op_"] == "d":
                del table[row["id"]]
        assert sorted(table.items()) == self._server.execute("SELECT id, n FROM t ORDER BY id", database=self._database)


@pytest.fixture
def shop(mysql: MySql) -> Iterator[Shop]:
    with mysql.database() as database:
        yield Shop(mysql, database)


@pytest.fixture
def killed(request: pytest.FixtureRequest, place: Place, shop: Shop, tmp_path: Path) -> KilledQueries | None:
    """A query on each source; their own logs are on HDFS and S3, or on the disk."""
    work, paths = tmp_path / "killed", {"hbase": str(tmp_path / "hbase"), "mysql": str(tmp_path / "mysql")}
    more: dict[str, dict[str, str]] = {"hbase": {}, "mysql": {}}
    if place.web is not None:
        s3: S3 = request.getfixturevalue("s3")
        hdfs: Hdfs = request.getfixturevalue("hdfs")
        paths = {"hbase": hdfs.place(), "mysql": s3.place()}
        more["hbase"] = {"path.web": place.web, "hdfs.web": place.web}
        more["mysql"] = {f"path.{name}": value for name, value in s3.options().items()}
    elif KILLS < MANY:
        return None
    of_hbase = {"root": place.config["root"], "tables": TABLE, "row": "text", "maxRowsPerTrigger": "200"}
    queries = {
        "hbase": {"format": "headrace-hbase", "options": of_hbase},
        "mysql": {"format": "headrace-mysql", "options": shop.options | {"maxRowsPerTrigger": "50"}},
    }
    for name, query in queries.items():
        query["options"] = query["options"] | more[name] | {"path": paths[name]}
    return KilledQueries(work, queries, KILLS)


def test_what_was_captured_is_what_scans_find(
    place: Place, killed: KilledQueries | None, shop: Shop, tmp_path: Path
) -> None:
    chance = random.Random(1)
    with ExitStack() as stack:
        other = stack.enter_context(RegionServer(place.server))
        console = stack.enter_context(HBaseConsole(place.server))
        history = History(console, tmp_path)
        console.ask("create", TABLE)
        console.ask("create", COPY)
        stack.enter_context(killed or nullcontext())
        while history.rounds < ROUNDS or not (killed is None or killed.are_over):
            if history.rounds == ROUNDS // 2:
                place.capture()
                dropped = {row["region"] for row in place.rows()}
                before, since = history.make_again()
                copy = stack.enter_context(place.copied(since, dropped))
            history.round()
            shop.transaction(history.rounds)
            if history.rounds > ROUNDS:
                time.sleep(_PAUSE_S)  # a driver is starting: changes must come, but need not hold it up
            if chance.random() < 0.6:
                place.capture()
        other.kill9()
        place.capture()
        console.ask("write", TABLE, 1_000_000, 60)
        place.capture()
        expected, rows = history.scanned(), place.rows()
        if killed is not None:
            assert_histories(killed.rows("hbase", len(rows)), dropped, before, expected)
            changes = shop.changes()
            sunk = killed.rows("mysql", len(changes))
            assert [row["_ums_id_"] for row in sunk] == changes
            shop.assert_is(sunk)
        copy([row for row in rows if row["region"] not in dropped], lambda: history.scanned(COPY) == expected)
    assert {"split", "move", "flush", "roll"} <= {name for name, times in history.done.items() if times}, history.done
    assert_histories(rows, dropped, before, expected)
    assert_client_agrees(place, rows)


def assert_histories(rows: list[dict[str, Any]], dropped: set[str], before: Cells, expected: Cells) -> None:
    """Replayed, changes of the first table and of the second are what scans found; each is there once, and in its order."""
    first = [row for row in rows if row["region"] in dropped]
    again = [row for row in rows if row["region"] not in dropped]
    for some, scan in ((first, before), (again, expected)):
        assert replayed(some) == scan
        assert len(scan) > 100
        assert_in_order(some)
    assert min(row["sequence"] for row in again) < max(row["sequence"] for row in first)


def replicate(place: Place, *, but_not: set[str]) -> None:
    """All changes, but those of some regions, into another table, cell by cell; some twice, as after a crash."""
    config = {"type": "hbase-replica", "url": place.server.url, "table": "copy:{table}", "batch_rows": 50}
    with closing(HBaseReplicaSink(HBaseReplicaSink.Config.model_validate(config), "flow")) as sink:
        changes = [change for change in map(partial(without, but_not), place.changes()) if len(change)]
        for number, change in enumerate(changes):
            sink.prepare(change.table)
            for again in changes[max(0, number - 2) : number + 1]:
                sink.write(again)
            sink.commit(Position("crm", 0, number, 0, 0))


def without(regions: set[str], change: ChangeBatch) -> ChangeBatch:
    is_wanted = pc.invert(pc.is_in(change.data["region"], pa.array(sorted(regions))))
    return ChangeBatch(change.table, change.data.filter(is_wanted))


def assert_client_agrees(place: Place, rows: list[dict[str, Any]]) -> None:
    hdfs = HdfsOptions.model_validate(place.config.get("hdfs", {}))
    found: list[RowChange] = []
    client = HBaseWalClient(place.config["root"], tables=[TABLE], hdfs=hdfs)
    client.on_change(found.append)
    while client.poll():
        pass
    names = [(change.region, change.sequence, change.cell, change.row.decode()) for change in found]
    assert sorted(names) == sorted((row["region"], row["sequence"], row["cell"], row["row"]) for row in rows)
    assert sum(len(change.cells) for change in found) == sum(len(json.loads(row["cells"])) for row in rows)
