"""A process that answers the questions of Nexmark over what is on a log, each from where it was; it may be told where to die.

``python -m tests.nexmark_work DIRECTORY [QUESTION NUMBER]``: in that flow, when it has looked whether to stop so many times. In computed tables `HEADRACE_CRASH_AT` says where.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

from pyarrow import csv

from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.retry import Backoff
from headrace.sinks.base import Sink
from headrace.stream.deliver import Follower
from headrace.stream.parts import sink_opener
from tests.nexmark import LATENESS, QUESTIONS, SECOND, side_rows
from tests.sql_tables import INPUT, Computed, Row, open_log


def computed(directory: Path, name: str) -> Computed:
    """The computed table of a question."""
    question = QUESTIONS[name]
    of = {each: {"time": "date_time", **window} for each, window in question.windows.items()}
    options = {"windows": {"of": of, "delay": LATENESS / SECOND}} if of else {}
    inputs = {each: f"mysql.{INPUT}.shop.{each}" for each in question.inputs}
    return Computed(
        directory, question.sql, question.key, inputs, options, name=name.replace(" ", "_").replace("-", "_")
    )


def target(directory: Path, name: str) -> Path:
    """The database that a question's flow fills."""
    return directory / f"{name}.duckdb"


def flow(directory: Path, name: str) -> FlowSpec:
    """The flow of a question that is asked row by row."""
    store = {"type": "csv", "path": str(directory / "side.csv")}
    steps: list[Row] = [
        step | ({"from": store} if step["do"] == "lookup" else {}) for step in QUESTIONS[name].steps or []
    ]
    return FlowSpec.model_validate(
        {
            "name": name.replace(" ", "-"),
            "from": f"mysql.{INPUT}.shop.bid",
            "steps": steps,
            "to": {"type": "database", "url": f"duckdb:///{target(directory, name)}"},
        }
    )


def prepare(directory: Path) -> None:
    """What the flows look up."""
    csv.write_csv(side_rows(), directory / "side.csv")


def delivered(directory: Path, spec: FlowSpec, new_sink: Callable[[], Sink], over: Callable[[], bool]) -> Follower:
    """A flow over all that is on the log."""
    with closing(open_log(directory)) as log:
        follower = Follower(new_sink, Shaper(spec), log, INPUT, 0, start=None)
        follower.run(over, lambda offset: offset >= log.spans(INPUT)[0].stop, Backoff(10))
        return follower


def main(directory: Path, dying: str = "", number: int = 0) -> None:
    for name, question in QUESTIONS.items():
        if question.steps is None:
            computed(directory, name).run()
            continue
        looks = count(1)

        def over(name: str = name, looks: count[int] = looks) -> bool:
            if name == dying and next(looks) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return False

        spec = flow(directory, name)
        delivered(directory, spec, sink_opener(spec), over)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *(sys.argv[2:3]), *map(int, sys.argv[3:4]))
