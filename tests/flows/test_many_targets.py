"""One run on Spark into a topic, a URL, a function and databases, two of them by drivers in one JVM: the same rows in each, those that were refused at first too."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.conformance.scanned import records
from tests.flows.command import headrace, run_until_idle
from tests.servers.jdbc import H2, Derby
from tests.servers.kafka import Kafka
from tests.servers.webhook import Webhook

SHOP = Path(__file__).parents[2] / "examples" / "shop"
FLOW = """\
source: {{type: mysql, name: db1, files: "{shop}/binlog/binlog.0*", tables: ["shop.orders"]}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: mart, from: "mysql.db1.shop.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
  - {{name: h2, from: "mysql.db1.shop.*", to: {h2}}}
  - {{name: derby, from: "mysql.db1.shop.*", to: {derby}}}
  - name: topics
    from: "mysql.db1.shop.*"
    to: {{type: kafka, brokers: "{brokers}", topic: "{prefix}{{table}}", positions: "{prefix}positions", format: json, partitions: 3}}
  - name: hook
    from: "mysql.db1.shop.*"
    to: {{type: webhook, url: "{url}"}}
    set_aside: 2%
    columns: {{keep: [status, total]}}
    rate: 1000000
  - name: function
    from: "mysql.db1.shop.*"
    to: {{type: callable, function: "picky:deliver"}}
    set_aside: {{rows: 5000, percent: 50}}
"""
FUNCTION = """\
import json, os
from pathlib import Path

from headrace.ums.change import ChangeBatch

TAKEN = Path(__file__).with_name("taken.jsonl")


def deliver(change):
    assert isinstance(change, ChangeBatch)
    rows = change.data.to_pylist()
    if "PICKY" in os.environ and any(row["status"] == "cancelled" and row["id"] % 20 == 0 for row in rows):
        raise ValueError("not every one that was cancelled")
    with TAKEN.open("a") as file:
        for row in rows:
            told = {"_ums_id_": row["_ums_id_"], "_is_active_": int(row["_ums_op_"] != "d"), "id": row["id"]}
            file.write(json.dumps({**told, "status": row["status"]}) + "\\n")
"""


def newest(rows: Iterable[dict[str, Any]]) -> dict[int, tuple[int, str]]:
    """As a reader does: by key the row with the largest `_ums_id_`; deleted ones left out."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        if row["id"] not in found or int(row["_ums_id_"]) > int(found[row["id"]]["_ums_id_"]):
            found[row["id"]] = row
    return {key: (int(row["_ums_id_"]), row["status"]) for key, row in found.items() if row["_is_active_"]}


def test_every_target_has_the_same_rows(kafka: Kafka, h2: H2, derby: Derby, tmp_path: Path) -> None:
    (tmp_path / "picky.py").write_text(FUNCTION)
    env = {"PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2] / 'src'}"}
    with kafka.prefix() as prefix, Webhook() as server, h2.schema() as in_h2, derby.schema() as in_derby:
        flow = tmp_path / "flow.yaml"
        java = {"h2": json.dumps(in_h2), "derby": json.dumps(in_derby)}
        flow.write_text(FLOW.format(shop=SHOP, brokers=kafka.brokers, prefix=prefix, url=server.url, **java))
        done = run_until_idle(flow, env={**env, "PICKY": "1"})
        assert "the target of flow function refused" in done.err
        with sqlite3.connect(tmp_path / "mart.db") as mart:
            found = mart.execute("SELECT id, _ums_id_, status FROM orders WHERE _is_active_ = 1")
            expected = {key: (id_, status) for key, id_, status in found}
        assert len(expected) > 1000
        select = 'SELECT "id", "_ums_id_", "status" FROM "orders" WHERE "_is_active_" = 1'
        for database, made in ((h2, in_h2), (derby, in_derby)):
            found = database.execute(select, schema=str(made["schema"]))
            assert {int(key): (id_, status) for key, id_, status in found} == expected

        topic = [json.loads(value or b"") for _, value, _ in records(kafka.client(), f"{prefix}orders")]
        assert newest(topic) == expected
        ids = [row["_ums_id_"] for row in topic]
        assert len(ids) == len(set(ids)), "each change is there once"
        posted = [row for request in server.taken for row in json.loads(request.body)["rows"]]
        assert newest(posted) == expected
        assert {tuple(row) for row in posted} == {("id", "status", "total", "_ums_id_", "_ums_ts_", "_is_active_")}

        assert newest(taken(tmp_path)) != expected
        listed = headrace("errors", "ls", flow, "--flow", "function", env=env)
        assert "not every one that was cancelled" in listed.out
        replayed = headrace("errors", "replay", flow, env=env)
        assert (replayed.code, replayed.err) == (0, "")
        assert replayed.out.startswith("function: ")
        assert newest(taken(tmp_path)) == expected


def taken(directory: Path) -> Iterator[dict[str, Any]]:
    return map(json.loads, (directory / "taken.jsonl").read_text().splitlines())
