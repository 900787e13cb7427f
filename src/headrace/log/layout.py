"""Names in the embedded log, the same on every file system: topics as directory names, the file that marks a log, and which kind of
log a place means."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from headrace.errors import ConfigError

MARKER = ".headrace-log"
_LONGEST_NAME_BYTES = 255


def kind_of(path: str) -> str:
    """The name in the registry of the embedded log that has such a path."""
    scheme, slashes, _ = path.partition("://")
    return scheme if slashes and scheme in ("hdfs", "s3") else "directory"


def topic_name(topic: str) -> str:
    """The topic as a file name: percent-encoded, its first dot too, so that it is neither hidden nor a way out."""
    try:
        name = quote(topic, safe="")
    except UnicodeEncodeError:
        name = ""
    if name.startswith("."):
        name = "%2E" + name[1:]
    if not 0 < len(name) <= _LONGEST_NAME_BYTES:
        raise ConfigError(
            f"{topic[:80]!r} cannot be the name of a topic",
            fix="use a name of 1 to 255 letters, digits, dots and dashes",
        )
    return name


def require_partition(partition: int) -> None:
    if partition < 0:
        raise ConfigError(f"partition {partition} cannot be", fix="partitions are numbered from 0")


def refuse_foreign(root: object, names: Sequence[str]) -> None:
    """A directory that holds other things is not taken for a log, nor turned into one."""
    foreign = [name for name in names if not name.startswith(".") and name != "lost+found"]
    if foreign and MARKER not in names:
        raise ConfigError(
            f"{root} is not a log: it holds {foreign[0]} and has no file {MARKER}",
            fix="name the directory of a log, or one that is empty or not there yet",
        )
