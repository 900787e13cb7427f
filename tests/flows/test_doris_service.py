"""`headrace doris serve` as a process: a real Kafka, the stand-in for Doris, and several loaders, started, stopped, killed and watched."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import urllib3
import yaml
from click.testing import CliRunner
from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from headrace.cli.doris import doris as doris_command
from headrace.errors import ConfigError
from tests.doris_topic import LONG_S, TABLE, Setup, wait_for
from tests.servers.doris import Doris
from tests.servers.kafka import Kafka
from tests.servers.process import free_port

TOKEN = "secret of the service"
RULES = Path(__file__).parents[2] / "deploy" / "prometheus" / "headrace.rules.yaml"
METRIC = re.compile(r"headrace_doris_\w+")


class Service:
    """A process that serves the files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder.parent / "service.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "headrace", "doris", "serve", str(self.folder), "--port", str(self.port)]
        environment = {**os.environ, "HEADRACE_DORIS_TOKEN": TOKEN, "DORIS_PASSWORD": "secret"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        wait_for(self._answers)

    def stop(self) -> None:
        """In order: its loaders end what is under way."""
        if self.process is None:
            return
        children = self.children()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LONG_S)
        self.process = None
        assert not [one for one in children if one.is_running()]

    def close(self) -> None:
        """However it goes."""
        if self.process is not None:
            children = self.children()
            self.process.kill()
            self.process.wait()
            for one in children:
                one.kill()

    def children(self) -> list[psutil.Process]:
        assert self.process is not None
        return psutil.Process(self.process.pid).children()

    def ask(self, path: str, method: str = "GET", token: str = TOKEN) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        answer = urllib3.request(method, f"{self.url}{path}", headers=headers, timeout=60, retries=False)
        return answer.status, answer.json()

    def load(self, name: str) -> dict[str, Any]:
        status, said = self.ask(f"/v1/loads/{name}")
        assert status == 200, said
        return said  # type: ignore[no-any-return]

    def cli(self, *command: str) -> str:
        outcome = CliRunner().invoke(doris_command, [*command, "--url", self.url, "--token", TOKEN])
        if outcome.exception is not None:
            raise outcome.exception
        return outcome.output

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.ask("/healthz")[0] == 200
        except urllib3.exceptions.HTTPError:
            return False


@pytest.fixture
def doris() -> Iterator[Doris]:
    with Doris(frontends=2, backends=2, password="secret") as server:
        server.sql(TABLE)
        server.sql(TABLE.replace("TABLE t", "TABLE u"))
        yield server


@pytest.fixture
def setup(kafka: Kafka, doris: Doris, tmp_path: Path) -> Iterator[Setup]:
    (tmp_path / "loads").mkdir()
    with kafka.prefix() as prefix:
        kafka.create_topic(f"{prefix}shop")
        kafka.create_topic(f"{prefix}lines")
        made = Setup(kafka, doris, f"{prefix}shop", tmp_path / "loads")
        made.file = tmp_path / "loads" / "shop.yaml"
        (tmp_path / "loads" / "loader.yaml").rename(made.file)
        write_lines(made, f"{prefix}lines")
        yield made
        made.close()


def write_lines(setup: Setup, topic: str, **more: object) -> None:
    """A second loader: a topic of separated values into another table, sent as CSV."""
    said = json.loads(setup.file.read_text()) | {
        "name": "lines", "table": "u", "columns": {}, "body": {"format": "csv"},
        "messages": {"format": "csv", "fields": ["part", "n", "who", "amount"], "separator": ","}, **more,
    }  # fmt: skip
    said["kafka"] = {"brokers": setup.kafka.brokers, "topics": [topic]}
    (setup.folder / "lines.yaml").write_text(json.dumps(said))


def produce_lines(setup: Setup, first: int, count: int) -> None:
    producer = Producer(setup.kafka.client())
    for n in range(first, first + count):
        producer.produce(setup.topic.removesuffix("shop") + "lines", f"0,{n},\\N,{n}.5".encode(), partition=0)
    assert producer.flush(60) == 0


@pytest.fixture
def service(setup: Setup) -> Iterator[Service]:
    made = Service(setup.folder)
    yield made
    made.close()


def test_loaders_are_started_stopped_killed_and_watched(setup: Setup, service: Service, doris: Doris) -> None:
    setup.produce(0, 200)
    produce_lines(setup, 0, 100)
    service.start()
    wait_for(lambda: setup.has_all() and len(doris.rows("u")) == 100)
    assert service.ask("/v1/loads", token="wrong")[0] == 401
    assert service.ask("/v1/loads/nobody")[0] == 404

    # Stopped by hand: nothing more is loaded, also by the next service.
    assert "shop: " in service.cli("stop", "shop")
    wait_for(lambda: service.load("shop")["state"] == "stopped")
    setup.produce(0, 50)
    produce_lines(setup, 100, 50)
    wait_for(lambda: len(doris.rows("u")) == 150)
    service.stop()
    service.start()
    produce_lines(setup, 150, 50)
    wait_for(lambda: len(doris.rows("u")) == 200)
    wait_for(lambda: service.load("shop").get("lag", None) is not None)
    stopped = service.load("shop")
    assert (stopped["state"], len(doris.rows("t"))) == ("stopped", 200)
    assert sum(stopped["lag"].values()) > 0
    assert "shop: stopped; 200 rows loaded" in service.cli("loads")

    # Started again; and killed: it comes back by itself.
    service.cli("start", "shop")
    wait_for(setup.has_all)
    for child in service.children():
        child.kill()
    setup.produce(0, 50)
    wait_for(lambda: setup.has_all() and service.load("shop")["starts"] == 2)
    service.cli("restart", "lines")
    wait_for(lambda: service.load("lines")["starts"] == 3 and service.load("lines")["state"] == "running")
    produce_lines(setup, 200, 10)
    wait_for(lambda: len(doris.rows("u")) == 210)
    setup.check()
    found = [(n, who, float(amount)) for n, who, amount in doris.rows("u", "n, who, amount")]
    assert sorted(found) == [(n, None, n + 0.5) for n in range(210)]

    # What is told of them, and the rules on it.
    wait_for(lambda: samples(service)["headrace_doris_rows_loaded_total", "lines"] == 210)
    wait_for(lambda: service.load("lines")["unloaded"] == [] and sum(service.load("lines")["lag"].values()) == 0)
    told = service.load("lines")
    assert told["newest"][0]["label"].startswith("hr-lines-u-")
    assert told["offsets"] == {f"{setup.topic.removesuffix('shop')}lines/0": 210}
    assert told["alive"] is not None
    names = {name for name, *_ in samples(service)}
    asked = {name for rule in rules() for name in METRIC.findall(rule["expr"])}
    assert asked <= names, asked - names
    service.stop()


def samples(service: Service) -> dict[tuple[str, ...], float]:
    """Name and label `load` (and `state`) -> value. No token is asked for."""
    text = urllib3.request("GET", f"{service.url}/metrics", timeout=60).data.decode()
    return {
        (sample.name, *(sample.labels[name] for name in ("load", "state") if name in sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups if group["name"] == "headrace-doris" for rule in group["rules"]]


def test_what_is_wrong_with_one_loader_is_told_and_the_others_go_on(
    setup: Setup, service: Service, doris: Doris
) -> None:
    topic = setup.topic.removesuffix("shop") + "lines"
    write_lines(setup, topic, table="nowhere")
    setup.produce(0, 50)
    service.start()
    wait_for(setup.has_all)
    wait_for(lambda: service.load("lines")["state"] == "failed")
    assert any("no table db.nowhere" in line for line in service.load("lines")["said"])
    assert "lines: failed" in service.cli("loads")
    assert "no table db.nowhere" in service.log.read_text()
    assert samples(service)["headrace_doris_state", "lines", "failed"] == 1
    doris.sql(TABLE.replace("TABLE t", "TABLE nowhere"))
    produce_lines(setup, 0, 20)
    service.cli("start", "lines")
    wait_for(lambda: len(doris.rows("nowhere")) == 20)
    # Bad rows: it ends again and again, until the reason is gone.
    producer = Producer(setup.kafka.client())
    producer.produce(topic, b"too few", partition=0)
    assert producer.flush(60) == 0
    wait_for(lambda: service.load("lines")["state"] == "waiting")
    assert any("1 of 1 rows cannot be loaded" in line for line in service.load("lines")["said"])
    produce_lines(setup, 20, 20)
    wait_for(lambda: bool(service.load("lines")["unloaded"]))
    sequence = service.load("lines")["unloaded"][0]["sequence"]
    assert service.ask(f"/v1/loads/lines/{sequence}/accept", "POST")[0] == 200
    wait_for(lambda: len(doris.rows("nowhere")) == 40)
    assert service.ask("/v1/loads/lines/7/accept", "POST")[0] == 404
    assert service.ask("/v1/loads/lines/7/forget", "POST")[0] == 404
    assert service.ask("/v1/loads/lines/refused?rows=0")[0] == 400
    with pytest.raises(ConfigError, match="there is no loader 'nobody'"):
        service.cli("start", "nobody")


def test_another_process_takes_a_loader_over(setup: Setup, service: Service) -> None:
    (setup.folder / "lines.yaml").unlink()
    service.start()
    setup.produce(0, 50)
    wait_for(setup.has_all)
    other = setup.start()  # by hand
    wait_for(lambda: service.load("shop")["state"] == "elsewhere")
    setup.produce(0, 50)
    wait_for(setup.has_all)
    assert other.poll() is None
    other.send_signal(signal.SIGTERM)
    assert other.wait(LONG_S) == 0
    wait_for(lambda: service.load("shop")["state"] == "running")
    setup.produce(0, 50)
    wait_for(setup.has_all)
    setup.check()
    service.stop()
