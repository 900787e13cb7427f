"""SIGKILL of servers at each of the control plane's crash points, and of the one of two that leads: of a pipeline there is always one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.control import Client, ControlServer, serving, shop, wait_until


def runs(client: Client) -> Any:
    return client.get("/pipelines/shop/runs")


@pytest.mark.timeout(1800)
def test_a_server_that_dies_at_each_of_its_steps(tmp_path: Path) -> None:
    server = ControlServer(tmp_path / "server")
    try:
        server.start({"HEADRACE_CRASH_AT": "control.noted"})
        admin = server.client()
        admin.do("POST", "/pipelines", {"name": "shop", "text": shop()})
        admin.do("POST", "/pipelines/shop/start")
        server.wait_for_death()  # the launch is noted, and nothing was begun

        server.start({"HEADRACE_CRASH_AT": "control.begun"})
        server.wait_for_death()  # a process was begun, and nobody knows its number

        server.start({"HEADRACE_CRASH_AT": "control.stopping"})
        admin.url = server.url
        wait_until(lambda: runs(admin)[0]["state"] == "running")
        # A process that comes late finds its launch called off, and ends: one stays.
        wait_until(lambda: [process.pid for process in server.drivers()] == [runs(admin)[0]["pid"]])
        assert {run["state"] for run in runs(admin)[1:]} == {"ended"}
        admin.do("POST", "/pipelines/shop/stop")
        server.wait_for_death()  # the stop is noted, and the process has not heard of it

        server.start()
        admin.url = server.url
        wait_until(lambda: admin.state("shop") == "stopped")
        wait_until(lambda: not server.drivers())
    finally:
        server.end_all()


@pytest.mark.timeout(1800)
def test_of_two_servers_one_leads_and_the_other_takes_over(tmp_path: Path) -> None:
    with serving(tmp_path / "server") as first, serving(tmp_path / "server") as second:
        client = {server.url: server.client() for server in (first, second)}
        found: list[ControlServer] = []
        wait_until(lambda: found.extend(server for server in (first, second) if client[server.url].leads()) or found)
        leads = found[0]
        other = second if leads is first else first
        asked = client[other.url]
        asked.do("POST", "/pipelines", {"name": "shop", "text": shop()})
        asked.do("POST", "/pipelines/shop/start")
        wait_until(lambda: bool(runs(asked)) and runs(asked)[0]["state"] == "running")
        before = runs(asked)[0]
        leads.kill()
        wait_until(asked.leads)
        assert runs(asked)[0]["id"] == before["id"]
        # When the lease went over while the launch was noted, a late process finds it called off, and ends.
        wait_until(lambda: [process.pid for process in other.drivers()] == [before["pid"]])
        assert runs(asked)[0] == before
        asked.do("POST", "/pipelines/shop/stop")
        wait_until(lambda: asked.state("shop") == "stopped")
        wait_until(lambda: not other.drivers())


def test_what_only_a_person_can_change_is_tried_once(tmp_path: Path) -> None:
    directory = tmp_path / "server"
    source = '{type: mysql, name: db1, host: h, user: u, password: "${DB1}", tables: ["shop.*"]}'
    (directory / "secrets").mkdir(parents=True)
    (directory / "secrets" / "DB1").write_text("secret")
    with serving(directory) as server:
        admin = server.client()
        admin.do("POST", "/pipelines", {"name": "shop", "text": shop(source=source)})
        (directory / "secrets" / "DB1").unlink()
        admin.do("POST", "/pipelines/shop/start")
        wait_until(lambda: admin.state("shop") == "failed")
        state = admin.get("/pipelines/shop")["state"]
        assert "DB1" in state["why"]
        assert state["fix"]
        assert len(runs(admin)) == 1
