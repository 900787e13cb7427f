"""What a console shows of a pipeline that runs, over the API: rates, full loads that are steered, its lake as of a moment, windows, watermarks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3

from tests.control import Client, ControlServer, serving, wait_until
from tests.servers.mysql import MySql

FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}", password: "${{DB1}}",
          tables: ["{database}.*"], start: latest, heartbeat: 1s, load: {{chunk_rows: 1000, rows_per_s: 500}}}}
log: {{type: directory, path: ./log}}
state: ./state
epoch: 2s
watermark: {{}}
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {{type: lake, path: ./lake, windows: 1h}}}}
  - {{name: mart, from: "mysql.db1.{database}.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""


@pytest.fixture
def database(mysql: MySql) -> Iterator[str]:
    with mysql.database() as name:
        for table, rows in (("a", 20_000), ("b", 500)):
            mysql.execute(
                "SET SESSION cte_max_recursion_depth = 100000",
                f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(20))",
                f"INSERT INTO {table} WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows})"
                " SELECT n, CONCAT('row ', n) FROM s",
                database=name,
            )
        yield name


def loads(client: Client) -> dict[str, Any]:
    """By the table's name without its schema."""
    return {load["table"].partition(".")[2]: load for load in client.get("/pipelines/shop/loads")}


def state_of(client: Client, table: str) -> str:
    found: str = loads(client).get(table, {"state": "not begun"})["state"]
    return found


def steered(client: Client, verb: str, body: Any = None) -> None:
    operation = client.do("POST", f"/pipelines/shop/load/{verb}", body)
    path = f"/pipelines/shop/operations/{operation['id']}"
    wait_until(lambda: client.get(path)["state"] != "running")
    assert client.get(path)["state"] == "done", client.get(path)


@pytest.mark.timeout(1800)
def test_a_running_pipeline_is_shown_and_its_load_steered(tmp_path: Path, mysql: MySql, database: str) -> None:
    directory = tmp_path / "server"
    (directory / "secrets").mkdir(parents=True)
    (directory / "secrets" / "DB1").write_text(mysql.password)
    with serving(directory) as server:
        admin, viewer = server.client(), server.client("viewer")
        admin.do("POST", "/pipelines", {"name": "shop", "text": FLOW.format(server=mysql, database=database)})
        assert viewer.get("/pipelines/shop/loads") == []
        admin.do("POST", "/pipelines/shop/start")
        wait_until(lambda: state_of(viewer, "a") == "loading" and loads(viewer)["a"]["rows"] > 0)

        _the_load_is_paused_over_a_restart(server, admin)
        steered(admin, "cancel", {"table": [f"{database}.a"]})
        steered(admin, "resume")
        wait_until(lambda: (state_of(admin, "a"), state_of(admin, "b")) == ("cancelled", "loaded"))
        again = admin.do("POST", "/pipelines/shop/load/cancel", {"table": [f"{database}.a"]})
        path = f"/pipelines/shop/operations/{again['id']}"
        wait_until(lambda: admin.get(path)["state"] == "failed")
        assert "no load of" in admin.get(path)["why"]

        mysql.execute("UPDATE b SET v = 'changed' WHERE id = 1", "DELETE FROM b WHERE id = 2", database=database)
        _the_overview_tells_of_its_flows(viewer)
        _its_lake_is_read(admin, viewer, f"mysql.db1.{database}.b")
        _its_watermarks_are_told(viewer)
        _its_targets_are_verified(server, admin, viewer)


def _the_load_is_paused_over_a_restart(server: ControlServer, admin: Client) -> None:
    steered(admin, "pause")
    wait_until(lambda: state_of(admin, "a") == "paused")
    before = admin.get("/pipelines/shop/runs")[0]["id"]
    admin.do("POST", "/pipelines/shop/restart")
    wait_until(lambda: admin.get("/pipelines/shop/runs")[0]["id"] != before)
    wait_until(lambda: state_of(admin, "a") == "paused" and loads(admin)["a"]["rows"] == 0)
    assert loads(admin)["b"]["state"] == "paused"


def _the_overview_tells_of_its_flows(viewer: Client) -> None:
    def told() -> bool:
        (line,) = viewer.get("/overview")
        flows = {flow["flow"]: flow for flow in line["flows"]}
        return flows.keys() == {"raw", "mart"} and all(
            flow["rows"] == 2 and flow["rows_per_s"] is not None and flow["lag_ms"] is not None and flow["watermark"]
            for flow in flows.values()
        )

    wait_until(told)
    assert viewer.get("/pipelines/shop")["rows"] == 4


def _its_lake_is_read(admin: Client, viewer: Client, table: str) -> None:
    versions = viewer.get("/pipelines/shop/lake")
    assert table in {version["namespace"].rsplit(".", 3)[0] for version in versions}
    assert viewer.ask("GET", f"/pipelines/shop/lake/asof?table={table}").status == 403, "rows are for operators"
    rows = admin.get(f"/pipelines/shop/lake/asof?table={table}&flow=raw&limit=200&skip=400")
    assert len(rows) == 99
    wait_until(lambda: len(admin.get(f"/pipelines/shop/lake/history?table={table}&key=id%3D1")) == 2)
    changes = admin.get(f"/pipelines/shop/lake/history?table={table}&key=id%3D1")
    assert [change["v"] for change in changes] == ["row 1", "changed"]
    loaded = changes[0]["_ums_id_"]
    assert {"id": 1, "v": "row 1"} in admin.get(f"/pipelines/shop/lake/asof?table={table}&id={loaded}")
    assert admin.ask("GET", "/pipelines/shop/lake/asof?table=mysql.db1.nothing.here").status == 409
    wait_until(lambda: viewer.ask("GET", f"/pipelines/shop/windows?table={table}").status == 200)  # cut by the run
    (window, *_) = viewer.get(f"/pipelines/shop/windows?table={table}")
    assert window["table"] == table
    assert window["state"] in {"open", "closed"}  # closed behind a full hour


def _its_watermarks_are_told(viewer: Client) -> None:
    stages = {stage["name"]: stage for stage in viewer.get("/pipelines/shop/watermarks")}
    assert stages.keys() == {"source:db1", "flow:raw", "flow:mart"}
    assert stages["source:db1"]["output"] >= stages["flow:raw"]["output"]
    assert [member["name"] for member in stages["source:db1"]["lowest"]] == ["db1"]


def _its_targets_are_verified(server: ControlServer, admin: Client, viewer: Client) -> None:
    """By a schedule, which is due at once: the table whose load was cancelled lacks rows, the other one is right."""
    path = "/pipelines/shop/verification-schedule"
    assert viewer.get(path) is None
    put = admin.do("PUT", path, {"every": 86_400, "flow": "mart"})
    assert (put["every"], put["options"], put["author"]) == (86_400, {"flow": "mart"}, "admin")
    wait_until(lambda: len(viewer.get("/verifications")) == 2)
    assert viewer.get("/pipelines/shop/operations?kind=verify")[0]["user"] == "admin (schedule)"
    short, right = sorted(viewer.get("/verifications"), key=lambda found: str(found["source_table"]))
    assert (short["ok"], right["ok"]) == (False, True), (short, right)
    assert short["differing_keys"] == short["expected_rows"] - short["actual_rows"] > 0
    assert {found["kind"] for found in short["differences"]} == {"missing"}
    assert (right["expected_rows"], right["actual_rows"], right["differing_keys"]) == (499, 499, 0)
    assert viewer.get(f"/pipelines/shop/verifications?table={right['source_table']}&limit=1") == [right]
    told = urllib3.request("GET", f"{server.url}/metrics").data.decode()
    for found, value in ((short, "0.0"), (right, "1.0")):
        of = f'{{flow="mart",pipeline="shop",table="{found["source_table"]}"}}'
        assert f"headrace_verification_ok{of} {value}" in told
    admin.do("DELETE", path)
    assert viewer.get(path) is None
