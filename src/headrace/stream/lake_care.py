"""Care of the lakes that a run writes to (lake/tend.py), and of what is derived from them (lake/derived), by a thread of the driver:
writers are in other processes and never wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from headrace.errors import ConfigError, HeadraceError
from headrace.flow.spec import PipelineSpec
from headrace.lake.commit import Manifest, is_lake
from headrace.lake.derived.spec import Derive
from headrace.lake.derived.upkeep import derive
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker, Tended
from headrace.on_change import OnChange
from headrace.sinks.lake import LakeConfig
from headrace.storage.base import FileTree
from headrace.storage.location import resolved, tree_at
from headrace.stream.figures import Json
from headrace.stream.lake_closing import closings

_LEAST_S = 10.0
"""How often a lake is looked at for windows that are shorter than that."""
_FIRST_S = 60.0
"""How soon after the start a lake is looked at, so that runs which are restarted often take care as well."""


@dataclass(frozen=True)
class _Job:
    """Something that is done to a lake again and again; `work` says what kept it from being done."""

    name: str
    every_s: float
    work: Callable[[], str]


class LakeCare:
    """Does each job when it is due. What keeps one from being done is a problem in `figures`, and is tried again the next time."""

    def __init__(self, pipelines: Sequence[PipelineSpec], *, until_idle: bool = False) -> None:
        self._over = threading.Event()
        self._problems: dict[str, str] = {}
        self._closings = closings(pipelines)
        derivations = [self._derivation(each) for each in _derivations(pipelines)]
        # What is derived comes first: files that were merged before they were taken in would be taken in whole.
        self._jobs = [*derivations, *self._cares(pipelines)]
        self._last = [*(derivations if until_idle else []), *self._certifications(pipelines)]

    def figures(self) -> dict[str, Json]:
        """Jobs that have a problem, in the form of a task's figures."""
        told = dict(self._problems)
        return {name: {"rows": {}, "problem": problem} for name, problem in told.items() if problem}

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Until the end of the block; then it waits for the merge in progress, if any, and when the block has ended well it closes windows, and
        completes what is derived when all has been delivered."""
        thread = threading.Thread(target=self._work, name="lake-care", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
        for job in self._last:
            self._problems[job.name] = job.work() or self._problems.get(job.name, "")

    def _work(self) -> None:
        started = time.monotonic()
        due = {number: started + min(_FIRST_S, job.every_s) for number, job in enumerate(self._jobs)}
        while due and not self._over.wait(max(0.0, min(due.values()) - time.monotonic())):
            number = min(due, key=lambda number: due[number])
            job = self._jobs[number]
            self._problems[job.name] = job.work()
            due[number] = time.monotonic() + job.every_s

    def _derivation(self, each: _Derivation) -> _Job:
        def work() -> list[str]:
            return derive(Manifest.open(each.tree), each.wanted, each.on_change, into=each.into).problems

        return _Job(f"{each.wanted.kind} tables in {each.wanted.path}", each.wanted.every, _told(each.tree, work))

    def _cares(self, pipelines: Sequence[PipelineSpec]) -> Iterator[_Job]:
        for path, (lake, policy) in _policies(pipelines).items():
            tend = partial(self._tend, path, lake, policy, lambda caretaker: caretaker.tend(over=self._over.is_set))
            yield _Job(f"care of {path}", self._every_s(path, policy), _told(lake, tend))

    def _certifications(self, pipelines: Sequence[PipelineSpec]) -> Iterator[_Job]:
        for path, (lake, policy) in _policies(pipelines).items():
            if path in self._closings:
                work = _told(lake, partial(self._tend, path, lake, policy, Caretaker.certify))
                yield _Job(f"care of {path}", 0.0, work)

    def _every_s(self, path: str, policy: Policy) -> float:
        """How often to look: windows are closed soon after they are over."""
        closing = self._closings.get(path)
        return min(policy.every, max(closing.policy.length, _LEAST_S)) if closing else policy.every

    def _tend(self, path: str, lake: FileTree, policy: Policy, work: Callable[[Caretaker], Tended]) -> list[str]:
        return work(Caretaker(lake, policy, self._closings.get(path))).problems


def _told(lake: FileTree, work: Callable[[], list[str]]) -> Callable[[], str]:
    """The work, saying what kept the lake, or some of its tables, from being done."""

    def done() -> str:
        try:
            return "; ".join(work()) if is_lake(lake) else ""  # no flow has opened it yet
        except HeadraceError as error:
            return error.message

    return done


def _policies(pipelines: Sequence[PipelineSpec]) -> dict[str, tuple[FileTree, Policy]]:
    """Each lake and its policy, by its place (`resolved`); ConfigError when two flows want different ones."""
    found: dict[str, Policy | None] = {}
    lakes: dict[str, FileTree] = {}
    for flow in (flow for pipeline in pipelines for flow in pipeline.flows):
        if isinstance(flow.to, LakeConfig):
            path = resolved(flow.to.path)
            lakes.setdefault(path, flow.to.tree())
            if found.setdefault(path, flow.to.care) != flow.to.care:
                raise ConfigError(
                    f"flows want different care of the lake {path} (flow {flow.name})",
                    fix="give all flows into one lake the same `care`",
                )
    return {path: (lakes[path], policy) for path, policy in found.items() if policy is not None}


@dataclass(frozen=True)
class _Derivation:
    """Tables that some flow wants to be derived from a lake."""

    lake: str
    """Its place (`resolved`)."""
    wanted: Derive
    on_change: OnChange
    tree: FileTree = field(compare=False)
    into: FileTree = field(compare=False)


def _derivations(pipelines: Sequence[PipelineSpec]) -> list[_Derivation]:
    """What is to be derived; ConfigError when two flows want different tables in one place."""
    found: dict[str, _Derivation] = {}
    for flow in (flow for pipeline in pipelines for flow in pipeline.flows):
        if isinstance(flow.to, LakeConfig):
            for wanted in flow.to.derive:
                into = tree_at(wanted.path, flow.to.store_options())
                each = _Derivation(resolved(flow.to.path), wanted, flow.on_change, flow.to.tree(), into)
                if found.setdefault(resolved(wanted.path), each) != each:
                    raise ConfigError(
                        f"flows want different tables to be derived into {wanted.path} (flow {flow.name})",
                        fix="give each way of deriving a `path` of its own, or all of these flows the same `derive` and `on_change`",
                    )
    return list(found.values())
