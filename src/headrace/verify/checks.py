"""Verifies tables of a flow file: opens both sides of each, and says what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from headrace import registry
from headrace.capture.load.base import Loadable, Loader
from headrace.capture.mask import Masker
from headrace.capture.runner import resume_point
from headrace.errors import ConfigError, HeadraceError
from headrace.flow.spec import FlowSpec, PipelineSpec
from headrace.log.base import Log
from headrace.model import SourceConfig
from headrace.retry import retrying
from headrace.sinks.base import Sink
from headrace.stream.parts import open_log, open_masker, open_sink, open_source
from headrace.ums.schema import TableSchema
from headrace.verify.contents import Subject, Verified, verify
from headrace.verify.followed import Followed, TableMovedError
from headrace.verify.sides import FlowSide, OtherFlow, SourceSide, View

_ATTEMPTS = 3
_CAPTURE_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be verified, and how."""

    flow: str | None = None
    """Only the target of this one."""
    tables: Sequence[str] = ()
    """As schema.table, with * and ?; all of them when there are none."""
    against: str | None = None
    """Hold it against the target of this flow; against the source when it is None."""
    limit: int = 10
    """Of each table at most so many keys that differ are told."""


@dataclass(frozen=True, slots=True)
class Checked:
    """One table of one flow. Either `verified`, or `problem` says why it could not be compared."""

    flow: str
    source: str
    schema: str
    table: str
    verified: Verified | None
    problem: str
    fix: str
    took_s: float

    @property
    def ok(self) -> bool:
        return self.verified is not None and self.verified.ok

    def to_json(self) -> dict[str, Any]:
        """For programs; `differences` are the first of them."""
        told: dict[str, Any] = {
            "ok": self.ok,
            "flow": self.flow,
            "source": self.source,
            "table": f"{self.schema}.{self.table}",
        }
        if self.verified is not None:
            result = asdict(self.verified.result)
            result.pop("table")
            told |= result | {"changed": self.verified.changed, "open_parts": self.verified.open_parts}
        return told | {"problem": self.problem, "fix": self.fix, "took_s": round(self.took_s, 3)}


class UnreadableSourceError(ConfigError):
    """The tables of a source cannot be read as they are now."""


def verified(pipeline: PipelineSpec, wish: Wish, notice: Callable[[str], None]) -> Iterator[Checked]:
    """Each table that fits, one after the other. Without a flow's name those whose source and target can be read; `notice` is told of the
    others. ConfigError when nothing fits."""
    named = [flow for flow in pipeline.flows if wish.flow in (None, flow.name) and flow.name != wish.against]
    flows = [flow for flow in named if wish.flow is not None or _is_readable(flow)]
    for flow in named:
        if flow not in flows:
            notice(f"{flow.name}: not looked into: its target cannot be read back")
    other = next((flow for flow in pipeline.flows if flow.name == wish.against), None)
    if not flows or (wish.against is not None and other is None):
        names = ", ".join(flow.name for flow in pipeline.flows)
        raise ConfigError(
            "there is no such flow to verify, or its target cannot be read back", fix=f"the flow file has: {names}"
        )
    found, unread = False, None
    for flow in flows:
        for source in pipeline.source:
            if flow.may_take(source):
                try:
                    with closing(_Verifying(pipeline, source, flow, other)) as verifying:
                        for checked in verifying.tables(wish):
                            found = True
                            yield checked
                except UnreadableSourceError as error:
                    unread = error
                    notice(f"{flow.name}: not looked into: {error.message}")
    if not found:
        raise unread or ConfigError(
            f"no flow takes a table {' or '.join(wish.tables) or 'that is captured'}", fix="name tables as schema.table"
        )


def _is_readable(flow: FlowSpec) -> bool:
    """Whether what a flow's target has can be read back."""
    kind: type[Sink] = registry.load("sinks", flow.to.type)
    return kind.capabilities.scans


class _Verifying:
    """The tables of one source in one flow's target."""

    def __init__(self, pipeline: PipelineSpec, source: SourceConfig, flow: FlowSpec, other: FlowSpec | None) -> None:
        self._pipeline = pipeline
        self._config = source
        self._flow = flow
        self._other = other
        self._view = View(flow)
        self._open = ExitStack()
        self._log: Log = self._open.enter_context(closing(open_log(pipeline)))
        self._source = self._open.enter_context(closing(open_source(source, pipeline)))

    def close(self) -> None:
        self._open.close()

    def tables(self, wish: Wish) -> Iterator[Checked]:
        loader = self._loader() if self._other is None else None
        for schema, name in self._names(loader):
            if wish.tables and not any(fnmatchcase(f"{schema}.{name}", each) for each in wish.tables):
                continue
            began_s = time.monotonic()
            came, problem, fix = None, "", ""
            try:
                captured = self._captured(loader, schema, name)
                if captured is None or not self._view.wants(captured):
                    continue
                came = self._verify(captured, loader, wish.limit)
            except HeadraceError as error:
                problem, fix = error.message, error.fix
            yield Checked(
                self._flow.name, self._config.name, schema, name, came, problem, fix, time.monotonic() - began_s
            )

    def _verify(self, captured: TableSchema, loader: Loader | None, limit: int) -> Verified:
        masked = self._masker.plan(captured).table if loader is not None else captured
        table = self._view.table(masked)
        if not table.key:
            raise ConfigError(
                f"{captured.namespace.all_versions} has no key to tell its rows apart",
                fix="name its key columns in the flow, `key: {schema.table: [column, …]}`",
            )
        followed = self._followed(self._flow, captured)
        followed.refuse_open_load()
        for attempt in range(1, _ATTEMPTS + 1):
            with ExitStack() as stack:
                target = FlowSide(stack.enter_context(closing(self._sink(self._flow))), self._view.shaped(masked))
                reference: SourceSide | OtherFlow
                if loader is not None:
                    reference = SourceSide(loader, self._masker, self._view, captured)
                else:
                    reference = self._other_side(stack, masked, table)
                try:
                    return verify(Subject(table, reference, target, followed, self._view.seen), limit)
                except TableMovedError:
                    if attempt == _ATTEMPTS:
                        raise
        raise AssertionError("the last attempt returns or raises")

    def _other_side(self, stack: ExitStack, masked: TableSchema, table: TableSchema) -> OtherFlow:
        assert self._other is not None
        view = View(self._other)
        if not view.wants(masked) or view.table(masked).columns != table.columns:
            raise ConfigError(
                f"flows {self._flow.name} and {self._other.name} do not make the same table of {masked.namespace.all_versions}",
                fix="compare flows that take the same columns under the same names",
            )
        sink = stack.enter_context(closing(self._sink(self._other)))
        return OtherFlow(FlowSide(sink, view.shaped(masked)), self._followed(self._other, masked))

    def _followed(self, flow: FlowSpec, table: TableSchema) -> Followed:
        return Followed(self._pipeline, self._config, flow, table.namespace, self._log)

    def _sink(self, flow: FlowSpec) -> Sink:
        if not _is_readable(flow):
            raise ConfigError(
                f"the target of flow {flow.name} cannot be read back", fix="verify what others read out of it"
            )
        return open_sink(flow)

    def _loader(self) -> Loader:
        loader = (
            self._source.loader(lambda: resume_point(self._log, self._config.name))
            if isinstance(self._source, Loadable)
            else None
        )
        if loader is None:
            raise UnreadableSourceError(
                f"the tables of source {self._config.name} cannot be read as they are now",
                fix="hold a flow against another one: --against FLOW; computed tables are for --batch",
            )
        return self._open.enter_context(closing(loader))

    def _names(self, loader: Loader | None) -> list[tuple[str, str]]:
        if loader is not None:
            return [*loader.names()]
        return [(table.namespace.schema, table.namespace.table) for table in self._source.tables()]

    def _captured(self, loader: Loader | None, schema: str, name: str) -> TableSchema | None:
        """As capture has it, or made of it before it was written; None when it is not there any more."""
        if loader is not None:
            return retrying(lambda: loader.table(schema, name), give_up_after_s=_CAPTURE_PATIENCE_S)
        known = [
            table
            for table in self._source.tables()
            if (table.namespace.schema, table.namespace.table) == (schema, name)
        ]
        return self._masker.plan(known[-1]).table if known else None

    @cached_property
    def _masker(self) -> Masker:
        return open_masker(self._config, self._pipeline)
