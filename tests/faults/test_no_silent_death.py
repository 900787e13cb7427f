"""Whatever part of a run dies, the run goes on delivering or ends with one message: it never stays alive with nothing flowing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.flows.command import running, wait_for
from tests.patience import HANG_S
from tests.servers.mariadb import MariaDb

pytestmark = pytest.mark.demand(17)

FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["shop.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
epoch: 5s
give_up_after: 3s
flows:
  - {{name: lite, from: "mysql.db1", to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""


def flow_of(server: MariaDb, directory: Path) -> Path:
    server.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
    path = directory / "flow.yaml"
    path.write_text(FLOW.format(server=server))
    return path


def test_a_source_that_stays_away_ends_the_capture(tmp_path: Path) -> None:
    with MariaDb() as server:
        flow = flow_of(server, tmp_path)
        with running(flow, "capture") as process:
            wait_for(lambda: any((tmp_path / "log").rglob("*.log")) or any((tmp_path / "log").rglob("0*")), process)
            server.kill9()
            assert process.wait(timeout=HANG_S) == 1
    told = (tmp_path / "run.log").read_text()
    assert f"{server.host}:{server.port}" in told
    assert "Traceback" not in told
