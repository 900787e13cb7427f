"""Where files lie, as a person says it: a directory of this machine, ``hdfs://namenode:8020/directory`` or ``s3://bucket/prefix``."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, ValidationInfo

from headrace.errors import ConfigError
from headrace.model import relative_to_base
from headrace.storage.base import FileTree
from headrace.storage.local import LocalFileTree
from headrace.storage.options import StoreOptions

_URL = re.compile(r"hdfs://[^/\s]+/[^\s]+|s3://[^/\s]+(/[^\s]*)?")
_LIBRARIES = {"hdfs": "hdfs_native", "s3": "obstore"}


def _location(value: object, info: ValidationInfo) -> object:
    if not isinstance(value, str) or "://" not in value:
        return relative_to_base(value, info)
    try:
        return _checked(value)
    except ConfigError as error:
        raise ValueError(f"{error.message}; {error.fix}") from error


def _checked(url: str) -> str:
    if not _URL.fullmatch(url):
        raise ConfigError(
            f"'{url}' is no place for files",
            fix="write a directory, hdfs://namenode:8020/directory or s3://bucket/prefix",
        )
    scheme = scheme_of(url)
    if find_spec(_LIBRARIES[scheme]) is None:
        raise ConfigError(f"the library for {scheme}:// is not installed", fix=f"pip install 'headrace[{scheme}]'")
    return url.rstrip("/")


Location = Annotated[str | Path, BeforeValidator(_location)]
"""A directory, in a flow file relative to the file's own, or a URL, which stays text."""


def scheme_of(location: str | Path) -> str:
    """``hdfs`` or ``s3``; empty for a directory."""
    return location.partition("://")[0] if isinstance(location, str) and "://" in location else ""


def resolved(location: str | Path) -> str:
    """The same text for the same place."""
    return str(location) if scheme_of(location) else str(Path(location).resolve())


def are_apart(one: str | Path, other: str | Path) -> bool:
    """Whether none of two places is in the other."""
    here, there = (f"{resolved(each)}/" for each in (one, other))
    return not here.startswith(there) and not there.startswith(here)


def tree_at(location: str | Path | FileTree, options: StoreOptions | None = None) -> FileTree:
    """The files at a place, nothing of which is looked at yet; what `options` leave out comes from the environment.

    ConfigError for what is no place, and when its library is not installed.
    """
    if not isinstance(location, (str, Path)):
        return location
    if not scheme_of(location):
        return LocalFileTree(Path(location))
    url, options = _checked(str(location)), options or StoreOptions()
    # Only here, as their libraries are extras.
    if scheme_of(url) == "hdfs":
        from headrace.storage.hdfs import HdfsFileStore  # noqa: PLC0415

        return HdfsFileStore(url, options)
    from headrace.storage.s3 import S3FileStore  # noqa: PLC0415

    return S3FileStore(url, options)
