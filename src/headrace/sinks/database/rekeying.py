"""The source's table has another primary key: the target gets it too, with all its rows.

Why nothing is lost. At the source all rows had a whole and different key when it was changed. The target has what the source had (a flow
delivers in order, and writes all rows of the old key before: stream/deliver.py), so its live rows have different keys too. Where two have the
same nevertheless, the older one is not at the source any more: changes were left out (a skipped gap), or a load of the new shape has come before
them, and brings every row. Rows with `_is_active_` = 0 are no rows of the source: of those that get the key of another row only that one stays,
as when a deleted key is inserted again, and those without a whole key go.

A live row without a whole key cannot stay: its values are known to the server alone (AUTO_INCREMENT, expressions). Then the flow stops, and
says so. That this version was met is remembered all the same: when somebody has dropped the table, it is made anew with the new key.

Rows of the old key that come later are dropped (`Destination.is_over`). In the source's own topic they are repeats: what had not been
delivered before came before. In a lane of a full load they were read before the key was changed, and capture has asked for the table
to be loaded again (capture/reloads.py).
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from headrace.errors import DataError
from headrace.sinks.database import tombstones
from headrace.sinks.database.dialect import PARAMETER, Dialect, StoredColumn, Target
from headrace.ums.schema import Column


class NoKeyError(DataError):
    """Rows of the target have no values in the columns of the new key."""


def rekey(dialect: Dialect, target: Target) -> None:
    """Gives the table of a target the key that the target has. NoKeyError when live rows have none."""
    stored = dialect.describe(target)
    assert stored is not None
    table, quote = dialect.table(target), dialect.quote
    active = quote(target.system.active)
    without = " OR ".join(f"{quote(name)} IS NULL" for name in target.key)
    [(keyless,)] = dialect.run(f"SELECT COUNT(*) FROM {table} WHERE {active} = 1 AND ({without})")
    if keyless:
        raise NoKeyError(
            f"the key of {target.name} is ({', '.join(target.key)}) in the source now and was ({', '.join(stored.key)}), and rows of the"
            " target have no values there, which only the server knows",
            fix=f"rename or drop the target table {target.name}, start again, and load it (`headrace load FLOW.yaml --table …`)",
        )
    dialect.run(f"DELETE FROM {table} WHERE {without}")
    dialect.keep_newest(target, stored.key)
    if dialect.describe(tombstones.TARGET) is not None:
        of_target = f"{quote('table_name')} = {PARAMETER}"
        dialect.run(f"DELETE FROM {dialect.table(tombstones.TARGET)} WHERE {of_target}", [(target.name,)])
    fold, columns = dialect.fold, {dialect.fold(column.name): column for column in target.columns}
    in_key = {fold(name) for name in target.key}
    touched = in_key | {fold(name) for name in stored.key}
    found = [column for column in stored.columns if fold(column.name) in touched]
    dialect.change_key(
        target,
        [
            _keyed(dialect, column, columns[fold(column.name)])
            if fold(column.name) in in_key
            else replace(column, nullable=True)
            for column in found
        ],
    )


def _keyed(dialect: Dialect, found: StoredColumn, column: Column) -> StoredColumn:
    """A column as it must be in a key: text has a length there in some stores, which is not less than what it has."""
    has = dialect.holds(found.declared)
    if has is None or not (pa.types.is_string(has.type) or pa.types.is_binary(has.type)):
        return replace(found, nullable=False)
    source_type = column.source_type if has.length is None else f"varchar({has.length})"
    declared = dialect.declare(Column(column.name, has.type, source_type), in_key=True)
    return StoredColumn(found.name, declared, nullable=False)
