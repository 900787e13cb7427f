"""Who closes the windows of the lakes that a run writes to: its flows say which streams bring each table, and what windows there are.

A table's windows close when every partition of its source has passed, by each flow that takes the table (lake/watermark.py); of flow files that
have a Watermark Server when all of the file's targets have: by the global low watermark.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from typing import ClassVar

from headrace.errors import ConfigError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec, PipelineSpec
from headrace.flow.watermark import WatermarkSpec
from headrace.lake.certificate import Lacking
from headrace.lake.commit import Manifest
from headrace.lake.records import Stream
from headrace.lake.watermark import CommitTimes, LowWatermark
from headrace.lake.windows import Closing, WindowPolicy
from headrace.sinks.lake import LakeConfig
from headrace.storage.location import resolved
from headrace.stream.watermarks import client_of
from headrace.ums.schema import Namespace


def closings(pipelines: Sequence[PipelineSpec]) -> dict[str, Closing]:
    """By the lake's place (`resolved`), for those that have windows; ConfigError when two flows want different windows in one."""
    wanted: dict[str, WindowPolicy | None] = {}
    flows: dict[str, list[tuple[FlowSpec, PipelineSpec]]] = {}
    for flow, pipeline in ((flow, each) for each in pipelines for flow in each.flows):
        if isinstance(flow.to, LakeConfig):
            path = resolved(flow.to.path)
            if wanted.setdefault(path, flow.to.windows) != flow.to.windows:
                raise ConfigError(
                    f"flows want different windows in the lake {path} (flow {flow.name})",
                    fix="give all flows into one lake the same `windows`",
                )
            flows.setdefault(path, []).append((flow, pipeline))
    return {
        path: Closing(policy, partial(_members, flows[path]), partial(_watermark, path, flows[path]))
        for path, policy in wanted.items()
        if policy
    }


class GlobalLow:
    """What Watermark Servers say of flows: their applications' global low watermarks, the least of them."""

    name: ClassVar[str] = "global low watermark"

    def __init__(self, specs: Sequence[WatermarkSpec]) -> None:
        """`specs`: one of each application."""
        self._specs = specs
        self._lacking: tuple[Lacking, ...] = ()

    def low_watermark_us(self) -> int | None:
        """RetryableError when no server answers."""
        lows: list[int | None] = []
        lacking: list[Lacking] = []
        for spec in self._specs:
            with closing(client_of(spec)) as client:
                low_us, found = client.complete(spec.topology)
            lows.append(low_us)
            lacking += [Lacking(**each) for each in found]
        self._lacking = tuple(lacking)
        known = [low_us for low_us in lows if low_us is not None]
        return min(known) if len(known) == len(lows) else None

    def lacking(self) -> tuple[Lacking, ...]:
        return self._lacking


def _watermark(
    lake: str, flows: Sequence[tuple[FlowSpec, PipelineSpec]], manifest: Manifest, members: Sequence[Stream]
) -> LowWatermark:
    having = [pipeline.watermark for _, pipeline in flows if pipeline.watermark is not None]
    if not having:
        return CommitTimes(manifest, members)
    if len(having) < len(flows):
        raise ConfigError(
            f"of the flow files that write to the lake {lake} some have a `watermark` and some have none",
            fix="give it to all of them, or to none",
        )
    return GlobalLow([spec for at, spec in enumerate(having) if spec not in having[:at]])


def _members(flows: Sequence[tuple[FlowSpec, PipelineSpec]], table: Namespace) -> list[Stream]:
    """The streams that bring a table: the partitions of its source, by each flow that takes it."""
    return [
        Stream(flow.name, source.name, partition)
        for flow, pipeline in flows
        if Shaper(flow).wants(str(table).encode())
        for source in pipeline.source
        if (source.type, source.name) == (table.type, table.source)
        for partition in range(source.partitions)
    ]
