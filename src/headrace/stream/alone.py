"""What is done with a flow file in this process, without Spark: capture alone, check, skip."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import closing, suppress
from functools import partial

from headrace.capture.base import ReadsLog
from headrace.capture.mask import Masker
from headrace.capture.runner import Captured, resume_point, skip
from headrace.errors import Finding, HeadraceError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec, PipelineSpec
from headrace.log.base import Span
from headrace.model import SourceConfig
from headrace.retry import Backoff
from headrace.sinks.base import refused
from headrace.stream.exports.base import checked
from headrace.stream.figures import Json, Progress, Throttle, capture_figures
from headrace.stream.parts import capture, open_log, open_sink, open_source, open_transform
from headrace.stream.watch import Watch
from headrace.stream.watermarks import reporting_capture, with_watermarks
from headrace.ums.change import Mark
from headrace.ums.schema import TableSchema

_PROGRESS_EVERY_S = 0.25


def capture_all(
    pipeline: PipelineSpec, *, over: Callable[[], bool], until_idle: bool, progress: Progress
) -> dict[str, int]:
    """Captures all sources of a pipeline in this process, a thread each, until `over()`; changes captured per source.

    `progress` is called with the newest figures of all, and what a `Watch` makes of them, several times a second and once at the
    end. The first error of a source ends the others at a whole transaction and is raised.
    """
    with with_watermarks(pipeline) as told:
        return _capture_all(told, over, until_idle=until_idle, progress=progress)


def _capture_all(
    pipeline: PipelineSpec, over: Callable[[], bool], *, until_idle: bool, progress: Progress
) -> dict[str, int]:
    failed = threading.Event()
    figures: dict[str, Json] = {}
    ends = _Ends(pipeline, until_idle=until_idle)
    watch = Watch([pipeline], delivers=False, until_idle=until_idle)
    with ThreadPoolExecutor(len(pipeline.source), thread_name_prefix="capture") as pool:
        running = {
            source.name: pool.submit(_capture_alone, source, pipeline, lambda: failed.is_set() or over(), figures, ends)
            for source in pipeline.source
        }
        left = set(running.values())
        try:
            while left:
                ended, left = wait(left, _PROGRESS_EVERY_S, FIRST_COMPLETED)
                if any(each.exception() is not None for each in ended):
                    failed.set()
                progress(watch.look(dict(figures)))
        finally:
            failed.set()
    return {name: sum(each.result().rows.values()) for name, each in running.items()}


class _Ends:
    """Where topics end, for sources that are computed from them: those that are captured here when that is done, all others where they end now."""

    def __init__(self, pipeline: PipelineSpec, *, until_idle: bool) -> None:
        self.until_idle = until_idle
        self._pipeline = pipeline
        self._names = {source.name for source in pipeline.source}
        self.captured: dict[str, dict[int, int]] = {}

    def of(self, topic: str, partition: int) -> int | None:
        if topic in self._names:
            return self.captured.get(topic, {}).get(partition)
        with closing(open_log(self._pipeline)) as log:
            return log.spans(topic).get(partition, Span(0, 0)).stop


def _capture_alone(
    config: SourceConfig,
    pipeline: PipelineSpec,
    over: Callable[[], bool],
    figures: dict[str, Json],
    ends: _Ends,
) -> Captured:
    def progress(captured: Captured) -> None:
        if throttle.is_due() or captured.problem:
            figures[f"capture-{config.name}"] = capture_figures(captured)

    throttle = Throttle(_PROGRESS_EVERY_S)
    with reporting_capture(config, pipeline) as report:
        captured = capture(
            config,
            pipeline,
            over=over,
            until_idle=ends.until_idle,
            backoff=Backoff(pipeline.give_up_after),
            progress=progress,
            durable=report.durable,
            ended=ends.of,
            low_us=report.low_us,
        )
    ends.captured[config.name] = captured.ends
    figures[f"capture-{config.name}"] = capture_figures(captured)
    return captured


def check_all(pipeline: PipelineSpec) -> Iterator[tuple[str, Finding | str | None]]:
    """Tests the log and every source and target: what was found of each, None for what would not stop a run; and in words
    what flows make of the tables.

    Raises the error of the first that cannot be reached or used at all.
    """
    log = open_log(pipeline)
    try:
        newest = {config.name: resume_point(log, config.name) for config in pipeline.source}
    finally:
        log.close()
    yield "log", None
    tables: list[TableSchema] = []
    for config in pipeline.source:
        yield from _told(f"source {config.name}", _of_source(config, pipeline, newest[config.name], tables))
        yield from ((f"source {config.name}", text) for text in _how_computed(config, pipeline))
    for flow in pipeline.flows:
        yield from ((f"flow {flow.name}", text) for text in _what_is_computed(flow, tables))
        yield from _told(f"flow {flow.name}: target", _of_target(flow, tables))
    yield from checked(pipeline)


def _told(name: str, findings: Iterable[Finding]) -> Iterator[tuple[str, Finding | None]]:
    """The findings, or None when none of them would stop a run."""
    stops = False
    for finding in findings:
        stops |= finding.stops
        yield name, finding
    if not stops:
        yield name, None


def _of_source(
    config: SourceConfig, pipeline: PipelineSpec, newest: Mark | None, tables: list[TableSchema]
) -> Iterator[Finding]:
    """What a source has to say; its tables, as the log will have them, go to `tables`."""
    source, masker = open_source(config, pipeline), Masker(config, None)
    stops = False

    def mask(table: TableSchema) -> None:
        tables.append(masker.plan(table).table)

    try:
        for finding in source.check(newest):
            stops |= finding.stops
            yield finding
        for found in () if stops else source.tables_now():
            if isinstance(found, Finding):
                yield found
            else:
                yield from refused(partial(mask, found))
    finally:
        source.close()


def _how_computed(config: SourceConfig, pipeline: PipelineSpec) -> Iterator[str]:
    """How a source that is computed from others is; what stands against it is a finding of its own."""
    source = open_source(config, pipeline)
    try:
        if isinstance(source, ReadsLog):
            with suppress(HeadraceError):
                yield source.explained()
    finally:
        source.close()


def _what_is_computed(flow: FlowSpec, tables: Sequence[TableSchema]) -> Iterator[str]:
    """What comes out of each table that fits a flow's SQL; what does not fit is a finding of its target."""
    shaper, transform = Shaper(flow), open_transform(flow)
    if transform is None:
        return
    for table in tables:
        if not shaper.wants(str(table.namespace).encode()):
            continue
        with suppress(HeadraceError):
            out, computed = transform.table(shaper.table(table)), transform.computed(shaper.table(table))
            columns = ", ".join(f"{column.name} {column.source_type}" for column in out.columns)
            key = f"key {', '.join(out.key)}" if out.key else "no key"
            how = f"computed row by row: {', '.join(computed) or 'nothing'}; keeps no state"
            yield f"{table.namespace.all_versions} becomes ({columns}), {key}; {how}"


def _of_target(flow: FlowSpec, tables: Sequence[TableSchema]) -> Iterator[Finding]:
    """What a target has to say of the tables that the flow brings."""
    shaper, sink = Shaper(flow), open_sink(flow)
    wanted: list[TableSchema] = []

    def shape(table: TableSchema) -> None:
        wanted.append(shaper.table(table))

    try:
        sink.check()
        for table in tables:
            if shaper.wants(str(table.namespace).encode()):
                yield from refused(partial(shape, table))
        yield from sink.misfits(wanted)
    finally:
        sink.close()


def skip_gap(pipeline: PipelineSpec, name: str, to: str) -> tuple[Mark, Mark, list[str]]:
    """Lets the capture of a source go on at `to` (runner.skip): the marks before and after, and the tables to be loaded again."""
    config = next(source for source in pipeline.source if source.name == name)
    log, source = open_log(pipeline), open_source(config, pipeline)
    try:
        before, after = skip(source, log, name, to, source_type=config.type, partitions=config.partitions)
        namespaces = [table.namespace for table in source.tables()]
        return before, after, sorted(f"{namespace.schema}.{namespace.table}" for namespace in namespaces)
    finally:
        source.close()
        log.close()
