"""The readers' side of one partition on a shared file system. They change nothing and ask nobody but the store."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headrace.errors import FatalError, FencedError
from headrace.log.base import Record, Span
from headrace.log.index import NO_TIME
from headrace.log.record import TAKEN, Run
from headrace.log.retention import Closed, Keep, expired
from headrace.log.segment import UNBOUNDED, Extent, damaged, headers, runs
from headrace.storage.base import FileStore, Found

_SHORTEST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1
_SMALLEST_READ_BYTES = 64 << 10
_LARGEST_READ_BYTES = 8 << 20
_ATTEMPTS = 5
_MOST_CURSORS = 64


class Piece(NamedTuple):
    """A file with the batches from offset `base` up to the base of the piece that follows."""

    base: int
    name: str
    size_bytes: int


Pieces = Callable[[list[Piece], Iterable[Found]], list[Piece]]
"""Makes of the pieces known so far, and of the listing behind them, the pieces that count, in the order of their offsets."""


class _Tail(NamedTuple):
    """How far the newest piece was walked."""

    name: str
    position: int
    end: int
    ends_in_mark: bool = False


class _View(NamedTuple):
    """What a partition was at some moment."""

    pieces: list[Piece]
    tail: _Tail

    def number(self, offset: int) -> int:
        """Which piece holds an offset."""
        return bisect_right(self.pieces, offset, key=lambda piece: piece.base) - 1


class _RemoteFile:
    """A `Readable` that asks for more the longer it is read in one go, and keeps what it got last. What is there never changes."""

    def __init__(self, store: FileStore, path: str, before: _RemoteFile | None) -> None:
        """`before`: the file that was read before this one; where that was read to its end, this one goes on as it would have."""
        self.path = f"{store.root}/{path}"
        self.size_bytes = 0
        self._store = store
        self._relative = path
        self._kept = (0, b"")
        self._wanted_bytes: int = _SMALLEST_READ_BYTES
        if before is not None and before._is_at_end:
            self._wanted_bytes = before._more_bytes

    def read(self, size_bytes: int, position: int) -> bytes:
        at, kept = self._kept
        stop = min(position + size_bytes, self.size_bytes)
        kept_to = at + len(kept)
        if not at <= position <= stop <= kept_to:
            if at < position <= kept_to:
                self._wanted_bytes = self._more_bytes
            elif kept and position != at:
                self._wanted_bytes = _SMALLEST_READ_BYTES
            further = min(max(stop, position + self._wanted_bytes), self.size_bytes)
            still = kept[position - at :] if at <= position else b""
            content = still + self._store.read(self._relative, position + len(still), further)
            at, kept = self._kept = (position, content)
        return kept[position - at : stop - at]

    @property
    def _more_bytes(self) -> int:
        """What is asked for by who reads on."""
        return min(2 * max(self._wanted_bytes, len(self._kept[1])), _LARGEST_READ_BYTES)

    @property
    def _is_at_end(self) -> bool:
        at, kept = self._kept
        return at + len(kept) >= self.size_bytes


class SharedReader:
    """Reads one partition. Threads may share it: what it remembers are only short cuts."""

    def __init__(self, store: FileStore, directory: str, pieces: Pieces, *, may_be_torn: bool) -> None:
        self.url = f"{store.root}/{directory}"
        self._directory = directory
        self._store = store
        self._pieces_of = pieces
        self._may_be_torn = may_be_torn
        self._known: _View | None = None
        self._file: _RemoteFile | None = None
        self._cursors: dict[int, tuple[str, int]] = {}
        self._times: dict[str, int] = {}

    def end(self) -> int | None:
        """The offset behind the newest batch that can be read; None when nothing was ever written."""
        view = self._look()
        return None if view is None else view.tail.end

    def span(self) -> Span | None:
        """What can be read; None when nothing was ever written."""
        view = self._look()
        if view is None:
            return None
        first = next(
            (piece for found in self._store.files(self._directory) for piece in self._pieces_of([], [found])), None
        )
        start = view.pieces[0].base if first is None else max(first.base, view.pieces[0].base)
        return Span(min(start, view.tail.end), view.tail.end)

    def pieces(self) -> list[Piece]:
        """All pieces, looked up anew."""
        self.forget()
        view = self._look()
        return [] if view is None else view.pieces

    def read(self, span: Span) -> Iterator[Record]:
        """See `Log.read`."""
        view = self._look()
        offset, failures = span.start, 0
        while view is not None and offset < (stop := min(span.stop, view.tail.end)):
            self._require_kept(offset, view)
            try:
                for name, position, run in self._runs(view, offset, span.start, stop):
                    yield from run.records
                    offset, failures = run.next_offset, 0
                    self._remember(offset, name, position + run.stop_at)
            except FileNotFoundError as error:
                # Merged into a longer piece, or dropped: what was listed is old.
                failures += 1
                if failures >= _ATTEMPTS:
                    raise damaged(self.url, 0, f"offset {offset} is missing") from error
                self.forget()
                view = self._look()

    def wait(self, offset: int, timeout_s: float) -> bool:
        """See `Log.wait`."""
        give_up_at = time.monotonic() + timeout_s
        pause_s = _SHORTEST_PAUSE_S
        while True:
            view = self._look()
            # What a new writer leaves takes an offset and is no record.
            if (
                view is not None
                and offset < view.tail.end
                and (not view.tail.ends_in_mark or self._holds(offset, view))
            ):
                return True
            left_s = give_up_at - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 1.2, _LONGEST_PAUSE_S)

    def offset_at(self, time_ms: int) -> int:
        """The first offset whose entry has this time or a later one; the end when there is none."""
        self.forget()
        view = self._look()
        if view is None:
            return 0
        for number in range(len(view.pieces)):
            for _, header in headers(self._extent(view, number), 0, view.pieces[number].base):
                if header.max_time_ms >= time_ms:
                    found = self.read(Span(header.base_offset, header.next_offset))
                    return next(record.offset for record in found if record.entry.time_ms >= time_ms)
        return view.tail.end

    def retained(self, keep: Keep, now_ms: int, held_from: int | None) -> tuple[list[Piece], list[Piece]]:
        """All pieces, looked up anew: the oldest ones, which retention lets go, and those that stay; `held_from`: with all from this offset on."""
        self.forget()
        view = self._look()
        if view is None:
            return [], []
        times = [self._max_time_ms(view, number) for number in range(len(view.pieces) - 1)]
        self._times = {piece.name: time_ms for piece, time_ms in zip(view.pieces, times, strict=False)}
        closed = [
            Closed(piece.base, piece.size_bytes, time_ms) for piece, time_ms in zip(view.pieces, times, strict=False)
        ]
        gone = expired(closed, keep, now_ms)
        if held_from is not None:
            gone = min(gone, sum(behind.base <= held_from for behind in view.pieces[1:]))
        return view.pieces[:gone], view.pieces[gone:]

    def _max_time_ms(self, view: _View, number: int) -> int:
        """The largest time of all entries of a piece that is not the newest, so that it stays as it is."""
        piece = view.pieces[number]
        if piece.name in self._times:
            return self._times[piece.name]
        found = headers(self._extent(view, number), 0, piece.base)
        return max((header.max_time_ms for _, header in found), default=NO_TIME)

    def taken_over(self) -> FencedError:
        """What a writer is told for which another has come."""
        return FencedError(
            f"{self.url} was taken over by another writer",
            fix="one process writes a partition: stop one of the two; what was acknowledged is in the log",
        )

    def forget(self) -> None:
        """Looks at everything anew the next time."""
        self._known = None
        self._file = None
        self._cursors.clear()

    def _look(self) -> _View | None:
        """The newest state. Of what was known only the newest two pieces are listed again."""
        for _ in range(_ATTEMPTS):
            known = self._known
            kept = known.pieces[:-1] if known is not None else []
            pieces = self._pieces_of(kept, self._store.files(self._directory, kept[-1].name if kept else ""))
            if not pieces:
                self._known = None
                return None
            try:
                if not kept or pieces[-1].name != kept[-1].name:
                    self._known = _View(pieces, self._walk(pieces[-1], known))
                    return self._known
            except FileNotFoundError:
                pass  # merged or dropped between the listing and the look
            self.forget()
        raise damaged(self.url, 0, "files vanish again and again")

    def _walk(self, newest: Piece, known: _View | None) -> _Tail:
        tail = (
            known.tail if known is not None and known.tail.name == newest.name else _Tail(newest.name, 0, newest.base)
        )
        extent = Extent(self._open(newest), newest.size_bytes, UNBOUNDED)
        for position, header in headers(extent, tail.position, tail.end, may_be_torn=self._may_be_torn):
            tail = _Tail(newest.name, position + header.length, header.next_offset, header.magic == TAKEN)
        return tail

    def _holds(self, offset: int, view: _View) -> bool:
        return next(self.read(Span(offset, view.tail.end)), None) is not None

    def _runs(self, view: _View, offset: int, start: int, stop: int) -> Iterator[tuple[str, int, Run]]:
        """The batches of one piece from the one with `offset` on, with the piece's name and the position of their chunk."""
        number = view.number(offset)
        extent, name = self._extent(view, number), view.pieces[number].name
        part = extent._replace(stop_offset=min(stop, extent.stop_offset))
        for position, run in runs(part, *self._seek(offset, extent, view.pieces[number]), start):
            yield name, position, run

    def _seek(self, offset: int, extent: Extent, piece: Piece) -> tuple[int, int]:
        """Position and offset of the batch that holds `offset`."""
        if offset == piece.base:
            return 0, offset
        name, position = self._cursors.pop(offset, ("", 0))
        if name == piece.name:
            return position, offset
        for position, header in headers(extent, 0, piece.base):
            if offset < header.next_offset:
                return position, header.base_offset
        raise damaged(extent.file.path, extent.limit, f"it ends before offset {offset}")

    def _remember(self, offset: int, name: str, position: int) -> None:
        if len(self._cursors) >= _MOST_CURSORS:
            self._cursors.clear()
        self._cursors[offset] = (name, position)

    def _extent(self, view: _View, number: int) -> Extent:
        """What may be read of a piece: up to the next one, of the newest as far as it was found whole."""
        piece = view.pieces[number]
        if number == len(view.pieces) - 1:
            return Extent(self._open(piece), view.tail.position, view.tail.end)
        return Extent(self._open(piece), piece.size_bytes, view.pieces[number + 1].base)

    def _open(self, piece: Piece) -> _RemoteFile:
        path = f"{self._directory}/{piece.name}"
        file = self._file
        if file is None or file.path != f"{self._store.root}/{path}":
            file = self._file = _RemoteFile(self._store, path, file)
        file.size_bytes = max(file.size_bytes, piece.size_bytes)
        return file

    def _require_kept(self, offset: int, view: _View) -> None:
        start = view.pieces[0].base
        if offset < start:
            raise FatalError(
                f"offset {offset} of {self.url} is no longer kept: the log starts at {start}",
                fix="keep more (retention of the log), or start the reader from the oldest entry, or load the tables anew",
            )
