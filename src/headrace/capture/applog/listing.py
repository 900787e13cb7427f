"""What directories hold, each as it stood at one moment.

A directory is listed until two listings agree on its names and on whose they are, and nothing went meanwhile. A listing alone is no snapshot: a file that is renamed while it runs may come under
both of its names or under none, and a name may be another file's when it is asked. Where two agree, each name was that file's between
them. A name that neither has was not there between them, unless it came during the first and went during the second.

The last listing of the look before counts as one of the two: where nothing changes, a look is one listing.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.capture.applog.pattern import entries

_MOST_LISTINGS = 10
SEPARATORS = ".-_"
"""Of what rotation adds to a name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file as a directory shows it."""

    inode: int
    size_bytes: int
    written_s: float


class Listing:
    """The files of some directories below `base`; names are relative to that."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._directories: dict[str, dict[str, Entry]] = {}
        self._names: dict[str, list[str]] = {}
        self._at: dict[tuple[str, int], list[str]] = {}

    def look(self, directories: Iterable[str]) -> set[str]:
        """Lists directories anew; those whose names do not come to rest."""
        before, self._directories = self._directories, {}
        restless = set()
        for directory in sorted(set(directories)):
            newest, is_steady = before.get(directory, {}), False
            for _ in range(_MOST_LISTINGS):
                last = newest
                newest, is_whole = self._list(directory)
                is_steady = is_whole and _inodes(last) == _inodes(newest)
                if is_steady:
                    break
            if not is_steady:
                restless.add(directory)
            self._directories[directory] = newest
        self._names = {directory: sorted(found) for directory, found in self._directories.items()}
        self._at = {}
        for directory, names in self._names.items():
            for name in names:
                self._at.setdefault((directory, self._directories[directory][name].inode), []).append(name)
        return restless

    def still_holds(self, directory: str) -> bool:
        """Whether a directory has the names now that the look has shown, for the same files."""
        newest, is_whole = self._list(directory)
        return is_whole and _inodes(newest) == _inodes(self._directories[directory])

    def __iter__(self) -> Iterator[str]:
        for names in self._names.values():
            yield from names

    def get(self, name: str) -> Entry | None:
        """The file of a name; None when there is none."""
        return self._directories.get(directory_of(name), {}).get(name)

    def __getitem__(self, name: str) -> Entry:
        return self._directories[directory_of(name)][name]

    def beside(self, name: str) -> Iterator[str]:
        """The other names of a file's directory."""
        return (other for other in self._names.get(directory_of(name), ()) if other != name)

    def behind(self, path: str) -> Iterator[str]:
        """The names of a directory that are this one with something behind it, as rotation makes them."""
        names = self._names.get(directory_of(path), [])
        for at in range(bisect_left(names, path), len(names)):
            if not names[at].startswith(path):
                return
            if is_behind(names[at], path):
                yield names[at]

    def names_of(self, inode: int, directory: str) -> list[str]:
        """The names that a file has in a directory."""
        return self._at.get((directory, inode), [])

    def _list(self, directory: str) -> tuple[dict[str, Entry], bool]:
        """What a directory shows, and whether all of it was still there when it was asked."""
        found, is_whole = {}, True
        for entry in entries(self._base / directory):
            try:
                if entry.is_file():
                    status = entry.stat()
                    name = os.path.join(directory, entry.name)  # noqa: PTH118 - ten times as fast as paths, for thousands of names
                    found[name] = Entry(status.st_ino, status.st_size, status.st_mtime)
            except FileNotFoundError:
                is_whole = False
        return found, is_whole


def directory_of(name: str) -> str:
    """The directory of a name."""
    return os.path.dirname(name)  # noqa: PTH120 - as above


def is_behind(name: str, path: str) -> bool:
    """Whether a name is another one with something behind it."""
    return len(name) > len(path) and name.startswith(path) and name[len(path)] in SEPARATORS


def _inodes(found: dict[str, Entry]) -> dict[str, int]:
    return {name: entry.inode for name, entry in found.items()}
