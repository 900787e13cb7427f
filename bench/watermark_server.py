"""What one Watermark Server can do: reports of 100,000 hosts, the most it takes, queries, and coming back with 1,000,000 hosts.

    python -m bench.watermark_server [--seconds N]

The server is a process of its own (`headrace watermark serve` on SQLite), asked over loopback HTTP by this one, which shares the machine.
Limits in the same run: the same number of requests that the framework answers without doing anything (/healthz), and numpy's maximum over the
same reports in memory. Wanted: 100,000 hosts reporting once a second below 25 % of a core; 10 M host reports/s binary and 1 M/s JSON;
queries p99 below 2 ms at 10,000/s; back with 1,000,000 hosts within 5 s.
"""

from __future__ import annotations

import argparse
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import numpy as np
import psutil
from tests.servers.process import free_port

from bench.machine import write_results
from headrace.errors import RetryableError
from headrace.watermark.client import Server
from headrace.watermark.server import WatermarkServer
from headrace.watermark.store import WatermarkStore
from headrace.watermark.topology import Topology
from headrace.watermark.wire import encode_report

HOSTS, MANY = 100_000, 1_000_000
SOURCES = 50
"""So many clients tell the hosts' progress, each of its own."""
QUERIES_PER_S, CONNECTIONS = 10_000, 32
STAGE = "/v1/topologies/app/stages/logs"
APPLICATION = {"name": "app", "stages": [{"name": "logs", "tolerate": 0.001, "grace": "15s"}]}


@contextmanager
def served(store: Path, port: int) -> Iterator[tuple[Server, psutil.Process]]:
    command = [
        sys.executable,
        "-m",
        "headrace",
        "watermark",
        "serve",
        "--store",
        f"sqlite:///{store}",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command)
    try:
        with closing(Server(f"http://127.0.0.1:{port}", None)) as client:
            while True:
                try:
                    client.ask("/healthz")
                    break
                except RetryableError:
                    time.sleep(0.02)
            yield client, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def join(client: Server) -> list[bytes]:
    """The reports of all sources, one body each."""
    client.tell("PUT", "/v1/topologies/app", {"stages": APPLICATION["stages"]})
    names = [f"host{number:06}" for number in range(HOSTS)]
    ids = client.tell("POST", f"{STAGE}/members", {"join": names})["ids"]
    return [report([ids[name] for name in names[at::SOURCES]], 1) for at in range(SOURCES)]


def report(ids: list[int], time_us: int) -> bytes:
    return encode_report(ids, [time_us] * len(ids), [10] * len(ids))


def cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def once_a_second(client: Server, process: psutil.Process, bodies: list[bytes], seconds: int) -> float:
    """The share of a core that the server uses."""
    started_s, used_s = time.monotonic(), cpu_s(process)
    for second in range(seconds):
        for at, body in enumerate(bodies):
            client.report(f"{STAGE}/report", body)
            time.sleep(max(0.0, started_s + second + at / len(bodies) - time.monotonic()))
    return (cpu_s(process) - used_s) / (time.monotonic() - started_s)


def most(send: Callable[[], object], process: psutil.Process, count: int) -> tuple[float, float]:
    """Host reports a second and per CPU-second of the server, with as many of one body as one connection sends."""
    started_s, used_s, sent = time.monotonic(), cpu_s(process), 0
    while time.monotonic() - started_s < 5:
        send()
        sent += count
    return sent / (time.monotonic() - started_s), sent / (cpu_s(process) - used_s)


def in_memory(count: int) -> float:
    """Host reports a second that numpy joins by maximum, in memory."""
    progress, ids = np.zeros(HOSTS, np.int64), np.arange(count)
    told = np.ones(count, np.int64)
    started_s, done = time.process_time(), 0
    while time.process_time() - started_s < 1:
        np.maximum.at(progress, ids, told)
        done += count
    return done / (time.process_time() - started_s)


def ask(port: int, path: str, per_s: int, seconds: int) -> tuple[list[float], float]:
    """Delays in ms of requests that are sent at a steady rate over some connections, counted from when each one was due, and how long all took.

    Without asyncio, whose clock has whole milliseconds: half a one would be counted to the server.
    """
    request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    delays: list[float] = []
    with ExitStack() as stack:
        answers = stack.enter_context(closing(select.epoll()))
        connections = (socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS))
        free = deque(map(stack.enter_context, connections))  # in turns: a server closes one that is idle for seconds
        by_number = {connection.fileno(): connection for connection in free}
        for connection in free:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answers.register(connection, select.EPOLLIN)
        due_s: dict[int, float] = {}
        started_s, sent = time.perf_counter(), 0
        while len(delays) < per_s * seconds:
            while free and sent < per_s * seconds and (due := started_s + sent / per_s) <= time.perf_counter():
                connection = free.popleft()
                due_s[connection.fileno()] = due
                connection.sendall(request)
                sent += 1
            next_s = started_s + sent / per_s - time.perf_counter() if free and sent < per_s * seconds else 1.0
            select.select([answers], [], [], max(0.0, next_s))
            for number, _ in answers.poll(0):
                if by_number[number].recv(4096).endswith(b"}"):  # head and body come apart
                    delays.append(1e3 * (time.perf_counter() - due_s.pop(number)))
                    free.append(by_number[number])
        return delays, time.perf_counter() - started_s


def queries(port: int, process: psutil.Process, path: str, per_s: int, seconds: int) -> str:
    used_s = cpu_s(process)
    delays, took_s = ask(port, path, per_s, seconds)
    p50, p99 = np.percentile(delays, [50, 99])
    return f"| {path} | {per_s:,} | {len(delays) / took_s:,.0f} | {p50:.2f} | {p99:.2f} | {(cpu_s(process) - used_s) / took_s:.0%} |"


def back_with_many(directory: Path) -> tuple[float, float]:
    """Seconds until a server with 1,000,000 hosts has them again, and that one reckoning takes."""
    store = WatermarkStore(f"sqlite:///{directory / 'many.db'}")
    server = WatermarkServer(store)
    server.open()
    server.register(Topology.model_validate(APPLICATION))
    ids = server.join("app", "logs", [f"host{number:07}" for number in range(MANY)])
    store.close()
    started_s = time.perf_counter()
    back = WatermarkServer(WatermarkStore(f"sqlite:///{directory / 'many.db'}"))
    back.open()
    opened_s = time.perf_counter() - started_s
    numbers = np.fromiter(ids.values(), np.int64, len(ids))
    back.report("app", "logs", numbers, np.arange(len(ids)), np.ones(len(ids), np.int64))
    started_s = time.perf_counter()
    back.tick()
    return opened_s, time.perf_counter() - started_s


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=20)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        port = free_port()
        with served(directory / "store.db", port) as (client, process):
            bodies = join(client)
            share = once_a_second(client, process, bodies, seconds)
            per_body = HOSTS // SOURCES
            names = {f"host{number * SOURCES:06}": 1 for number in range(per_body)}
            body, told = report(list(range(HOSTS)), 1), {"progress": names, "rows": names}
            binary, binary_cpu = most(lambda: client.report(f"{STAGE}/report", body), process, HOSTS)
            spoken, spoken_cpu = most(lambda: client.tell("POST", f"{STAGE}/report", told), process, per_body)
            asked = [
                queries(port, process, path, per_s, seconds // 2)
                for path in ("/healthz", f"{STAGE}/watermark")
                for per_s in (2_000, QUERIES_PER_S)
            ]
        opened_s, tick_s = back_with_many(directory)
    limit = in_memory(HOSTS)
    lines = [
        f"{HOSTS:,} hosts, each once a second, told by {SOURCES} clients over HTTP: {share:.1%} of a core (wanted 25 %).",
        "",
        "| reports | hosts a body | host reports/s | per CPU-second of the server | of numpy in memory |",
        "|---|---|---|---|---|",
        f"| binary | {HOSTS:,} | {binary:,.0f} | {binary_cpu:,.0f} | {binary_cpu / limit:.2f} |",
        f"| JSON | {per_body:,} | {spoken:,.0f} | {spoken_cpu:,.0f} | {spoken_cpu / limit:.2f} |",
        "",
        "Wanted: 10,000,000 and 1,000,000 a second. The one that sends shares the two cores.",
        "",
        f"Queries over {CONNECTIONS} connections at a steady rate (wanted: p99 below 2 ms at {QUERIES_PER_S:,}/s); delays count from when a query was due:",
        "",
        "| path | wanted/s | answered/s | p50 ms | p99 ms | of a core |",
        "|---|---|---|---|---|---|",
        *asked,
        "",
        f"{MANY:,} hosts: back in {opened_s:.2f} s (wanted 5), and one reckoning takes {tick_s * 1e3:.0f} ms.",
    ]
    write_results("watermark_server", lines)


if __name__ == "__main__":
    main()
