"""Lookups in Cassandra: a prepared SELECT for each key, many of them under way at a time. `on` is the table's whole primary key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from headrace.compute.lookups.base import Key, Lookup, Values
from headrace.model import Component
from headrace.sinks.cassandra.session import CassandraSession, SessionConfig


class CassandraLookupConfig(SessionConfig, Component):
    """Looks rows up in a table of Cassandra."""

    type: Literal["cassandra"]
    keyspace: Annotated[str, Field(min_length=1)]
    """The keyspace of the table."""
    table: Annotated[str, Field(min_length=1)]
    """The table."""


class CassandraLookup(Lookup):
    """Reads with the consistency level of the configuration."""

    Config = CassandraLookupConfig

    def __init__(self, config: CassandraLookupConfig, on: Sequence[str], take: Sequence[str]) -> None:
        names, keys = (", ".join(map(_quoted, [*on, *take])), " AND ".join(f"{_quoted(name)} = ?" for name in on))
        self._query = f"SELECT {names} FROM {_quoted(config.keyspace)}.{_quoted(config.table)} WHERE {keys}"
        self._width = len(on)
        self._session = CassandraSession(config, config.keyspace)

    def find(self, keys: Sequence[Key]) -> Iterable[tuple[Key, Values]]:
        with self._session.errors():
            for row in self._session.find(self._query, keys):
                yield tuple(row[: self._width]), tuple(row[self._width :])

    def close(self) -> None:
        self._session.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
