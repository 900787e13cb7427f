"""OpenLineage events: each flow is a job, and a run of the flow file is a run of each.

::

    START ──> RUNNING, every `every` ──> COMPLETE   stopped, or all was delivered
                                    └──> FAIL       an error, which goes along
                                    └──> ABORT      ended from outside

Inputs are the tables that have passed so far, where they come from; outputs the same in the target, both named as OpenLineage names data sets
(``mysql://host:3306`` and ``shop.orders``), with how many rows and bytes have passed. Never a user, a password or an option.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlsplit

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    RunFacet,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
)
from openlineage.client.serde import Serde
from openlineage.client.uuid import generate_new_uuid

from headrace.errors import Finding
from headrace.flow.spec import FlowSpec, PipelineSpec
from headrace.model import Component, SourceConfig
from headrace.stream.exports.base import Tell
from headrace.stream.exports.outbox import Outbox, Poster
from headrace.stream.figures import Json
from headrace.stream.statistics import DELIVERED, LOAD_DELIVERED, lines, observed
from headrace.ums.schema import Namespace

_PRODUCER = "https://github.com/headrace/headrace"
_SCHEMES = {"postgresql": "postgres", "mariadb": "mysql"}
"""Where OpenLineage calls a store otherwise than its URL."""
_IN_FILES = {"sqlite", "duckdb"}
_TABLE_PATTERNS = ("table", "topic", "index")


@dataclass(slots=True)
class _Passed:
    rows: int = 0
    size_bytes: int = 0


class Exporter:
    """An `Export` of one flow file."""

    def __init__(self, pipeline: PipelineSpec, tell: Tell, elapsed: Callable[[], float] = time.monotonic) -> None:
        assert pipeline.lineage is not None
        self._spec = pipeline.lineage
        self._pipeline = pipeline
        self._tell = tell
        self._elapsed = elapsed
        headers = {"content-type": "application/json"}
        if self._spec.token is not None:
            headers["authorization"] = f"Bearer {self._spec.token.get_secret_value()}"
        self._poster = Poster(self._spec.url, headers, self._spec.ca)
        self._outbox: Outbox | None = None
        self._runs = {flow.name: str(generate_new_uuid()) for flow in pipeline.flows}
        self._newest: dict[str, Json] = {}
        self._due_s = 0.0

    def begin(self) -> None:
        self._outbox = Outbox("lineage", self._poster, self._tell)
        self._due_s = self._elapsed() + self._spec.every
        self._emit(RunState.START)

    def look(self, figures: dict[str, Json]) -> None:
        self._newest = figures
        if self._elapsed() >= self._due_s:
            self._due_s = self._elapsed() + self._spec.every
            self._emit(RunState.RUNNING)

    def end(self, error: BaseException | None) -> None:
        assert self._outbox is not None
        state = RunState.FAIL if isinstance(error, Exception) else RunState.ABORT
        self._emit(RunState.COMPLETE if error is None else state, error)
        self._outbox.close()

    def check(self) -> Iterator[Finding]:
        return self._poster.check()

    def _emit(self, state: RunState, error: BaseException | None = None) -> None:
        assert self._outbox is not None
        for flow in self._pipeline.flows:
            self._outbox.put(Serde.to_json(self._event(flow, state, error)).encode())

    def _event(self, flow: FlowSpec, state: RunState, error: BaseException | None) -> RunEvent:
        run_facets: dict[str, RunFacet] = {}
        if error is not None:
            run_facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
                str(error) or type(error).__name__, "Python", producer=_PRODUCER
            )
        job_type = job_type_job.JobTypeJobFacet(
            processingType="STREAMING", integration="HEADRACE", jobType="FLOW", producer=_PRODUCER
        )
        passed = self._passed(flow)
        return RunEvent(
            eventType=state,
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(self._runs[flow.name], run_facets),
            job=Job(self._spec.namespace, flow.name, {"jobType": job_type}),
            inputs=[self._input(table, counts) for table, counts in passed.items()],
            outputs=[_output(flow.to, table, counts) for table, counts in passed.items()],
            producer=_PRODUCER,
        )

    def _passed(self, flow: FlowSpec) -> dict[Namespace, _Passed]:
        """What of each table has passed the flow since the run began."""
        found: dict[Namespace, _Passed] = {}
        for line in lines(self._newest, observed(self._pipeline), time.time_ns() // 1000):
            if line.table and line.stage.name in (DELIVERED, LOAD_DELIVERED) and line.stage.flow == flow.name:
                counts = found.setdefault(Namespace.parse(f"{line.table}.0.0.0"), _Passed())
                counts.rows += line.rows
                counts.size_bytes += line.bytes
        return dict(sorted(found.items(), key=lambda item: str(item[0])))

    def _input(self, table: Namespace, counts: _Passed) -> InputDataset:
        source = next(source for source in self._pipeline.source if source.name == table.source)
        facet = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=counts.rows, size=counts.size_bytes, producer=_PRODUCER
        )
        name = f"{table.schema}.{table.table}"
        return InputDataset(origin(source), name, inputFacets={"inputStatistics": facet})


def origin(source: SourceConfig) -> str:
    """The namespace of a source's tables."""
    host, brokers = getattr(source, "host", None), getattr(source, "brokers", None)
    if host is not None:
        return f"{source.type}://{host}:{getattr(source, 'port', '')}".rstrip(":")
    if isinstance(brokers, str):
        return f"kafka://{brokers.partition(',')[0]}"
    return f"headrace://{source.type}/{source.name}"


def _output(to: Component, table: Namespace, counts: _Passed) -> OutputDataset:
    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=counts.rows, size=counts.size_bytes, producer=_PRODUCER
    )
    return OutputDataset(*target(to, table), outputFacets={"outputStatistics": facet})


def target(to: Component, table: Namespace) -> tuple[str, str]:
    """Namespace and name of what a table is in a target."""
    name = _name_in(to, table)
    if (path := getattr(to, "path", None)) is not None:
        place = urlsplit(str(path))
        if place.scheme:
            return f"{place.scheme}://{place.netloc}", f"{place.path.strip('/')}/{table.all_versions}"
        return "file", f"{path}/{table.all_versions}"
    if isinstance(brokers := getattr(to, "brokers", None), str):
        return f"kafka://{brokers.partition(',')[0]}", name
    url = getattr(to, "url", None)
    if not isinstance(url, str):
        return f"headrace://{to.type}", name
    place = urlsplit(url.removeprefix("jdbc:"))
    if place.scheme in _IN_FILES:
        return "file", f"{place.path.removeprefix('/')}/{name}"
    where = f"{place.hostname or ''}" + (f":{place.port}" if place.port else "")
    inside = [place.path.strip("/"), getattr(to, "db_schema", None), name]
    return f"{_SCHEMES.get(place.scheme, place.scheme)}://{where}", ".".join(part for part in inside if part)


def _name_in(to: Component, table: Namespace) -> str:
    """As the target's own pattern makes it, where it has one of that kind."""
    parts = {"type": table.type, "source": table.source, "schema": table.schema, "table": table.table}
    pattern = next((found for name in _TABLE_PATTERNS if isinstance(found := getattr(to, name, None), str)), None)
    try:
        return (pattern or "{schema}.{table}").format_map(parts)
    except (KeyError, ValueError, IndexError):
        return f"{table.schema}.{table.table}"
