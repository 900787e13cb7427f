"""Changes of an HBase through flows, into a lake and a database. That they are all there: tests/faults/test_source_histories.py."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.sinks.hbase.replica import HBaseReplicaSink
from headrace.ums.schema import Column, Namespace, TableSchema
from tests.flows.command import headrace, run_until_idle, sqlite_rows
from tests.servers.hbase import HBase

FLOW = """\
source:
  type: hbase
  name: crm
  root: ./hbase
  tables:
    "ns1:orders": {row: text, columns: {name: {cell: "cf:name"}, amount: {cell: "f2:amt", type: double}}}
log: {type: directory, path: ./log}
state: ./state
flows:
  - {name: raw, from: "hbase.crm.ns1.orders", to: {type: lake, path: ./lake, commit_interval: 0.2}}
  - {name: lite, from: "hbase.crm.ns1.orders", to: {type: database, url: "sqlite:///./mart.db"}}
"""
GOLDEN = Path(__file__).parents[1] / "golden" / "hbase"


def test_changes_go_to_a_lake_and_a_database(tmp_path: Path) -> None:
    flow, old = tmp_path / "flow.yaml", tmp_path / "hbase" / "oldWALs"
    flow.write_text(FLOW)
    old.mkdir(parents=True)
    files = sorted(path for path in GOLDEN.glob("plain-*") if path.suffix != ".gz")
    for some in (files[:2], files[2:]):
        for path in some:
            (old / path.name.removeprefix("plain-")).write_bytes(path.read_bytes())
        run_until_idle(flow)
    shown = headrace("decode", "hbase-wal", "--tables", "ns1:orders", *files)
    expected = len(shown.out.splitlines())
    columns = "region, sequence, cell, row, kind, name, amount, cells"
    rows = sqlite_rows(tmp_path / "mart.db", "orders", columns)
    assert len(rows) == expected > 900
    assert ("r001", "delete") in {(row[3], row[4]) for row in rows}
    assert {row[6] for row in rows if row[3] == "r010"} >= {15.0}
    lake = [row for path in (tmp_path / "lake").rglob("*.parquet") for row in pq.read_table(path).to_pylist()]
    names = columns.split(", ")
    assert sorted((tuple(row[name] for name in names) for row in lake), key=repr) == rows


def test_what_cannot_be_replicated_is_told(hbase: HBase) -> None:
    config = HBaseReplicaSink.Config.model_validate({"type": "hbase-replica", "url": hbase.url})
    name = Column("row", pa.utf8(), "text"), Column("cells", pa.utf8(), "json")
    place = Namespace("hbase", "crm", "nowhere", "orders")
    tables = {
        "has no cells of an HBase": TableSchema(Namespace("mysql", "db1", "shop", "orders"), name, ("row",)),
        "their bytes are not known": TableSchema(place, (Column("row", pa.int64(), "long"), name[1]), ("row",)),
        "there is no HBase table nowhere:orders": TableSchema(place, name, ("row",)),
    }
    with closing(HBaseReplicaSink(config, "flow")) as sink:
        for message, table in tables.items():
            [finding] = sink.misfits([table])
            assert message in finding.message
            assert finding.fix
