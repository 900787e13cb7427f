"""What a person reads of a target that is away, or of options that are wrong, has no credentials in it."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError, HeadraceError
from headrace.flow.load import load
from headrace.stream.parts import open_sink

SECRET = "s3cret-%40-word"
AWAY = "127.0.0.1:1"
TARGETS: dict[str, str] = {
    "postgresql": f"{{type: database, url: 'postgresql://me:{SECRET}@{AWAY}/mart'}}",
    "mysql": f"{{type: database, url: 'mysql://me:{SECRET}@{AWAY}/mart'}}",
    "redis": f"{{type: redis, url: 'redis://me:{SECRET}@{AWAY}/0'}}",
    "opensearch": f"{{type: opensearch, url: 'http://me:{SECRET}@{AWAY}'}}",
    "opensearch-key": f"{{type: opensearch, url: 'http://{AWAY}', api_key: '{SECRET}'}}",
    "cassandra": f"{{type: cassandra, hosts: '{AWAY}', keyspace: k, user: me, password: '{SECRET}'}}",
    "clickhouse": f"{{type: clickhouse, url: 'http://{AWAY}', password: '{SECRET}'}}",
    "doris": f"{{type: doris, frontends: ['{AWAY}'], query: '{AWAY}', database: d, password: '{SECRET}'}}",
    "avro": f"{{type: kafka, brokers: '{AWAY}', timeout: 1, format: avro, registry: {{url: 'http://{AWAY}', user: me, password: '{SECRET}'}}}}",
    "webhook": f"{{type: webhook, url: 'http://me:{SECRET}@{AWAY}/hook?token={SECRET}', headers: {{Authorization: '{SECRET}'}}, secret: '{SECRET}'}}",
    "kafka": f"{{type: kafka, brokers: '{AWAY}', timeout: 1, sasl: {{mechanism: PLAIN, username: me, password: '{SECRET}'}}}}",
}


def pipeline(directory: Path, target: str) -> Any:
    path = directory / "flow.yaml"
    path.write_text(
        "source: {type: statistics, name: s}\nlog: {type: directory, path: ./log}\nstate: ./state\n"
        f"flows:\n  - {{name: f, from: statistics, to: {target}}}\n"
    )
    return load(path)


def shown(error: BaseException | None) -> str:
    """An error with all that stands behind it."""
    text = ""
    while error is not None:
        text += f"{error!r} {error}\n"
        error = error.__cause__
    return text


@pytest.mark.parametrize("name", TARGETS)
def test_a_target_that_is_away(name: str, tmp_path: Path) -> None:
    [flow] = pipeline(tmp_path, TARGETS[name]).flows
    with closing(open_sink(flow)) as sink, pytest.raises(HeadraceError) as raised:
        sink.check()
    assert SECRET not in shown(raised.value)
    assert "s3cret-@-word" not in shown(raised.value)


@pytest.mark.parametrize(
    "wrong", ["colour: red", "timeout: never", "batch_rows: -1", "tls: 7", "system_columns: {id: 'a b'}"]
)
@pytest.mark.parametrize("name", TARGETS)
def test_options_that_are_wrong(name: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        pipeline(tmp_path, f"{TARGETS[name][:-1]}, {wrong}}}")
    assert SECRET not in shown(raised.value)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_printed_of_options(name: str, tmp_path: Path) -> None:
    loaded = pipeline(tmp_path, TARGETS[name])
    assert SECRET not in f"{loaded!r} {loaded} {loaded.flows[0].to!r}"


@pytest.mark.parametrize(
    ("target", "told"),
    [
        (f"{{type: redis, url: 'redis://me:{SECRET}@127.0.0.1:port/0'}}", "number of the database"),
        (f"{{type: redis, url: 'redis://me:{SECRET}@127.0.0.1/mart'}}", "number of the database"),
        (f"{{type: redis, url: 'redis://me:{SECRET}@127.0.0.1/0?socket_timeot=5'}}", "socket_timeot"),
        (f"{{type: redis, url: 'redis://127.0.0.1/0?db={SECRET}'}}", "'db'"),
        (f"{{type: hbase, url: 'thrift://me:{SECRET}@127.0.0.1:9090'}}", "takes no user and password"),
        ("{type: hbase, url: 'thrift://127.0.0.1:port'}", "thrift://host:9090"),
        (f"{{type: opensearch, url: 'http://me:{SECRET}@127.0.0.1:port'}}", "user:password@host:9200"),
    ],
)
def test_a_url_that_no_client_takes_is_told_before_anything_starts(target: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)) as raised:
        pipeline(tmp_path, target)
    assert SECRET not in shown(raised.value)
