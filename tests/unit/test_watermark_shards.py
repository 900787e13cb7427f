"""Shards of one table at a real Watermark Server: a flow that takes all of them is as far as the one farthest back, also when there is one more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
import yaml

from headrace.flow.load import load
from headrace.stream.watermarks import client_of, flow_stage, source_stage, with_watermarks
from headrace.watermark.client import StageClient, WatermarkClient
from headrace.watermark.wire import NEVER
from tests.patience import wait_until


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def run_of(directory: Path, shards: list[str], opened: ExitStack) -> tuple[WatermarkClient, dict[str, StageClient]]:
    """The Watermark Server of a run with these shards, asked by a client, and who reports for each: as long as it lasts, for a shard counts when it is listed."""
    server = {"type": "mysql", "host": "db.internal", "user": "repl", "password": "secret", "tables": ["shop.orders"]}
    target = {"type": "database", "url": "sqlite:///mart.db", "table": "orders", "merge": True}
    content = {
        "source": [server | {"name": shard} for shard in shards],
        "log": {"type": "directory", "path": "./log"},
        "state": "./state",
        "watermark": {},
        "flows": [{"name": "orders", "from": [f"mysql.{shard}.shop.orders" for shard in shards], "to": target}],
    }
    path = directory / "shards.yaml"
    path.write_text(yaml.safe_dump(content))
    pipeline = opened.enter_context(with_watermarks(load(path)))
    assert pipeline.watermark is not None
    client = opened.enter_context(closing(client_of(pipeline.watermark)))
    stages = {shard: client.stage("run", source_stage(shard), report_every_s=0.05) for shard in shards}
    for stage in stages.values():
        opened.enter_context(closing(stage))
    return client, stages


def until_is(client: WatermarkClient, until_us: int) -> None:
    wait_until(lambda: client.low("run", flow_stage("orders")).input_us == until_us)


def test_the_shard_farthest_back_counts_and_a_new_one_is_waited_for(tmp_path: Path, opened: ExitStack) -> None:
    with ExitStack() as first:
        client, stages = run_of(tmp_path, ["db1", "db2"], first)
        stages["db1"].passed({"db1": 100})
        wait_until(lambda: client.low("run", source_stage("db1")).output_us == 100)
        assert client.low("run", flow_stage("orders")).input_us == NEVER
        stages["db2"].passed({"db2": 60})
        until_is(client, 60)
        stages["db2"].passed({"db2": 200})
        until_is(client, 100)
    client, stages = run_of(tmp_path, ["db1", "db2", "db3"], opened)
    for shard in ("db1", "db2"):
        stages[shard].passed({shard: 500})
    wait_until(lambda: client.low("run", source_stage("db1")).output_us == 500)
    assert client.low("run", flow_stage("orders")).output_us <= 100
    stages["db3"].passed({"db3": 400})
    until_is(client, 400)
