"""Windows of a lake that close by the watermark, on real processes: hosts are late, die and come back; server and run are killed."""

from __future__ import annotations

import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace.capture.lines.beat import beat_line
from headrace.lake.commit import Manifest, is_lake
from headrace.lake.windows import Window, windows_of
from headrace.storage.location import tree_at
from headrace.stream.watermarks import flow_stage, member, source_stage
from headrace.watermark.client import WatermarkClient
from tests.flows.command import kill_group, running, wait_for
from tests.flows.test_watermark_server import TOKEN, Process, ask, servers

START_US = 1_772_452_800_000_000  # 2026-03-02 12:00 UTC
MINUTE_US = 60_000_000
HOSTS = ("web1", "web2", "web3", "web4")
RULE = {
    "table": "said",
    "steps": [{"do": "extract", "regex": r"^(?P<at>\S+) (?P<who>\S+) (?P<number>\d+)"}],
    "time": "at",
    "columns": {"who": "text", "number": "int"},
}


def flow(directory: Path, watermark: dict[str, object]) -> Path:
    """Log files of hosts into a lake with windows of a minute by the lines' time."""
    path = directory / "flow.yaml"
    lake = {"type": "lake", "path": "./lake", "commit_interval": 0.2, "care": {"every": "500ms"}}
    windows = {"length": "1m", "event_time": {"logs.said": "time"}}
    content = {
        "source": {"type": "applog", "name": "web", "files": "./logs/{host}/app.log", "rules": [RULE]},
        "log": {"type": "directory", "path": "./log"},
        "state": "./state",
        "epoch": "2s",
        "watermark": watermark,
        "flows": [{"name": "raw", "from": "applog.web.logs.said", "to": lake | {"windows": windows}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


class Hosts:
    """The logs of hosts, each with a clock of its own. Who lives gives signs of life."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._alive: dict[str, int] = {}
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat)
        self.written: Counter[int] = Counter()
        """Rows by window."""

    def write(self, host: str, minutes: Sequence[int], rows: int = 20) -> None:
        """Lines in the order of their times; the host lives on at the last one's."""
        lines = []
        for minute in minutes:
            for number in range(rows):
                time_us = START_US + minute * MINUTE_US + number * (MINUTE_US // rows)
                lines.append(beat_line(time_us).replace("headrace-beat", f"{host} {number}"))
            self.written[START_US + minute * MINUTE_US] += rows
        self._append(host, lines)
        self.lives(host, time_us)

    def lives(self, host: str, time_us: int) -> None:
        """Signs of life say so from now on."""
        with self._lock:
            self._alive[host] = time_us

    def dies(self, host: str) -> None:
        with self._lock:
            del self._alive[host]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(0.3):
            with self._lock:
                for host, time_us in self._alive.items():
                    self._append(host, [beat_line(time_us)])

    def _append(self, host: str, lines: Sequence[str]) -> None:
        path = self._directory / "logs" / host / "app.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))


def windows(lake: Path) -> dict[int, Window]:
    """By start, what there is; nothing while the lake is being made."""
    if not is_lake(tree_at(lake)):
        return {}
    manifest = Manifest.open(lake)
    return {window.start_us: window for table in manifest.tables for window in windows_of(manifest, table)}


def certified(lake: Path) -> dict[int, int]:
    """Rows of the windows that are closed."""
    return {start: found.rows.rows for start, found in windows(lake).items() if found.state != "open"}


def until_certified(lake: Path, expected: dict[int, int], process: subprocess.Popen[bytes]) -> None:
    until(lambda: certified(lake) == expected, process)


def until(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """With looks that leave the machine to the run."""
    wait_for(happened, process, every_s=0.3)


@pytest.mark.timeout(1800)
def test_windows_close_when_all_hosts_have_passed_whatever_is_killed(tmp_path: Path) -> None:
    hosts = Hosts(tmp_path)
    (tmp_path / "hosts.txt").write_text("\n".join(HOSTS))
    with servers(f"sqlite:///{tmp_path / 'watermarks.db'}") as [server]:
        source = {"expected": {"file": str(tmp_path / "hosts.txt")}}
        path = flow(tmp_path, {"url": server.url, "token": TOKEN, "topology": "web", "sources": {"web": source}})
        for host in HOSTS[:3]:
            hosts.write(host, range(4))
        hosts.write("web4", [0])
        with hosts.at_work():
            with running(path) as run:
                hosts.write("web4", [1], rows=5)
                until_certified(tmp_path / "lake", {START_US: 80}, run)
                kill_group(run)
            server.kill()
            for host in HOSTS[:3]:
                hosts.write(host, range(4, 7))
            with running(path) as run:
                time.sleep(2)
                server.start()  # it has been away: what flows do is nothing that waits for it
                hosts.write("web4", [2, 3])
                expected = {START_US: 80, START_US + MINUTE_US: 65, START_US + 2 * MINUTE_US: 80}
                until_certified(tmp_path / "lake", expected, run)
                server.kill()
                server.start()
                until(lambda: all(us >= START_US + 6 * MINUTE_US for us in progress(server, HOSTS[:3])), run)
                hosts.dies("web4")
                # From now on: before, no host is to be given up because the machine is slow.
                register(server, {"name": source_stage("web"), "lease": "4s", **source})
                until(lambda: {"name": "web4", "state": "abandoned"} in gone(server), run)
                for minute in range(3, 6):
                    expected[START_US + minute * MINUTE_US] = hosts.written[START_US + minute * MINUTE_US]
                until_certified(tmp_path / "lake", expected, run)
                hosts.write("web4", [4, 5])
                for minute in (4, 5):
                    expected[START_US + minute * MINUTE_US] += 20
                until_certified(tmp_path / "lake", expected, run)
        found = windows(tmp_path / "lake")
        named = [abandoned(found[START_US + minute * MINUTE_US]) for minute in range(4)]
        assert named[:3] == [[], [], []]
        assert "web4" in named[3]
        states = [found[START_US + minute * MINUTE_US].state for minute in range(7)]
        assert states == ["closed"] * 4 + ["amended", "amended", "open"]
        assert {start: window.rows.rows for start, window in found.items()} == dict(hosts.written)


def abandoned(window: Window) -> list[str]:
    """Whom the window was not kept open for."""
    assert window.round is not None
    if window.round.watermark is None:
        return []
    return [one.name for one in window.round.watermark.lacking if one.is_abandoned]


def progress(server: Process, names: Sequence[str]) -> list[int]:
    """How far the server knows hosts to be, in µs since 1970; 0 where it has not heard."""
    return [one["progress_us"] or 0 for one in source_of(server)["lowest"] if one["name"] in names]


def gone(server: Process) -> list[dict[str, str]]:
    """The hosts that are expected no more."""
    return [{"name": one["name"], "state": one["state"]} for one in source_of(server)["gone"]]


def source_of(server: Process) -> dict[str, Any]:
    """What the server shows of the source's stage."""
    [stage, _] = ask("GET", f"{server.url}/v1/topologies/web").json()["stages"]
    found: dict[str, Any] = stage
    return found


def register(server: Process, source: dict[str, object]) -> None:
    """The run's topology again, with another stage of its source."""
    to_lake = {"name": flow_stage("raw"), "after": [source["name"]], "expected": {"names": [member("web", 0)]}}
    client = WatermarkClient([server.url], TOKEN)
    client.register("web", [source, to_lake])
    client.close()
