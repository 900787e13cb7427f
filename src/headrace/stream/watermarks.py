"""The Watermark Server of a flow file: its topology, those who report to it, and a server of the run's own.

::

    stage source:<name>   members: the source itself (a log in its own order), its hosts (lines), or the applications whose watermark is
                          printed on what it reads. A capture reports what is durable on the log. A computed table is after its inputs.
    stage flow:<name>     after all sources that the flow may take, so that of several shards the one farthest back counts.
                          members: the partitions, <source>.<partition>; each passes what is in its target (passage.py)

Flows are the last stages, so the global low watermark says what has come into all targets of the file. A Watermark Server that is away
keeps watermarks where they are, and nothing else.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import registry
from headrace.capture.base import Event
from headrace.errors import ConfigError
from headrace.files import make_directories, replace_file
from headrace.flow.spec import FlowSpec, PipelineSpec
from headrace.flow.watermark import WatermarkSpec
from headrace.model import SourceConfig
from headrace.retry import retrying
from headrace.stream.parts import open_log
from headrace.watermark.wire import NEVER

if TYPE_CHECKING:  # they load only where a file asks for a watermark
    from headrace.watermark.client import StageClient, WatermarkClient
    from headrace.watermark.embedded import EmbeddedServer

Json = dict[str, Any]


def source_stage(name: str) -> str:
    return f"source:{name}"


def flow_stage(name: str) -> str:
    return f"flow:{name}"


def flow_of(pipeline: PipelineSpec, flow: FlowSpec) -> str:
    """A flow as other applications know it."""
    assert pipeline.watermark is not None, "only then there is anything to know"
    return f"{pipeline.watermark.topology}/{flow.name}"


def member(topic: str, partition: int) -> str:
    """A partition as a member of flows' stages."""
    return f"{topic}.{partition}"


@contextmanager
def with_watermarks(pipeline: PipelineSpec) -> Iterator[PipelineSpec]:
    """The pipeline as its tasks are to have it: with a Watermark Server that knows its topology, if it wants one at all.

    ConfigError when the server refuses, RetryableError when none answers for `give_up_after`.
    """
    if pipeline.watermark is None:
        yield pipeline
        return
    with ExitStack() as stack:
        spec = pipeline.watermark if pipeline.watermark.url else stack.enter_context(_own_server(pipeline))
        client = stack.enter_context(closing(client_of(spec)))
        stages = _stages(pipeline)
        retrying(lambda: client.register(spec.topology, stages), give_up_after_s=pipeline.give_up_after)
        yield pipeline.model_copy(update={"watermark": spec})


def client_of(spec: WatermarkSpec) -> WatermarkClient:
    client: WatermarkClient = registry.load("watermarks", "client")(spec.url, spec.token)
    return client


@contextmanager
def reporting(pipeline: PipelineSpec, stage: str) -> Iterator[StageClient | None]:
    """Who reports for a stage, until the end of the block; None where the file asks for no watermark."""
    if pipeline.watermark is None:
        yield None
        return
    with (
        closing(client_of(pipeline.watermark)) as client,
        closing(client.stage(pipeline.watermark.topology, stage)) as told,
    ):
        yield told


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """How a capture speaks with the Watermark Server, where the file asks for one."""

    config: SourceConfig
    stage: StageClient | None

    def durable(self, event: Event) -> None:
        """Called with each event that is on the log."""
        if self.stage is None:
            return
        self.stage.low()  # raises what the server has refused
        if not self.config.reports_for_itself or self.config.needs_watermark or event.progress.passed_us:
            self.stage.passed(event.progress.passed_us, event.progress.rows)
        elif event.mark is not None:
            self.stage.passed({self.config.name: event.mark.commit_ts_us})

    @property
    def low_us(self) -> Callable[[], int | None] | None:
        """Says the watermark of what the source reads from the log; None where there is no server."""
        return None if self.stage is None else self._input_us

    def _input_us(self) -> int | None:
        assert self.stage is not None
        input_us = self.stage.low().input_us
        return None if input_us == NEVER else input_us


@contextmanager
def reporting_capture(config: SourceConfig, pipeline: PipelineSpec) -> Iterator[CaptureReport]:
    """What a capture tells, and is told, until the end of the block."""
    with reporting(pipeline, source_stage(config.name)) as stage:
        yield CaptureReport(config, stage)


def _stages(pipeline: PipelineSpec) -> list[Json]:
    assert pipeline.watermark is not None
    sources = [_of_source(source, pipeline) for source in pipeline.source]
    there = _partitions(pipeline)
    return sources + [_of_flow(flow, pipeline, there) for flow in pipeline.flows]


def _of_source(source: SourceConfig, pipeline: PipelineSpec) -> Json:
    assert pipeline.watermark is not None
    said: Json = {"expected": {"names": [source.name]}} if source.reports_for_itself else {}
    if source.name in pipeline.watermark.sources:
        said = pipeline.watermark.sources[source.name].model_dump(mode="json", exclude_none=True)
    after = [source_stage(other.name) for other in pipeline.inputs_of(source)]
    return {"name": source_stage(source.name), "after": after, **said}


def _of_flow(flow: FlowSpec, pipeline: PipelineSpec, there: dict[str, list[int]]) -> Json:
    sources = [source for source in pipeline.source if flow.may_take(source)]
    members = [member(source.name, partition) for source in sources for partition in there[source.name]]
    after = [source_stage(source.name) for source in sources]
    return {"name": flow_stage(flow.name), "after": after, "expected": {"names": members}}


def _partitions(pipeline: PipelineSpec) -> dict[str, list[int]]:
    """By source the partitions of its topic: those that are written, and what is left of when there were more."""
    with closing(open_log(pipeline)) as log:
        there = {
            source.name: retrying(lambda name=source.name: log.spans(name), give_up_after_s=pipeline.give_up_after)  # type: ignore[misc]
            for source in pipeline.source
        }
    return {source.name: sorted({*range(source.partitions), *there[source.name]}) for source in pipeline.source}


@contextmanager
def _own_server(pipeline: PipelineSpec) -> Iterator[WatermarkSpec]:
    """A server in a thread of this process, with its store under `state`: for this machine only, and by a token that nobody else knows."""
    assert pipeline.watermark is not None
    spec = pipeline.watermark
    host, _, port = spec.listen.rpartition(":")
    make_directories(pipeline.state)
    token = spec.token or secrets.token_urlsafe()
    server: EmbeddedServer = registry.load("watermarks", "server")(
        f"sqlite:///{pipeline.state / 'watermarks.db'}", token
    )
    with closing(server):
        found = spec.model_copy(update={"url": [server.start(host, int(port))], "token": token})
        replace_file(
            _found_at(pipeline), json.dumps({"url": found.url, "token": found.token}).encode(), is_private=True
        )
        yield found


def server_of(pipeline: PipelineSpec) -> WatermarkSpec:
    """Where the watermarks of a flow file are to be asked for; ConfigError when it has none, or when its run's own server is not there."""
    spec = pipeline.watermark
    if spec is None:
        raise ConfigError(
            "the flow file asks for no watermark", fix="write `watermark: {}` into it, and restart its run"
        )
    if spec.url:
        return spec
    try:
        return spec.model_copy(update=json.loads(_found_at(pipeline).read_bytes()))
    except FileNotFoundError as error:
        raise ConfigError("the flow file's own Watermark Server has not been started yet", fix="run it") from error


def _found_at(pipeline: PipelineSpec) -> Path:
    """Where a server of the run's own is, for other processes of the same user."""
    return pipeline.state / "watermarks.json"
