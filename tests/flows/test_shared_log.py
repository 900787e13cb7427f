"""The main job with its log and its lake on HDFS or S3: MariaDB -> log -> Spark -> SQLite, lake and a table derived from it; stopped, and on
from where it stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.lake.asof import as_of
from headrace.lake.derived.place import directory_for
from headrace.storage.base import FileTree
from headrace.storage.location import tree_at
from headrace.storage.options import StoreOptions
from headrace.ums.schema import Namespace
from tests.flows import compare
from tests.flows.command import headrace, run_until_idle
from tests.flows.shop import TABLES, Shop
from tests.servers.hdfs import Hdfs
from tests.servers.mariadb import MariaDb
from tests.servers.s3 import S3

FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}",
          password: "{server.password}", tables: ["{database}.*"]}}
log: {log}
state: ./state
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {lake}}}
  - {{name: lite, from: "mysql.db1.{database}.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[str]:
    with mariadb.database() as name:
        yield name


@dataclass(frozen=True)
class Shared:
    """A flow file whose log and lake are on a shared store."""

    flow: Path
    lake: FileTree
    current: FileTree
    environment: dict[str, str]
    """With which commands reach the lake by its URL."""


@pytest.fixture(params=["hdfs", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path, mariadb: MariaDb, database: str) -> Shared:
    server = request.getfixturevalue(request.param)
    assert isinstance(server, (Hdfs, S3))
    options = {"web": server.web} if isinstance(server, Hdfs) else server.options()
    environment = {} if isinstance(server, Hdfs) else server.environment()
    log = {"type": request.param, "path": server.place(), **options}
    place = server.place()
    derived = {"current": "delta", "delete": "hard", "path": f"{place}/current", "every": "2s"}
    lake = {"type": "lake", "path": f"{place}/lake", "derive": [derived], **options}
    path = tmp_path / "flow.yaml"
    path.write_text(FLOW.format(server=mariadb, database=database, log=json.dumps(log), lake=json.dumps(lake)))
    reached = StoreOptions.model_validate(options)
    trees = [tree_at(f"{place}/{name}", reached) for name in ("lake", "current")]
    return Shared(path, trees[0], trees[1], environment)


def test_into_every_target_and_on_from_where_it_stopped(mariadb: MariaDb, database: str, shared: Shared) -> None:
    flow = shared.flow
    assert "log: fine" in headrace("check", flow).out
    source = mariadb.connect(database, autocommit=False)
    shop = Shop(source, seed=1)
    shop.create()
    for _ in range(2):
        shop.transact(150)
        run_until_idle(flow)
        for table in TABLES:
            namespace = f"mysql.db1.{database}.{table}"
            expected = compare.source_rows(source, table)
            columns = as_of(shared.lake, namespace).column_names
            assert compare.lake_rows(shared.lake, namespace) == expected
            assert compare.sqlite_target_rows(flow.parent / "mart.db", table, columns) == expected
            place = f"{shared.current.root}/{directory_for(Namespace.parse(f'{namespace}.0.0.0'))}"
            current = pa.table(DeltaTable(place, storage_options=shared.current.settings).to_pyarrow_table())
            assert compare.plain(zip(*(current.column(name).to_pylist() for name in columns), strict=True)) == expected
    asof = ("lake", "asof", shared.lake.root, namespace, "--format", "jsonl")
    assert len(headrace(*asof, env=shared.environment).out.splitlines()) == len(expected)
    entries = [json.loads(line) for line in headrace("log", "cat", flow, "db1", "--json").out.splitlines()]
    assert entries[-1]["header"]["kind"] == "mark"
    offsets = [entry["offset"] for entry in entries]
    assert offsets == sorted(set(offsets))
    [figures] = [json.loads(line) for line in headrace("log", "stat", flow, "--json").out.splitlines()]
    assert figures["files"] > 0
