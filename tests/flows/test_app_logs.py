"""Application logs from end to end: topics that shippers fill, and files that rotate while they are written, read by captures that are killed."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from headrace.capture.topics import KafkaSource
from headrace.codec.entries import EntryReader
from headrace.errors import CorruptError
from headrace.lake.commit import Manifest
from headrace.log.kafka import KafkaLog
from headrace.ums.change import ChangeBatch, Mark
from tests.flows.command import headrace, kill_group, run_until_idle, running, sqlite_rows, wait_for
from tests.flows.test_foreign_topics import Place, produce
from tests.log_lines import micros
from tests.rotation import WrittenLog
from tests.servers.kafka import Kafka

SHIPPERS = Path(__file__).parents[1] / "golden" / "shippers"
KILLS = int(os.environ.get("HEADRACE_KILLS", "5"))
RULE = {
    "table": "app",
    "steps": [
        {"do": "extract", "regex": r"^(?P<at>\S+) (?P<level>[A-Z]+) (?P<what>\w+) (?P<rest>.*)$"},
        {"do": "extract", "field": "rest", "regex": r"item=(?P<item>\d+)"},
    ],
    "time": "at",
    "columns": {"level": "text", "what": "text", "item": "int"},
    "sample": "2026-03-02T12:00:00.100Z INFO cart added item=7",
}
FLOW = """\
source:
  type: applog
  name: web
  files: ./logs/{host}/app.log
  rules:
    - table: said
      steps:
        - {do: extract, regex: '^(?P<at>\\S+) (?P<who>\\S+) (?P<number>\\d+) '}
      time: at
      columns: {who: text, number: int}
log: {type: directory, path: ./log}
state: ./state
epoch: 1500ms
flows:
  - {name: raw, from: "applog.web.logs.*", to: {type: lake, path: ./lake, commit_interval: 0.2}}
  - {name: lite, from: "applog.web.logs.said", to: {type: database, url: "sqlite:///./mart.db"}}
"""


@pytest.fixture
def topic(kafka: Kafka) -> Iterator[str]:
    with kafka.prefix() as prefix:
        name = f"{prefix}logs"
        kafka.create_topic(name)
        yield name


def messages(form: str) -> list[bytes]:
    return (SHIPPERS / f"{form}.jsonl").read_bytes().splitlines()


@pytest.mark.parametrize("form", ["filebeat", "vector", "fluentbit", "logstash"])
def test_a_topic_of_a_shipper(tmp_path: Path, kafka: Kafka, topic: str, form: str) -> None:
    sample = messages(form)[0].decode()
    place = Place(tmp_path, kafka, topic, format=form, rules=[RULE | {"sample": [sample, RULE["sample"]]}])
    first, *others = messages(form)
    produce(kafka, topic, first)
    assert list(place.source().check(None)) == []
    place.capture()
    produce(kafka, topic, *others)
    place.capture()
    rows = place.rows()
    assert [(row["level"], row["what"], row["item"]) for row in rows] == [
        ("INFO", "cart", 7),
        ("WARN", "cart", 8),
        ("INFO", "pay", 9),
    ]
    assert [row["_ums_id_"] for row in rows] == sorted({row["_ums_id_"] for row in rows})
    assert [row["time"].microsecond for row in rows] == [100_000, 200_000, 300_000]
    hosts: dict[str, int] = {}
    for mark in (change for change in place.changes() if isinstance(change, Mark)):
        for host, newest_us in mark.position.get("hosts", {}).items():
            hosts[host] = max(newest_us, hosts.get(host, 0))
    assert set(hosts) == {row["host"] for row in rows}
    assert max(hosts.values()) == micros("2026-03-02 12:00:00.3")
    [table] = place.source().tables()
    assert str(table.namespace) == "kafka.up1.logs.app.0.0.0"


def test_lines_keyed_by_host_and_lines_that_no_rule_fits(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    place = Place(tmp_path, kafka, topic, format="line", rules=[RULE])
    produce(kafka, topic, b"2026-03-02T12:00:00.1Z INFO cart added item=7", b"  at java.lang.Thread", key=b"web1")
    place.capture()
    known, unknown = place.rows()
    assert (known["host"], known["item"]) == ("web1", 7)
    assert (unknown["line"], unknown["reason"], unknown["host"]) == ("  at java.lang.Thread", "no rule fits", "web1")


def test_a_message_that_is_none_stops_or_is_left_out(tmp_path: Path, kafka: Kafka, topic: str) -> None:
    place = Place(tmp_path, kafka, topic, format="vector", rules=[RULE])
    produce(kafka, topic, *messages("vector")[:1], b"hello", *messages("vector")[1:])
    with pytest.raises(CorruptError, match=rf"offset 1 of {topic}/0 is not a message of vector: it is no JSON"):
        place.capture()
    place.config["bad_messages"] = "skip"
    [notice] = place.capture().notices
    assert notice.endswith("it was left out")
    assert len(place.rows()) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "vector"}, "needs `rules`"),
        ({"format": "maxwell", "rules": [RULE]}, "has no lines"),
        ({"format": "line", "rules": [RULE], "tables": ["logs.app"]}, "leave `tables` out"),
    ],
)
def test_rules_belong_to_lines(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KafkaSource.Config.model_validate({"name": "up", "brokers": "h:1", "topics": ["t"], **options})


def test_rules_are_tried_without_a_capture(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW.replace("columns:", "sample: 'no time here'\n      columns:"))
    log = WrittenLog(tmp_path / "logs" / "web1" / "app.log", "web1")
    log.write(2)
    log.close()
    wrong = headrace("check", flow)
    assert wrong.code == 2
    assert "the sample 'no time here' of rule 1 (table said) fits no rule" in wrong.out
    shown = headrace("decode", "applog", "--rules", flow, log.path)
    assert shown.code == 0, shown.err
    assert '"host": "web1"' in shown.out
    assert "2 lines, 0 of them for _unmatched_" in shown.err
    assert '"reason": "no rule fits"' in headrace("decode", "applog", "--rules", flow).out


def hosts_on(log: KafkaLog) -> dict[str, dict[int, list[int]]]:
    """By host and partition the numbers of its lines, in the order of the log."""
    found: dict[str, dict[int, list[int]]] = {}
    for partition, span in log.spans("web").items():
        reader = EntryReader()
        for change in (reader.read(record.entry) for record in log.read("web", partition, span)):
            if isinstance(change, ChangeBatch):
                for host, number in zip(
                    *(change.data.column(name).to_pylist() for name in ("host", "number")), strict=True
                ):
                    found.setdefault(str(host), {}).setdefault(partition, []).append(int(str(number)))
    return found


def test_a_host_stays_in_one_partition_and_in_its_order(tmp_path: Path, kafka: Kafka) -> None:
    hosts = [WrittenLog(tmp_path / "logs" / f"web{number}" / "app.log", f"web{number}") for number in range(12)]
    flow = tmp_path / "flow.yaml"
    with kafka.prefix() as prefix:
        on_kafka = f"log: {{type: kafka, brokers: '{kafka.brokers}', prefix: {prefix}}}"
        text = FLOW.replace("  name: web", "  name: web\n  partitions: 3")
        flow.write_text(text.replace("log: {type: directory, path: ./log}", on_kafka))
        for round_ in range(2):
            for host in hosts:
                host.write(20 + round_)
            if round_:
                with hosts[0].path.open("a") as file:
                    file.write(hosts[0].lines[0].replace(" web0 0 ", " web0 41 ") + "\n")
            done = headrace("capture", flow, "--until-idle")
            assert done.code == 0, done.err
            assert ("rows of host web0 are not in the order of their times" in done.out + done.err) == bool(round_)
        log = KafkaLog(KafkaLog.Config(brokers=kafka.brokers, prefix=prefix))
        found = hosts_on(log)
        log.close()
    for host in hosts:
        host.close()
        [numbers] = found[host.host].values()
        assert numbers == list(range(42 if host is hosts[0] else 41))
    assert len({partition for parts in found.values() for partition in parts}) == 3


class Writer(threading.Thread):
    """Writes the logs of two hosts, and rotates them in every way. What goes wrong in it is raised by `end`."""

    def __init__(self, directory: Path, seed: int) -> None:
        super().__init__()
        self.stop = threading.Event()
        self.logs = [WrittenLog(directory / "logs" / host / "app.log", host) for host in ("web1", "web2")]
        self._pick = random.Random(seed)
        self._error: Exception | None = None
        for log in self.logs:
            log.write(10)

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                log = self._pick.choice(self.logs)
                self._write(log)
                if self._pick.random() < 0.02:
                    for change in self._rotations(log):
                        for _ in change:
                            if not log.held and self._pick.random() < 0.5:
                                self._write(log)
                time.sleep(0.005)
        except Exception as error:
            self._error = error

    def end(self) -> None:
        """Stops it, when it runs."""
        self.stop.set()
        if self.ident is not None:
            self.join()
        for log in self.logs:
            log.close()
        if self._error is not None:
            raise self._error

    def _write(self, log: WrittenLog) -> None:
        log.write(self._pick.randrange(1, 200), padding=self._pick.randrange(100))

    def _rotations(self, log: WrittenLog) -> Iterator[Iterator[None]]:
        if self._pick.random() < 0.5:
            yield log.renamed(creates=self._pick.random() < 0.5)
        else:
            yield log.copied(100_000)
        if self._pick.random() < 0.5:
            yield log.packed(kept=self._pick.randrange(2))


def lake_rows(lake: Path) -> list[dict[str, Any]]:
    return [
        row
        for file in Manifest.open(lake).files()
        for row in pq.read_table(lake / file.path).to_pylist()
        if ".said." in file.namespace
    ]


@pytest.mark.timeout(max(600, 45 * KILLS))
def test_files_that_rotate_while_captures_are_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADRACE_SEED", random.randrange(2**32)))
    print(f"HEADRACE_SEED={seed}")
    pick = random.Random(seed)
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW)
    writer = Writer(tmp_path, seed)
    try:
        for kill in range(KILLS):
            with running(flow, "capture") as process:
                if not kill:  # what was rotated before the first look is not asked for
                    wait_for(lambda: any(path.stat().st_size for path in tmp_path.glob("log/web/**/*.log")), process)
                    writer.start()
                time.sleep(pick.uniform(0, 3))
                kill_group(process)
    finally:
        writer.end()
    run_until_idle(flow)
    rows = sorted(lake_rows(tmp_path / "lake"), key=lambda row: row["_ums_id_"])
    ids = [row["_ums_id_"] for row in rows]
    assert len(ids) == len(set(ids)), "a line is in the lake twice"
    for log in writer.logs:
        wanted = list(range(len(log.lines)))
        assert [row["number"] for row in rows if row["host"] == log.host] == wanted
        found = sqlite_rows(tmp_path / "mart.db", "said", "number", f"host = '{log.host}'")
        assert sorted(number for (number,) in found) == wanted
