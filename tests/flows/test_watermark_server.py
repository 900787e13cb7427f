"""The Watermark Server as processes, over HTTP: killed at random, two at once, seen by clients and by people."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from random import Random

import pytest
import urllib3
from click.testing import CliRunner

from headrace.cli.watermark import watermark
from headrace.errors import ConfigError, RetryableError
from headrace.watermark.client import StageClient, WatermarkClient
from headrace.watermark.embedded import EmbeddedServer
from headrace.watermark.wire import NEVER
from tests.patience import wait_until
from tests.servers.process import free_port

KILLS = max(3, int(os.environ.get("HEADRACE_KILLS", "0")) * 2 // 5)
STAGES = [{"name": "logs", "tolerate": 0.34, "by": "hosts", "grace": "1s"}, {"name": "lake", "after": ["logs"]}]
TOKEN = "secret-of-tests"


def ask(
    method: str, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> urllib3.BaseHTTPResponse:
    given = {"Authorization": f"Bearer {TOKEN}", **(headers or {})}
    return urllib3.request(method, url, body=body, headers=given, retries=False, timeout=60)


def said(*arguments: str) -> str:
    """What `headrace watermark ARGUMENTS` prints; it raises what the command line would tell."""
    done = CliRunner().invoke(watermark, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


class Process:
    """`headrace watermark serve` on a port that stays its own."""

    def __init__(self, store: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._store = store
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.begin()
        wait_until(self.answers)

    def begin(self) -> None:
        command = ["watermark", "serve", "--store", self._store, "--port", str(self.port)]
        environment = {**os.environ, "HEADRACE_WATERMARK_TOKEN": TOKEN}
        self._process = subprocess.Popen([sys.executable, "-m", "headrace", *command], env=environment)

    def answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None
        try:
            return ask("GET", f"{self.url}/healthz").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def servers(store: str, count: int = 1) -> Iterator[list[Process]]:
    with ExitStack() as stack:
        started = [Process(store) for _ in range(count)]
        for server in started:
            stack.callback(server.kill)
            server.begin()
        for server in started:
            wait_until(server.answers)
        yield started


@contextmanager
def stage(client: WatermarkClient, name: str, topology: str = "orders") -> Iterator[StageClient]:
    opened = client.stage(topology, name, report_every_s=0.05)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'watermarks.db'}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """For tests that leave it alive: each has a topology of its own."""
    with servers(f"sqlite:///{tmp_path_factory.mktemp('shared') / 'watermarks.db'}") as [started]:
        yield started


@pytest.fixture
def client(server: Process) -> Iterator[WatermarkClient]:
    with closing(WatermarkClient([server.url], TOKEN)) as opened:
        yield opened


def test_three_lines_in_a_job(server: Process, client: WatermarkClient) -> None:
    client.register("jobs", STAGES)
    with stage(client, "logs", "jobs") as logs, stage(client, "lake", "jobs") as lake:
        logs.passed({"web1": 100, "web2": 100, "web3": 50}, rows={"web1": 10, "web2": 10, "web3": 1})
        lake.passed({"writer": 40})
        assert client.wait("jobs", "lake", 100, timeout_s=60).input_us == 100
        wait_until(lambda: lake.low().output_us == 40)
        assert logs.low().global_us <= 40
        wait_until(lambda: logs.low().global_us == 40)
        logs.leave(["web3"])
        logs.passed({"web1": 200, "web2": 300})
        assert client.wait("jobs", "lake", 200, timeout_s=60).input_us == 200
        [shown, _] = ask("GET", f"{server.url}/v1/topologies/jobs").json()["stages"]
        assert [(one["name"], one["progress_us"]) for one in shown["lowest"]] == [("web1", 200), ("web2", 300)]
        assert [(one["name"], one["state"]) for one in shown["gone"]] == [("web3", "drained")]


def test_it_never_falls_though_servers_are_killed(store: str) -> None:
    pick = Random()
    with servers(store, 2) as both:
        client = WatermarkClient([server.url for server in both], TOKEN)
        client.register("orders", STAGES)
        told = {f"web{number}": 1 for number in range(30)}
        seen = [NEVER, NEVER]
        with stage(client, "logs") as logs:
            for _ in range(KILLS):
                killed = both if pick.random() < 0.5 else [pick.choice(both)]
                for _ in range(pick.randrange(5, 40)):
                    for name in pick.sample(sorted(told), 20):
                        told[name] += pick.randrange(5)
                    logs.passed(told)
                    time.sleep(0.01)
                    look(both, seen, told)
                for server in killed:
                    server.kill()
                for server in killed:
                    server.begin()
                for server in killed:
                    wait_until(server.answers)
                look(both, seen, told)
            wait_until(lambda: logs.trouble() == "")
            whole_us = min(told.values())
            assert client.wait("orders", "lake", whole_us, timeout_s=60).input_us >= whole_us
        client.close()


def look(both: list[Process], seen: list[int], told: dict[str, int]) -> None:
    """What each server says now: never less than it has said, and never more than two thirds of the hosts have passed."""
    for at, server in enumerate(both):
        answer = ask("GET", f"{server.url}/v1/topologies/orders/stages/logs/watermark").json()
        low_us = NEVER if answer["output_us"] is None else answer["output_us"]
        assert low_us >= seen[at]
        assert sum(progress_us < low_us for progress_us in told.values()) <= 0.34 * len(told)
        seen[at] = low_us


def test_expected_hosts_from_a_file_hold_it_before_they_have_said_anything(
    server: Process, client: WatermarkClient, tmp_path: Path
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("web1\nweb2  # the new one\n")
    expected = {"name": "logs", "expected": {"file": str(hosts), "every": "200ms"}}
    client.register("listed", [expected])
    with stage(client, "logs", "listed") as logs:
        wait_until(lambda: client_members(server, "listed") == 2)
        logs.passed({"web1": 100, "stranger": 1})
        time.sleep(0.5)
        assert client.low("listed", "logs").output_us == NEVER
        hosts.write_text("")
        time.sleep(0.5)
        assert client.low("listed", "logs").output_us == NEVER
        wait_until(lambda: "lists nobody" in said("show", server.url, "--token", TOKEN))
        hosts.write_text("web1\n")
        assert client.wait("listed", "logs", 100, timeout_s=60).input_us == 100


def test_a_host_that_reports_before_it_is_listed_counts_when_it_is(client: WatermarkClient, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("web1\n")
    client.register("early", [{"name": "logs", "expected": {"file": str(hosts), "every": "200ms"}}])
    with stage(client, "logs", "early") as logs:
        logs.passed({"web2": 70})
        logs.report()
        hosts.write_text("web2\n")
        wait_until(lambda: client.low("early", "logs").output_us == 70)


def test_a_list_that_cannot_be_had_stops_nobody_else(server: Process, client: WatermarkClient) -> None:
    client.register("shop", [{"name": "logs", "expected": {"dns": "web..example", "every": "200ms"}}])
    client.register("others", [{"name": "logs"}])
    with stage(client, "logs", "others") as logs:
        logs.passed({"web1": 100})
        wait_until(lambda: client.low("others", "logs").output_us == 100)
    shop = f"{server.url}/v1/topologies/shop"
    wait_until(lambda: "no addresses of web..example" in ask("GET", shop).json()["stages"][0]["trouble"])
    assert ask("GET", f"{server.url}/healthz").status == 200


def test_whom_a_watermark_has_not_waited_for_is_named(client: WatermarkClient) -> None:
    client.register("lacking", [{**STAGES[0], "grace": 0}, STAGES[1]])
    with stage(client, "logs", "lacking") as logs, stage(client, "lake", "lacking") as lake:
        logs.passed({"web1": 100, "web2": 100, "web3": 50})
        wait_until(lambda: lake.low().input_us == 100)
        logs.passed({"web3": 100})  # it has come since, but may not be in the lake
        logs.report()
        assert client.complete("lacking") == (None, [])
        lake.passed({"writer": 100})
        wait_until(lambda: client.complete("lacking")[0] == 100)
        [named] = client.complete("lacking")[1]
        assert named == {"stage": "logs", "name": "web3", "us": 50, "is_abandoned": False}


def client_members(server: Process, topology: str) -> int:
    [shown] = ask("GET", f"{server.url}/v1/topologies/{topology}").json()["stages"]
    return int(shown["members"])


def test_a_silent_host_is_abandoned_by_name_and_taken_back(server: Process, client: WatermarkClient) -> None:
    client.register("silent", [{"name": "logs", "lease": "1s"}])
    with stage(client, "logs", "silent") as logs:
        logs.passed({"web1": 100, "web2": 10})
        wait_until(lambda: logs.low().output_us == 10)
        wait_until(lambda: (logs.passed({"web1": 100}), client.low("silent", "logs").output_us == 100)[1])
        assert "web2: abandoned since" in said("show", server.url, "--token", TOKEN)
        logs.passed({"web2": 20})
        wait_until(lambda: (logs.passed({"web1": 100, "web2": 20}), client_members(server, "silent") == 2)[1])
        assert client.low("silent", "logs").output_us == 100


@pytest.fixture
def embedded(store: str) -> Iterator[str]:
    """The URL of a server of one's own, in a thread."""
    with closing(EmbeddedServer(store, TOKEN)) as server:
        yield server.start("127.0.0.1", 0)


def test_what_jobs_do_wrong_is_told(embedded: str) -> None:
    with closing(WatermarkClient([embedded], TOKEN)) as client:
        with pytest.raises(ConfigError, match="there is no topology 'orders'"):
            client.low("orders", "logs")
        with pytest.raises(ConfigError, match="refuses: the stages a, b, a follow each other in a circle"):
            client.register("orders", [{"name": "a", "after": ["b"]}, {"name": "b", "after": ["a"]}])
        client.register("orders", STAGES)
        with pytest.raises(ConfigError, match="has no stage 'nothing'"):
            client.low("orders", "nothing")
        with pytest.raises(ConfigError, match="no token"), closing(WatermarkClient([embedded], "wrong")) as wrong:
            wrong.low("orders", "logs")
    with pytest.raises(ConfigError, match="'wm1:9310' is no URL of a Watermark Server"):
        WatermarkClient(["wm1:9310"])


def test_what_is_wrong_in_requests_is_told(embedded: str) -> None:
    orders = f"{embedded}/v1/topologies/orders"
    report, low = f"{orders}/stages/logs/report", f"{orders}/stages/logs/watermark"
    assert ask("PUT", orders, json.dumps({"stages": STAGES}).encode()).status == 200
    bent = ask("POST", report, b"HRP1\x09\x00\x00\x00", {"content-type": "application/vnd.headrace.watermark"})
    assert (bent.status, bent.json()["error"]) == (400, "a report of 9 members has 152 bytes, not 8")
    for body in (b'{"progress": {"web1": "soon"}}', b'{"progress": {"web1": 1}, "rows": [1]}', b"[]", b"{"):
        assert ask("POST", report, body).status == 400
    assert ask("PUT", orders, b"[]").json()["error"] == "the body is no JSON object"
    unknown = ask("PUT", orders, b'{"stages": [{"name": "logs", "before": []}]}').json()
    assert unknown == {"error": "stages.0.before: Extra inputs are not permitted", "fix": "correct the body"}
    assert ask("GET", f"{low}?until=soon").json()["fix"] == "correct them"
    assert ask("GET", f"{low}?until=1&timeout_s=nan").status == 400
    assert ask("POST", report, b'{"progress": {"web1": 7}}').json()["unknown"] == []
    wait_until(lambda: ask("GET", low).json()["output_us"] == 7)
    metrics = ask("GET", f"{embedded}/metrics").data.decode()
    assert 'headrace_watermark_members{stage="logs",topology="orders"} 1.0' in metrics


def test_what_people_do_wrong_is_told(tmp_path: Path, embedded: str) -> None:
    assert "no topology yet" in said("show", embedded, "--token", TOKEN)
    store, (host, _, port) = f"sqlite:///{tmp_path / 'other.db'}", embedded.removeprefix("http://").partition(":")
    with pytest.raises(ConfigError, match=f"nothing can be served at {host}:{port}"):
        said("serve", "--store", store, "--host", host, "--port", port)
    with pytest.raises(ConfigError, match="is no URL of a database"):
        said("serve", "--store", "nonsense")
    with pytest.raises(ConfigError, match="is no URL of a Watermark Server"):
        said("show", f"{host}:{port}")
    with pytest.raises(RetryableError, match="does not answer"):
        said("show", f"http://{host}:{free_port()}")
    with pytest.raises(ConfigError, match="there is no method 'guess'"):
        said("simulate", "--method", "guess")


def test_one_bad_clock_moves_the_newest_row_and_not_the_watermark() -> None:
    methods = ["--method", "precise_volume_99.9_grace15", "--method", "max_minus_60s"]
    simulated = said("simulate", "--hosts", "60", "--scenario", "bad_clock", *methods, "--json")
    cells = [json.loads(line) for line in simulated.splitlines()]
    lacking = {cell["method"]: cell["difference"] for cell in cells if cell["window_s"] == 60}
    assert lacking["precise_volume_99.9_grace15"] == 0
    assert lacking["max_minus_60s"] > 0.5
