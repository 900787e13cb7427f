"""The contract of who tells others how a run goes, and all that a flow file asks for, at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Protocol

from headrace import registry
from headrace.errors import ConfigError, Finding, HeadraceError
from headrace.flow.spec import PipelineSpec
from headrace.stream.figures import Json, Progress

Tell = Callable[[str], None]
"""Says something to the person who has started the run."""
_KINDS = ("influx", "traces", "lineage")
"""Options of a flow file, each a module here with a class `Exporter`."""


class Export(Protocol):
    """Of one flow file. No method waits for anybody, but for `end`, which waits some seconds at most."""

    def begin(self) -> None:
        """The run begins; before all but `check`."""
        ...

    def look(self, figures: dict[str, Json]) -> None:
        """The newest figures of all tasks, of other flow files too, as a `Watch` has made them; called often."""
        ...

    def end(self, error: BaseException | None) -> None:
        """The run is over; by this error, when there is one."""
        ...

    def check(self) -> Iterator[Finding]:
        """What keeps it from telling anybody; nothing is told, and nothing else is called."""
        ...


def opened(pipeline: PipelineSpec, tell: Tell) -> dict[str, Export]:
    """Those that a flow file asks for, by the name of the option. ConfigError when what one needs is not installed."""
    found: dict[str, Export] = {}
    for kind in _KINDS:
        if getattr(pipeline, kind) is not None:
            try:
                module = import_module(f"headrace.stream.exports.{kind}")
            except ModuleNotFoundError as error:
                if (error.name or "").startswith("headrace"):
                    raise
                raise registry.missing_driver(error, kind) from error
            found[kind] = module.Exporter(pipeline, tell)
    return found


@contextmanager
def exporting(pipelines: Sequence[PipelineSpec], tell: Tell) -> Iterator[Progress]:
    """Tells others what the callback is given, and how the block ends."""
    exports = [export for pipeline in pipelines for export in opened(pipeline, tell).values()]

    def look(figures: dict[str, Json]) -> None:
        for export in exports:
            export.look(figures)

    error: BaseException | None = None
    for export in exports:
        export.begin()
    try:
        yield look
    except BaseException as ended_by:
        error = ended_by
        raise
    finally:
        for export in exports:
            export.end(error)


def checked(pipeline: PipelineSpec) -> Iterator[tuple[str, Finding | None]]:
    """What would keep each from telling anybody, as advice: no run ends by it, unless what it needs is not installed."""
    try:
        exports = opened(pipeline, lambda text: None)
    except ConfigError as error:
        yield "monitoring", Finding.of(error)
        return
    for name, export in exports.items():
        try:
            yield from ((name, finding) for finding in export.check())
        except HeadraceError as error:
            yield name, Finding(error.message, error.fix, stops=False)
        yield name, None
