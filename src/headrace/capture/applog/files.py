"""The files that are followed, through every way of rotating them.

What may have happened to a file between two looks, and how it is found again::

    it was renamed              the inode stands under another name of the directory
    it was copied and emptied   the name has fewer bytes than were read, or others before the offset: the copy has what was read
    it was packed               the inode is gone, and a packed file has what was read; reading goes on in that one, at the same byte
    it was deleted or moved     gone, without a copy. While capture runs, the rest is read through the open handle. When it stood still, what
                                was not read is lost: an error, unless the file had ended
    its name has another file   a new file, from its first byte
    more than one rotation      a file whose name begins with that of one that is followed, and which is newer, is one that nobody has seen

A file has *ended* when it was read to its end and is written no more: it was renamed or packed, or has been quiet while its host wrote to a
newer one. A file whose bytes another one begins with is a copy of that, and is not read (`copies.py`).

**The lines of a host come in the order in which they were written**, where one process writes them, and does not write to an older file any more
when it writes to a newer one. For that

- an older file is read to its end before a newer one (`order.py` says which is which), and of the newer one only what it had before the end of
  the older one was asked for;
- a look is of one moment (`listing.py`), and counts for a host only if all that was opened for it was still what the look had shown. Else nothing
  of that host is read until a later look;
- a file is read when a look that began after its first bytes were noted is over (`followed.py`). So every file that was renamed or copied
  before is known, and those that are older are in front of it.

Hosts take turns; in which order depends on nothing but the files, so what has not changed is read again in the same pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile

from headrace.capture.applog.content import Content, PlainContent, is_packed
from headrace.capture.applog.copies import Copies, MovedError, fault_of_pack, if_whole, length
from headrace.capture.applog.followed import Followed, Piece
from headrace.capture.applog.listing import SEPARATORS, Listing, directory_of
from headrace.capture.applog.order import Unread, in_order
from headrace.capture.applog.pattern import FilePattern
from headrace.errors import FatalError, SourceError

_PIECE_BYTES = 1 << 20
_EVENT_BYTES = 16 << 20
_QUIET_S = 600.0
_MOST_LOOKS, _BETWEEN_LOOKS_S = 5, 0.02
"""How often a scan looks before it leaves the files that do not come to rest to the next one."""
_SETTLED_S = 60.0
"""A renamed file that has been quiet for so long has its last line, also without an end."""


class LogFiles:
    """All files of one pattern. `forgives`: what is lost is told and left out, where it would be an error."""

    def __init__(
        self,
        pattern: FilePattern,
        longest_bytes: int,
        files: Iterable[Followed],
        *,
        forgives: bool,
        sleep: Callable[[float], None],
    ) -> None:
        self._pattern = pattern
        self._longest_bytes = longest_bytes
        self._forgives = forgives
        self.files = list(files)
        self.next_host = ""
        """Whose turn it is; empty when it is the first one's."""
        self.needs_look = True
        """Whether there may be lines that the next look makes readable."""
        self._sleep = sleep
        self._listing = Listing(pattern.base)
        self._copies = Copies(pattern.base, self._listing)
        self._by_name: dict[str, Followed] = {}
        self._restless: set[str] = set()
        """Hosts whose files were changing names during the last look."""
        self._paths: set[str] = set()
        self._notices: list[str] = []

    def take_notices(self) -> tuple[str, ...]:
        """What a person must know, since the last time."""
        taken, self._notices = tuple(self._notices), []
        return taken

    def close(self) -> None:
        """Idempotent."""
        for file in self.files:
            file.close()

    def scan(self, now_s: float) -> None:
        """Looks at the directories: finds files again under their new names, and new files. SourceError when something was lost."""
        for _ in range(_MOST_LOOKS):
            self._note_beginnings(now_s)
            has_new = self._look(now_s)
            self.needs_look = bool(self._restless)
            if self._restless:
                self._sleep(_BETWEEN_LOOKS_S)
            elif not has_new:
                return

    def take(self, now_s: float) -> list[Piece]:
        """The next lines of all files, as many as fit one event."""
        pieces = self._take_in_turns(now_s)
        newest_s: dict[str, float] = {}
        for file in self.files:
            newest_s[file.host] = max(newest_s.get(file.host, 0), self._written_s(file))
        for file in self.files:
            file.has_ended = file.has_ended or (file.at_end and self._has_ended(file, newest_s[file.host], now_s))
        return pieces

    @property
    def caught_up(self) -> bool:
        """Whether all files have been read to their ends."""
        return not self._restless and all(file.at_end for file in self.files)

    def go_to_ends(self) -> None:
        """Passes over all that is in the files now."""
        for file in self.files:
            if file.open(self._pattern.base) and file.content is not None:
                file.go_to(length(file.content))

    def _note_beginnings(self, now_s: float) -> None:
        for file in self.files:
            if not file.offset and not file.is_packed and file.content is not None:
                file.note_beginning(is_final=now_s - self._written_s(file) > _SETTLED_S)

    def _look(self, now_s: float) -> bool:
        """Whether there are new files with something in them."""
        directories = {*self._pattern.directories(), *(directory_of(file.at) for file in self.files)}
        unsteady = self._listing.look(directories)
        self._restless = {file.host for file in self.files if directory_of(file.at) in unsteady}
        lost = [file for file in self._of_steady(self.files) if not self._while_steady(file, self._is_found)]
        unfound = set(lost)
        self._by_name = {file.at: file for file in self.files if file not in unfound and not file.is_nameless}
        gone = [
            file
            for file in self._of_steady(lost)
            if not self._while_steady(file, lambda file: self._finds_copy(file) or self._is_read_on(file, now_s))
        ]
        new = self._find_new(unsteady, now_s)
        for file in self._of_steady(gone):  # at last, as it says since when new files are looked for
            file.close()
            self.files.remove(file)
        self._put_in_order()
        self._paths = {file.path for file in self.files}
        return any(self._listing[file.at].size_bytes for file in new)

    def _of_steady(self, files: Sequence[Followed]) -> Iterator[Followed]:
        return (file for file in list(files) if file.host not in self._restless)

    def _while_steady(self, file: Followed, asked: Callable[[Followed], bool]) -> bool:
        """An answer about a file; true when the files of its host have moved, and nothing can be said before the next look."""
        try:
            return asked(file)
        except MovedError:
            self._restless.add(file.host)
            return True

    def _put_in_order(self) -> None:
        """Files that nobody has read come behind the others, the older ones first."""
        unread = [file for file in self.files if not file.offset and not file.is_nameless]
        order = in_order([Unread(file.path, file.at, self._written_s(file)) for file in unread])
        self.files = [file for file in self.files if file.offset or file.is_nameless] + [unread[at] for at in order]

    def _take_in_turns(self, now_s: float) -> list[Piece]:
        groups: dict[str, list[Followed]] = {}
        for file in self._of_steady(self.files):
            groups.setdefault(file.host, []).append(file)
        hosts = sorted(groups)
        start = next((at for at, host in enumerate(hosts) if host >= self.next_host), 0)
        hosts, waiting = hosts[start:] + hosts[:start], set(hosts)
        pieces: list[Piece] = []
        left = _EVENT_BYTES
        while waiting:
            for host in hosts:
                if left <= 0:
                    self.next_host = host
                    return pieces
                if host in waiting and (taken := self._take_of(groups[host], now_s)):
                    pieces += taken
                    left -= sum(piece.used for piece in taken)
                else:
                    waiting.discard(host)
        self.next_host = ""
        return pieces

    def _take_of(self, files: Sequence[Followed], now_s: float) -> list[Piece]:
        """One piece of a host: of its oldest file that has more."""
        most = max(_PIECE_BYTES, self._longest_bytes + 1)
        opened = list(takewhile(lambda file: file.open(self._pattern.base), files))
        # The newest one's first: what it had then was written when the older ones had all that they will have.
        bounds = [file.content.bound for file in reversed(opened) if file.content is not None]
        for file, bound in zip(opened, reversed(bounds), strict=True):
            piece = file.take(most, self._longest_bytes, bound, is_final=self._is_final(file, now_s))
            if piece is not None:
                return [piece]
            if not file.at_end:
                self.needs_look = True
                return []
        self.needs_look |= len(opened) < len(files)
        return []

    def _is_final(self, file: Followed, now_s: float) -> bool:
        return file.is_packed or (self._was_rotated(file) and now_s - self._written_s(file) > _SETTLED_S)

    def _has_ended(self, file: Followed, newest_s: float, now_s: float) -> bool:
        """Whether a file that was read to its end is written no more. `newest_s`: when any file of its host was written last."""
        written_s = self._written_s(file)
        return self._was_rotated(file) or (written_s < newest_s and now_s - written_s > _QUIET_S)

    def _was_rotated(self, file: Followed) -> bool:
        return file.at != file.path or file.is_packed or file.is_nameless or _is_rotated(file.path, self._paths)

    def _written_s(self, file: Followed) -> float:
        if file.is_nameless and isinstance(file.content, PlainContent):
            return file.content.status.st_mtime
        entry = self._listing.get(file.at)
        return entry.written_s if entry is not None else file.found_s

    def _is_found(self, file: Followed) -> bool:
        """Whether a file has a name, by its inode, and still what is known of it."""
        names = self._listing.names_of(file.inode, directory_of(file.at))
        names = [name for name in names if is_packed(name) == file.is_packed]
        # Of a file that was empty when capture ended only the inode is known, which may be another one's by now: it is found anew, by its name.
        if not names or not (file.is_known or file.content is not None):
            return False
        name = file.at if file.at in names else names[0]
        if file.content is None:
            content = self._copies.open_if(name, if_whole(file.is_in))
            if content is None:
                return False
            file.is_now(name, content)
        elif not file.is_whole:
            return False
        file.at, file.is_nameless, file.is_missed = name, False, False
        return True

    def _finds_copy(self, file: Followed) -> bool:
        """Looks for a copy of a file that was emptied or has gone: written after it was found, of its own host, followed by nobody. The file
        is that one from now on."""
        if file.content is not None and not file.offset:
            # It may have been empty until now: what was written to it before it went is all that tells its copy.
            file.note_beginning(is_final=file.is_deleted)
        names = [
            name
            for name in (self._listing.beside(file.at) if file.is_known else ())
            if name not in self._by_name
            and name != file.path
            and not self._copies.is_still_unpacked(name)
            and int(self._listing[name].written_s) >= int(file.found_s)
            and self._pattern.host_of(name) in (None, file.host)
        ]
        if not self._copies.take_over(file, names):
            return False
        file.is_missed = False
        self._by_name[file.at] = file
        return True

    def _is_read_on(self, file: Followed, now_s: float) -> bool:
        """Whether a file without a name is still to be read. SourceError when it is lost."""
        emptied = bool(self._listing.names_of(file.inode, directory_of(file.at)))
        if file.content is not None and not emptied:
            file.is_nameless = True
            return file.content.bound > file.offset or now_s - self._written_s(file) <= _SETTLED_S
        if not file.is_known:
            return False
        # It may have been copied and emptied since the directory was listed; or the copy that was listed was renamed or packed, and another file
        # with its name and its inode was asked.
        was_missed, file.is_missed = file.is_missed, True
        if not was_missed or not self._listing.still_holds(directory_of(file.at)):
            raise MovedError
        if file.has_ended:
            return False
        file.has_ended = True
        if file.at_end:
            self._notices.append(
                f"{file.path} was emptied after {file.offset:,} bytes, and no copy is there: what was written right before is not known"
            )
            return False
        what = "was emptied or overwritten" if emptied else "is gone"
        self._lose(
            SourceError(
                f"{self._pattern.base / file.path} {what}, and no copy of it is there: {file.offset:,} bytes of it had been read,"
                " and what came behind is lost",
                fix="bring it back (or its rotated copy) into the same directory, and capture goes on there; else let it go on with what is"
                " left (`headrace skip FLOW.yaml`)",
            )
        )
        return False

    def _find_new(self, unsteady: set[str], now_s: float) -> list[Followed]:
        """Begins to follow the files that nobody has seen."""
        found = []
        # By host: what is known of a host whose files were moving may be old, and the inode another file's by now.
        inodes = {(file.host, file.inode) for file in self._by_name.values()}
        paths = {file.path for file in self.files}
        # Files come before their copies, and before what they are packed to.
        for name, (path, host) in sorted(self._unseen().items(), key=lambda found: (is_packed(found[0]), found[0])):
            if directory_of(name) in unsteady:
                self._restless.add(host)
            if host in self._restless or (host, self._listing[name].inode) in inodes:
                continue
            new = Followed(path, name, host, self._listing[name].inode, found_s=self._listing[name].written_s)
            # An empty one is followed too: that its name is known finds it when it is written and rotated before the next look.
            # But a rotated one that is empty may be a copy that has just been begun.
            is_begun = not self._listing[name].size_bytes and _is_rotated(name, paths)
            is_new = not is_begun and self._while_steady(new, lambda file: self._is_new(file, now_s))
            if is_new and host not in self._restless:
                found.append(new)
                self._by_name[name] = new
                inodes.add((host, new.inode))
                paths.add(path)
        self.files += found
        return found

    def _unseen(self) -> dict[str, tuple[str, str]]:
        """By name the path and host of files that may be new: those of the pattern, and those that may have been made and rotated since the last
        look, or while capture stood still. The names of these begin with that of a file that is followed, and they were written after that
        was found (to the second, as some packers keep no more); older ones are from before the first start."""
        found_s: dict[tuple[str, str], float] = {}
        for file in self.files:
            place = (file.path, file.host)
            found_s[place] = min(file.found_s, found_s.get(place, file.found_s))
        found = {
            name: place
            for place, since_s in found_s.items()
            for name in self._listing.behind(place[0])
            if int(self._listing[name].written_s) >= int(since_s)
        }
        for name in self._listing:
            host = self._pattern.host_of(name)
            if host is not None:
                found[name] = (name, host)
        return {name: place for name, place in found.items() if name not in self._by_name}

    def _is_new(self, new: Followed, now_s: float) -> bool:
        """Whether nobody has read a file, which is open then: it is no copy of one that is followed."""
        if new.is_packed:
            new.content = self._copies.open_if(new.at, lambda pack: self._is_whole_pack(new.at, pack, now_s))
            if new.content is not None:  # it does not change any more
                new.note_beginning(is_final=True)
        else:
            beside = (self._by_name.get(name) for name in self._listing.beside(new.at))
            known = [file for file in beside if file is not None and file.host == new.host and file.path != new.at]
            new.content = self._copies.open_if(new.at, lambda content: not self._copies.is_copy(content, known))
        return new.content is not None

    def _is_whole_pack(self, name: str, pack: Content, now_s: float) -> bool:
        """Whether a packed file is not just being made. CorruptError when it is damaged."""
        if self._copies.is_still_unpacked(name):
            return False
        fault = fault_of_pack(pack)
        if fault is not None and now_s - self._listing[name].written_s > _SETTLED_S:
            self._lose(fault)
        return fault is None

    def _lose(self, error: FatalError) -> None:
        if not self._forgives:
            raise error
        self._notices.append(error.message)


def _is_rotated(path: str, paths: set[str]) -> bool:
    """Whether a name is that of another file with something behind it."""
    return any(path[:place] in paths for place, character in enumerate(path) if character in SEPARATORS)
