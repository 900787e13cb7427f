"""Where HBase keeps the files of its log, and what their names say.

::

    ROOT/WALs/<server>/<file>             being written, or just rolled
    ROOT/WALs/<server>-splitting/<file>   the server died, its edits are being given to others
    ROOT/oldWALs/<file>                   nobody needs it but readers like this one; a cleaner deletes it after hbase.master.logcleaner.ttl

    file      <group>.<milliseconds>[.meta][.syncrep]        a group's files follow each other
    group     <server>, its name with %2C for commas         one log per server (the default)
              <server>.<anything>                            several (hbase.wal.provider multiwal): each is a log by itself
    others    …$masterlocalwal$                              the master's own, passed over
              pv2-….log                                      the master's procedures (HBase before 2.3): read when it begins like a log

A file keeps its name through all its moves, so positions are kept by name. Directories are looked through in the order of a file's life: one
that moves meanwhile is found twice, not missed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.codec.hbase_wal import MAGIC
from headrace.errors import ConfigError, storage_error
from headrace.storage.base import Found

_NAME = re.compile(r"(?P<group>.+)\.(?P<created>\d{10,})(?P<meta>\.meta)?(?:\.syncrep)?")
_PROCEDURES = re.compile(r"pv2-(?P<created>\d+)\.log")
_MASTERS_OWN = "$masterlocalwal$"
_WRITTEN, _OLD = "WALs", "oldWALs"
_SPLITTING = "-splitting"


class WalStore(Protocol):
    """What is needed of a file system: `FileStore` has the first two."""

    @property
    def root(self) -> str: ...

    def files(self, directory: str, after: str = "") -> Iterator[Found]: ...

    def names(self, directory: str) -> list[str]: ...

    def read_on(self, path: str, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, or as many as have been written, also by a writer that goes on; FileNotFoundError when there is
        no such file (any more)."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file was found. `is_final`: nobody adds to it any more."""

    name: str
    path: str
    group: str
    created_ms: int
    is_final: bool


def find(store: WalStore, *, meta: bool) -> dict[str, Place]:
    """All files of the log by name. `meta`: those of the table hbase:meta too."""
    found: dict[str, Place] = {}
    for server in store.names(_WRITTEN):
        for file in store.files(f"{_WRITTEN}/{server}"):
            # A server that died may still be writing until its files have been taken from it, which is before they are moved on.
            _note(found, file.name, f"{_WRITTEN}/{server}/{file.name}", is_final=False)
    for file in store.files(_OLD):
        _note(found, file.name, f"{_OLD}/{file.name}", is_final=True)
    return {name: place for name, place in found.items() if meta or not place.group.endswith(".meta")}


def is_log(store: WalStore, path: str) -> bool:
    """Whether a file begins as the log does, not as the master's procedures do."""
    return store.read_on(path, 0, len(MAGIC)) == MAGIC


def is_of_procedures(place: Place) -> bool:
    return _PROCEDURES.fullmatch(place.name) is not None


def _note(found: dict[str, Place], name: str, path: str, *, is_final: bool) -> None:
    if name.endswith(_MASTERS_OWN):
        return
    if (parts := _PROCEDURES.fullmatch(name)) is not None:
        found[name] = Place(name, path, "pv2", int(parts["created"]), is_final)
    elif (parts := _NAME.fullmatch(name)) is not None:
        found[name] = Place(name, path, parts["group"], int(parts["created"]), is_final)


class LocalFiles:
    """The `WalStore` on a directory of this machine."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.root = str(root)

    def files(self, directory: str, after: str = "") -> Iterator[Found]:
        try:
            entries = [path for path in (self._root / directory).iterdir() if path.is_file()]
            found = sorted(Found(path.name, 0) for path in entries)
        except (FileNotFoundError, NotADirectoryError):
            return iter(())
        except OSError as error:
            raise storage_error("list", self._root / directory, error) from error
        return iter(file for file in found if file.name > after)

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(path.name for path in (self._root / directory).iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise storage_error("list", self._root / directory, error) from error

    def read_on(self, path: str, start: int, stop: int) -> bytes:
        try:
            with (self._root / path).open("rb") as file:
                file.seek(start)
                return file.read(stop - start)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error("read", self._root / path, error) from error


def require_log(store: WalStore) -> None:
    """ConfigError when there is no log under the root."""
    if not {_WRITTEN, _OLD}.intersection(store.names("")):
        raise ConfigError(
            f"there is no write-ahead log of HBase in {store.root}: neither {_WRITTEN} nor {_OLD}",
            fix="name HBase's root directory (hbase.rootdir), or hbase.wal.dir where that is set",
        )
