"""A small JSON file in a source's state that says what people want to be told of; capture itself rests on nothing in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import CorruptError, storage_error
from headrace.files import make_directories, replace_file

_FORMAT = 1
_T = TypeVar("_T")


def read_noted(path: Path, read: Callable[[dict[str, Any]], _T]) -> _T | None:
    """What `read` makes of the content; None when there is none yet. CorruptError when it is not what was written."""
    try:
        content = json.loads(path.read_bytes())
        return {_FORMAT: read}[content["format"]](content)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error("read", path, error) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptError(f"{path} is damaged: {error!r}", fix="remove it; nothing but alerts rests on it") from error


def write_noted(path: Path, content: dict[str, Any]) -> None:
    """Durably and atomically."""
    make_directories(path.parent)
    replace_file(path, json.dumps({"format": _FORMAT, **content}, ensure_ascii=False).encode())
