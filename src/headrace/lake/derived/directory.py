"""A derived table as plain Parquet files in a directory: each version is a directory, and `latest` leads to the newest.

::

    TABLE/
    ├── latest -> v00000017                      what readers are pointed at: TABLE/latest/*.parquet
    ├── v00000016/                               stays for readers at work until the grace is over
    ├── v00000017/                               a version never changes
    │   ├── _headrace.json                       {"format":1,"progress":{…},"schema":Arrow schema in base64,"told":{…}}
    │   └── 4f0c…e1-000001.parquet               a piece; the same file in all versions that have it (a hard link)
    ├── _pieces/4f0c…e1-000001.parquet           pieces before the commit that lists them
    └── _v00000018.4f0c…/                        a version in the making

The commit is one rename: ``_v00000018.…`` becomes ``v00000018``, which one of two racers can do. The newest version is the one with the largest
number, not the one that `latest` names: who opens the table to write sets it right.

The crash story; each point is one of crash.py.

=======================  =============================================  ====================================================
point                    killed after …, before …                       what is found
=======================  =============================================  ====================================================
derived.pieces_written   all pieces durable, before the version's       the old version; `tidy` deletes the pieces
                         directory is made
derived.version_made     the directory is complete and durable,         the old version; `tidy` deletes the directory
                         before its name
derived.version_named    the version has its name, before `latest`      the new version is the newest, and the next upkeep
                                                                        leads `latest` to it; until then readers see the old one
derived.committed        `latest` leads to it                           the new version
=======================  =============================================  ====================================================
"""

from __future__ import annotations

import base64
import errno
import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from uuid import uuid4

import pyarrow as pa

from headrace.crash import crash_point
from headrace.errors import ConfigError, CorruptError, FencedError, storage_error
from headrace.files import make_directories, replace_file, sync_directory
from headrace.lake.derived.pieces import Piece
from headrace.lake.derived.table import Json, Present, Progress
from headrace.storage.base import FileTree, Found

LATEST = "latest"
_ABOUT = "_headrace.json"
_FORMAT = 1
_VERSION = re.compile(r"v(\d{8})")
_MAKING = re.compile(r"_v\d{8}\..*")


class ParquetDirectory:
    """A table of plain Parquet files."""

    def __init__(self, tree: FileTree, directory: str) -> None:
        """`tree`: a directory of this machine, as other file systems have no links."""
        self._root = Path(tree.root)
        self._directory = self._root / directory
        self.pieces_directory = f"{directory}/_pieces"

    def present(self) -> Present | None:
        number = self._newest()
        if number is None:
            if self._directory.exists() and any(not path.name.startswith("_") for path in self._directory.iterdir()):
                raise ConfigError(
                    f"{self._directory} is not a table that headrace has derived: it has no version",
                    fix="give another path, or remove the directory",
                )
            return None
        self._lead(number)
        version = self._directory / _name(number)
        try:
            about = _about(version)
            progress = Progress(**about["progress"])
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(about["schema"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorruptError(
                f"{version / _ABOUT} is not what was written: {error}",
                fix=f"remove {self._directory}: the table is made anew from the lake",
            ) from error
        pieces = sorted(version.glob("*.parquet"))
        files = tuple(Found(path.relative_to(self._root).as_posix(), path.stat().st_size) for path in pieces)
        return Present(progress, schema, files, number)

    def commit(
        self,
        before: Present | None,
        schema: pa.Schema,
        *,
        added: Sequence[Piece],
        removed: Sequence[Piece],
        progress: Progress,
        told: Json,
    ) -> None:
        crash_point("derived.pieces_written")
        number = 1
        if before is not None:
            assert isinstance(before.state, int)
            number = before.state + 1
        gone = {piece.path for piece in removed}
        kept = [file.name for file in (before.files if before else ()) if file.name not in gone]
        new = [piece.path for piece in added]
        about = {
            "format": _FORMAT,
            "progress": asdict(progress),
            "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
            "told": told,
        }
        making = self._directory / f"_{_name(number)}.{uuid4().hex}"
        try:
            make_directories(making)
            for path in (*kept, *new):
                os.link(self._root / path, making / Path(path).name)
            replace_file(making / _ABOUT, json.dumps(about).encode())
            sync_directory(making)
            crash_point("derived.version_made")
            making.rename(self._directory / _name(number))
            sync_directory(self._directory)
        except OSError as error:
            shutil.rmtree(making, ignore_errors=True)
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FencedError(
                    f"the table {self._directory} was changed by another process meanwhile; nothing was done",
                    fix="start it again: it goes on from what the other has made",
                ) from error
            raise storage_error("write", making, error) from error
        crash_point("derived.version_named")
        self._lead(number)
        crash_point("derived.committed")
        for path in new:
            (self._root / path).unlink(missing_ok=True)

    def tidy(self, grace_s: float, *, thoroughly: bool) -> None:  # it costs little here
        until = time.time() - grace_s
        newest = self._newest()
        try:
            for path in list(self._directory.iterdir()):
                version = _VERSION.fullmatch(path.name)
                if version and newest is not None and int(version[1]) < newest:
                    # A version's time of death is its successor's birth.
                    over = (self._directory / _name(int(version[1]) + 1)).stat().st_mtime < until
                else:
                    over = bool(_MAKING.fullmatch(path.name)) and path.stat().st_mtime < until
                if over:
                    shutil.rmtree(path)
            for path in (self._root / self.pieces_directory).glob("*.parquet*"):
                if path.stat().st_mtime < until:
                    path.unlink()
        except FileNotFoundError:
            return  # another process is tidying
        except OSError as error:
            raise storage_error("tidy", self._directory, error) from error

    def _newest(self) -> int | None:
        if not self._directory.exists():
            return None
        found = [int(match[1]) for path in self._directory.iterdir() if (match := _VERSION.fullmatch(path.name))]
        return max(found, default=None)

    def _lead(self, number: int) -> None:
        """Leads `latest` to a version, unless it leads there or further."""
        link = self._directory / LATEST
        try:
            if link.is_symlink() and link.readlink().name >= _name(number):
                return
            aside = self._directory / f"_{LATEST}.{uuid4().hex}"
            aside.symlink_to(_name(number))
            aside.replace(link)
            sync_directory(self._directory)
        except OSError as error:
            raise storage_error("lead to its newest version", link, error) from error


def _about(version: Path) -> Json:
    about: Json = json.loads((version / _ABOUT).read_bytes())
    if about["format"] != _FORMAT:
        raise ValueError(f"its format {about['format']} is unknown here")
    return about


def _name(number: int) -> str:
    return f"v{number:08d}"
