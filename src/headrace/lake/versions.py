"""The versions of a table, as its files describe them."""

from __future__ import annotations

from collections.abc import Iterable

from headrace.lake.layout import LakeFile
from headrace.lake.parquet import open_file, table_in
from headrace.storage.base import FileTree
from headrace.ums.schema import TableSchema


def schemas_of(lake: FileTree, files: Iterable[LakeFile]) -> dict[int, TableSchema]:
    """Each version's schema, as the last of its files describes it."""
    one_each = {file.table.version: file for file in files}
    return {version: table_in(open_file(lake, file)) for version, file in one_each.items()}
