"""The overview of 1,000 pipelines over HTTP: how long `GET /overview` takes while all of them run and tell new figures each second.

Wanted: below 100 ms at p99. The server is a process of its own with its reconciler and its alerts. The thousand processes are this one: it holds the lock and
the claim of each launch, and writes each summary, as their processes would (control/launch.py), so that the server has all that it has in real life to look at.
The requests come one after the other over one connection, and from four clients at once. `GET /leader` beside it is the floor: the same way with next to nothing to tell.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from tests.control import TEST, Client, ControlServer, shop

from bench.machine import processor_s, write_results
from headrace.control.launch import Launch
from headrace.control.pipelines import Pipelines
from headrace.control.placement import Local
from headrace.control.runs import Runs
from headrace.control.tables import ControlDatabase

PIPELINES = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000
REQUESTS = int(sys.argv[2]) if len(sys.argv) > 2 else 2_000


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as work, ExitStack() as held:
        server = ControlServer(Path(work) / "server", rate=1_000_000)
        held.callback(server.end_all)
        over = threading.Event()
        launches = [held.enter_context(Living(each)).launch for each in begun(server.directory)]
        telling = threading.Thread(target=tell, args=(launches, over))
        telling.start()
        held.callback(telling.join)
        held.callback(over.set)
        server.start()
        client = server.client()
        client.do("PUT", "/alerts/rules/late", {"when": {"kind": "lag", "above_s": 60}})
        shown = client.get("/overview")
        assert len(shown) == PIPELINES
        assert {line["state"]["name"] for line in shown} == {"running"}
        lines = [
            f"{PIPELINES:,} running pipelines, {3 * PIPELINES:,} flows; {REQUESTS:,} requests each. Load when it began: {os.getloadavg()[0]:.1f}.",
            "",
            "| request | clients | p50 ms | p99 ms | most ms | server's processor ms | size |",
            "|---|---|---|---|---|---|---|",
        ]
        for path, clients in (("/leader", 1), ("/overview", 1), ("/overview", 4)):
            lines.append(f"| `GET {path}` | {clients} | {measured(server, client, path, clients)} |")
        lines += ["", f"The server took {usage(server):.2f} of a core while nobody asked."]
    write_results("overview", lines)


class Living:
    """A launch as its process holds it."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self._held = ExitStack()

    def __enter__(self) -> Living:
        self.launch.create()
        assert self._held.enter_context(self.launch.claimed())
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()


def begun(directory: Path) -> list[Launch]:
    """Launches of pipelines that are noted as running."""
    directory.mkdir(parents=True)
    database = ControlDatabase(f"sqlite:///{directory / 'control.db'}")
    database.open()
    pipelines, runs = Pipelines(database), Runs(database)
    found = []
    for number in range(PIPELINES):
        name, run = f"line-{number:04}", f"{number:032x}"
        pipelines.create(name, shop(), Local(), TEST)
        wanted = pipelines.start(name, TEST)
        lease = runs.lead("bench", "", 60)
        assert lease is not None
        assert runs.launching(lease, run, wanted, "host", 1)
        runs.running(lease, runs.get(name, run), "host", os.getpid())
        found.append(Launch(directory / "pipelines" / name / "launches" / run))
    lease = runs.lead("bench", "", 60)
    assert lease is not None
    runs.resign(lease)
    database.close()
    return found


def tell(launches: list[Launch], over: threading.Event) -> None:
    """What each process tells, about once a second."""
    rows = 0
    while not over.is_set():
        rows += 1000
        began_s = time.monotonic()
        for launch in launches:
            stages = [
                stage("captured", "", rows),
                *(stage("delivered", flow, rows) for flow in ("raw", "mart", "search")),
            ]
            told = {"at_us": time.time_ns() // 1000, "problems": [], "stages": stages, "disks": [], "watermarks": []}
            launch.tell(told, told)
        over.wait(max(0.0, 1 - (time.monotonic() - began_s)))


def stage(name: str, flow: str, rows: int) -> dict[str, Any]:
    figures = {
        "lag_ms": 812.0,
        "latency_p50_ms": 350.0,
        "latency_p99_ms": 900.0,
        "rows_per_s": 1000.0,
        "bytes_per_s": 100_000.0,
    }
    known = {
        "failed": 0,
        "errors": 0,
        "silent": False,
        "table": "",
        "bytes": rows * 100,
        "watermark_us": time.time_ns() // 1000,
    }
    return {"source": "db1", "stage": name, "flow": flow, "rows": rows, **figures, **known}


def measured(server: ControlServer, client: Client, path: str, clients: int) -> str:
    """p50, p99 and the longest, in ms; what the server has spent a request, with all that it does besides; the size of an answer."""

    def ask(_: int) -> list[float]:
        own = Client(client.url, client.token)
        own.get(path)
        return [timed(own, path) for _ in range(REQUESTS // clients)]

    spent_s = processor_s(psutil.Process(server.pid))
    with ThreadPoolExecutor(clients) as pool:
        times_ms = sorted(each for found in pool.map(ask, range(clients)) for each in found)
    spent_ms = (processor_s(psutil.Process(server.pid)) - spent_s) * 1000 / len(times_ms)
    size = int(client.ask("GET", path).headers["content-length"])
    p50, p99 = statistics.median(times_ms), times_ms[int(len(times_ms) * 0.99)]
    return f"{p50:.1f} | {p99:.1f} | {times_ms[-1]:.1f} | {spent_ms:.1f} | {size / 1000:,.1f} kB"


def timed(client: Client, path: str) -> float:
    """To the last byte, without reading what it says."""
    began_s = time.perf_counter()
    client.fetch(path)
    return (time.perf_counter() - began_s) * 1000


def usage(server: ControlServer) -> float:
    """Processor seconds a second: the reconciler's and the alerts' looks."""
    time.sleep(12)  # by then the overview is not made any more
    process = psutil.Process(server.pid)
    before, began_s = processor_s(process), time.monotonic()
    time.sleep(10)
    return (processor_s(process) - before) / (time.monotonic() - began_s)


if __name__ == "__main__":
    main()
