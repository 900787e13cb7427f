"""How far the flows of a file have read its log, by what they have told themselves; targets are not asked.

A run that is active tells it four times a second, one that has ended told it at the end of each epoch (ledger.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.flow.spec import PipelineSpec
from headrace.sinks.base import Position
from headrace.stream.ledger import Ledger
from headrace.stream.rundir import RunDirectory


def flow_positions(pipeline: PipelineSpec) -> Iterator[tuple[str, Position]]:
    """Flow and position, of each partition that the flow has delivered something of."""
    runs = sorted((pipeline.state / "runs").glob("*"))
    reports = RunDirectory(runs[-1]).reports() if runs else {}
    names = {flow.name for flow in pipeline.flows}
    ended_tasks = {path.name for path in (pipeline.state / "epochs").glob("deliver-*")}
    for task in sorted(ended_tasks | {task for task in reports if task.startswith("deliver-")}):
        ended = Ledger(pipeline.state / "epochs" / task).newest()
        told = dict(ended.state) if ended is not None else {}
        for follower, figures in reports.get(task, {}).get("flows", {}).items():
            if figures.get("position"):
                told[follower] = figures
        for follower, state in told.items():
            flow = follower.partition(".")[0]
            if flow in names and state.get("position"):
                yield flow, Position(**state["position"])
