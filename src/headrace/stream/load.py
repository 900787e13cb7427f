"""Loading tables because somebody asks for it: by the run that is active, or by one that lasts until they are loaded and delivered."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from fnmatch import fnmatchcase

from headrace.capture.definitions import Name
from headrace.capture.load import wishes
from headrace.capture.load.base import Loadable, LoadConfig, load_of
from headrace.capture.load.plan import Plan
from headrace.errors import ConfigError
from headrace.flow.spec import PipelineSpec
from headrace.model import SourceConfig
from headrace.stream.figures import Progress
from headrace.stream.parts import open_log, open_source, state_of
from headrace.stream.query import run
from headrace.stream.sole_run import is_running

_LOOK_EVERY_S = 0.2


def load_again(
    pipeline: PipelineSpec,
    tables: Sequence[str],
    where: str,
    *,
    progress: Progress,
) -> list[str]:
    """Loads the tables that fit the patterns (all captured ones when there are none), and what `where` says of them; their names.

    An active run loads them, and this waits until all rows are on the log. Without one, captures, loads and flows run until all has
    been delivered, and `progress` is called as by `query.run`. ConfigError when no table fits, or the active run does not
    load anything.
    """
    wanted = {number: found for number in range(len(pipeline.source)) if (found := _names(pipeline, number, tables))}
    if not wanted:
        raise ConfigError(
            f"there is no captured table {' or '.join(tables)} at the sources"
            if tables
            else "there is no captured table",
            fix="name tables as schema.table, among those that `tables` of a source captures",
        )
    running = is_running(pipeline.state)
    silent = [pipeline.source[number].name for number in wanted if load_of(pipeline.source[number]) is None]
    if running and silent:
        raise ConfigError(
            f"the active run does not load tables of source {silent[0]}",
            fix="add `load: {first: false}` to the source and start the run again, or stop it and repeat this command",
        )
    requests = {
        number: wishes.Request(names, where).write(state_of(pipeline.source[number], pipeline))
        for number, names in wanted.items()
    }
    if running:
        for number, request in requests.items():
            _wait(pipeline, pipeline.source[number], request)
    else:
        run([_loading(pipeline, {*wanted})], until_idle=True, progress=progress)
    return [f"{schema}.{table}" for names in wanted.values() for schema, table in names]


def pause_loads(pipeline: PipelineSpec) -> None:
    """No full load of these sources reads anything more, also after a restart, until `resume_loads`."""
    for source in pipeline.source:
        wishes.pause(state_of(source, pipeline))


def resume_loads(pipeline: PipelineSpec) -> None:
    """Full loads go on where they were."""
    for source in pipeline.source:
        wishes.resume(state_of(source, pipeline))


def cancel_loads(pipeline: PipelineSpec, tables: Sequence[str]) -> list[str]:
    """Ends the loads of the tables that fit the patterns (of all when there are none), and names them; what was read by now stays.

    An active run does so at once, another one when it begins. ConfigError when no such load goes on.
    """
    found: list[str] = []
    with closing(open_log(pipeline)) as log:
        for source in pipeline.source:
            plan = Plan(log, source.name)
            plan.refresh()
            fitting = {
                number: state.load.name
                for number, state in plan.loads.items()
                if not state.ended and _fits(state.load.name, tables)
            }
            if fitting:
                wishes.cancel(state_of(source, pipeline), [*fitting])
            found += fitting.values()
    if not found:
        raise ConfigError(
            f"no load of {' or '.join(tables) or 'any table'} goes on",
            fix="look at the loads, and name tables as schema.table",
        )
    return found


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, each) for each in patterns)


def _names(pipeline: PipelineSpec, number: int, patterns: Sequence[str]) -> list[Name]:
    source = open_source(pipeline.source[number], pipeline)
    try:
        loader = source.loader(lambda: None) if isinstance(source, Loadable) else None
        if loader is None:
            return []
        try:
            names = list(loader.names())
        finally:
            loader.close()
    finally:
        source.close()
    return [name for name in names if _fits(".".join(name), patterns)]


def _loading(pipeline: PipelineSpec, wanted: set[int]) -> PipelineSpec:
    """The pipeline, with workers for those wanted sources that load nothing by themselves."""
    sources = [
        source.model_copy(update={"load": LoadConfig(first=False)})
        if number in wanted and load_of(source) is None
        else source
        for number, source in enumerate(pipeline.source)
    ]
    return pipeline.model_copy(update={"source": sources})


def _wait(pipeline: PipelineSpec, source: SourceConfig, request: str) -> None:
    log = open_log(pipeline)
    plan = Plan(log, source.name)
    try:
        while True:
            plan.refresh()
            asked = [state for state in plan.loads.values() if state.load.request == request]
            if wishes.is_taken(state_of(source, pipeline), request) and all(state.ended for state in asked):
                return
            if not is_running(pipeline.state):
                raise ConfigError(
                    "the run that was to load the tables has ended", fix="start it again, and it goes on with them"
                )
            time.sleep(_LOOK_EVERY_S)
    finally:
        log.close()
