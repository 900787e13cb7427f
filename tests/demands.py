"""What users of such products ask for most, and which tests prove that headrace does it: docs/demands.md is made of this and of the tests.

A test says `@pytest.mark.demand(7)`, or a module `pytestmark = pytest.mark.demand(7)`. ``python -m tests.demands`` writes the page anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "demands.md"
DEMANDS = {
    1: "A schema change neither stops nor corrupts a flow: every DDL while it runs, while it is stopped, and on tables that are not captured",
    2: "Online schema changes (gh-ost, pt-online-schema-change) look like one ALTER; a column that is there already may be added",
    3: "A full load outlives kill -9 and reads at most one part again",
    4: "Memory is bounded, whatever the size of a table or transaction (10 million rows: `make test-long`)",
    5: "A lost position is one clear error that names the tables; a gap is left behind on demand, and retention shorter than the lag is told",
    6: "Failover by GTID loses and doubles nothing; ids grow though numbers of files fall",
    7: "Tables without a key: refused, left out or keyed by the flow, by some columns or by all; never no data and no error",
    8: "Full load and log have the same values, byte for byte, in any time zone of the server",
    9: "A statement that headrace cannot read stops nothing, and is told with its place when it may matter",
    14: "Shards of one table in one target: the same keys, types that differ, ALTERs at different times",
    15: "Rows or tables are loaded again at any time, with nothing written at the source",
    16: "Tables are added, left out and added again; their history stays, and what was missed is loaded or told",
    17: "No silent death: a part of a run that dies ends the run with an error, and a path that falls silent is told",
}
"""By the numbers that issues use; the rows in between are other rooms' work."""
_HEAD = """\
# What users ask for, and the tests that prove it

Collected from the issue trackers of Debezium, Flink CDC, SeaTunnel, Canal, Maxwell, PeerDB, Airbyte and others. Made by
`python -m tests.demands` from the tests that say `@pytest.mark.demand(number)`; `tests/unit/test_demands.py` keeps it true.

| | demand | tests |
|---|---|---|
"""


def proofs() -> dict[int, list[str]]:
    """Per number the tests, as ``tests/file.py::test_name``; a module that is marked as a whole as ``tests/file.py``."""
    found: dict[int, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, numbers in _marked(ast.parse(path.read_text())):
            for number in numbers:
                found.setdefault(number, []).append(f"{path.relative_to(ROOT)}{name}")
    return found


def page() -> str:
    """The text of docs/demands.md."""
    tests = proofs()
    rows = [
        f"| {number} | {demand} | {'<br>'.join(f'`{test}`' for test in tests.get(number, []))} |\n"
        for number, demand in DEMANDS.items()
    ]
    return _HEAD + "".join(rows)


def _marked(module: ast.Module) -> Iterator[tuple[str, list[int]]]:
    for node in module.body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "pytestmark" for target in node.targets):
            yield "", _numbers([node.value])
        elif isinstance(node, ast.FunctionDef):
            yield f"::{node.name}", _numbers(node.decorator_list)


def _numbers(marks: list[ast.expr]) -> list[int]:
    calls = [mark for mark in marks if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.demand"]
    return [ast.literal_eval(argument) for call in calls for argument in call.args]


if __name__ == "__main__":
    PAGE.write_text(page())
