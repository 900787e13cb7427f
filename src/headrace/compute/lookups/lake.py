"""Lookups in a table of a lake: its newest rows, read whole, and again after `refresh` when the table has new ones."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from headrace.compute.lookups.base import Key, Lookup, Values, as_texts
from headrace.errors import ConfigError, RetryableError
from headrace.lake.asof import Snapshot, snapshot
from headrace.lake.commit import Manifest
from headrace.model import Component, Duration
from headrace.storage.location import Location, tree_at
from headrace.storage.options import StoreOptions


class LakeLookupConfig(Component, StoreOptions):
    """Looks rows up in a table of a lake."""

    type: Literal["lake"]
    path: Location
    """The lake: a directory, ``hdfs://…`` or ``s3://…``."""
    table: Annotated[str, Field(pattern=r"^[^.]+\.[^.]+\.[^.]+\.[^.]+$")]
    """``mysql.db1.shop.customers``."""
    refresh: Annotated[Duration, Field(ge=0)] = 60.0
    """How old what has been read may be."""


class LakeLookup(Lookup):
    """Keeps the columns that are asked for of all rows in memory."""

    Config = LakeLookupConfig

    def __init__(
        self,
        config: LakeLookupConfig,
        on: Sequence[str],
        take: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config
        self._on, self._take = list(on), list(take)
        self._clock = clock
        self._read_at: float | None = None
        self._rows: dict[Key, list[Values]] = {}

    def find(self, keys: Sequence[Key]) -> Iterable[tuple[Key, Values]]:
        if self._read_at is None or self._clock() - self._read_at > self._config.refresh:
            self._read()
        for key in keys:
            for values in self._rows.get(as_texts(key), ()):
                yield key, values

    def close(self) -> None:
        self._read_at, self._rows = None, {}

    def _newest(self) -> Snapshot:
        try:
            return snapshot(Manifest.open(tree_at(self._config.path, self._config.store_options())), self._config.table)
        except ConfigError as error:
            raise RetryableError(
                f"the table {self._config.table} of a lookup is not in the lake yet: {error.message}",
                fix="let the flow that fills the lake run, or correct `path` and `table` of the step",
            ) from error

    def _read(self) -> None:
        read_at = self._clock()
        rows: dict[Key, list[Values]] = {}
        newest = self._newest()
        there = {column.name for column in newest.table.columns}
        if missing := [name for name in (*self._on, *self._take) if name not in there]:
            raise ConfigError(
                f"the table {self._config.table} of a lookup has no column {missing[0]}",
                fix="correct `on` and `take` of the step",
            )
        for batch in newest.batches:
            for row in zip(*(batch.column(name).to_pylist() for name in (*self._on, *self._take)), strict=True):
                rows.setdefault(as_texts(row[: len(self._on)]), []).append(row[len(self._on) :])
        self._read_at, self._rows = read_at, rows
