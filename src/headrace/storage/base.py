"""The contract of a file system: files under one root, by path.

`FileStore` is what a log needs, `FileTree` what a lake needs besides: large files, and files that change their names. Only what the weakest
of them can do is in the contracts. What more one has (HDFS: files that grow) stands in its own module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

UNFINISHED = ".writing"
"""End of the hidden names of files in the making, on stores that show such files."""


class Found(NamedTuple):
    """A file in a listing."""

    name: str
    size_bytes: int
    """What is durable of it, also while it still grows."""


class FileStore(Protocol):
    """Paths are relative to the root, with ``/``. Safe for threads.

    Errors of all methods: RetryableError when the store is away, ConfigError when it refuses whoever asks, StorageError when it is
    full.
    """

    @property
    def root(self) -> str:
        """The URL that all paths start with, for messages."""
        ...

    def create(self, path: str, content: bytes) -> bool:
        """Makes a file, whole and durable or not at all; False, and nothing happens, when there is one of that path.

        Of several that try at once exactly one succeeds; where it matters whose file it is, its bytes must say so. After an error it
        may be there or not.
        """
        ...

    def read(self, path: str, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, all of which must be durable; FileNotFoundError when there is no such file."""
        ...

    def files(self, directory: str, after: str = "") -> Iterator[Found]:
        """The files of a directory of files whose names are greater than `after`, in the order of their names; none when it is not
        there. Looks up only as much as is taken, where the store can."""
        ...

    def names(self, directory: str) -> list[str]:
        """The names of all files and directories in a directory."""
        ...

    def delete(self, path: str) -> None:
        """Removes a file; nothing happens when it is not there."""
        ...


class Aged(NamedTuple):
    """A file somewhere under the root."""

    path: str
    modified_s: float
    """When it was last written to, in seconds since 1970 UTC, by the clock of whoever keeps it."""


class NewFile(Protocol):
    """A large file in the making. Nobody sees it under its name before `finish`; not safe for threads."""

    @property
    def target(self) -> pa.NativeFile:
        """Where its bytes go."""
        ...

    def finish(self) -> int:
        """Makes it whole and durable under its name (see `FileTree.sync`), and returns its size in bytes."""
        ...

    def abandon(self) -> None:
        """Throws it away; never fails, as it runs when something has failed already."""
        ...


class FileTree(FileStore, Protocol):
    """Directories come with their first file. Can be pickled. More errors: StorageError when a disk fails."""

    @property
    def settings(self) -> dict[str, str]:
        """How other programs on the object_store library (delta-rs) reach these files, besides what the environment says."""
        ...

    def claim(self, path: str) -> None:
        """Makes an empty file that marks the root as in use; ConfigError when `create` cannot keep its promise on this store."""
        ...

    def content(self, path: str) -> bytes:
        """All of a small file; FileNotFoundError when there is no such file."""
        ...

    def source(self, path: str, size_bytes: int, moved_to: str) -> pa.NativeFile:
        """A large file, to be read at any place. It may be moved to `moved_to`, before or while it is read.

        FileNotFoundError, here or when it is read, when it is under neither name; EOFError or an error of Arrow's when it has been cut.
        """
        ...

    def new_file(self, path: str) -> NewFile:
        """Begins a file whose name was never used; what a dead process leaves of it is hidden or invisible."""
        ...

    def sync(self, paths: Iterable[str]) -> None:
        """Makes the names in these directories durable, and files that others have written."""
        ...

    def move(self, path: str, to: str) -> None:
        """Gives a file another name; FileNotFoundError when it is not there. Cut short, it may be there under both."""
        ...

    def tree(self, directory: str = "") -> Iterator[Aged]:
        """All files in a directory and below it; none when it is not there."""
        ...

    def __hash__(self) -> int:
        """Trees are told apart, so that what was read of one can be remembered."""
        ...
