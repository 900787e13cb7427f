"""Small JSON files of a lake that say themselves whether they are whole.

::

    {…}                 one line of JSON, UTF-8
    {"crc32":…}         of the first line's bytes, without its line end
"""

from __future__ import annotations

import json
import zlib
from typing import Any

from headrace.errors import ConfigError, CorruptError
from headrace.storage.base import FileTree

FORMAT = 1


def checked(content: dict[str, Any]) -> bytes:
    """The bytes of such a file."""
    line = json.dumps({"format": FORMAT, **content}, separators=(",", ":"), ensure_ascii=False).encode()
    return b'%b\n{"crc32":%d}\n' % (line, zlib.crc32(line))


def read_checked(lake: FileTree, path: str) -> dict[str, Any]:
    """What it says. CorruptError when it is damaged, ConfigError for a format of later versions, FileNotFoundError when there is none."""
    line, _, check = lake.content(path).partition(b"\n")
    try:
        if json.loads(check) != {"crc32": zlib.crc32(line)}:
            raise not_what_was_written(lake, path, "its checksum differs")
        content: dict[str, Any] = json.loads(line)
    except ValueError as error:
        raise not_what_was_written(lake, path, str(error)) from error
    if (format_ := content.get("format", FORMAT)) != FORMAT:
        raise ConfigError(
            f"{lake.root}/{path} has format {format_}, which is unknown here",
            fix="use the headrace that wrote this lake",
        )
    return content


def not_what_was_written(lake: FileTree, path: str, reason: str) -> CorruptError:
    return CorruptError(
        f"{lake.root}/{path} is not what was written: {reason}", fix="restore this file from a copy of the lake"
    )
