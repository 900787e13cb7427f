"""Which files are logs, and of which hosts: ``/var/log/remote/{host}/*.log``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ConfigError, storage_error

_PIECE = re.compile(r"(\{host\}|\*|\?)")
_REGEX = {"{host}": r"(?P<host>[^/]+)", "*": "[^/]*", "?": "[^/]"}


class FilePattern:
    """A path in whose parts ``*`` and ``?`` stand for anything, and ``{host}``, once, for the name of the host. `host`: where it is left out."""

    def __init__(self, pattern: Path, host: str) -> None:
        """ValueError when it is no such pattern."""
        parts = pattern.parts
        if str(pattern).count("{host}") > 1 or "**" in str(pattern):
            raise ValueError("write {host} at most once, and no **")
        plain = next((at for at, part in enumerate(parts[:-1]) if _PIECE.search(part)), len(parts) - 1)
        self.base = Path(*parts[:plain])
        """The directory that all names are relative to."""
        self._parts = parts[plain:]
        self._regex = re.compile("/".join(map(_regex, self._parts)))
        self._host = host

    @property
    def has_one_log_per_host(self) -> bool:
        """Whether no two files that applications write at once are of the same host."""
        return all(piece == "{host}" for part in self._parts for piece in _PIECE.findall(part))

    def directories(self) -> list[str]:
        """Where its files may be, relative to `base`. ConfigError when not even that is there."""
        if not self.base.is_dir():
            raise ConfigError(f"there is no directory {self.base}", fix="correct `files` of the source, or make it")
        return list(self._walk("", self._parts[:-1]))

    def host_of(self, name: str) -> str | None:
        """The host whose file this is; None when it is not one of the pattern."""
        found = self._regex.fullmatch(name)
        if found is None:
            return None
        return found["host"] if "host" in self._regex.groupindex else self._host

    def _walk(self, above: str, parts: tuple[str, ...]) -> Iterator[str]:
        if not parts:
            yield above
            return
        wanted = re.compile(_regex(parts[0]))
        for entry in entries(self.base / above):
            if wanted.fullmatch(entry.name) and entry.is_dir():
                yield from self._walk(os.path.join(above, entry.name), parts[1:])  # noqa: PTH118 - names, not places


def entries(directory: Path) -> list[os.DirEntry[str]]:
    """What a directory has now; nothing when it has gone meanwhile."""
    try:
        with os.scandir(directory) as found:
            return list(found)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise storage_error("read the directory", directory, error) from error


def _regex(part: str) -> str:
    return "".join(_REGEX.get(piece) or re.escape(piece) for piece in _PIECE.split(part))
