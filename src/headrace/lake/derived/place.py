"""Where files of a table lie that other programs read: those of a version in a lake, or those of a derived table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import ConfigError
from headrace.lake.asof import files_named
from headrace.lake.commit import Manifest, is_lake
from headrace.lake.derived.directory import LATEST
from headrace.lake.derived.spec import Format
from headrace.lake.layout import directory_of
from headrace.storage.base import FileTree
from headrace.storage.location import scheme_of, tree_at
from headrace.ums.schema import Namespace


@dataclass(frozen=True, slots=True)
class Place:
    """A directory, and the format in which other programs read it."""

    url: str
    """A directory of this machine, or the URL of one as Hadoop writes it."""
    format: Format

    def statement(self, name: str) -> str:
        """What registers it as a table in Spark's catalog."""
        location = self.url.replace("'", "\\'")
        quoted = ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))
        return f"CREATE TABLE {quoted} USING {self.format.value} LOCATION '{location}'"


def directory_for(namespace: Namespace) -> str:
    """The directory of a derived table below `path`: as in the lake, without the version."""
    above, _, version = directory_of(replace(namespace, version=0)).rpartition("/")
    return f"{above}{version.removeprefix('v0')}"


def find(path: Path | str | FileTree, name: str) -> Place:
    """The files of a table version in the lake at `path`, or of a table derived into it; ConfigError when there are none."""
    tree = tree_at(path)
    if is_lake(tree):
        manifest = Manifest.open(tree)
        versions = sorted({file.namespace for file in files_named(manifest, name)})
        if len(versions) > 1:
            raise ConfigError(
                f"{name} has {len(versions)} versions in the lake, each with columns of its own",
                fix=f"name one of {', '.join(versions)}, or derive a current table, which has all of them",
            )
        (file,) = {directory_of(each.table) for each in files_named(manifest, versions[0])}
        return Place(_url(tree, file), Format.PARQUET)
    directory = directory_for(Namespace.parse(name if name.count(".") == 6 else f"{name}.0.0.0"))
    names = tree.names(directory)
    if "_delta_log" in names:
        return Place(_url(tree, directory), Format.DELTA)
    if LATEST in names:
        return Place(_url(tree, f"{directory}/{LATEST}"), Format.PARQUET)
    raise ConfigError(
        f"{tree.root} is no lake, and no table {name} was derived into it",
        fix="give the path of a lake, or the one that `derive` or --into names, and the table as `headrace lake ls` shows it",
    )


def _url(tree: FileTree, directory: str) -> str:
    """As Hadoop calls it, whose S3 is ``s3a://``."""
    place = f"{tree.root}/{directory}"
    if scheme_of(place) == "s3":
        return f"s3a{place.removeprefix('s3')}"
    return place if scheme_of(place) else str(Path(place).absolute())
