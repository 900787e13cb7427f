"""One log file that is followed: how far it has been read, and what it is known by when its name changes.

A file is the one that it was when it still has its first bytes, and, right before the offset, the bytes that were read there last. Both
are kept as hashes, as a mark must not hold what a mask would hide. They find a file again under another name, in a copy and in a packed
copy, and tell that a name now belongs to another file.

The first bytes are noted when a look at the directory begins, before any are read: else a file that was found empty, was written, copied,
emptied and written again would be taken for one, and what the copy has would come after what was written last. A file of which nothing
was noted is not read. What is read counts only if the noted bytes are still there afterwards, so it was all written to the same file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from headrace.capture.applog.content import Content, PlainContent, is_packed, open_content

HEAD_BYTES = 1024
_TAIL_BYTES = 256
_KEPT = ("path", "at", "host", "inode", "found_s", "offset", "skips_line", "has_ended", "tail")


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


_NOTHING = _hash(b"")


def _has_line(beginning: bytes) -> bool:
    """Whether the first bytes of a file are enough to know it by."""
    return b"\n" in beginning or len(beginning) >= HEAD_BYTES


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines out of a file. `used`: how many bytes it went on, which are more than those of `data` where a line was cut."""

    path: str
    host: str
    offset: int
    data: bytes
    used: int
    is_cut: bool = False


@dataclass(slots=True, eq=False)
class Followed:
    """A file. `path`: the name under which it was found; `at`: the one that it has now. Both are relative to the pattern's directory."""

    path: str
    at: str
    host: str
    inode: int
    found_s: float
    """When it had been written last, as it was found."""
    offset: int = 0
    skips_line: bool = False
    """What comes up to the next line belongs to one that was cut, or that was begun before capture."""
    has_ended: bool = False
    """It was read to its end and is not written any more, as far as anybody can tell: it may go."""
    head: tuple[int, str] = (0, _NOTHING)
    """How many of its first bytes are known, and their hash; they may be more than were read."""
    tail: str = _NOTHING
    at_end: bool = False
    """Nothing was left when it was read last."""
    is_nameless: bool = False
    """No name is found for it, and it is read to its end through its handle."""
    is_missed: bool = False
    """The last look has found neither what is known of it nor a copy."""
    content: Content | None = field(default=None, repr=False)
    _first: bytes = field(default=b"", repr=False)
    _last: bytes = field(default=b"", repr=False)

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Self:
        """Out of a mark."""
        length, content_hash = kept["head"]
        return cls(**{name: kept[name] for name in _KEPT}, head=(length, content_hash))

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _KEPT} | {"head": list(self.head)}

    def is_in(self, content: Content) -> bool:
        """Whether a content has what was read of this file so far."""
        if not self.begins(content):
            return False
        first = content.read(0, self.head[0])
        last = content.read(max(0, self.offset - _TAIL_BYTES), min(_TAIL_BYTES, self.offset))
        if _hash(last) != self.tail:
            return False
        self._first, self._last = first, last
        return True

    def begins(self, content: Content) -> bool:
        """Whether a content has the first bytes of this file."""
        return _hash(content.read(0, self.head[0])) == self.head[1]

    def is_cut_in(self, content: Content, size_bytes: int) -> bool:
        """Whether a content ends before what was read, and is the beginning of it, as far as is known: a copy that was made before
        the last lines came, which were read before the file was emptied."""
        if not 0 < size_bytes < self.offset:
            return False
        if size_bytes < self.head[0]:
            return content.read(0, size_bytes) == self._first[:size_bytes]
        return self.head[0] == HEAD_BYTES and self.begins(content)

    def open(self, base: Path) -> bool:
        """Makes it readable; False when what stands under its name is another file, or nothing."""
        if self.content is not None:
            return True
        content = open_content(base / self.at)
        if content is None:
            return False
        # The name may have been given to another file since the look at the directory.
        if content.inode != self.inode or not self.is_in(content):
            content.close()
            return False
        self.content = content
        return True

    @property
    def is_known(self) -> bool:
        """Whether it can be told from other files by its bytes."""
        return self.head[0] > 0

    @property
    def is_deleted(self) -> bool:
        """Whether an open file has no name any more, anywhere."""
        return isinstance(self.content, PlainContent) and not self.content.status.st_nlink

    @property
    def is_whole(self) -> bool:
        """Whether an open file still has what is known of it: it may have been emptied, and filled anew."""
        if not isinstance(self.content, PlainContent):
            return True
        start = self.offset - len(self._last)
        begins = self.content.read(0, len(self._first)) == self._first
        return begins and self.content.read(start, len(self._last)) == self._last

    def note_beginning(self, *, is_final: bool) -> None:
        """Makes an open file that nobody has read known by the first bytes that it has now: by its first line at least, as a part of one may
        be that of another file too. `is_final`: there will be no more of it."""
        assert self.content is not None, "open it first"
        first = self.content.read(0, HEAD_BYTES)
        if not self.offset and (is_final or _has_line(first)) and first.startswith(self._first):
            self._first = first
            self._note()

    def is_now(self, at: str, content: Content) -> None:
        """It was found in another file: a copy."""
        self.close()
        self.at, self.inode, self.content = at, content.inode, content

    def take(self, most_bytes: int, longest_bytes: int, bound: int, *, is_final: bool) -> Piece | None:
        """The next whole lines before `bound`; None when there are none, and when they cannot be told from those of another file before the
        next look. `is_final`: what stands behind the last line's end is a line too."""
        assert self.content is not None, "open it first"
        data = self.content.read(self.offset, max(0, min(most_bytes, bound - self.offset)))
        if not self.is_whole or (not self.is_known and _has_line(data)):
            self.at_end = False
            return None
        self.at_end = len(data) < most_bytes
        if not data or not self.is_known:
            return None
        offset, end = self.offset, data.rfind(b"\n") + 1
        if self.skips_line:
            end = data.find(b"\n") + 1
            self.skips_line = not end
            self.at_end = False
            return Piece(self.path, self.host, offset, b"", self._go_on(data[:end] if end else data))
        if end or (is_final and self.at_end and len(data) <= longest_bytes):
            lines = data[:end] if end else data
            if end < len(data) and is_final and self.at_end:
                self.at_end = False  # what is left comes next
            return Piece(self.path, self.host, offset, lines, self._go_on(lines))
        if len(data) <= longest_bytes:
            return None
        self.skips_line, self.at_end = True, False
        return Piece(self.path, self.host, offset, data[:longest_bytes], self._go_on(data), is_cut=True)

    def go_to(self, size_bytes: int) -> None:
        """Passes over what stands before a place, and the rest of the line that is there."""
        assert self.content is not None, "open it first"
        self._first = self.content.read(0, min(HEAD_BYTES, size_bytes))
        self._last = self.content.read(max(0, size_bytes - _TAIL_BYTES), min(_TAIL_BYTES, size_bytes))
        self.offset, self.skips_line = size_bytes, not self._last.endswith(b"\n")
        self._note()

    def close(self) -> None:
        """Idempotent."""
        if self.content is not None:
            self.content.close()
            self.content = None

    @property
    def is_packed(self) -> bool:
        return is_packed(self.at)

    def _go_on(self, data: bytes) -> int:
        if len(self._first) < min(HEAD_BYTES, self.offset + len(data)):
            self._first = (self._first[: self.offset] + data[:HEAD_BYTES])[:HEAD_BYTES]
        self._last = (self._last + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        self.offset += len(data)
        self.has_ended = False
        self._note()
        return len(data)

    def _note(self) -> None:
        self.head, self.tail = (len(self._first), _hash(self._first)), _hash(self._last)
