"""`headrace verify FLOW --batch`: the SQL of each computed table once more, as a batch over the lake, beside what was told of the table on the log.

Both are taken at one place of the inputs, that of the newest mark of the computed table. A lake that is farther is read as of that place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from headrace.capture.runner import PARTITION, resume_point
from headrace.codec.entries import EntryReader
from headrace.codec.ums import is_heartbeat, is_mark
from headrace.compute.changing.batch import Compared, Whole, compared
from headrace.compute.changing.config import SqlSourceConfig
from headrace.compute.changing.reading import told_on
from headrace.errors import ConfigError, FatalError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec, PipelineSpec
from headrace.lake.asof import snapshot
from headrace.lake.commit import Manifest
from headrace.lake.records import Stream
from headrace.log.base import Log, Span
from headrace.sinks.lake import LakeConfig
from headrace.stream.parts import open_log
from headrace.ums.change import Mark
from headrace.ums.schema import Namespace


@dataclass(frozen=True, slots=True)
class Verified:
    """One computed table."""

    source: str
    result: Compared


def verify_batch(pipeline: PipelineSpec) -> Iterator[Verified]:
    """Compares every computed table of a file. ConfigError when there is none, or no lake has its inputs; FatalError when a lake is behind it."""
    configs = [config for config in pipeline.source if isinstance(config, SqlSourceConfig)]
    if not configs:
        raise ConfigError("the file has no source of type sql", fix="--batch is for computed tables")
    for config in configs:
        with closing(open_log(pipeline)) as log:
            mark = resume_point(log, config.name)
            if mark is None:
                raise ConfigError(f"source {config.name} has computed nothing yet", fix="run the file first")
            inputs = {
                name: list(_tables(pipeline, config, patterns, log, mark)) for name, patterns in config.inputs.items()
            }
            told = told_on(log, config.name, {})
            yield Verified(config.name, compared(config, inputs, told, mark.position.get("passed")))


def _tables(
    pipeline: PipelineSpec, config: SqlSourceConfig, patterns: list[str], log: Log, mark: Mark
) -> Iterator[Whole]:
    """The tables that are an input, as they were at a mark."""
    found: dict[str, Whole] = {}
    for flow in pipeline.flows:
        if not isinstance(flow.to, LakeConfig) or flow.computing or flow.columns.drop or flow.columns.keep:
            continue
        manifest, shaper = Manifest.open(flow.to.tree()), Shaper(flow)
        for table in manifest.tables:
            namespace = Namespace.parse(f"{table}.0.0.0")
            wanted = any(map(namespace.matches, patterns)) and shaper.wants(str(namespace).encode())
            if wanted and table not in found:
                limit = _limit(manifest, flow, namespace.source, log, mark.position["offsets"])
                snapshot_of_it = snapshot(manifest, table, id=limit)
                found[table] = Whole(snapshot_of_it.table, snapshot_of_it.read_all())
    if not found:
        raise ConfigError(
            f"no lake has {' or '.join(patterns)}, which source {config.name} is computed from",
            fix=f"write a flow of it into a lake, as it is: {{from: {patterns[0]}, to: {{type: lake, path: …}}}}",
        )
    yield from found.values()


def _limit(manifest: Manifest, flow: FlowSpec, source: str, log: Log, offsets: Mapping[str, int]) -> int | None:
    """The id up to which the changes of a source in a lake were taken in at offsets of its topics; None when all were."""
    limit: int | None = None
    for at, offset in offsets.items():
        topic, _, partition = at.rpartition("/")
        if topic.partition(".")[0] != source:
            continue
        reached = manifest.reached.get(Stream(flow.name, topic, int(partition)))
        behind = 0 if reached is None else reached.offset
        if behind < offset and _has_changes(log, topic, int(partition), Span(behind, offset)):
            raise _apart(flow, f"has not come to where the table is ({at}: {behind}, not {offset})")
        if behind > offset and _has_changes(log, topic, int(partition), Span(offset, behind)):
            if topic != source or f"{topic}/{PARTITION + 1}" in offsets:
                raise _apart(flow, f"is ahead of the table ({at}: {behind}, not {offset})")
            limit = _id_at(log, topic, offset)
    return limit


def _has_changes(log: Log, topic: str, partition: int, span: Span) -> bool:
    keys = (record.entry.key for record in log.read(topic, partition, span))
    return any(not is_mark(key) and not is_heartbeat(key) for key in keys)


def _id_at(log: Log, topic: str, offset: int) -> int:
    """The id of the newest mark before an offset."""
    start = log.spans(topic)[PARTITION].start
    step = 4
    while True:
        first = max(start, offset - step)
        marks = [r for r in log.read(topic, PARTITION, Span(first, offset)) if is_mark(r.entry.key)]
        if marks:
            found = EntryReader().read(marks[-1].entry)
            assert isinstance(found, Mark)
            return found.id
        if first == start:
            return 0
        step *= 2


def _apart(flow: FlowSpec, what: str) -> FatalError:
    return FatalError(
        f"the lake of flow {flow.name} {what}: the two cannot be compared now",
        fix="let the file run until it is idle (`headrace run FLOW.yaml --until-idle`), then verify",
    )
