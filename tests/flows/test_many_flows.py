"""Fifty flows on one stream: one that is slow lags alone, at its own position, and that is shown; and no credential is to be seen anywhere."""

from __future__ import annotations

import json
from contextlib import closing, suppress
from pathlib import Path

import psutil

from headrace.log.directory import DirectoryLog
from tests.flows.command import headrace, run_until_idle, running, sqlite_rows, wait_for
from tests.servers.postgresql import PostgreSql
from tests.servers.process import Server
from tests.servers.redis import Redis

SHOP = Path(__file__).parents[2] / "examples" / "shop"
FAST = 47
HEAD = f"""\
source: {{type: mysql, name: db1, files: "{SHOP}/binlog/binlog.0*", tables: ["shop.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: slow, from: mysql.db1, to: {{type: callable, function: "slow:deliver", batch_rows: 100}}}}
"""
FUNCTION = """\
import time
from pathlib import Path

GO = Path(__file__).with_name("go")


def deliver(change):
    while not GO.exists():
        time.sleep(0.05)
"""


def lags(flow: Path) -> dict[str, int]:
    """By flow how far it is behind the log's end."""
    shown = headrace("log", "ls", flow, "--json")
    assert shown.code == 0, shown.err
    return {
        reader["reader"]: reader["lag"] for row in map(json.loads, shown.out.splitlines()) for reader in row["readers"]
    }


def test_a_slow_flow_of_fifty_lags_alone(postgresql: PostgreSql, redis: Redis, tmp_path: Path) -> None:
    flow, env = tmp_path / "flow.yaml", {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2] / 'src'}"}
    (tmp_path / "slow.py").write_text(FUNCTION)
    fast = [
        f"  - {{name: fast{n}, from: mysql.db1, to: {{type: database, url: 'sqlite:///./mart{n}.db'}}}}\n"
        for n in range(FAST)
    ]
    with postgresql.database() as mart, redis.database() as number:
        others = [
            f"  - {{name: pg, from: mysql.db1, to: {{type: database, url: '{postgresql.url(mart)}'}}}}\n",
            f"  - {{name: cache, from: mysql.db1, to: {{type: redis, url: '{redis.url(number)}'}}}}\n",
        ]
        flow.write_text("".join([HEAD, *fast, *others]))
        assert headrace("capture", flow, "--until-idle").code == 0
        with closing(DirectoryLog(DirectoryLog.Config(type="directory", path=tmp_path / "log"))) as log:
            end = log.spans("db1")[0].stop
        with running(flow, env=env) as process:
            wait_for(lambda: delivered(tmp_path, end) >= FAST + 2, process)
            behind = lags(flow)
            assert behind.pop("slow", end) > 0  # as long as it has delivered nothing, it does not stand there
            assert behind == dict.fromkeys([*(f"fast{n}" for n in range(FAST)), "pg", "cache"], 0)
            for server in (postgresql, redis):
                must_not_show(server, process.pid)
            (tmp_path / "go").touch()
            wait_for(lambda: delivered(tmp_path, end) == FAST + 3, process)
        run_until_idle(flow, env=env)
        expected = sqlite_rows(tmp_path / "mart0.db", "orders", "id, _ums_id_")
        assert len(expected) > 1000
        for n in range(1, FAST):
            assert sqlite_rows(tmp_path / f"mart{n}.db", "orders", "id, _ums_id_") == expected
        live = postgresql.execute("SELECT id, _ums_id_ FROM orders WHERE _is_active_ = 1", database=mart)
        assert sorted(live, key=repr) == expected
    for path in tmp_path.rglob("*"):
        if path.is_file() and path != flow:
            for server in (postgresql, redis):
                assert not any(text in path.read_bytes() for text in passwords(server)), path


def delivered(directory: Path, end: int) -> int:
    """How many flows have delivered the log up to its end."""
    progress = sorted((directory / "state" / "runs").glob("*/progress/deliver-db1.json"))
    told = json.loads(progress[-1].read_text()).get("flows", {}) if progress else {}
    return sum(figures["position"] is not None and figures["position"]["offset"] == end for figures in told.values())


def must_not_show(server: Server, pid: int) -> None:
    """No process of a run has a server's password among its arguments."""
    run = psutil.Process(pid)
    for process in [run, *run.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):  # a Python worker of Spark that has just ended
            line = " ".join(process.cmdline()).encode()
            assert not any(text in line for text in passwords(server)), process


def passwords(server: Server) -> list[bytes]:
    """A server's password as it may be written."""
    password = str(getattr(server, "password")).encode()  # noqa: B009 - not every server has one
    return [password, password.replace(b" ", b"%20").replace(b"/", b"%2F")]
