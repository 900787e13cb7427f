"""The import rules of ARCHITECTURE.md, and that there is no cycle. Imports inside functions count like all others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "headrace"
GROUND = {
    "errors",
    "model",
    "on_change",
    "retry",
    "files",
    "storage",
    "crash",
    "registry",
    "own_database",
    "guarded_http",
    "tls",
    "signing",
    "_native",
    "__init__",
}
"""Modules at the top that any room may use; they import only each other."""

ALLOWED: dict[str, set[str]] = {
    "ums": set(),
    "log": set(),
    "codec": {"log", "ums"},
    "lake": {"ums"},
    "sinks": {"ums", "lake", "codec", "log"},
    "capture": {"codec", "log", "ums"},
    "compute": {"capture", "codec", "lake", "log", "sinks", "ums"},
    "doris": {"codec", "log", "sinks", "ums"},
    "watermark": set(),
    "verify": {"ums", "lake", "sinks", "capture", "codec", "compute", "flow", "log", "stream"},
    "flow": {"ums", "watermark", "compute"},
    "stream": {"flow", "capture", "codec", "compute", "sinks", "lake", "log", "ums", "watermark"},
    "spark": {"stream"},
    "control": {"flow"},
    "testing": {"log", "sinks", "ums"},
    "__main__": {"cli"},
    "cli": {
        "ums",
        "log",
        "codec",
        "lake",
        "sinks",
        "capture",
        "compute",
        "verify",
        "flow",
        "stream",
        "watermark",
        "doris",
        "control",
    },
}
"""Room -> rooms that it may import, besides itself and the ground."""

ONLY_IN: dict[str, set[str]] = {
    "pyspark": {"stream", "spark"},
    "cassandra": {"sinks.cassandra.session"},
    "clickhouse_connect": {"sinks.clickhouse.server", "sinks.clickhouse.tables"},
    "confluent_kafka": {"log.kafka", "sinks.kafka"},
    "deltalake": {"lake.derived.delta"},
    "duckdb": {"compute.engine", "sinks.database.duckdb"},
    "fastavro": {"sinks.kafka_avro"},
    "h11": {"sinks.doris.http"},
    "hdfs_native": {"storage.hdfs"},
    "opensearchpy": {"sinks.opensearch.server", "sinks.opensearch.indices"},
    "obstore": {"storage.s3"},
    "openlineage": {"stream.exports.lineage"},
    "opentelemetry": {"stream.exports.traces"},
    "numpy": {"watermark"},
    "smtplib": {"control.alerts.sending"},
    "prometheus_client": {"control.api", "doris.metrics", "stream.metrics", "watermark.api"},
    "psycopg": {"sinks.database.postgresql"},
    "pgpq": {"sinks.database.postgresql_rows"},
    "jpype": {f"sinks.jdbc.{module}" for module in ("binding", "connection", "dialect", "jvm", "rows")},
    "msgpack": {"sinks.redis_rows"},
    "redis": {"compute.lookups.redis", "sinks.redis", "sinks.redis_config"},
    "sqlalchemy": {"compute.lookups.database", "control", "doris.store", "own_database", "watermark.store"},
    "argon2": {"control.people"},
    "fastapi": {"control.api"},
    "starlette": {
        "control.api",
        "doris.api",
        "guarded_http",
        "watermark.api",
        "watermark.embedded",
        "watermark.simulate",
    },
    "uvicorn": {"control.api", "guarded_http", "watermark.embedded"},
    "thriftpy2": {"sinks.hbase.client", "sinks.hbase.protocol"},
    "sqlite3": {"sinks.database.sqlite"},
    "pymysql": {"sinks.database.mysql", "sinks.database.mysql_bulk", "sinks.doris.sql", "capture.connection"},
    "urllib3": {
        "doris.client",
        "sinks.clickhouse.server",
        "sinks.kafka_registry",
        "sinks.webhook",
        "stream.exports.outbox",
        "watermark.client",
        "watermark.naming",
        "control.alerts.sending",
    },
    "yaml": {"flow.load"},
    "mmh3": {"capture.mask_kinds"},
    "click": {"cli"},
    "rich": {"cli", "verify.report"},
}
"""Heavy or outside libraries -> the rooms or modules that may import them."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Full names of what a module imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def own_imports(module: str) -> Iterator[str]:
    """Modules of headrace that a module imports."""
    known = modules()
    for name in imports(module):
        if name == "headrace" or not name.startswith("headrace."):
            continue
        parts = name.split(".")[1:]
        for length in range(len(parts), 0, -1):
            if ".".join(parts[:length]) in known:
                yield ".".join(parts[:length])
                break


def room(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    allowed = GROUND | ({room(module)} | ALLOWED[room(module)] if room(module) not in GROUND else set())
    wrong = {name for name in own_imports(module) if room(name) not in allowed}
    assert not wrong, f"{module} must not import {sorted(wrong)}"


@pytest.mark.parametrize("module", modules())
def test_outside_libraries_stay_in_their_rooms(module: str) -> None:
    for name in imports(module):
        homes = ONLY_IN.get(name.partition(".")[0])
        assert homes is None or any(module == home or module.startswith(f"{home}.") for home in homes), (
            f"{module} must not import {name}"
        )


def test_there_is_no_cycle() -> None:
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        path.append(module)
        for name in own_imports(module):
            if name != module:
                visit(name)
        path.pop()
        done.add(module)

    for module in modules():
        visit(module)


def test_every_room_has_a_rule() -> None:
    assert {room(module) for module in modules()} - GROUND == set(ALLOWED)
