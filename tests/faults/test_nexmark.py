"""Batch equals stream, on ten questions of Nexmark: events out of order within a bound, five restarts, kills within flows and computed tables, repeats, a state that
is lost. What is told in the end is DuckDB's answer over the whole."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headrace.ums.change import ChangeBatch
from headrace.ums.schema import OP
from tests.nexmark import LATENESS, QUESTIONS, Events, plain, side_rows
from tests.nexmark_work import computed, prepare, target
from tests.sql_tables import Writer, in_order

HISTORIES = int(os.environ.get("HEADRACE_SQL_HISTORIES", "1"))
EVENTS, A_SECOND, RESTARTS = 6_000, 100, 5
_DIE_IN = ["sql.computed", "sql.told", "sql.kept"]
Rows = list[tuple[Any, ...]]


def worked(directory: Path, draw: random.Random | None) -> int:
    """A process over what is there, which dies somewhere when it is drawn; its exit code."""
    arguments, environment = [str(directory)], dict(os.environ)
    if draw is not None and draw.random() < 0.5:
        row_by_row = [name for name, question in QUESTIONS.items() if question.steps is not None]
        arguments += [draw.choice(row_by_row), str(draw.randrange(1, 4))]
    elif draw is not None:
        environment["HEADRACE_CRASH_AT"] = f"{draw.choice(_DIE_IN)}:{draw.randrange(1, 8)}"
    command = [sys.executable, "-m", "tests.nexmark_work", *arguments]
    root = Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, env=environment, check=False).returncode


@contextmanager
def whole(events: Events) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database with every row that there is."""
    with closing(duckdb.connect()) as connection:
        for name, rows in events.tables.items():
            connection.register(f"{name}_rows", rows)
        connection.register("side", side_rows())
        yield connection


def batch(events: Events, name: str) -> Rows:
    question = QUESTIONS[name]
    with whole(events) as connection:
        for each in question.inputs:
            connection.execute(f"CREATE VIEW {each} AS {plain(question, each)}")
        return in_order(connection.execute(question.sql).fetchall())


def streamed(directory: Path, name: str) -> Rows:
    question = QUESTIONS[name]
    if question.steps is None:
        return computed(directory, name).rows()
    with closing(duckdb.connect(str(target(directory, name)), read_only=True)) as connection:
        found = connection.execute("SELECT * FROM bid").fetch_arrow_table()
    names = [each for each in found.column_names if not each.startswith("_")]
    assert set(found.column("_is_active_").to_pylist()) <= {1}
    return in_order(zip(*(found.column(each).to_pylist() for each in names), strict=True))


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.timeout(900)
def test_batch_equals_stream(seed: int, tmp_path: Path) -> None:
    draw = random.Random(f"nexmark {seed}")
    events, writer = Events(EVENTS, seed=seed, a_second=A_SECOND), Writer(tmp_path)
    prepare(tmp_path)
    killed = 0
    for part in events.parts(RESTARTS):
        for _ in range(1 + (draw.random() < 0.3)):
            writer.id = max(writer.id, part.newest_id)
            writer.transact(*part.changes, commit_us=part.closed_us)
        if draw.random() < 0.3:
            shutil.rmtree(computed(tmp_path, "hot items").state, ignore_errors=True)
        code = worked(tmp_path, draw)
        assert code in (0, -signal.SIGKILL)
        killed += code != 0
    assert killed, "the draw of each history kills"
    writer.transact(commit_us=events.end_us + LATENESS + 3600 * 10**6)
    assert worked(tmp_path, None) == 0
    for name in ("window join", "hot items", "session", "top-N"):
        told = [change for change in computed(tmp_path, name).told() if isinstance(change, ChangeBatch)]
        assert not [change for change in told if change.table.namespace.table.endswith("_late")], "no row is late"
        assert {op for change in told for op in change.data.column(OP).to_pylist()} == {"i"}, "each row is told once"
    for name in QUESTIONS:
        expected = batch(events, name)
        assert expected, f"{name} has an answer"
        assert streamed(tmp_path, name) == expected, name
