"""Which rows are valid: columns of them must not be null, for instance those of a row that is looked up in another store.

A row that lacks them may wait for a time, for what it lacks may come late (stream/waiting.py); what then becomes of it the flow file says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from headrace.errors import ConfigError
from headrace.model import Duration, Model
from headrace.ums.change import DELETE, ChangeBatch, is_delete
from headrace.ums.schema import OP, TableSchema
from headrace.ums.values import Array


class Validity(Model):
    """Which rows of a flow are valid, and what becomes of those that are not."""

    check: Annotated[list[str], Field(min_length=1)]
    """Columns that must not be null, as they are called behind `sql` or `steps`. Deleted rows are always valid."""
    require: Literal["all", "any"] = "all"
    """Whether `all` of them must be there, or `any` of them is enough."""
    timeout: Annotated[Duration, Field(ge=0)] = 0.0
    """How long after its commit a row that lacks them waits, while what it lacks is looked for again; not at all when left out."""
    action: Literal["drop", "send", "alert"]
    """What becomes of it then: `drop` leaves it out, `send` delivers it as it is, `alert` puts it into the error ledger, where alerts see it and
    `headrace errors replay` brings it back."""
    rows: Annotated[int, Field(ge=1)] = 10_000
    """When so many wait, of a partition of a source, the flow reads on when there is room again."""

    def require_columns(self, flow: str, table: TableSchema) -> None:
        """ConfigError when a table, as it comes out, does not have the columns."""
        names = [column.name for column in table.columns]
        for name in self.check:
            if name not in names:
                raise ConfigError(
                    f"flow {flow}: `validity` checks the column {name}, which {table.namespace.all_versions} does not have",
                    fix=f"check one of those that come out: {', '.join(names)}",
                )

    def lacks(self, rows: pa.RecordBatch) -> Array:
        """Of each row whether it lacks what is checked."""
        nulls: list[Array] = [pc.is_null(rows.column(name)) for name in self.check]
        lacking: Array = reduce(pc.or_ if self.require == "all" else pc.and_, nulls)
        return pc.and_(lacking, pc.invert(is_delete(rows)))

    @property
    def keeps_rows(self) -> bool:
        """Whether rows may have to wait."""
        return self.timeout > 0 or self.action == "alert"

    def explained(self) -> str:
        """What `headrace check` says of it."""
        what = f"rows without {(' and ' if self.require == 'any' else ' or ').join(self.check)}"
        then = {"drop": "are left out", "send": "are delivered as they are", "alert": "go to the error ledger"}
        if not self.timeout:
            return f"{what} {then[self.action]}"
        return f"{what} wait up to {self.timeout:g}s from their commit, then {then[self.action]}"


@dataclass(frozen=True, slots=True)
class Judged:
    """Changes with what was computed of them, row by row."""

    computed: ChangeBatch
    """As many rows, in the same order."""
    told: Array
    """Whether a target hears of a row at all."""
    told_deleted: Array
    """Whether it would hear of it when it were left out."""
    lacks: Array
    """Whether a row is not valid."""

    def valid(self) -> ChangeBatch:
        """The rows that are delivered at once."""
        return self.sent(pc.invert(self.lacks))

    def sent(self, rows: Array) -> ChangeBatch:
        """Those of some rows that a target hears of."""
        return ChangeBatch(self.computed.table, self.computed.data.filter(pc.and_(rows, self.told)))

    def dropped(self, rows: Array) -> ChangeBatch:
        """Some rows as a filter leaves them out: deleted, where there may have been one before."""
        data = self.computed.data.filter(pc.and_(rows, self.told_deleted))
        at = data.schema.get_field_index(OP)
        deleted = pa.repeat(DELETE, data.num_rows).cast(data.schema.field(at).type)
        return ChangeBatch(self.computed.table, data.set_column(at, data.schema.field(at), deleted))
