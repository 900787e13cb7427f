"""Scenarios of `headrace watermark simulate` through real Kafka, a real capture and real Spark: the tide beside Spark's own watermark.

    python -m bench.watermark_live [--hosts N] [--scenario S ...] [--step SECONDS]

The same generator makes the rows (`Script`). A producer writes the hosts' lines to a topic of three partitions, keyed by host; `headrace capture` takes them onto
its log on Kafka and tells a Watermark Server how far each host is; and in one Spark session three queries count the same log in windows of a minute: one closes
them by the tide, two by `withWatermark`. Hosts count, not volume (the article's way): volume is weighed only after a minute of the server's clock.

Only the clock is simulated, and all keep step with it: it goes on when what the hosts have sent is on the log, when the server says the watermark that follows
from it by the article's formula, and when each query has worked all of it out and emitted what is over. So figures do not depend on how fast the machine is,
and closing delays, in the generator's seconds, are whole steps. Another watermark than the formula's, or a row too many, ends the run with an error.

The generator knows what is in each window: the offline result. What a window lacks when it is emitted is its difference; what the lake of late
rows has is added then, window by window, and the sum must be the offline result exactly. Writes results/watermark_live.md.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import yaml
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.query import StreamingQuery
from tests.patience import wait_until
from tests.servers.kafka import STEADY, Kafka
from tests.servers.process import free_port

import headrace.spark
from bench.machine import write_results
from headrace.capture.lines.beat import BEAT, beat_line
from headrace.capture.lines.rules import HEAD
from headrace.capture.runner import resume_point
from headrace.errors import RetryableError
from headrace.lake.commit import Manifest
from headrace.lake.windows import windows_of
from headrace.log.kafka import KafkaLog
from headrace.sinks.lake import LakeConfig
from headrace.stream.late import LateRows
from headrace.stream.session import start_session
from headrace.stream.tide import Changes, Windows, tidal
from headrace.stream.tide_source import TideDataSource, as_watermark
from headrace.ums.schema import Column, Namespace, TableSchema
from headrace.watermark.client import WatermarkClient
from headrace.watermark.simulate import START_S, Traffic, traffic_of

FROM_S, UNTIL_S = 540, 815
"""Of which seconds the hosts' lines are sent, besides those that arrive between: a clock may be ahead."""
WINDOW_S = 60
WINDOWS = range(560, 740, WINDOW_S)
"""The windows that are looked at, by their starts in the generator's seconds; for Spark they begin at whole minutes since 1970."""
assert (START_S + WINDOWS.start) % WINDOW_S == 0
TOLERATED = 0.001
EVERY = 10
"""One row in so many is sent. Each host says every second that it lives."""
_FIRST = ("none_late", "few_late", "many_late", "bad_clock")
_PLAYED = (*_FIRST, "alike", "busiest_late", "lagging_partition")
"""Scenarios in which all hosts and the server are there all the time."""
_DELAYS_S = (10, 60)
_PARTITIONS = 3
_US = 1_000_000
_TOKEN, _STAGE = "of-this-run", "flow:counts"
TABLE = TableSchema(
    Namespace("kafka", "hosts", "logs", "said"), (*HEAD, Column("what", pa.utf8(), "text")), (HEAD[0].name,)
)
SCHEMA = ", ".join(
    [
        "_ums_id_ long, _ums_ts_ timestamp, _ums_op_ string, _ums_commit_ts_ timestamp, _ums_raw_ string",
        "id long, host string, time timestamp, path string, offset long, what string",
    ]
)
RULE = {
    "table": "said",
    "steps": [{"do": "extract", "regex": r"^(?P<at>\S+) (?P<what>said)$"}],
    "time": "at",
    "columns": {"what": "text"},
}


@dataclass
class Script:
    """What is sent when, and what follows from it."""

    traffic: Traffic
    names: list[str]
    lines: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """Host and line, by the second in which they arrive."""
    offline: Counter[int] = field(default_factory=Counter)
    """Rows by start of a window, as a batch job would count them."""
    newest_us: dict[int, int] = field(default_factory=dict)
    """The latest time that a row has which arrives in a second."""

    @classmethod
    def of(cls, scenario: str, hosts: int, seed: int) -> Script:
        traffic = traffic_of(scenario, hosts, seed)
        script = cls(traffic, [f"host{number:05}" for number in range(hosts)])
        rows = np.random.default_rng(seed).binomial(traffic.rows, 1 / EVERY)
        arrives_s = np.maximum(FROM_S, np.ceil(traffic.arrives_s)).astype(int)
        for number, name in enumerate(script.names):
            for second in range(FROM_S, rows.shape[1]):
                if second < UNTIL_S or arrives_s[number, second] < UNTIL_S:
                    script._say(name, second, int(rows[number, second]), int(arrives_s[number, second]))
        return script

    def _say(self, host: str, second: int, rows: int, arrives_s: int) -> None:
        start_us = (START_S + second) * _US
        times_us = [start_us + (2 * row + 1) * _US // (2 * rows) for row in range(rows)]
        lines = [*(beat_line(time_us).replace(BEAT, "said") for time_us in times_us), beat_line(start_us + _US)]
        self.lines.setdefault(arrives_s, []).extend((host, line) for line in lines)
        self.offline[(START_S + second) // WINDOW_S * WINDOW_S - START_S] += rows
        if rows:
            self.newest_us[arrives_s] = max(self.newest_us.get(arrives_s, 0), times_us[-1])

    def low_us(self, second: int) -> int | None:
        """The watermark then by the article's formula: how far the first host is that is not tolerated. None: it may not have been heard."""
        passed_s = (self.traffic.arrives_s <= second).sum(axis=1)
        late = int(TOLERATED * len(passed_s))
        low_s = int(np.partition(passed_s, late)[late])
        return (START_S + min(low_s, UNTIL_S)) * _US if low_s > FROM_S else None


class Sender:
    """The hosts."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._producer = Producer(kafka.client())
        self._topic = topic
        self.sent: Counter[str] = Counter()
        """Lines by partition, as positions of the capture name it."""

    def send(self, lines: list[tuple[str, str]]) -> None:
        for host, line in lines:
            self._producer.produce(self._topic, line.encode(), host.encode(), on_delivery=self._delivered)
            self._producer.poll(0)
        self._producer.flush()

    def _delivered(self, error: object, message: object) -> None:
        assert error is None, error
        self.sent[f"{self._topic}/{message.partition()}"] += 1  # type: ignore[attr-defined]


class Query:
    """A query that counts by windows, and what it has emitted: rows, and in which second, by the window's start."""

    def __init__(self, name: str, frame: Callable[[], DataFrame], at: Path, clock: Callable[[], int]) -> None:
        self.name, self._frame, self._at, self._clock = name, frame, at, clock
        self.late: LateRows | None = None
        self.rows: dict[int, int] = {}
        self.closed_s: dict[int, int] = {}
        self._query: StreamingQuery | None = None

    def _start(self) -> None:
        writing = self._frame().writeStream.foreachBatch(self._write)
        try:
            self._query = writing.option("checkpointLocation", str(self._at)).start()
        except Exception as error:
            _require_only_slow(error)

    def follows(self, ends: Mapping[str, int], watermark_us: int | None) -> None:
        """Waits until it has read up to there and has emitted what is over by a watermark. The first time it begins: one query after the other."""
        wait_until(lambda: self._is_at(ends, watermark_us), self._goes_on, every_s=0.1)

    def _is_at(self, ends: Mapping[str, int], watermark_us: int | None) -> bool:
        if self._query is None or (progress := self._query.lastProgress) is None:
            return False
        reached = json.loads(progress.sources[0].endOffset or "{}")
        behind = any(reached.get("log", reached).get(partition, 0) < end for partition, end in ends.items())
        by = datetime.fromisoformat(progress.eventTime["watermark"]).timestamp() if progress.eventTime else 0.0
        return not behind and (watermark_us is None or round(by * _US) >= watermark_us // 1000 * 1000)

    def _goes_on(self) -> str:
        if self._query is not None and (error := self._query.exception()) is not None:
            _require_only_slow(error)
            self._query = None
        if self._query is None:
            self._start()
        return f"{self.name}: {self._query and self._query.lastProgress}"

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def _write(self, batch: DataFrame, number: int) -> None:
        for start_s, rows in batch.collect():
            self.rows[start_s - START_S] = rows
            self.closed_s.setdefault(start_s - START_S, self._clock())
        if self.late is not None:
            self.late.write(number)


def _require_only_slow(error: Exception) -> None:
    """Spark gives its Python processes ten seconds to begin, which a busy machine may not have: a query is begun again where it was."""
    if "failed to connect back" not in str(error):
        raise error


@contextmanager
def captured(directory: Path, kafka: Kafka, topic: str, names: list[str]) -> Iterator[dict[str, str]]:
    """`headrace capture` at work; the options of a query that reads behind it."""
    port = free_port()
    source = {"type": "kafka", "name": "hosts", "brokers": kafka.brokers, "topics": [topic], "format": "line"}
    expected = {"expected": {"names": names}, "tolerate": TOLERATED, "by": "hosts", "grace": 0}
    content = {
        "source": source | {"rules": [RULE], "partitions": _PARTITIONS},
        "log": {"type": "kafka", "brokers": kafka.brokers, "prefix": f"{topic}-", "format": "block"},
        "state": "./state",
        "watermark": {"token": _TOKEN, "listen": f"127.0.0.1:{port}", "sources": {"hosts": expected}},
        "flows": [{"name": "counts", "from": "kafka.hosts.logs.said", "to": {"type": "lake", "path": "./lake"}}],
    }
    path = directory / "flow.yaml"
    path.write_text(yaml.safe_dump(content))
    with (directory / "capture.log").open("wb") as log:
        capture = subprocess.Popen([sys.executable, "-m", "headrace", "capture", str(path)], stdout=log, stderr=log)
    try:
        yield {
            "brokers": kafka.brokers,
            "prefix": f"{topic}-",
            "topic": "hosts",
            "watermarks": f"http://127.0.0.1:{port}",
            "topology": "run",
            "stage": _STAGE,
            "token": _TOKEN,
        }
    finally:
        capture.terminate()
        capture.wait()


def by_tide(spark: SparkSession, options: dict[str, str], spool: Path) -> DataFrame:
    entries = spark.readStream.format("headrace-tide").options(**options).load()
    opened = Changes([TABLE.namespace.all_versions], TABLE.arrow_schema().names)
    return counts(tidal(entries, opened, SCHEMA, event_time="time", until=Windows(WINDOW_S), spool=spool))


def by_delay(spark: SparkSession, options: dict[str, str], delay_s: int) -> DataFrame:
    of_log = {name: options[name] for name in ("brokers", "prefix", "topic")}
    entries = spark.readStream.format("headrace-log").options(**of_log).load()
    changes = Changes([TABLE.namespace.all_versions], ["time"])

    def opened(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from changes(batch)

    rows = entries.mapInArrow(opened, "time timestamp")
    return counts(rows.withWatermark("time", f"{delay_s} seconds"))


def counts(rows: DataFrame) -> DataFrame:
    by_window = rows.groupBy(window("time", f"{WINDOW_S} seconds")).count()
    return by_window.selectExpr("unix_seconds(window.start)", "count")


class Play:
    """A scenario, step by step."""

    def __init__(self, script: Script, sender: Sender, log: KafkaLog, waters: WatermarkClient) -> None:
        self._script, self._sender, self._log, self._waters = script, sender, log, waters
        self._newest_us = 0
        self.now_s = FROM_S - 1

    def go_on_to(self, second: int, tide: Query, own: Mapping[int, Query]) -> None:
        """All that arrives until then, and what follows from it. `own`: queries by their delay."""
        arriving = range(self.now_s + 1, second + 1)
        self._newest_us = max(self._newest_us, *(self._script.newest_us.get(each, 0) for each in arriving))
        self.now_s = second
        self._sender.send([line for each in arriving for line in self._script.lines.get(each, [])])
        wait_until(self._is_captured, lambda: f"captured: {resume_point(self._log, 'hosts')}", every_s=0.1)
        low_us = self._script.low_us(second)
        wait_until(lambda: self._is_told(low_us), lambda: f"wanted {low_us}", every_s=0.1)
        ends = self._ends()
        tide.follows(ends, None if low_us is None else as_watermark(low_us))
        for delay_s, query in own.items():
            query.follows(ends, self._newest_us - delay_s * _US)

    def _ends(self) -> dict[str, int]:
        """Where the capture's log ends now, by partition."""
        return {str(number): span.stop for number, span in self._log.spans("hosts").items()}

    def _is_captured(self) -> bool:
        try:
            mark = resume_point(self._log, "hosts")
        except RetryableError:  # a topic that was just made has no leader yet
            return False
        reached = {} if mark is None else mark.position["offsets"]
        return all(reached.get(partition) == lines for partition, lines in self._sender.sent.items())

    def _is_told(self, wanted_us: int | None) -> bool:
        try:
            told_us = self._waters.low("run", _STAGE).input_us
        except RetryableError:  # the capture is starting
            return False
        assert wanted_us is None or told_us <= wanted_us, f"{told_us} is ahead of what hosts have passed: {wanted_us}"
        return wanted_us is None or told_us == wanted_us


def amended(directory: Path) -> Counter[int]:
    """The late rows in their lake, by the start of their window."""
    if not (directory / "late").exists():
        return Counter()
    found = windows_of(Manifest.open(directory / "late"), TABLE.namespace.all_versions)
    return Counter({each.start_us // _US - START_S: each.rows.rows for each in found})


def queries(spark: SparkSession, options: dict[str, str], directory: Path, clock: Callable[[], int]) -> list[Query]:
    """That of the tide first, and those by each of the delays."""
    windows = {"length": f"{WINDOW_S}s", "event_time": {"logs.said": "time"}}
    lake = LakeConfig.model_validate({"type": "lake", "path": directory / "late", "windows": windows})
    spool = directory / "spool"
    tide = Query("the tide", partial(by_tide, spark, options, spool), directory / "tide", clock)
    tide.late = LateRows(lake, "counts", TABLE, spool, Windows(WINDOW_S))
    own = [
        Query(
            f"Spark, newest - {delay_s} s",
            partial(by_delay, spark, options, delay_s),
            directory / f"own{delay_s}",
            clock,
        )
        for delay_s in _DELAYS_S
    ]
    return [tide, *own]


def run(spark: SparkSession, kafka: Kafka, scenario: str, hosts: int, step_s: int) -> list[str]:
    """A line of the results for each query."""
    script, topic = Script.of(scenario, hosts, seed=1), f"live-{scenario.replace('_', '-')}"
    kafka.create_topic(topic)
    kafka.add_partitions(topic, _PARTITIONS)
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options = stack.enter_context(captured(directory, kafka, topic, script.names))
        of_log = {"brokers": kafka.brokers, "prefix": options["prefix"], "format": "block"}
        log = stack.enter_context(closing(KafkaLog(KafkaLog.Config.model_validate(of_log))))
        waters = stack.enter_context(closing(WatermarkClient([options["watermarks"]], _TOKEN)))
        play = Play(script, Sender(kafka, topic), log, waters)
        tide, *own = running = queries(spark, options, directory, lambda: play.now_s)
        for query in running:
            stack.callback(query.stop)
        for second in steps(script, step_s):
            print(f"{scenario}: {second} s", file=sys.stderr, flush=True)
            play.go_on_to(second, tide, dict(zip(_DELAYS_S, own, strict=True)))
        late = amended(directory)
        wrong = {start: (tide.rows.get(start), late[start], script.offline[start]) for start in WINDOWS}
        assert all((rows or 0) + more == offline for rows, more, offline in wrong.values()), wrong
        return [figures(scenario, query, script, late if query is tide else Counter()) for query in running]


def steps(script: Script, step_s: int) -> list[int]:
    """The ends of the steps in which something arrives."""
    return sorted({-(-second // step_s) * step_s for second in script.lines})


def figures(scenario: str, query: Query, script: Script, late: Counter[int]) -> str:
    total = sum(script.offline[start] for start in WINDOWS)
    lacking = total - sum(query.rows.get(start, 0) for start in WINDOWS)
    behind = f"{(lacking - sum(late[start] for start in WINDOWS)) / total:.1e}" if query.late else "no such thing"
    delays_s = [query.closed_s[start] - start - WINDOW_S for start in WINDOWS if start in query.closed_s]
    closed = f"{median(delays_s):.0f} | {max(delays_s)}" if len(delays_s) == len(WINDOWS) else "never | never"
    return f"| {scenario} | {query.name} | {lacking / total:.1e} | {closed} | {behind} |"


_HEAD = (
    "| scenario | windows closed by | lacking at closing | closed after p50 s | worst s | lacking after amendments |",
    "|---|---|---|---|---|---|",
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--scenario", action="append", choices=_PLAYED, help=f"{', '.join(_FIRST)} when left out")
    parser.add_argument("--step", type=int, default=20, help="the generator's seconds in a step")
    options = parser.parse_args()
    began_s = time.monotonic()
    rows = []
    with tempfile.TemporaryDirectory() as directory, Kafka(jvm=STEADY) as kafka:
        spark = start_session(4, Path(directory))
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        headrace.spark.register(spark)
        spark.dataSource.register(TideDataSource)
        for scenario in options.scenario or _FIRST:
            rows += run(spark, kafka, scenario, options.hosts, options.step)
            said = (
                f"{options.hosts:,} hosts, one in {EVERY} of their rows; windows of a minute; steps of {options.step} of the generator's seconds. "
                f"It took {time.monotonic() - began_s:.0f} s."
            )
            write_results("watermark_live", [said, "", *_HEAD, *rows])  # whatever becomes of the next one
        spark.stop()


if __name__ == "__main__":
    main()
