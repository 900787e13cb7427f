"""Small files that must be whole or absent: written aside, synced, then moved into place."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from headrace.errors import storage_error


def replace_file(path: Path, content: bytes) -> None:
    """Makes `path` hold `content`, durably and atomically, whatever it held before."""
    try:
        aside = _written_aside(path, content)
        aside.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise storage_error("write", path, error) from error


def create_file(path: Path, content: bytes) -> bool:
    """Makes `path` hold `content`, durably and atomically, unless it exists: then nothing happens and False is returned."""
    try:
        aside = _written_aside(path, content)
        try:
            os.link(aside, path)
        except FileExistsError:
            return False
        finally:
            aside.unlink()
        sync_directory(path.parent)
    except OSError as error:
        raise storage_error("create", path, error) from error
    return True


def sync_directory(path: Path) -> None:
    """Makes the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _written_aside(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    return aside
