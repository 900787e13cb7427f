"""What people want of full loads while these go on: files in the state of a source, which every process of a run sees.

::

    STATE/sources/<source>/requests/<id>.json   {"tables": [[schema, table], …], "where": …}    load these again
    STATE/sources/<source>/cancels/<id>.json    {"loads": [offset of its begin, …]}             end these before their end
    STATE/sources/<source>/paused               there: read nothing more until it is gone

The planner takes requests and cancels, and removes each when the plan has what it asks for. Both may be taken twice: a request is known by its
name in the plan, a load that is to end by its number.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from headrace.errors import ConfigError, storage_error
from headrace.files import make_directories, replace_file

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Request:
    """Tables that somebody wants to be loaded again."""

    tables: Sequence[tuple[str, str]]
    where: str = ""

    def write(self, directory: Path) -> str:
        """Leaves the request for the planner, durably; returns its name."""
        return _leave(directory / "requests", {"tables": self.tables, "where": self.where})


def requests(directory: Path) -> Iterator[tuple[Path, Request]]:
    """Those that were not taken yet. ConfigError for a file that is none."""
    for path, found in _left(directory / "requests"):
        try:
            yield path, Request([(schema, table) for schema, table in found["tables"]], found["where"])
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(path, error) from error


def is_taken(directory: Path, request: str) -> bool:
    """Whether the loads that a request asks for are in the plan (those of tables that are still there)."""
    return not (directory / "requests" / f"{request}.json").exists()


def cancel(directory: Path, loads: Sequence[int]) -> None:
    """Leaves for the planner, durably, that these loads are to end."""
    _leave(directory / "cancels", {"loads": list(loads)})


def cancels(directory: Path) -> Iterator[tuple[Path, list[int]]]:
    """Those that were not taken yet. ConfigError for a file that is none."""
    for path, found in _left(directory / "cancels"):
        try:
            yield path, [int(number) for number in found["loads"]]
        except (ValueError, KeyError, TypeError) as error:
            raise _unreadable(path, error) from error


def pause(directory: Path) -> None:
    """Idempotent, durable."""
    make_directories(directory)
    replace_file(directory / "paused", b"")


def resume(directory: Path) -> None:
    """Idempotent."""
    try:
        (directory / "paused").unlink(missing_ok=True)
    except OSError as error:
        raise storage_error("remove", directory / "paused", error) from error


def is_paused(directory: Path) -> bool:
    """Whether nothing more is to be read for now."""
    return (directory / "paused").exists()


def _leave(directory: Path, wish: Json) -> str:
    name = uuid4().hex
    make_directories(directory)
    replace_file(directory / f"{name}.json", json.dumps(wish).encode())
    return name


def _left(directory: Path) -> Iterator[tuple[Path, Json]]:
    for path in sorted(directory.glob("[!.]*.json")):
        try:
            yield path, json.loads(path.read_bytes())
        except ValueError as error:
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ConfigError:
    return ConfigError(f"the request {path} cannot be read: {error}", fix="remove it, and ask again")
