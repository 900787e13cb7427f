"""Versions of tables where nothing but their rows tells them apart."""

from __future__ import annotations

from headrace.ums.schema import TableSchema


class Versions:
    """Counts the versions of tables as a log shows them."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, str], TableSchema] = {}

    def newest(self, table: TableSchema) -> TableSchema | None:
        return self._newest.get(_name(table))

    def numbered(self, table: TableSchema) -> TableSchema:
        newest = self.newest(table)
        if newest is None or not newest.same_shape(table):
            version = 0 if newest is None else newest.namespace.version + 1
            newest = self._newest[_name(table)] = table.with_version(version)
        return newest


def _name(table: TableSchema) -> tuple[str, str]:
    return table.namespace.schema, table.namespace.table
