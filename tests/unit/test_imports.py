"""The import rules of ARCHITECTURE.md, and that there is no cycle. Imports inside functions count like all others."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "headrace"
GROUND = {"errors", "model", "retry", "files", "crash", "registry", "_native", "__init__"}
"""Modules at the top that any room may use; they import only each other."""

ALLOWED: dict[str, set[str]] = {
    "ums": set(),
    "log": set(),
    "codec": {"ums"},
    "lake": {"ums"},
    "sinks": {"ums", "lake"},
    "capture": {"codec", "log", "ums"},
    "verify": {"ums", "lake", "sinks", "capture"},
    "flow": {"ums"},
    "stream": {"flow", "capture", "sinks", "lake", "log", "ums"},
    "testing": {"log", "sinks", "ums"},
    "__main__": {"cli"},
    "cli": {"ums", "log", "codec", "lake", "sinks", "capture", "verify", "flow", "stream"},
}
"""Room -> rooms that it may import, besides itself and the ground."""

ONLY_IN: dict[str, set[str]] = {
    "pyspark": {"stream"},
    "confluent_kafka": {"log.kafka"},
    "psycopg": {"sinks.database.postgresql"},
    "sqlite3": {"sinks.database.sqlite"},
    "pymysql": {"sinks.database.mysql", "capture.replica"},
    "yaml": {"flow.load"},
    "click": {"cli"},
    "rich": {"cli", "verify.report"},
}
"""Heavy or outside libraries -> the rooms or modules that may import them."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


@cache
def imports(module: str) -> frozenset[str]:
    """Full names of what a module imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(modules()[module].read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def own_imports(module: str) -> Iterator[str]:
    """Modules of headrace that a module imports."""
    known = modules()
    for name in imports(module):
        if name == "headrace" or not name.startswith("headrace."):
            continue
        parts = name.split(".")[1:]
        for length in range(len(parts), 0, -1):
            if ".".join(parts[:length]) in known:
                yield ".".join(parts[:length])
                break


def room(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("module", modules())
def test_imports_point_down(module: str) -> None:
    allowed = GROUND | ({room(module)} | ALLOWED[room(module)] if room(module) not in GROUND else set())
    wrong = {name for name in own_imports(module) if room(name) not in allowed}
    assert not wrong, f"{module} must not import {sorted(wrong)}"


@pytest.mark.parametrize("module", modules())
def test_outside_libraries_stay_in_their_rooms(module: str) -> None:
    for name in imports(module):
        homes = ONLY_IN.get(name.partition(".")[0])
        assert homes is None or any(module == home or module.startswith(f"{home}.") for home in homes), (
            f"{module} must not import {name}"
        )


def test_there_is_no_cycle() -> None:
    done: set[str] = set()
    path: list[str] = []

    def visit(module: str) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module in done:
            return
        path.append(module)
        for name in own_imports(module):
            if name != module:
                visit(name)
        path.pop()
        done.add(module)

    for module in modules():
        visit(module)


def test_every_room_has_a_rule() -> None:
    assert {room(module) for module in modules()} - GROUND == set(ALLOWED)
