"""What a run tells InfluxDB, OpenTelemetry and OpenLineage: figures in, what real HTTP receivers get out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from headrace.errors import ConfigError, SourceError
from headrace.flow.load import load
from headrace.flow.spec import PipelineSpec
from headrace.registry import load as load_class
from headrace.stream.exports.base import checked, exporting
from headrace.stream.exports.influx import line_of
from headrace.stream.exports.lineage import origin, target
from headrace.ums.schema import Namespace
from tests.control import shop
from tests.patience import wait_until
from tests.servers.process import free_port
from tests.servers.webhook import Answer, Webhook

ORDERS = "mysql.db1.shop.orders.3.0.0"


@pytest.fixture
def server() -> Iterator[Webhook]:
    with Webhook() as started:
        yield started


def pipeline(tmp_path: Path, **options: str) -> PipelineSpec:
    (tmp_path / "flow.yaml").write_text(shop(**options))
    return load(tmp_path / "flow.yaml")


def figures(rows: int, *, ended_ms: int = 0, **more: Any) -> dict[str, dict[str, Any]]:
    """Of a run that has captured and delivered so many rows."""
    part = {
        "rows": {ORDERS: rows},
        "failed": {},
        "bytes": {ORDERS: rows * 10},
        "latency": {ORDERS: {"3": rows}},
        "latency_ms": {ORDERS: rows * 9},
        "heartbeats": {},
        "retries": 0,
        "lag_ms": 12.5,
        "silent": "",
    }
    times = {"began_ms": 1_000, "ended_ms": ended_ms} if ended_ms else {}
    flow = {**part, "commits": rows, **more}
    return {"capture-db1": {**part, **times}, "deliver-db1": {"flows": {"mart": flow}, **times}}


def fails(spec: PipelineSpec, *seen: dict[str, dict[str, Any]]) -> None:
    """A run that ends by an error when it has shown these figures."""
    with exporting([spec], print) as look:
        for each in seen:
            look(each)
        raise SourceError("it is over", fix="begin again")


def lines_of(text: bytes) -> list[tuple[str, dict[str, str]]]:
    """Measurement with tags, and fields, of lines that have nothing escaped."""
    found = []
    for line in text.decode().splitlines():
        head, fields, at = line.split(" ")
        assert 10**18 < int(at) < 10**19, "nanoseconds"
        found.append((head, dict(field.split("=") for field in fields.split(","))))
    return found


def test_each_period_has_what_came_in_it(server: Webhook, tmp_path: Path) -> None:
    spec = pipeline(tmp_path, influx=f'{{url: "{server.url}", token: "abc", every: 100ms, tags: {{pipeline: shop}}}}')
    with exporting([spec], print) as look:
        wait_until(lambda: look(figures(5)) or server.taken)
        look(figures(7))
    written = [line for request in server.taken for line in lines_of(request.body)]
    assert {request.headers["authorization"] for request in server.taken} == {"Token abc"}
    delivered = [
        fields
        for head, fields in written
        if head == "headrace_stages,flow=mart,pipeline=shop,source=db1,stage=delivered"
    ]
    assert sum(int(fields["changes"].rstrip("i")) for fields in delivered) == 7
    assert delivered[0] == {
        "changes": "5i", "failed": "0i", "bytes": "50i", "errors": "0i", "latency_p50_ms": "7.5", "latency_p99_ms": "9.95",
        "lag_ms": "12.5", "silent": "false",
    }  # fmt: skip
    tables = {head for head, _ in written if head.startswith("headrace_tables")}
    assert "headrace_tables,pipeline=shop,source=db1,stage=captured,table=mysql.db1.shop.orders" in tables


def test_lines_go_to_the_end_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "figures" / "shop.lp"
    spec = pipeline(tmp_path, influx="{path: ./figures/shop.lp, every: 1h}")
    for rows in (5, 6):
        with exporting([spec], print) as look:
            look(figures(rows))
    stages = [fields["changes"] for head, fields in lines_of(path.read_bytes()) if "stage=delivered" in head]
    assert stages == ["5i", "5i", "6i", "6i"]


def test_a_disk_that_is_full_is_told_once(tmp_path: Path) -> None:
    told: list[str] = []
    with exporting([pipeline(tmp_path, influx="{path: /dev/full, every: 100ms}")], told.append) as look:
        wait_until(lambda: look(figures(5)) or told)
    assert told == ["influx: could not append to /dev/full: No space left on device"]


def test_names_are_escaped() -> None:
    record = {
        "source": "a b",
        "stage": "captured",
        "flow": "",
        "path": "x,y=z",
        "changes": 1,
        "silent": None,
        "lag_ms": 2.0,
    }
    assert line_of(record, {}, 5) == r"headrace_tables,source=a\ b,stage=captured,table=x\,y\=z changes=1i,lag_ms=2.0 5"


def test_a_server_that_is_away_holds_nothing_up_and_is_told_once(server: Webhook, tmp_path: Path) -> None:
    told: list[str] = []
    spec = pipeline(tmp_path, influx=f'{{url: "{server.url}", every: 100ms}}')
    server.stop()
    with exporting([spec], told.append) as look:
        wait_until(lambda: look(figures(5)) or told)
        server.start()
        wait_until(lambda: server.taken)
        server.answer = lambda request: Answer(400, body=b"no such bucket")
        wait_until(lambda: look(figures(6)) or len(told) > 1)
    assert "does not answer" in told[0]
    assert "400: no such bucket" in told[1]
    assert len(told) == 2


def spans_of(server: Webhook) -> dict[str, Span]:
    found = {}
    for request in server.taken:
        assert request.headers["content-type"] == "application/x-protobuf"
        message = ExportTraceServiceRequest.FromString(request.body)
        for resource in message.resource_spans:
            names = {each.key: each.value.string_value for each in resource.resource.attributes}
            assert names["service.name"] == "shop"
            found |= {span.name: span for scope in resource.scope_spans for span in scope.spans}
    return found


def attributes(span: Span) -> dict[str, int | str]:
    return {each.key: each.value.int_value or each.value.string_value or 0 for each in span.attributes}


def test_epochs_and_flows_are_spans(server: Webhook, tmp_path: Path) -> None:
    spec = pipeline(tmp_path, traces=f'{{url: "{server.url}", service: shop, headers: {{X-Key: abc}}}}')
    seen = figures(5, ended_ms=3_000, problem="the target is away")
    seen["capture-of-another-file"] = seen["capture-db1"]
    with pytest.raises(SourceError):
        fails(spec, figures(5), seen, seen)
    spans = spans_of(server)
    assert set(spans) == {"run", "capture db1", "deliver db1", "flow mart"}
    run, task, flow = spans["run"], spans["deliver db1"], spans["flow mart"]
    assert (run.status.code, run.status.message) == (2, "it is over")
    assert (task.start_time_unix_nano, task.end_time_unix_nano) == (1_000_000_000, 3_000_000_000)
    assert [link.span_id for link in task.links] == [run.span_id]
    assert task.trace_id != run.trace_id
    assert (flow.parent_span_id, flow.trace_id) == (task.span_id, task.trace_id)
    assert (flow.status.code, flow.status.message) == (2, "the target is away")
    assert {"headrace.rows": 5, "headrace.bytes": 50, "headrace.commits": 5}.items() <= attributes(flow).items()
    assert {request.headers["x-key"] for request in server.taken} == {"abc"}


FACET = {"type": "object", "required": ["_producer", "_schemaURL"]}
EVENT = {
    "type": "object",
    "required": ["eventTime", "eventType", "run", "job", "inputs", "outputs", "producer", "schemaURL"],
    "properties": {
        "eventTime": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d.*(Z|\+00:00)$"},
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "run": {"required": ["runId"], "properties": {"facets": {"additionalProperties": FACET}}},
        "job": {"required": ["namespace", "name"], "properties": {"facets": {"additionalProperties": FACET}}},
        "inputs": {"items": {"required": ["namespace", "name"], "properties": {"inputFacets": {"additionalProperties": FACET}}}},
        "outputs": {"items": {"required": ["namespace", "name"], "properties": {"outputFacets": {"additionalProperties": FACET}}}},
        "schemaURL": {"pattern": "^https://openlineage.io/spec/"},
    },
}  # fmt: skip
"""What OpenLineage's own schema demands of a run's event."""


def events_of(server: Webhook) -> list[dict[str, Any]]:
    events = [json.loads(request.body) for request in server.taken]
    for event in events:
        jsonschema.validate(event, EVENT)
        UUID(event["run"]["runId"])
    return events


def test_a_flow_starts_goes_on_and_completes_or_fails(server: Webhook, tmp_path: Path) -> None:
    spec = pipeline(tmp_path, lineage=f'{{url: "{server.url}", token: "abc", namespace: shop, every: 100ms}}')
    with exporting([spec], print) as look:
        look({})
        wait_until(lambda: look(figures(5)) or len(server.taken) > 1)
    with pytest.raises(SourceError):
        fails(spec, {})
    events = events_of(server)
    kinds = [event["eventType"] for event in events]
    assert (kinds[0], kinds[-3:]) == ("START", ["COMPLETE", "START", "FAIL"])
    assert set(kinds[1:-3]) == {"RUNNING"}
    assert {(event["job"]["namespace"], event["job"]["name"]) for event in events} == {("shop", "mart")}
    assert len({event["run"]["runId"] for event in events}) == 2
    completed, failed = events[-3], events[-1]
    [given], [made] = completed["inputs"], completed["outputs"]
    assert (given["namespace"], given["name"]) == ("headrace://mysql/db1", "shop.orders")
    assert given["inputFacets"]["inputStatistics"]["rowCount"] == 5
    assert (made["namespace"], made["name"]) == ("file", f"{tmp_path}/mart.db/orders")
    assert made["outputFacets"]["outputStatistics"]["size"] == 50
    assert failed["run"]["facets"]["errorMessage"]["message"].startswith("it is over")
    assert {request.headers["authorization"] for request in server.taken} == {"Bearer abc"}


@pytest.mark.parametrize(
    ("options", "namespace", "name"),
    [
        ({"type": "database", "url": "postgresql://me:hidden@pg:5432/mart", "schema": "s"}, "postgres://pg:5432", "mart.s.orders"),
        ({"type": "database", "url": "mariadb://me@db/mart"}, "mysql://db", "mart.orders"),
        ({"type": "lake", "path": "s3://bucket/lake"}, "s3://bucket", "lake/mysql.db1.shop.orders"),
        ({"type": "kafka", "brokers": "k1:9092,k2:9092", "topic": "{schema}-{table}"}, "kafka://k1:9092", "shop-orders"),
        ({"type": "memory", "name": "m"}, "headrace://memory", "shop.orders"),
    ],
)  # fmt: skip
def test_targets_are_named_as_openlineage_names_them(options: dict[str, Any], namespace: str, name: str) -> None:
    to = load_class("sinks", options["type"]).Config.model_validate(options)  # type: ignore[attr-defined]
    assert target(to, Namespace("mysql", "db1", "shop", "orders")) == (namespace, name)


def test_a_source_is_named_by_its_server(tmp_path: Path) -> None:
    source = '{type: mysql, name: db1, host: db1.internal, port: 3307, user: a, password: b, tables: ["shop.*"]}'
    [found] = pipeline(tmp_path, source=source).source
    assert origin(found) == "mysql://db1.internal:3307"


def test_check_says_who_cannot_be_told_and_stops_nothing(server: Webhook, tmp_path: Path) -> None:
    away = f'"http://127.0.0.1:{free_port()}/x"'
    spec = pipeline(tmp_path, influx=f"{{url: {away}}}", traces=f"{{url: {away}}}", lineage=f"{{url: {away}}}")
    found = list(checked(spec))
    advice = {name: finding for name, finding in found if finding is not None}
    assert set(advice) == {"influx", "traces", "lineage"}
    assert not any(finding.stops for finding in advice.values())
    here = f'{{url: "{server.url}"}}'
    well = list(checked(pipeline(tmp_path, influx=here, traces=here, lineage=here)))
    assert well == [("influx", None), ("traces", None), ("lineage", None)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"influx": "{every: 5s}"}, "`url` or `path`"),
        ({"influx": "{path: ./x, token: abc}"}, "a file needs neither"),
        ({"influx": '{path: ./x, tags: {table: "t"}}'}, "a tag `table` of their own"),
        ({"traces": "{url: collector}"}, "http://host:port/path"),
        ({"lineage": "{url: 'http://m/', colour: red}"}, "colour"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        pipeline(tmp_path, **options)
