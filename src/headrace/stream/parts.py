"""The parts that a flow file names, opened: its log, sources, masks and targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import registry
from headrace.capture.base import Event, ReadsLog, Source
from headrace.capture.changed_tables import ChangedTables
from headrace.capture.load.base import load_of
from headrace.capture.load.loading import lane_topics
from headrace.capture.mask import Masker
from headrace.capture.runner import Captured, run_capture
from headrace.errors import Finding
from headrace.flow.spec import FlowSpec, PipelineSpec
from headrace.log.base import Log
from headrace.model import SourceConfig
from headrace.retry import Backoff
from headrace.sinks.base import Sink
from headrace.ums.schema import TableSchema

if TYPE_CHECKING:
    from headrace.compute.transform import Transform


def open_log(pipeline: PipelineSpec) -> Log:
    """The pipeline's log, not yet touched."""
    log: Log = registry.load("logs", pipeline.log.type)(pipeline.log)
    return log


Ended = Callable[[str, int], int | None]
"""Where a partition of a topic ends for good; None while that is not known."""
Low = Callable[[], int | None]
"""The watermark of what a source reads from the log (capture.base.Upstream)."""


def open_source(
    config: SourceConfig, pipeline: PipelineSpec, ended: Ended | None = None, low_us: Low | None = None
) -> Source:
    """A source of the pipeline, not yet connected; its schema versions are kept under the pipeline's state.

    To sources that read what others put on the log: `ended`, of a run that ends when it is idle; `low_us`, where there are Watermark Servers.
    """
    source: Source = registry.load("sources", config.type)(config, state_of(config, pipeline))
    if isinstance(source, ReadsLog):
        source.read_from(_Upstream(pipeline.inputs_of(config), pipeline, ended, low_us))
    return source


class _Upstream:
    """What other sources of a pipeline put on its log (capture.base.Upstream)."""

    def __init__(
        self, sources: Sequence[SourceConfig], pipeline: PipelineSpec, ended: Ended | None, low_us: Low | None
    ) -> None:
        self._sources = sources
        self._pipeline = pipeline
        self._ended = ended
        self.is_finite = ended is not None
        self.low_us = low_us
        self._topics: list[str] = []
        self._at_rest: set[str] = set()
        """Topics of earlier loads, onto which nothing comes any more."""

    def log(self) -> Log:
        return open_log(self._pipeline)

    def topics(self, log: Log) -> Sequence[str]:
        if not self._topics:
            for source in self._sources:
                load = load_of(source)
                lanes = lane_topics(log, source.name, load)
                self._topics += [*lanes, source.name]
                self._at_rest.update(lanes if load is None else ())
        return self._topics

    def tables_now(self) -> Iterator[TableSchema | Finding]:
        for config in self._sources:
            source, masker = open_source(config, self._pipeline), Masker(config, None)
            try:
                for found in source.tables_now():
                    yield found if isinstance(found, Finding) else masker.plan(found).table
            finally:
                source.close()

    def end(self, topic: str, partition: int, now: int) -> int | None:
        return now if self._ended is None or topic in self._at_rest else self._ended(topic, partition)


def open_masker(config: SourceConfig, pipeline: PipelineSpec) -> Masker:
    """The masks of a source; what was masked is kept under the pipeline's state."""
    return Masker(config, state_of(config, pipeline))


def open_sink(flow: FlowSpec) -> Sink:
    """A flow's sink, not yet connected; what the flow computes is computed in front of it."""
    return sink_opener(flow)()


def sink_opener(flow: FlowSpec) -> Callable[[], Sink]:
    """Opens a flow's sink again and again; what they compute with they share. For one thread."""
    kind, transform = registry.load("sinks", flow.to.type), open_transform(flow)

    def new_sink() -> Sink:
        sink: Sink = kind(flow.target(), flow.name)
        return sink

    if transform is None:
        return new_sink
    from headrace.compute.sink import ComputingSink  # noqa: PLC0415 - see open_transform

    return lambda: ComputingSink(transform, new_sink())


def open_transform(flow: FlowSpec) -> Transform | None:
    """What a flow computes; None when that is nothing."""
    if not flow.computing:
        return None
    try:
        from headrace.compute.transform import Transform  # noqa: PLC0415 - its engine is an extra
    except ModuleNotFoundError as error:
        raise registry.missing_driver(error) from error
    return Transform(flow.name, flow.computing)


def state_of(config: SourceConfig, pipeline: PipelineSpec) -> Path:
    """Where a source's schema versions, its record of masks and what is known of its loads are kept."""
    return pipeline.state / "sources" / config.name


def capture(
    config: SourceConfig,
    pipeline: PipelineSpec,
    *,
    over: Callable[[], bool],
    until_idle: bool,
    backoff: Backoff,
    progress: Callable[[Captured], None],
    durable: Callable[[Event], None],
    ended: Ended,
    low_us: Low | None,
) -> Captured:
    """Captures one source into the log (runner.run_capture)."""
    log, source = open_log(pipeline), open_source(config, pipeline, ended if until_idle else None, low_us)
    try:
        return run_capture(
            source,
            log,
            config.name,
            open_masker(config, pipeline),
            source_type=config.type,
            partitions=config.partitions,
            parted_by=config.parted_by,
            over=over,
            until_idle=until_idle,
            backoff=backoff,
            progress=progress,
            before_append=ChangedTables(state_of(config, pipeline)).note,
            durable=durable,
        )
    finally:
        source.close()
        log.close()
