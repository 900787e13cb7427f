"""A directory of this machine. Its files are read and written by native code, without a detour."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from headrace.crash import crash_point
from headrace.errors import storage_error
from headrace.files import create_file, make_directories, sync_file
from headrace.storage.base import UNFINISHED, Aged, Found


class LocalFileTree:
    """The `FileTree` on a directory."""

    def __init__(self, root: Path) -> None:
        self.root = str(root)
        self._directory = root

    def __reduce__(self) -> tuple[Callable[[Path], LocalFileTree], tuple[Path]]:
        return LocalFileTree, (self._directory,)

    @property
    def settings(self) -> dict[str, str]:
        """See `FileTree.settings`."""
        return {}

    def claim(self, path: str) -> None:
        """See `FileTree.claim`."""
        create_file(self._directory / path, b"")

    def create(self, path: str, content: bytes) -> bool:
        """See `FileStore.create`."""
        return create_file(self._directory / path, content)

    def content(self, path: str) -> bytes:
        """See `FileTree.content`."""
        with self._translated("read", path):
            return (self._directory / path).read_bytes()

    def read(self, path: str, start: int, stop: int) -> bytes:
        """See `FileStore.read`."""
        with self._translated("read", path), (self._directory / path).open("rb") as file:
            file.seek(start)
            return file.read(stop - start)

    def source(self, path: str, size_bytes: int, moved_to: str) -> pa.NativeFile:
        """See `FileTree.source`. What is open stays readable wherever it is moved."""
        try:
            return pa.OSFile(str(self._directory / path), "rb")
        except FileNotFoundError:
            return pa.OSFile(str(self._directory / moved_to), "rb")

    def new_file(self, path: str) -> _NewFile:
        """See `FileTree.new_file`."""
        return _NewFile(self._directory / path)

    def sync(self, paths: Iterable[str]) -> None:
        """See `FileTree.sync`."""
        for path in paths:
            sync_file(self._directory / path)

    def files(self, directory: str, after: str = "") -> Iterator[Found]:
        """See `FileStore.files`."""
        with self._translated("list", directory), suppress(FileNotFoundError, NotADirectoryError):
            with os.scandir(self._directory / directory) as entries:
                found = [entry for entry in entries if entry.name > after and not entry.is_dir()]
            for entry in sorted(found, key=lambda entry: entry.name):
                yield Found(entry.name, entry.stat().st_size)

    def names(self, directory: str) -> list[str]:
        """See `FileStore.names`."""
        with self._translated("list", directory), suppress(FileNotFoundError, NotADirectoryError):
            return sorted(path.name for path in (self._directory / directory).iterdir())
        return []

    def delete(self, path: str) -> None:
        """See `FileStore.delete`."""
        with self._translated("delete", path):
            (self._directory / path).unlink(missing_ok=True)

    def move(self, path: str, to: str) -> None:
        """See `FileTree.move`."""
        with self._translated("rename", path):
            (self._directory / path).rename(self._directory / to)

    def tree(self, directory: str = "") -> Iterator[Aged]:
        """See `FileTree.tree`."""
        for above, _, names in os.walk(self._directory / directory):
            for name in names:
                path = Path(above, name)
                with suppress(FileNotFoundError):
                    yield Aged(path.relative_to(self._directory).as_posix(), path.stat().st_mtime)

    @contextmanager
    def _translated(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise storage_error(action, self._directory / path, error) from error


class _NewFile:
    """Lies beside its name until it is whole, hidden from those who read the directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hidden = path.with_name(f"_{path.name}{UNFINISHED}")
        make_directories(path.parent)
        with self._translated():
            self.target: pa.NativeFile = pa.OSFile(str(self._hidden), mode="wb")

    def finish(self) -> int:
        """See `NewFile.finish`."""
        with self._translated():
            self.target.close()
            sync_file(self._hidden)
            crash_point("file.synced")
            size_bytes = self._hidden.stat().st_size
            self._hidden.rename(self._path)
        return size_bytes

    def abandon(self) -> None:
        """See `NewFile.abandon`."""
        with suppress(OSError):
            self.target.close()
        with suppress(OSError):
            self._hidden.unlink(missing_ok=True)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise storage_error("write", self._hidden, error) from error
