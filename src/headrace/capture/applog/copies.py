"""Which file has what another one had: copies, which rotation makes, and packed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headrace.capture.applog.content import Content, PlainContent, is_packed, open_content, without_packing
from headrace.capture.applog.followed import HEAD_BYTES, Followed
from headrace.capture.applog.listing import Listing
from headrace.capture.applog.order import Unread, in_order
from headrace.errors import CorruptError

_STEP_BYTES = 1 << 20


class MovedError(Exception):
    """A file is not any more what the look showed."""


class Copies:
    """The files that a look has shown, by what is in them. Its methods raise `MovedError` when one of them is another file by now."""

    def __init__(self, base: Path, listing: Listing) -> None:
        self._base = base
        self._listing = listing

    def open_if(self, name: str, asked: Callable[[Content], bool]) -> Content | None:
        """The file, open, if something is true of its content. What was asked and what is read are one file so: opened once more, it may be
        another one, with the inode of the first."""
        content, is_so = self._opened(name), False
        try:
            is_so = asked(content)
        finally:
            if not is_so:
                content.close()
        return content if is_so else None

    def take_over(self, file: Followed, names: Sequence[str]) -> bool:
        """Makes a file that was emptied or has gone the one of these that is its copy, when there is one."""
        names = self._oldest_first(file, names)
        whole = self._open_all(names, file.is_in)
        cut = {} if whole else self._open_all(names, lambda content: file.is_cut_in(content, length(content)))
        found = whole or cut
        if not found:
            return False
        chosen = _longest(found)
        for name, content in found.items():
            if name == chosen:
                file.is_now(name, content)
            else:
                content.close()
        if cut:
            file.go_to(length(found[chosen]))
        return True

    def is_copy(self, content: Content, files: Sequence[Followed]) -> bool:
        """Whether one of these files begins with all that a content has."""
        return any(self._is_copy(content, file) for file in files)

    def is_still_unpacked(self, name: str) -> bool:
        """Whether a packed file is there together with what it was packed from."""
        return is_packed(name) and self._listing.get(without_packing(name)) is not None

    def _opened(self, name: str) -> Content:
        """The file that the look has shown under a name."""
        content = open_content(self._base / name)
        if content is None:
            raise MovedError
        if content.inode != self._listing[name].inode:
            content.close()
            raise MovedError
        return content

    def _open_all(self, names: Sequence[str], asked: Callable[[Content], bool]) -> dict[str, Content]:
        """Those of which something is true, open."""
        found: dict[str, Content] = {}
        try:
            for name in names:
                if (content := self.open_if(name, if_whole(asked))) is not None:
                    found[name] = content
        except BaseException:
            for content in found.values():
                content.close()
            raise
        return found

    def _is_copy(self, content: Content, file: Followed) -> bool:
        if not file.open(self._base):
            raise MovedError
        is_copy = file.content is not None and _begins(file.content, content)
        if not file.is_whole:  # asked last: it may have been emptied meanwhile
            raise MovedError
        return is_copy

    def _oldest_first(self, file: Followed, names: Sequence[str]) -> list[str]:
        order = in_order([Unread(file.path, name, self._listing[name].written_s) for name in names])
        return [names[at] for at in order]


def length(content: Content) -> int:
    """How many bytes a content has."""
    if isinstance(content, PlainContent):
        return content.bound
    found = 0
    while step := len(content.read(found, _STEP_BYTES)):
        found += step
    return found


def if_whole(asked: Callable[[Content], bool]) -> Callable[[Content], bool]:
    """The same question; the answer is no for a content that is damaged, or being packed just now."""

    def answer(content: Content) -> bool:
        try:
            return asked(content)
        except CorruptError:
            return False

    return answer


def fault_of_pack(content: Content) -> CorruptError | None:
    """Why a packed file cannot be unpacked to its end: it is just being made, or is damaged."""
    try:
        length(content)
    except CorruptError as error:
        return error
    return None


def _longest(found: Mapping[str, Content]) -> str:
    """Of copies, the oldest one first, that one; or the one that goes on where it ends, which somebody has copied while the log was still
    written."""
    longest, *others = found
    for other in others:
        longest = other if _begins(found[other], found[longest]) else longest
    return longest


def _begins(content: Content, copy: Content) -> bool:
    """Whether a file begins with all that another one has, as far as its first and last bytes tell."""
    if not isinstance(content, PlainContent) or not isinstance(copy, PlainContent):
        return False
    size = copy.bound
    count = min(size, HEAD_BYTES)
    places = (0, size - count)
    return size > 0 and all(content.read(place, count) == copy.read(place, count) for place in places)
