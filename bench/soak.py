"""A whole server at work for half an hour: what its processes hold of memory, files and threads, and that it is right in the end.

    python -m bench.soak [MINUTES]

MySQL -> log -> lake and PostgreSQL under `headrace serve`, with changes all the time, care of the lake every 20 s and a verification every
minute. In the first half the server, the driver, the capture and the delivery are killed in turn; in the second half nothing is, so that the
processes of then are looked at for long enough to see whether something grows. The table stays of one size (as many rows go as come), so what
grows on disk is history: the log and the lake keep all of it.
"""

from __future__ import annotations

import random
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from tests.control import Client, ControlServer, serving, wait_until
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql

from bench.lines import write_lines
from bench.machine import RESULTS, write_results

FLOW = """\
source: {{type: mysql, name: db1, host: "{mysql.host}", port: {mysql.port}, user: "{mysql.user}", password: "${{MYSQL}}",
          tables: ["shop.*"], start: latest, load: true, heartbeat: 1s}}
log: {{type: directory, path: ./log, segment_bytes: 8388608}}
state: ./state
epoch: 20s
flows:
  - {{name: raw, from: "mysql.db1.shop.*", to: {{type: lake, path: ./lake, windows: 1m,
      care: {{every: 20s, period: 1m, grace: 60s, state_changes: 20000}}}}}}
  - {{name: mart, from: "mysql.db1.shop.*", to: {{type: database, url: "${{POSTGRESQL}}"}}}}
"""
_ROWS = 5_000
_CHANGES_PER_S = 150
_LOOK_S = 5.0
_KILL_EVERY_S = 150.0
_MEASURES = ("memory", "files", "threads")


@dataclass
class Watch:
    """What was seen of each kind of process, over time, and of the directories."""

    server: ControlServer
    began: float = field(default_factory=time.monotonic)
    seen: dict[str, dict[str, list[tuple[float, float]]]] = field(
        default_factory=lambda: {name: defaultdict(list) for name in (*_MEASURES, "disk")}
    )
    kills: list[tuple[float, str]] = field(default_factory=list)

    def minute(self) -> float:
        return (time.monotonic() - self.began) / 60

    def look(self) -> None:
        for kind, processes in kinds(self.server).items():
            figures = [taken for each in processes if (taken := _taken(each)) is not None]
            for measure, values in zip(_MEASURES, zip(*figures, strict=True), strict=False):
                self.seen[measure][kind].append((self.minute(), sum(values)))
        home = self.server.directory / "pipelines" / "shop"
        for name in ("log", "lake", "state", "launches"):
            self.seen["disk"][name].append((self.minute(), _size_mb(home / name)))


def kinds(server: ControlServer) -> dict[str, list[psutil.Process]]:
    """Processes by what they do: the server, drivers, their JVMs, and the workers that capture and deliver."""
    found: dict[str, list[psutil.Process]] = {"server": [], "driver": server.drivers(), "JVM": [], "workers": []}
    with suppress(psutil.NoSuchProcess):
        found["server"] = [psutil.Process(server.pid)]
    for driver in found["driver"]:
        with suppress(psutil.NoSuchProcess):
            for child in driver.children(recursive=True):
                found["JVM" if child.name() == "java" else "workers"].append(child)
    return found


def _taken(process: psutil.Process) -> tuple[float, float, float] | None:
    """Memory (PSS, so that what forks share counts once), open files, threads; None for one that has just ended."""
    try:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        pss_kb = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return pss_kb / 1e3, process.num_fds(), process.num_threads()
    except (OSError, psutil.Error):
        return None


def _size_mb(directory: Path) -> float:
    total = 0
    for path in directory.rglob("*"):
        with suppress(OSError):  # care has just taken it away
            total += path.stat().st_size
    return total / 1e6


class Writer(threading.Thread):
    """Transactions of ten changes: rows come, change and go, and the table keeps its size."""

    def __init__(self, mysql: MySql, seed: int) -> None:
        super().__init__(name="writer", daemon=True)
        self._mysql = mysql
        self._pick = random.Random(seed)
        self.over = threading.Event()
        self.changes = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            with self._mysql.connect("shop", autocommit=False) as connection, connection.cursor() as cursor:
                newest, began = _ROWS, time.monotonic()
                while not self.over.is_set():
                    newest += 2
                    cursor.execute("INSERT INTO orders VALUES (%s, 1, 'new'), (%s, 1, 'new')", (newest - 1, newest))
                    cursor.execute("DELETE FROM orders WHERE id <= %s", (newest - _ROWS,))
                    first = newest - _ROWS + 1 + self._pick.randrange(_ROWS - 6)
                    cursor.execute(
                        "UPDATE orders SET amount = amount + 1 WHERE id BETWEEN %s AND %s", (first, first + 5)
                    )
                    connection.commit()
                    self.changes += 10
                    ahead_s = self.changes / _CHANGES_PER_S - (time.monotonic() - began)
                    self.over.wait(max(0.0, ahead_s))
        except BaseException as error:
            self.failed = error
            raise


def kill(watch: Watch, victim: str, pick: random.Random) -> None:
    """SIGKILL to the server, the driver, or one of the workers; what follows is the control plane's."""
    watch.kills.append((watch.minute(), victim))
    if victim == "server":
        watch.server.kill()
        watch.server.start()
        return
    with suppress(IndexError, psutil.NoSuchProcess):
        pick.choice(kinds(watch.server)[victim]).send_signal(signal.SIGKILL)


def soak(watch: Watch, minutes: float, pick: random.Random) -> None:
    victims = ["workers", "server", "driver", "workers"]
    next_kill_s = _KILL_EVERY_S
    while watch.minute() < minutes:
        watch.look()
        print(f"minute {watch.minute():.1f}", flush=True)
        if next_kill_s <= watch.minute() * 60 < minutes * 60 / 2 - _KILL_EVERY_S / 2:
            kill(watch, victims[len(watch.kills) % len(victims)], pick)
            next_kill_s += _KILL_EVERY_S
        time.sleep(_LOOK_S)


def verified(client: Client) -> dict[str, Any]:
    """What a verification finds once all has been delivered; the newest of each flow is right in the end."""
    operation = client.do("POST", "/pipelines/shop/verify", {})
    path = f"/pipelines/shop/operations/{operation['id']}"
    wait_until(lambda: client.get(path)["state"] != "running")
    found: dict[str, Any] = client.get(path)
    return found


def growth(points: Sequence[tuple[float, float]], since: float) -> tuple[float, float, float]:
    """Over the half without kills, its first quarter left out (processes warm up): median at its beginning, at its end, and per hour by least squares."""
    late = [(minute, value) for minute, value in points if minute >= since]
    if len(late) < 8:
        return 0.0, 0.0, 0.0
    third = len(late) // 3
    first, last = (sorted(value for _, value in part)[third // 2] for part in (late[:third], late[-third:]))
    mean_t, mean_v = (sum(column) / len(late) for column in zip(*late, strict=True))
    slope = sum((t - mean_t) * (v - mean_v) for t, v in late) / sum((t - mean_t) ** 2 for t, _ in late)
    return first, last, slope * 60


def report(watch: Watch, minutes: float, writer: Writer, told: Sequence[str]) -> Iterator[str]:
    yield f"{minutes:.0f} minutes, {writer.changes:,} changes ({_CHANGES_PER_S} a second wanted) of {_ROWS:,} rows; killed: "
    yield ", ".join(f"{victim} (minute {minute:.1f})" for minute, victim in watch.kills) + "."
    yield ""
    yield from told
    since = minutes / 2 + minutes / 8
    yield f"From minute {since:.0f} on, when nothing was killed any more: medians of the first and of the last third, and the slope."
    yield ""
    yield "| | first third | last third | per hour |"
    yield "|---|---|---|---|"
    units = {"memory": "MB (PSS)", "files": "open files", "threads": "threads"}
    for measure in _MEASURES:
        for kind, points in watch.seen[measure].items():
            first, last, slope = growth(points, since)
            yield f"| {kind}, {units[measure]} | {first:,.0f} | {last:,.0f} | {slope:+,.0f} |"
    yield ""
    yield "On disk at the end: " + ", ".join(
        f"{name} {points[-1][1]:,.1f} MB" for name, points in watch.seen["disk"].items()
    )
    yield ""
    yield "![Memory, open files, threads and disk over time](soak/soak.svg)"


def picture(watch: Watch, minutes: float) -> None:
    folder = RESULTS / "soak"
    folder.mkdir(parents=True, exist_ok=True)
    panels: Mapping[str, Any] = {
        "memory, MB (PSS)": watch.seen["memory"],
        "open files": watch.seen["files"],
        "threads": watch.seen["threads"],
        "disk, MB": watch.seen["disk"],
    }
    write_lines(folder / "soak.svg", "headrace serve at work; red: a process was killed", panels, watch.kills, minutes)


def main(minutes: float) -> None:
    seed = random.randrange(2**32)
    with ExitStack() as stack:
        mysql, postgresql = stack.enter_context(MySql()), stack.enter_context(PostgreSql())
        database = stack.enter_context(postgresql.database())
        mysql.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, amount DECIMAL(12,2), status VARCHAR(16))",
            "SET SESSION cte_max_recursion_depth = 1000000",
            f"INSERT INTO shop.orders WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {_ROWS})"
            " SELECT n, n, 'old' FROM s",
        )
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-soak-"))) / "server"
        (directory / "secrets").mkdir(parents=True)
        (directory / "secrets" / "MYSQL").write_text(mysql.password)
        (directory / "secrets" / "POSTGRESQL").write_text(postgresql.url(database))
        server = stack.enter_context(serving(directory))
        client = server.client()
        client.do("POST", "/pipelines", {"name": "shop", "text": FLOW.format(mysql=mysql)})
        client.do("POST", "/pipelines/shop/start")
        client.do("PUT", "/pipelines/shop/verification-schedule", {"every": 60, "flow": "mart"})
        wait_until(lambda: client.get("/pipelines/shop/loads") and client.state("shop") == "running")
        writer = Writer(mysql, seed)
        writer.start()
        watch = Watch(server)
        print(f"seed {seed}; {directory}", flush=True)
        soak(watch, minutes, random.Random(seed))
        writer.over.set()
        writer.join()
        print(f"{writer.changes:,} changes; waited for", flush=True)
        assert writer.failed is None, writer.failed
        client.url = server.url
        told = _judged(client, mysql, postgresql, database)
        picture(watch, minutes)
        write_results("soak", list(report(watch, minutes, writer, told)))


def _judged(client: Client, mysql: MySql, postgresql: PostgreSql, database: str) -> list[str]:
    """In the end all is there, by headrace's own verification and by the databases' own answers."""
    expected = mysql.execute("SELECT id, amount FROM shop.orders ORDER BY id")
    mart = "SELECT id, amount FROM shop_orders WHERE _is_active_ = 1 ORDER BY id"
    tables = postgresql.execute(
        "SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%orders%'", database=database
    )
    mart = mart.replace("shop_orders", f'"{tables[0][0]}"')
    wait_until(lambda: postgresql.execute(mart, database=database) == list(expected))
    print("delivered; verified once more", flush=True)
    found = verified(client)
    assert found["state"] == "done", found
    earlier = client.get("/pipelines/shop/verifications?limit=200")
    wrong = [each for each in earlier if not each["ok"]]
    return [
        f"In the end PostgreSQL has the {len(expected):,} rows that MySQL has, and `headrace verify` finds every flow right: "
        + "; ".join(
            f"{each['flow']} {each['table']} {each['actual_rows']:,} rows" for each in found["result"] if "flow" in each
        )
        + f". {len(earlier)} verifications meanwhile, {len(wrong)} of them not right"
        + ("." if not wrong else ": " + "; ".join(sorted({each["problem"] or "rows differ" for each in wrong})) + "."),
        "",
    ]


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 30.0)
