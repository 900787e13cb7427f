"""Spans for OpenTelemetry, by OTLP over HTTP.

::

    run                                      the whole of it; its end, and the error that ended it
      <──link── capture db1                  an epoch of a task: a trace of its own, so that none grows for ever
      <──link── deliver db1
                  └── flow mart              what a flow delivered in it

Tasks tell when an epoch began and ended (stream/epoch.py); spans are made of that, so nothing is measured for them, and executors need no collector.
Counts of a span are what came on top since the one before it was made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Link, Span, Status, StatusCode, Tracer, set_span_in_context

from headrace.errors import Finding
from headrace.flow.monitoring import TracesSpec
from headrace.flow.spec import PipelineSpec
from headrace.stream.exports.base import Tell
from headrace.stream.figures import Json

_TIMEOUT_S = 10.0
_CHECK_S = 2.0
_COUNTED = ("rows", "bytes", "failed")
_SUMS = ("commits", "retries")
_Counts = dict[str, int]


class Exporter:
    """An `Export` of one flow file."""

    def __init__(self, pipeline: PipelineSpec, tell: Tell) -> None:
        assert pipeline.traces is not None
        self._spec = pipeline.traces
        self._tell = tell
        self._provider: TracerProvider | None = None
        self._run: Span | None = None
        self._flows = [flow.name for flow in pipeline.flows]
        self._sources = [source.name for source in pipeline.source]
        self._ended_ms: dict[str, int] = {}
        self._counted: dict[tuple[str, ...], _Counts] = {}

    def begin(self) -> None:
        self._provider = TracerProvider(resource=Resource.create({"service.name": self._spec.service}))
        exporter = _Telling(_exporter(self._spec), self._spec.url, self._tell)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._run = self._tracer().start_span("run", attributes={"headrace.flows": self._flows})

    def look(self, figures: dict[str, Json]) -> None:
        for task, reported in figures.items():
            ended_ms = reported.get("ended_ms")
            if ended_ms is None or self._ended_ms.get(task) == ended_ms or not self._is_ours(task):
                continue
            self._ended_ms[task] = ended_ms
            self._epoch(task, reported)

    def end(self, error: BaseException | None) -> None:
        assert self._provider is not None
        assert self._run is not None
        if error is not None:
            self._run.set_status(
                Status(StatusCode.ERROR, str(error).splitlines()[0] if str(error) else type(error).__name__)
            )
        self._run.end()
        self._provider.shutdown()

    def check(self) -> Iterator[Finding]:
        exporter = _exporter(self._spec, _CHECK_S)
        try:
            # A request without spans: a collector takes it, and has nothing of it.
            if exporter.export([]) is not SpanExportResult.SUCCESS:
                yield Finding(
                    f"no collector takes spans at {self._spec.url}",
                    "start it, or correct `url` of `traces`",
                    stops=False,
                )
        finally:
            exporter.shutdown()  # type: ignore[no-untyped-call]

    def _tracer(self) -> Tracer:
        assert self._provider is not None
        return self._provider.get_tracer("headrace")

    def _is_ours(self, task: str) -> bool:
        """Whether it works for a source of this flow file (names of tasks: stream/tasks.py)."""
        of = task.partition("-")[2]
        return any(of == name or of.startswith(f"{name}-") for name in self._sources)

    def _epoch(self, task: str, reported: Json) -> None:
        assert self._run is not None
        tracer = self._tracer()
        began_ns, ended_ns = (reported[name] * 1_000_000 for name in ("began_ms", "ended_ms"))
        kind, _, source = task.partition("-")
        flows = reported.get("flows", {})
        span = tracer.start_span(
            f"{kind} {source}",
            links=[Link(self._run.get_span_context())],
            attributes={"headrace.task": task, **self._new((task,), reported)},
            start_time=began_ns,
        )
        for follower, part in flows.items():
            counts = self._new((task, follower), part)
            of_flow = tracer.start_span(
                f"flow {follower.partition('.')[0]}",
                context=set_span_in_context(span),
                attributes={"headrace.follower": follower, **counts},
                start_time=began_ns,
            )
            _judge(of_flow, part)
            of_flow.end(ended_ns)
        _judge(span, reported)
        span.end(ended_ns)

    def _new(self, of: tuple[str, ...], part: Json) -> Mapping[str, int]:
        """What came on top since the last span of the same."""
        now = {name: sum(part[name].values()) for name in _COUNTED if name in part}
        now |= {name: part[name] for name in _SUMS if name in part}
        before, self._counted[of] = self._counted.get(of, {}), now
        return {f"headrace.{name}": count - before.get(name, 0) for name, count in now.items()}


class _Telling(SpanExporter):
    """Says once that nobody takes spans, and again when somebody did in between; the library would say it with each batch."""

    def __init__(self, exporter: OTLPSpanExporter, url: str, tell: Tell) -> None:
        self._exporter = exporter
        self._url = url
        self._tell = tell
        self._is_told = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        is_lost = result is not SpanExportResult.SUCCESS
        if is_lost and not self._is_told:
            self._tell(f"traces: no collector takes spans at {self._url}; they are lost")
        self._is_told = is_lost
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


def _judge(span: Span, part: Json) -> None:
    if problem := part.get("problem"):
        span.set_status(Status(StatusCode.ERROR, problem))


def _exporter(spec: TracesSpec, timeout_s: float = _TIMEOUT_S) -> OTLPSpanExporter:
    logging.getLogger("opentelemetry.exporter.otlp").setLevel(logging.CRITICAL)  # it is said once, in our words
    certificate = str(spec.ca) if spec.ca is not None else None
    return OTLPSpanExporter(endpoint=spec.url, headers=spec.headers, certificate_file=certificate, timeout=timeout_s)
