"""What is derived from a lake, as a person asks for it in a flow file or on the command line."""

from __future__ import annotations

from enum import StrEnum
from importlib.util import find_spec
from typing import Annotated

from pydantic import Field, model_validator

from headrace.model import Duration, Model
from headrace.storage.location import Location, scheme_of


class Kind(StrEnum):
    """What rows a derived table has."""

    CURRENT = "current"
    """One per key: the newest."""
    ZIPPER = "zipper"
    """One per state that a key has ever had, with the time in which it held."""


class Format(StrEnum):
    """How a derived table lies on disk."""

    DELTA = "delta"
    PARQUET = "parquet"


class Delete(StrEnum):
    """What a delete at the source does in a current table."""

    SOFT = "soft"
    """The row stays, with `_is_active_` = 0."""
    HARD = "hard"
    """The row goes."""


class Derive(Model):
    """One kind of derived tables of a lake: ``{current: delta, path: ./current}`` or ``{zipper: parquet, path: ./zipper}``."""

    current: Format | None = None
    """A current table for each table of the lake: the newest row per key."""
    zipper: Format | None = None
    """A zipper table for each: every state of every row, with valid_from, valid_to and is_current."""
    path: Location
    """Where they lie: a directory per table below it. Outside the lake."""
    tables: Annotated[list[str], Field(min_length=1)] = Field(default=["*"])
    """Which tables, by their names in the lake: ``mysql.db1.shop.*``."""
    every: Annotated[Duration, Field(gt=0)] = 60.0
    """How often `headrace run` takes in what is new."""
    delete: Delete | None = None
    """Of a current table: soft keeps deleted rows with `_is_active_` = 0, hard removes them; soft when left out."""
    grace: Annotated[Duration, Field(ge=0)] = 86400.0
    """How long files that are no more part of a table stay for readers that are at work."""

    @model_validator(mode="after")
    def _says_one_kind(self) -> Derive:
        if (self.current is None) == (self.zipper is None):
            raise ValueError("say one of `current: delta`, `current: parquet`, `zipper: delta`, `zipper: parquet`")
        if self.zipper is not None and self.delete is not None:
            raise ValueError("a zipper table keeps the states of deleted rows: leave `delete` out")
        return self

    @model_validator(mode="after")
    def _has_its_library(self) -> Derive:
        if self.format is Format.DELTA and find_spec("deltalake") is None:
            raise ValueError("Delta tables need a library that is not installed: pip install 'headrace[delta]'")
        return self

    @model_validator(mode="after")
    def _has_links_where_it_needs_them(self) -> Derive:
        if self.format is Format.PARQUET and scheme_of(self.path):
            raise ValueError(
                f"plain Parquet tables cannot be exchanged at once on {scheme_of(self.path)}://, which has no links:"
                " derive Delta tables there, or plain Parquet into a directory of this machine"
            )
        return self

    @property
    def kind(self) -> Kind:
        return Kind.ZIPPER if self.current is None else Kind.CURRENT

    @property
    def format(self) -> Format:
        found = self.current or self.zipper
        assert found is not None
        return found

    @property
    def soft(self) -> bool:
        """Whether deleted rows stay."""
        return self.delete is not Delete.HARD
