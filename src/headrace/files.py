"""Small files that must be whole or absent: written aside, synced, then moved into place."""

from __future__ import annotations

import os
from pathlib import Path
from uuid import uuid4

from headrace.crash import crash_point
from headrace.errors import storage_error


def replace_file(path: Path, content: bytes, *, is_private: bool = False) -> None:
    """Makes `path` hold `content`, durably and atomically, whatever it held before. What is private only this user may read."""
    try:
        aside = _written_aside(path, content, 0o600 if is_private else 0o666)
        aside.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        raise storage_error("write", path, error) from error


def create_file(path: Path, content: bytes) -> bool:
    """Makes `path` hold `content`, durably and atomically, unless it exists: then nothing happens and False is returned."""
    try:
        aside = _written_aside(path, content)
        try:
            crash_point("create.written")
            os.link(aside, path)
        except FileExistsError:
            return False
        finally:
            aside.unlink()
        crash_point("create.named")
        sync_directory(path.parent)
    except OSError as error:
        raise storage_error("create", path, error) from error
    return True


def make_directories(directory: Path) -> None:
    """Creates a directory and what is missing above it, so that all of it survives a power cut."""
    if directory.is_dir():
        return
    missing = [directory]
    while not missing[-1].exists() and missing[-1] != missing[-1].parent:
        missing.append(missing[-1].parent)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error("create the directory", directory, error) from error
    for above in missing[1:]:
        sync_directory(above)


def sync_directory(directory: Path) -> None:
    """Makes the names in a directory durable."""
    sync_file(directory)


def sync_file(path: Path) -> None:
    """Makes a file's bytes (or a directory's names) durable."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise storage_error("make durable", path, error) from error


def _written_aside(path: Path, content: bytes, mode: int = 0o666) -> Path:
    make_directories(path.parent)
    aside = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with open(aside, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        aside.unlink(missing_ok=True)
        raise
    return aside
