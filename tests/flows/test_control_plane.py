"""The control plane with real pipelines on Spark: from a flow file over the API to rows in a target, through deaths of everything."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.control import Client, ControlServer, serving, shop, wait_until
from tests.flows.command import headrace, sqlite_rows
from tests.patience import HANG_S


def newest_run(client: Client, name: str = "shop") -> Any:
    return client.get(f"/pipelines/{name}/runs")[0]


def is_running(client: Client, run: Any = None) -> bool:
    """Whether a process is at work; another one than `run` when that is given."""
    runs = client.get("/pipelines/shop/runs")
    return bool(runs) and runs[0]["state"] == "running" and (run is None or runs[0]["id"] != run["id"])


def delivered(client: Client) -> int:
    return client.get("/pipelines/shop")["rows"] or 0


@pytest.mark.timeout(1800)
def test_a_pipeline_lives_through_all_deaths(tmp_path: Path) -> None:
    directory = tmp_path / "server"
    mart = directory / "pipelines" / "shop" / "mart.db"
    with serving(directory) as server:
        admin = server.client()
        admin.do("POST", "/pipelines", {"name": "shop", "text": shop()})
        admin.do("POST", "/pipelines/shop/start")
        wait_until(lambda: delivered(admin) > 0)
        run = newest_run(admin)
        wait_until(lambda: [part["readers"][0]["lag"] for part in admin.get("/pipelines/shop/offsets")] == [0])
        assert admin.state("shop") == "running"
        rows = sqlite_rows(mart, "orders", "*")
        assert rows

        _the_server_is_killed(server, run)
        admin.url = server.url
        _its_process_is_killed(admin, run)
        _it_takes_a_new_revision(admin)
        _all_are_killed_in_all_orders(server, admin)
        assert sqlite_rows(mart, "orders", "*") == rows

        admin.do("POST", "/pipelines/shop/stop")
        wait_until(lambda: admin.state("shop") == "stopped")
        ended = newest_run(admin)
        assert (ended["state"], ended["code"]) == ("ended", 0)
        wait_until(lambda: not server.drivers())
        _it_is_restored_elsewhere(server, admin)
        admin.do("DELETE", "/pipelines/shop")
        assert mart.exists()


def _it_is_restored_elsewhere(server: ControlServer, admin: Client) -> None:
    """As docs/how-to/upgrade.md walks through it: what users and programs had is there, and the pipeline is as it was wanted."""
    kept = server.directory.parent / "control.gz"
    other = server.directory.parent / "restored"
    assert headrace("backup", kept, "--dir", server.directory).code == 0
    shutil.copytree(server.directory / "pipelines", other / "pipelines")
    restored = headrace("restore", kept, "--dir", other)
    assert restored.code == 0, restored.err
    again = headrace("restore", kept, "--dir", other)
    assert (again.code, "not empty" in again.err) == (2, True)
    with serving(other) as second:
        program = Client(second.url, admin.token)
        assert program.get("/pipelines/shop/revisions") == admin.get("/pipelines/shop/revisions")
        assert program.get("/pipelines/shop/runs") == admin.get("/pipelines/shop/runs")
        assert program.state("shop") == "stopped"
        assert program.do("POST", "/pipelines/shop/check")["kind"] == "check"
        assert (other / "pipelines" / "shop" / "mart.db").exists()


def _the_server_is_killed(server: ControlServer, run: Any) -> None:
    """Its pipeline goes on, and the next server takes up the same process."""
    server.kill()
    assert psutil.pid_exists(run["pid"])
    server.start()
    client = server.client()
    wait_until(client.leads)
    assert newest_run(client) == run
    wait_until(lambda: [process.pid for process in server.drivers()] == [run["pid"]])


def _its_process_is_killed(admin: Client, run: Any) -> None:
    """Another one takes its place, and the events say why."""
    psutil.Process(run["pid"]).kill()
    wait_until(lambda: is_running(admin, run))
    kinds = [event["kind"] for event in admin.get("/pipelines/shop/events")]
    assert kinds[:3] == ["running", "launching", "lost"]
    assert newest_run(admin)["attempt"] == 2


def _all_are_killed_in_all_orders(server: ControlServer, admin: Client) -> None:
    """The server with its reconciler, the driver, and what captures and delivers: each is killed right before each other one, and a half
    of the pairs finds the one before it not yet replaced. Then there is one process again, and it is at work."""
    kills = {
        "server": lambda: (server.kill(), server.start()),
        "driver": lambda: _kill(server.drivers()),
        "worker": lambda: _kill([worker for driver in server.drivers() for worker in workers_of(driver)][:1]),
    }
    for victim in ("server", "driver", "worker", "server", "worker", "driver", "server"):
        kills[victim]()
    admin.url = server.url
    wait_until(lambda: [process.pid for process in server.drivers()] == [newest_run(admin)["pid"]])
    wait_until(lambda: newest_run(admin)["state"] == "running" and admin.get("/pipelines/shop/figures")["stages"] != [])


def workers_of(driver: psutil.Process) -> list[psutil.Process]:
    """Python's processes that capture and deliver; none for a driver that has just ended."""
    try:
        return [child for child in driver.children(recursive=True) if child.name() != "java"]
    except psutil.NoSuchProcess:
        return []


def _kill(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=HANG_S)


def _it_takes_a_new_revision(admin: Client) -> None:
    """A restart while Spark is still starting; what was delivered before is not delivered again."""
    before = newest_run(admin)
    admin.do("PUT", "/pipelines/shop", {"text": shop(epoch="3s"), "base": 1})
    assert admin.get("/pipelines/shop")["running_revision"] == 1
    admin.do("POST", "/pipelines/shop/restart")
    wait_until(lambda: is_running(admin, before))
    assert newest_run(admin)["revision"] == 2
    wait_until(lambda: admin.get("/pipelines/shop/figures")["stages"] != [])
    assert delivered(admin) == 0


@pytest.mark.timeout(1800)
def test_spark_submit_begins_a_driver_that_is_seen_and_stopped_like_any_other(tmp_path: Path) -> None:
    with serving(tmp_path / "server") as server:
        admin = server.client()
        placement = {"type": "spark-submit", "deploy_mode": "client"}
        text = shop(spark='{master: "local[4]"}')
        admin.do("POST", "/pipelines", {"name": "shop", "text": text, "placement": placement})
        admin.do("POST", "/pipelines/shop/start")
        wait_until(lambda: delivered(admin) > 0)
        drivers = server.drivers()
        assert any("SparkSubmit" in " ".join(parent.cmdline()) for driver in drivers for parent in driver.parents())
        admin.do("POST", "/pipelines/shop/stop")
        wait_until(lambda: admin.state("shop") == "stopped")
        assert newest_run(admin)["code"] == 0
