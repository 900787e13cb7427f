"""The tide on real Spark: windows, joins and deduplication close by the watermark of a real server, and late rows are counted, not dropped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, session_window, window
from pyspark.sql.streaming.query import StreamingQuery

from headrace.codec.entries import EntryWriter
from headrace.lake.commit import Manifest
from headrace.lake.windows import windows_of
from headrace.log.base import entry_form
from headrace.log.directory import DirectoryLog
from headrace.sinks.lake import LakeConfig
from headrace.stream.late import LateRows
from headrace.stream.session import start_session
from headrace.stream.tide import Changes, Instants, Sessions, Until, Windows, tidal
from headrace.stream.tide_source import TideDataSource
from headrace.ums.change import ChangeBatch, Mark
from headrace.ums.schema import Column, Namespace, TableSchema
from headrace.watermark.client import StageClient, WatermarkClient
from headrace.watermark.embedded import EmbeddedServer
from tests.patience import wait_until

TABLE = TableSchema(
    Namespace("applog", "web", "logs", "said"),
    (Column("at", pa.timestamp("us", "UTC"), "timestamp"), Column("host", pa.utf8(), "text")),
    ("host", "at"),
)
START_US = 1_772_452_800_000_000  # 2026-03-02 12:00 UTC
HOPPING = Windows(60, 20)
SECOND_US, MINUTE_US = 1_000_000, 60_000_000
HOSTS = ("web1", "web2", "web3")
STAGES = [{"name": "web", "expected": {"names": list(HOSTS)}}, {"name": "said", "after": ["web"]}]
SCHEMA = ", ".join(
    [
        "_ums_id_ long, _ums_ts_ timestamp, _ums_op_ string, _ums_commit_ts_ timestamp, _ums_raw_ string",
        "at timestamp, host string",
    ]
)
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    session = start_session(3, tmp_path_factory.mktemp("spark"))
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.dataSource.register(TideDataSource)
    yield session
    session.stop()


@dataclass
class Hosts:
    """Hosts that write to a topic of the embedded log, each to a partition of its own, and say how far they are."""

    log: DirectoryLog
    stage: StageClient
    written: Counter[int] = field(default_factory=Counter)
    """Rows by window of a minute."""
    _ids: int = 0

    def write(self, host: str, *seconds: float) -> None:
        rows = []
        for second in seconds:
            self._ids += 1
            at_us = START_US + round(second * SECOND_US)
            rows.append(
                {
                    "_ums_id_": self._ids,
                    "_ums_ts_": at_us,
                    "_ums_op_": "i",
                    "_ums_commit_ts_": self._ids,
                    "_ums_raw_": None,
                    "at": at_us,
                    "host": host,
                }
            )
            self.written[at_us // MINUTE_US * MINUTE_US] += 1
        partition = HOSTS.index(host)
        batch = ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, schema=TABLE.arrow_schema()))
        writer = EntryWriter(entry_form(self.log, "web", partition), "applog")
        self.log.append(
            "web", partition, [*writer.changes(batch, 1000), writer.mark(Mark("web", {}, self._ids, 0), 1000)]
        )

    def passed(self, host: str, second: float) -> None:
        self.stage.passed({host: START_US + round(second * SECOND_US)})


@contextmanager
def hosts_at_work(directory: Path) -> Iterator[tuple[Hosts, dict[str, str]]]:
    """Hosts, and the options by which a query reads behind them."""
    log = DirectoryLog(DirectoryLog.Config(path=directory / "log"))
    with closing(log), closing(EmbeddedServer(f"sqlite:///{directory / 'watermarks.db'}", "secret")) as server:
        url = server.start("127.0.0.1", 0)
        client = WatermarkClient([url], "secret")
        client.register("tide", STAGES)
        options = {
            "path": str(directory / "log"),
            "topic": "web",
            "watermarks": url,
            "topology": "tide",
            "stage": "said",
            "token": "secret",
            "member": "query",
        }
        with closing(client.stage("tide", "web", report_every_s=0.05)) as stage:
            yield Hosts(log, stage), options
        client.close()


Rows = list[tuple[object, ...]]


class Query:
    """A query whose results and late rows are gathered, and which may be stopped and started again."""

    def __init__(self, directory: Path, of: Callable[[], DataFrame], until: Until, *spools: Path) -> None:
        self._directory, self._of = directory, of
        windows = {"length": "1m", "event_time": {"logs.said": "at"}}
        if until == HOPPING:
            windows = {"length": "20s", "event_time": {"logs.said": "window_start"}}
        lake = LakeConfig.model_validate({"type": "lake", "path": directory / "late", "windows": windows})
        self._late = [LateRows(lake, spool.name, TABLE, spool, until) for spool in spools]
        self._batches: dict[int, Rows] = {}
        self.amendments: list[tuple[int, int, int]] = []
        """Minute, number and rows, in the order in which they came."""
        self.late_rows: dict[int, int] = {}
        """By start of a window, as its newest amendment says."""

    def __enter__(self) -> Query:
        while True:
            try:
                writing = self._of().writeStream.foreachBatch(self._write)
                self._query: StreamingQuery = writing.option("checkpointLocation", str(self._directory / "at")).start()
            except Exception as error:
                assert_only_slow(error)
            else:
                return self

    def __exit__(self, *_: object) -> None:
        self._query.stop()

    def _write(self, batch: DataFrame, number: int) -> None:
        self._batches[number] = [tuple(row) for row in batch.collect()]
        made = [each for late in self._late for each in late.write(number)]
        found = [((each.start_us - START_US) // MINUTE_US, each.number, each.rows.rows) for each in made]
        self.amendments += found
        self.late_rows |= {each.start_us: each.rows.rows for each in made}

    def rows(self) -> Rows:
        return sorted(row for number in list(self._batches) for row in self._batches[number])

    def until(self, holds: Callable[[], bool]) -> None:
        wait_until(holds, self._goes_on, every_s=0.2)

    def _goes_on(self) -> None:
        if (error := self._query.exception()) is not None:
            assert_only_slow(error)
            self.__enter__()

    def until_rows(self, rows: Rows) -> None:
        self.until(lambda: self.rows() == rows)


def assert_only_slow(error: Exception) -> None:
    """Spark gives its Python processes ten seconds to begin, which a busy machine may not have; a query that is begun again goes on."""
    assert "failed to connect back" in str(error), error


def rows_of(spark: SparkSession, options: dict[str, str], spool: Path, until: Until) -> DataFrame:
    entries = spark.readStream.format("headrace-tide").options(**options).load()
    changes = Changes([TABLE.namespace.all_versions], TABLE.arrow_schema().names)
    return tidal(entries, changes, SCHEMA, event_time="at", until=until, spool=spool)


def test_windows_have_all_of_their_rows_whatever_is_ahead_idle_slow_or_restarted(
    spark: SparkSession, tmp_path: Path
) -> None:
    pick = Random()
    with hosts_at_work(tmp_path) as (hosts, options):

        def by_minute() -> DataFrame:
            rows_of(
                spark, options | {"maxEntriesPerTrigger": "8"}, tmp_path / "spool", Windows(60)
            ).createOrReplaceTempView("said")
            return spark.sql(
                "SELECT unix_micros(window.start), count(*) FROM said WHERE host <> 'nobody' GROUP BY window(at, '1 minute')"
            )

        query = Query(tmp_path, by_minute, Windows(60), tmp_path / "spool")
        web1_s = 0.0
        for _ in range(2):
            with query:
                for _ in range(12):
                    # The first is far ahead, the second slow, the third idle but for signs of life.
                    web1_s += 20
                    hosts.write("web1", *(web1_s + pick.random() * 20 for _ in range(3)))
                    hosts.passed("web1", web1_s)
                    hosts.write("web2", *(web1_s / 2 + pick.random() * 10 for _ in range(3)))
                    hosts.passed("web2", web1_s / 2)
                    hosts.passed("web3", web1_s)
                over_us = START_US + round(web1_s / 2 * SECOND_US)
                query.until_rows(
                    sorted((start, n) for start, n in hosts.written.items() if start + MINUTE_US < over_us)
                )
        assert not query.amendments
        assert max(hosts.written) > over_us
        with query:
            # No row comes any more, and time goes on.
            for host in HOSTS:
                hosts.passed(host, 10_000)
            query.until_rows(sorted(hosts.written.items()))
            # Behind the tide, though its host said that nothing would come.
            hosts.write("web2", 1, 2, 70)
            query.until(lambda: len(query.amendments) == 2)
            hosts.write("web2", 3, 20_000)
            query.until(lambda: len(query.amendments) == 3)
        assert query.amendments == [(0, 1, 2), (1, 1, 1), (0, 2, 3)]
    late = windows_of(Manifest.open(tmp_path / "late"), TABLE.namespace.all_versions)
    in_time = Counter({int(str(start)): int(str(n)) for start, n in query.rows()})
    still_open = Counter({(START_US + 20_000 * SECOND_US) // MINUTE_US * MINUTE_US: 1})
    assert in_time + Counter({each.start_us: each.rows.rows for each in late}) + still_open == hosts.written


def test_joins_and_deduplication_wait_for_the_slowest_host(spark: SparkSession, tmp_path: Path) -> None:
    with hosts_at_work(tmp_path) as (hosts, options):
        spools = tmp_path / "asked", tmp_path / "answered"

        def unanswered() -> DataFrame:
            left, right = (rows_of(spark, options, spool, Instants()) for spool in spools)
            once = left.where("host = 'web1'").dropDuplicatesWithinWatermark(["host", "at"])
            asked = once.selectExpr("at AS asked", "hour(at) AS hour")
            answered = right.where("host = 'web2'").selectExpr("at AS answered", "hour(at) AS of_hour")
            within = expr("hour = of_hour AND answered BETWEEN asked AND asked + INTERVAL 30 SECONDS")
            return asked.join(answered, within, "left_outer").selectExpr("unix_micros(asked)", "answered IS NULL")

        with Query(tmp_path, unanswered, Instants(), *spools) as query:
            hosts.write("web1", 10, 10, 500, 700)
            hosts.write("web2", 10.5)
            for host, passed_s in (("web1", 800), ("web3", 800), ("web2", 520)):
                hosts.passed(host, passed_s)
            query.until_rows([(START_US + 10 * SECOND_US, False)])
            hosts.passed("web2", 590)
            query.until_rows([(START_US + 10 * SECOND_US, False), (START_US + 500 * SECOND_US, True)])
        assert not query.amendments


def hopping_windows(seconds: list[float], over_s: float) -> Counter[int]:
    """Rows by start of the overlapping windows that are over, as a batch job counts them."""
    starts = [start for second in seconds for start in range(-60, 2000, 20) if start <= second < start + 60 < over_s]
    return Counter(START_US + start * SECOND_US for start in starts)


def test_overlapping_windows_and_sessions_have_each_row_in_time_or_late(spark: SparkSession, tmp_path: Path) -> None:
    with hosts_at_work(tmp_path) as (hosts, options):
        hops, gaps = tmp_path / "hops", tmp_path / "gaps"

        def hopping() -> DataFrame:
            rows = rows_of(spark, options, hops / "spool", HOPPING)
            return (
                rows.groupBy(window("at", "60 seconds", "20 seconds"))
                .count()
                .selectExpr("unix_micros(window.start)", "count")
            )

        def sessions() -> DataFrame:
            rows = rows_of(spark, options, gaps / "spool", Sessions(10))
            by_session = rows.groupBy("host", session_window("at", "10 seconds")).count()
            return by_session.selectExpr("host", "unix_seconds(session_window.start)", "count")

        def said(*sessions: tuple[str, int, int]) -> Rows:
            return sorted((host, START_US // SECOND_US + second, rows) for host, second, rows in sessions)

        with (
            Query(hops, hopping, HOPPING, hops / "spool") as by_window,
            Query(gaps, sessions, Sessions(10), gaps / "spool") as by_session,
        ):
            written = {"web1": [10, 15, 18, 100, 105], "web2": [50], "web3": [30, 101]}
            for host, seconds in written.items():
                hosts.write(host, *seconds)
                hosts.passed(host, 112)
            over = [("web1", 10, 3), ("web2", 50, 1), ("web3", 30, 1), ("web3", 101, 1)]
            by_session.until_rows(said(*over))
            by_window.until_rows(sorted(hopping_windows([each for of in written.values() for each in of], 112).items()))
            # 12 is late for everything, 70 for two of its windows; 101 for its session, which a later row keeps open.
            for host, late_s in (("web1", [12, 101]), ("web2", [70])):
                written[host] += late_s
                hosts.write(host, *late_s)
            by_session.until(lambda: sum(by_session.late_rows.values()) == 3)
            by_window.until(lambda: sum(by_window.late_rows.values()) == 5)
            for host in HOSTS:
                hosts.passed(host, 1000)
            by_session.until_rows(said(*over, ("web1", 100, 2)))
            whole = hopping_windows([each for of in written.values() for each in of], 1000)
            by_window.until(lambda: {start for start, _ in by_window.rows()} == set(whole))
    late = windows_of(Manifest.open(hops / "late"), TABLE.namespace.all_versions)
    in_time = Counter({int(str(start)): int(str(n)) for start, n in by_window.rows()})
    assert in_time + Counter({each.start_us: each.rows.rows for each in late}) == whole
