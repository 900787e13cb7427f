"""Where a lake's files lie, and what its manifest knows of each.

::

    PATH/
    ├── _headrace/
    │   ├── commits/00000000000000000017.json           what became visible, one file per commit (commit.py)
    │   └── checkpoints/00000000000000000064.json       the sum of commits 1..64, a cache (commit.py)
    └── mysql/db1/shop/orders/                          type / source / schema / table, each part quoted: %2E for a dot
        ├── v0/                                         a schema version; v0-2-7 for dbshard 2, tableshard 7
        │   ├── 4f0c…e1-000001.parquet                  <writer's attempt>-<number>: a name is never used twice
        │   └── _4f0c…e1-000002.parquet.writing         not complete yet
        └── v1/

Invariants:

* A Parquet file never changes after it has its final name, and it describes itself: its schema metadata gives back the
  TableSchema (ums/schema.py). Rows are sorted by `_ums_id_`.
* Only the manifest says which files belong to the lake. A writer that dies leaves files that no commit lists ("orphans");
  headrace never reads them, and a later writer removes those older than ORPHAN_GRACE_S.
* Other readers may be pointed at a version's directory: names that begin with ``_`` are hidden from Spark, Hive, pyarrow and
  DuckDB's ``*.parquet``. They can see an orphan between its naming and its commit, or until it is removed: rows twice, told
  apart by `_ums_id_`. Who cannot have that reads through headrace.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from headrace.ums.schema import Namespace

STATE = "_headrace"
ORPHAN_GRACE_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class LakeFile:
    """One Parquet file as the manifest knows it; ranges are inclusive, times in microseconds since 1970 UTC."""

    path: str
    """Relative to the lake, with ``/``."""
    namespace: str
    rows: int
    id: tuple[int, int]
    ts: tuple[int, int]
    commit_ts: tuple[int, int]
    operations: dict[str, int]
    bytes: int
    digest: str
    """The order-free digest of its rows (rust/src/digest.rs), 32 hexadecimal digits; it can be computed from the file alone."""

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, described: dict[str, Any]) -> Self:
        ranges = {name: tuple(described[name]) for name in ("id", "ts", "commit_ts")}
        return cls(**{**described, **ranges})

    @property
    def table(self) -> Namespace:
        return parse_namespace(self.namespace)


@lru_cache(maxsize=65536)
def parse_namespace(text: str) -> Namespace:
    """`Namespace.parse`, remembered: the files of a manifest share few namespaces."""
    return Namespace.parse(text)


def directory_of(namespace: Namespace) -> str:
    """The directory of one version of a table, relative to the lake."""
    shards = (namespace.dbshard, namespace.tableshard)
    version = (
        f"v{namespace.version}" if shards == ("0", "0") else "-".join([f"v{namespace.version}", *map(_part, shards)])
    )
    return "/".join([*map(_part, (namespace.type, namespace.source, namespace.schema, namespace.table)), version])


def _part(name: str) -> str:
    """A name as one directory name: what could hide it, split it or be taken for a version's `-` is written as %XX."""
    kept = (c if c.isalnum() or (c == "_" and at) else _percent(c) for at, c in enumerate(name))
    return "".join(kept) or "%"


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def remove_orphans(lake: Path, listed: Callable[[], Iterable[LakeFile]], grace_s: float = ORPHAN_GRACE_S) -> list[Path]:
    """Removes what dead writers left longer ago than the grace; returns what was removed.

    `listed` must give the files of the newest commit when it is called, which is after the directories were read: so a file that
    was committed in between is known. No live writer is that slow.
    """
    old = list(_left_alone(lake, time.time() - grace_s))
    if not old:
        return []
    kept = {lake / file.path for file in listed()}
    orphans = [path for path in old if path not in kept]
    for path in orphans:
        with suppress(OSError):  # another writer may be removing it; the next one tries again
            path.unlink()
    return orphans


def _left_alone(lake: Path, since: float) -> Iterator[Path]:
    """Files of the lake's forms that nobody has written to since then."""
    for directory, _, names in os.walk(lake):
        for name in names:
            if name.endswith((".parquet", ".parquet.writing", ".tmp")):
                path = Path(directory, name)
                with suppress(FileNotFoundError):
                    if path.stat().st_mtime < since:
                        yield path
