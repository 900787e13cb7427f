"""A derived table as it lies in its files: what both formats can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from headrace.lake.derived.pieces import Piece
from headrace.storage.base import Found

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a derived table has come in its lake. Kept by the table itself, in the commit that brings the rows."""

    commit: int
    """The lake's commit up to which all is taken in."""
    newest_id: int
    """No change that was taken in has a larger id, nor has a clear."""
    version: int
    """The newest version of the source whose shape is followed."""
    round: int
    """The newest round of certificates (lake/certificate.py) that the table tells of; 0 for none."""


@dataclass(frozen=True, slots=True)
class Present:
    """A derived table that is there."""

    progress: Progress
    schema: pa.Schema
    files: tuple[Found, ...]
    """Its pieces, by their paths in the tree."""
    state: object
    """What the format needs to know at the commit."""


class DerivedTable(Protocol):
    """A derived table in one format."""

    @property
    def pieces_directory(self) -> str:
        """Where in the tree new pieces are written before a commit lists them."""
        ...

    def present(self) -> Present | None:
        """The table as it is; None when there is none yet. ConfigError when something else lies there."""
        ...

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
        """Exchanges pieces and sets schema and progress in one step; `told` is for people and readers, beside them.

        FencedError when the table is not as `before` any more; then nothing is visible.
        """
        ...

    def tidy(self, grace_s: float, *, thoroughly: bool) -> None:
        """Deletes what has been no part of the table for longer than the grace; unless `thoroughly`, only when that is worth it."""
        ...
