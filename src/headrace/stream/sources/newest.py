"""A small content that is written again and again, on any store: each time as a file of its own, of which the newest counts.

::

    <directory>/00000000000000000041     whole or absent: `FileStore.create`
    <directory>/00000000000000000042     the newest; those before it are removed when it is there

Of two processes that write the same thing, which nobody wants, the one that comes later with a number is told: it is there, or a larger one is. What
the other has written is not replaced by what is older.
"""

from __future__ import annotations

from headrace.errors import FencedError
from headrace.storage.base import FileTree

_DIGITS = 20


class Newest:
    """One such content. Nothing is asked before it is used; one thread at a time."""

    def __init__(self, tree: FileTree, directory: str) -> None:
        self._tree = tree
        self._directory = directory
        self._number: int | None = None

    def load(self) -> bytes | None:
        """What was written last; None when nothing was."""
        while True:
            number = self._number = self._found()
            if number == 0:
                return None
            try:
                return self._tree.content(self._path(number))
            except FileNotFoundError:
                continue  # there is a newer one

    def save(self, content: bytes) -> None:
        """Durable on return; FencedError when another process has written since."""
        before = self._found() if self._number is None else self._number
        number = before + 1
        is_first = self._tree.create(self._path(number), content)
        # Another may have been here long ago, and have removed what stood under this number.
        if not is_first or self._found() > number:
            if is_first:
                self._tree.delete(self._path(number))
            raise FencedError(
                f"another process writes {self._tree.root}/{self._directory}",
                fix="give each query a `path` of its own, and end the one that still runs before it is started elsewhere",
            )
        self._number = number
        if before:
            self._tree.delete(self._path(before))

    def _found(self) -> int:
        names = [name for name, _ in self._tree.files(self._directory) if len(name) == _DIGITS and name.isdecimal()]
        return int(names[-1]) if names else 0

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number:0{_DIGITS}}"
