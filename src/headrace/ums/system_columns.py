"""What the columns are called that headrace adds to the rows of a target (docs/decisions/0031-what-a-target-cannot-hold.md)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from headrace.model import Model
from headrace.ums.schema import ACTIVE, ID, RAW, TS

SOURCE = "_ums_source_"
"""In tables that shards share: which table a row is of."""
_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,47}$")]


class SystemColumns(Model):
    """Names of the columns that a target has beside those of the source: ``{id: ums_id, active: is_active}``. Rows that are there keep
    theirs, so they are chosen before the first delivery."""

    id: _Name = ID
    """The change that the row is of: a larger one is newer."""
    ts: _Name = TS
    """When that was made."""
    active: _Name = ACTIVE
    """1 in a row that is there, 0 in one that was deleted."""
    raw: _Name = RAW
    """In OpenSearch: values that the column's type cannot hold, as text."""
    source: _Name = SOURCE
    """In a database, with `merge: true`: which table the row is of."""

    @property
    def of_rows(self) -> tuple[str, ...]:
        """Those that every target has."""
        return self.id, self.ts, self.active

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return *self.of_rows, self.raw, self.source

    @model_validator(mode="after")
    def _tell_them_apart(self) -> SystemColumns:
        names = [name.lower() for name in self.names]
        if len(set(names)) < len(names):
            raise ValueError(f"two of the system columns have one name: {', '.join(self.names)}")
        return self


USUAL = SystemColumns()
"""What they are called when nothing is said."""
