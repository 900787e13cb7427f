"""What the masks of a source have made of its tables so far: the memory that a change of masks or tables is held against.

A file for each table version, ``STATE/sources/<name>/masks/<hash of the namespace>.json``::

    {"namespace": "mysql.db1.shop.customers.0.0.0", "columns": {"id": "int64", "phone": "string"}, "masked": ["phone"], "kept": []}

    columns   every column with its type on the log
    kept      columns that a mask of type `keep` leaves in clear on purpose

Three things are refused, because nobody would notice them:

* A table version whose columns have other types on the log than before: its masks were changed, and rows of one version would not fit
  each other, in the log, the lake and the targets.
* One whose key was in clear before and is masked now, or the other way round: its rows would be there twice.
* A version in which a masked column is gone, and another one is new and in clear: it may be the same column under a new name.

Crash story: a file is whole or absent, and there before the first row of its version is written. So the record is never behind the log;
ahead of it it says the same again, because the same version is masked in the same way. That is also why all processes of a source,
its capture and the workers of its load, may write it. A version that is refused is not kept, and is refused again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from headrace.errors import ConfigError, CorruptError, storage_error
from headrace.files import make_directories, replace_file
from headrace.ums.schema import Namespace, TableSchema


@dataclass(frozen=True, slots=True)
class _Version:
    columns: dict[str, str]
    masked: list[str]
    kept: list[str]


class MaskRecord:
    """The record in a directory; without one it is kept in memory only."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._known: dict[Namespace, _Version] = {}
        self._unsaved: list[Namespace] = []

    def add(self, table: TableSchema, *, masked: Set[str], kept: Set[str]) -> None:
        """Takes in a table version as it goes to the log; ConfigError when it must not go there (see above)."""
        namespace = table.namespace
        now = _Version({column.name: str(column.type) for column in table.columns}, sorted(masked), sorted(kept))
        known = self._at(namespace)
        if known is not None and known.columns != now.columns:
            raise _other_types(namespace, known, now)
        if known is not None and (changed := ({*known.masked} ^ masked) & {*table.key}):
            raise _other_key(namespace, min(changed))
        older = (self._at(replace(namespace, version=version)) for version in range(namespace.version - 1, -1, -1))
        before = next((found for found in older if found is not None), None)
        if before is not None:
            _must_not_be_renamed(namespace, before, now)
        if known != now:
            self._known[namespace] = now
            self._unsaved.append(namespace)

    def columns(self) -> Iterator[tuple[Namespace, str]]:
        """Every column of every version."""
        if self._directory is not None:
            self._known |= dict(_read(path) for path in self._directory.glob("*.json"))
        for namespace, version in self._known.items():
            yield from ((namespace, column) for column in version.columns)

    def save(self) -> None:
        """Writes what was added since the last call, durably; does nothing when that is nothing."""
        if self._directory is None or not self._unsaved:
            return
        make_directories(self._directory)
        for namespace in self._unsaved:
            content = {"namespace": str(namespace), **asdict(self._known[namespace])}
            replace_file(_path(self._directory, namespace), json.dumps(content, ensure_ascii=False, indent=1).encode())
        self._unsaved = []

    def _at(self, namespace: Namespace) -> _Version | None:
        if namespace not in self._known and self._directory is not None:
            path = _path(self._directory, namespace)
            if path.exists():
                self._known[namespace] = _read(path)[1]
        return self._known.get(namespace)


def _path(directory: Path, namespace: Namespace) -> Path:
    # Names of tables can be longer than names of files.
    return directory / f"{hashlib.sha256(str(namespace).encode()).hexdigest()[:32]}.json"


def _read(path: Path) -> tuple[Namespace, _Version]:
    try:
        content = json.loads(path.read_bytes())
        return Namespace.parse(content.pop("namespace")), _Version(**content)
    except OSError as error:
        raise storage_error("read", path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
        raise CorruptError(
            f"{path}, which says what was masked, is damaged: {error}",
            fix="restore it from its copy, or remove it once the masks are certain to be those of the rows on the log",
        ) from error


_FIX = "put the mask back as it was; or capture under a new source name, and remove the old log and targets if they are in clear"


def _other_types(namespace: Namespace, known: _Version, now: _Version) -> ConfigError:
    name = next(name for name, kind in now.columns.items() if known.columns.get(name) != kind)
    return ConfigError(
        f"with the masks as they are now, {namespace.schema}.{namespace.table}.{name} is {now.columns[name]}; its rows on the log, which"
        f" were captured with other masks, have {known.columns.get(name)}",
        fix=_FIX,
    )


def _other_key(namespace: Namespace, column: str) -> ConfigError:
    return ConfigError(
        f"the key column {namespace.schema}.{namespace.table}.{column} is on the log with and without a mask: its rows would be there twice",
        fix=_FIX,
    )


def _must_not_be_renamed(namespace: Namespace, before: _Version, now: _Version) -> None:
    known, present = ({name.casefold() for name in version.columns} for version in (before, now))
    gone = [name for name in before.masked if name.casefold() not in present]
    new = [name for name in now.columns if name.casefold() not in known and name not in (*now.masked, *now.kept)]
    if gone and new:
        table = f"{namespace.schema}.{namespace.table}"
        raise ConfigError(
            f"the masked column {table}.{gone[0]} is gone, and {', '.join(new)} is new and in clear: it may have been renamed",
            fix=f"mask `{table}.{new[0]}` too; if it may be in clear, say so with `type: keep`",
        )
