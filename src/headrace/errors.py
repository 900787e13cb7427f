"""Every error that headrace raises on purpose, sorted by who must act.

::

    HeadraceError
    ├── ConfigError             the author of a flow file or command; nothing was started           exit 2
    ├── RetryableError          nobody: retry.py tries again, then it becomes fatal                 exit 1
    │   └── FencedError         another process owns what this one wrote to; it must stop writing
    ├── DataError               the table's owner: rows that a target cannot take (error ledger)    exit 1
    └── FatalError              the operator                                                        exit 1
        ├── SourceError         the source's settings, grants or log contents do not allow capture
        │   ├── TableChangedError   a table that is read is not what it was taken for
        │   └── PositionLostError   the place where capture stopped is not in the source's log any more
        ├── CorruptError        bytes on disk or on the wire are not what was written
        └── StorageError        a disk is full, read-only or failing

Each error says in `message` what happened and where, and in `fix` what to do about it. The command line prints both, without
a traceback, and ends with `exit_code`.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import ClassVar


class HeadraceError(Exception):
    """Root of all errors that headrace raises on purpose.

    `message` is one sentence: what happened, and where. `fix` is one sentence: what the reader can do.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, fix: str) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}\n  what to do: {self.fix}"

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (Spark workers): keyword arguments need help to be pickled.
        return (_rebuild, (type(self), self.message, self.fix, self.__dict__.copy()))


def _rebuild(cls: type[HeadraceError], message: str, fix: str, state: dict[str, object]) -> HeadraceError:
    error = cls(message, fix=fix)
    error.__dict__.update(state)
    return error


class ConfigError(HeadraceError):
    """The author of the configuration must act. `where` is ``file:line`` when the error has a place in a file."""

    exit_code = 2

    def __init__(self, message: str, *, fix: str, where: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message, fix=fix)
        self.where = where


class RetryableError(HeadraceError):
    """Nobody must act: the operation can be tried again. `retry_after_s` is the shortest sensible pause."""

    def __init__(self, message: str, *, fix: str, retry_after_s: float = 0.1) -> None:
        super().__init__(message, fix=fix)
        self.retry_after_s = retry_after_s


class FencedError(RetryableError):
    """Another process has taken over what this one writes to; writing on would spoil it."""


class DataError(HeadraceError):
    """The table's owner must act: some rows or a schema cannot be taken by a target."""


class FatalError(HeadraceError):
    """The operator must act; trying again unchanged will not help."""


class SourceError(FatalError):
    """The source's settings, grants or the contents of its log do not allow capture."""


class TableChangedError(SourceError):
    """A table that is read is not there, or not with the columns that it was taken for; look at it anew."""


class PositionLostError(SourceError):
    """The place where capture stopped is not in the source's log any more, and changes went with it."""


class CorruptError(FatalError):
    """Bytes are not what was written: a damaged file, log segment or network stream."""


class StorageError(FatalError):
    """A disk is full, read-only or failing."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a source or a target that a person should know before anything is started: what it is, and what to do."""

    message: str
    fix: str
    stops: bool
    """The run would end with it; else it is advice."""

    @classmethod
    def of(cls, error: HeadraceError) -> Finding:
        """What would stop a run with this error."""
        return cls(error.message, error.fix, stops=True)


def storage_error(action: str, path: object, cause: OSError) -> StorageError:
    """The one way in which an OSError of our own files becomes a message: what was done to which path, and why it failed."""
    fixes = {
        errno.ENOSPC: "free space on that disk (or move the path), then start again; nothing that was acknowledged is lost",
        errno.EROFS: "the file system is read-only: remount it writable or choose another path",
        errno.EACCES: "give this user the right to write there or choose another path",
        errno.EPERM: "give this user the right to write there or choose another path",
        errno.EDQUOT: "the quota is used up: raise it or choose another path",
    }
    fix = fixes.get(cause.errno or 0, "check the disk (dmesg, smartctl) and the path, then start again")
    return StorageError(f"could not {action} {path}: {cause.strerror or cause}", fix=fix)


def unexpected(what: str, error: Exception) -> FatalError:
    """The one way in which an error that nobody has foreseen becomes a message."""
    return FatalError(
        f"{what} met an error that headrace does not know: {type(error).__name__}: {error}",
        fix="nothing is lost, start again; if it comes back, report it with the log under the state directory",
    )
