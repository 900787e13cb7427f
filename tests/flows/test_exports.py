"""A run that tells InfluxDB, a collector of OpenTelemetry and a store of OpenLineage what it does: real receivers behind a real run."""

from __future__ import annotations

import json
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.control import shop
from tests.flows.command import headrace
from tests.servers.webhook import Webhook


def test_a_run_tells_all_three(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    with Webhook() as server:
        where = f'url: "{server.url}'
        options = {
            "influx": f'{{{where}/influx"}}',
            "traces": f'{{{where}/traces"}}',
            "lineage": f'{{{where}/lineage", namespace: shop}}',
        }
        flow.write_text(shop(**options))
        checked = headrace("check", flow)
        assert checked.code == 0, checked.err
        assert {f"{name}: fine" for name in options} <= {*checked.out.splitlines()}
        before = len(server.taken)
        ran = headrace("run", flow, "--until-idle")
        assert ran.code == 0, ran.err
        taken = server.taken[before:]
    bodies = {name: [request.body for request in taken if request.path == f"/hook/{name}"] for name in options}

    rows = 0
    for line in b"".join(bodies["influx"]).decode().splitlines():
        head, fields, _ = line.split(" ")
        if head == "headrace_stages,flow=mart,source=db1,stage=delivered":
            rows += int(dict(field.split("=") for field in fields.split(","))["changes"].rstrip("i"))
    events = [json.loads(body) for body in bodies["lineage"]]
    assert [events[0]["eventType"], events[-1]["eventType"]] == ["START", "COMPLETE"]
    facets = [each["outputFacets"]["outputStatistics"] for each in events[-1]["outputs"]]
    assert sum(facet["rowCount"] for facet in facets) == rows > 0
    assert {each["name"] for each in events[-1]["inputs"]} >= {"shop.orders", "shop.customers"}

    requests = [ExportTraceServiceRequest.FromString(body) for body in bodies["traces"]]
    spans = [
        span
        for request in requests
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]
    assert {"run", "capture db1", "deliver db1", "flow mart"} <= {span.name for span in spans}
    delivered = [each for span in spans if span.name == "flow mart" for each in span.attributes]
    assert sum(each.value.int_value for each in delivered if each.key == "headrace.rows") == rows
