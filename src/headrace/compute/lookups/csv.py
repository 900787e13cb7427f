"""Lookups in a CSV file with a header: read whole, and again when it has changed. All its values are text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import pyarrow as pa
from pyarrow import csv
from pydantic import Field

from headrace.compute.lookups.base import Key, Lookup, Values, as_texts
from headrace.errors import ConfigError, RetryableError
from headrace.model import Component, LocalPath


class CsvLookupConfig(Component):
    """Looks rows up in a CSV file."""

    type: Literal["csv"]
    path: LocalPath
    """The file, UTF-8, with the names of its columns in the first line."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    """Between two values."""


class CsvLookup(Lookup):
    """A file that others put in the place of an older one is read from then on. An empty value without quotes is null."""

    Config = CsvLookupConfig

    def __init__(self, config: CsvLookupConfig, on: Sequence[str], take: Sequence[str]) -> None:
        self._config = config
        self._on, self._take = list(on), list(take)
        self._read_at: tuple[int, int] | None = None
        self._rows: dict[Key, list[Values]] = {}

    def find(self, keys: Sequence[Key]) -> Iterable[tuple[Key, Values]]:
        self._look()
        for key in keys:
            for values in self._rows.get(as_texts(key), ()):
                yield key, values

    def close(self) -> None:
        self._read_at, self._rows = None, {}

    def _look(self) -> None:
        try:
            there = self._config.path.stat()
            if self._read_at == (there.st_mtime_ns, there.st_ino):
                return
            rows = self._read()
        except OSError as error:
            raise RetryableError(
                f"the file of a lookup, {self._config.path}, cannot be read: {error.strerror or error}",
                fix="bring the file, or correct `path` of the step",
            ) from error
        self._rows = {}
        for row in zip(*(rows.column(name).to_pylist() for name in (*self._on, *self._take)), strict=True):
            self._rows.setdefault(row[: len(self._on)], []).append(row[len(self._on) :])
        self._read_at = there.st_mtime_ns, there.st_ino

    def _read(self) -> pa.Table:
        names = list(dict.fromkeys([*self._on, *self._take]))
        options = csv.ConvertOptions(
            include_columns=names,
            column_types=dict.fromkeys(names, pa.utf8()),
            strings_can_be_null=True,
            null_values=[""],
            quoted_strings_can_be_null=False,
        )
        parsing = csv.ParseOptions(delimiter=self._config.delimiter, newlines_in_values=True)
        try:
            return csv.read_csv(self._config.path, parse_options=parsing, convert_options=options)
        except (pa.ArrowInvalid, KeyError) as error:
            raise ConfigError(
                f"the file of a lookup, {self._config.path}, does not fit: {error.args[0]}",
                fix="correct the file, or `on` and `take` of the step",
            ) from error
