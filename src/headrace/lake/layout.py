"""Where a lake's files lie, in a directory or under a URL of HDFS or S3 (storage/), and what its manifest knows of each.

::

    PATH/
    ├── _headrace/
    │   ├── lake                                        marks the place as a lake; empty
    │   ├── commits/00000000000000000017.json           what became visible, one file per commit (commit.py)
    │   ├── checkpoints/00000000000000000064.json       the sum of commits 1..64, a cache (commit.py)
    │   ├── states/4f0c…e1-000003.parquet               the live rows of a table as of an id, by version (states.py)
    │   └── windows/mysql/db1/shop/orders/              certificates of a table's closed windows (certificate.py)
    └── mysql/db1/shop/orders/                          type / source / schema / table, each part quoted: %2E for a dot
        ├── v0/                                         a schema version; v0-2-7 for dbshard 2, tableshard 7
        │   ├── 4f0c…e1-000001.parquet                  <writer's attempt>-<number>: a name is never used twice
        │   ├── _4f0c…e1-000002.parquet.writing         not complete yet; on S3 nothing shows it
        │   └── _77ab…02-000001.parquet.retired         others have taken its place; it is there for readers until its grace is over
        └── v1/

Invariants:

* A Parquet file never changes after it has its final name, and it describes itself: its schema metadata gives back the
  TableSchema (ums/schema.py). Rows are sorted by `_ums_id_`.
* Only the manifest says which files belong to the lake. A writer that dies leaves files that no commit lists ("orphans");
  headrace never reads them, and a later writer removes those older than ORPHAN_GRACE_S.
* Other readers may be pointed at a version's directory: names that begin with ``_`` are hidden from Spark, Hive, pyarrow and
  DuckDB's ``*.parquet``. They can see an orphan between its naming and its commit, or until it is removed, and a merged file beside
  those it was made of for a moment: rows twice, told apart by `_ums_id_`. Who cannot have that reads through headrace.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

from headrace.errors import ConfigError, HeadraceError
from headrace.lake.tally import Tally
from headrace.storage.base import FileTree
from headrace.ums.schema import Namespace

STATE = "_headrace"
STATES = f"{STATE}/states"
WINDOWS = f"{STATE}/windows"
ORPHAN_GRACE_S = 24 * 3600.0
_NAME_BYTES = 255
_LEFT = re.compile(r"(.*/)?([^/]*\.parquet(\.writing|\.retired)?|\.[^/]*[0-9a-f]{32})")
"""Files of the lake's forms, and those that `create` had not given their names yet."""


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
    since: int = 0
    """The newest commit that brought some of its rows into the lake; 0 until it is known, which is when it is committed."""

    @property
    def tally(self) -> Tally:
        """Its rows by operation, and their digest."""
        return Tally(self.operations, int(self.digest, 16))

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


def check_path(namespace: Namespace) -> None:
    """ConfigError when a part of a table's path is longer than file systems take."""
    if any(len(part.encode()) > _NAME_BYTES for part in directory_of(namespace).split("/")):
        raise ConfigError(
            f"the lake cannot have a directory for {namespace.all_versions}: a name in its path has more than {_NAME_BYTES} bytes",
            fix="leave the table out with `exclude`",
        )


def retired_name(path: str) -> str:
    """Where a file lies that others have taken the place of: beside its old name, hidden."""
    directory, _, name = path.rpartition("/")
    return f"{directory}/_{name}.retired"


def _part(name: str) -> str:
    """A name as one directory name: what could hide it, split it or be taken for a version's `-` is written as %XX."""
    kept = (c if c.isalnum() or (c == "_" and at) else _percent(c) for at, c in enumerate(name))
    return "".join(kept) or "%"


def _percent(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


def remove_orphans(lake: FileTree, listed: Callable[[], Iterable[str]], grace_s: float = ORPHAN_GRACE_S) -> list[str]:
    """Removes what dead writers left longer ago than the grace; returns what was removed.

    `listed` must give the paths that the newest commit knows when it is called, which is after the directories were read: so a file
    that was committed in between is known. No live writer is that slow.
    """
    since = time.time() - grace_s
    old = [path for path, modified_s in lake.tree() if modified_s < since and _LEFT.fullmatch(path)]
    if not old:
        return []
    kept = set(listed())
    orphans = [path for path in old if path not in kept]
    for path in orphans:
        with suppress(HeadraceError):  # what cannot be removed now the next writer tries again
            lake.delete(path)
    return orphans
