"""Target tables as a store has them or is to have them: their definition in SQL, and whether they are what headrace can write to."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import ConfigError, DataError
from headrace.sinks.database.dialect import Dialect, StoredColumn, StoredTable, Target
from headrace.sinks.database.merging import is_shared
from headrace.sinks.database.widening import common, takes
from headrace.ums.schema import Column
from headrace.ums.values import Array, from_text


def create_table(dialect: Dialect, target: Target) -> str:
    ordered = sorted(target.columns, key=lambda column: dialect.key_first and column.name not in target.key)
    columns = [definition_of(dialect, wanted_column(dialect, target, column)) for column in ordered]
    system = [f"{dialect.quote(c.name)} {dialect.declare(c, in_key=False)} NOT NULL" for c in target.system_columns]
    key = ", ".join(dialect.quote(name) for name in target.key)
    return f"CREATE TABLE {dialect.table(target)} ({', '.join([*columns, *system])}, PRIMARY KEY ({key}))"


def wanted_column(dialect: Dialect, target: Target, column: Column) -> StoredColumn:
    in_key = column.name in target.key
    declared = dialect.declare(column, in_key=in_key)
    value = None if in_key or is_shared(target) else initial_value(column)
    default = None if value is None else dialect.default(value, declared)
    return StoredColumn(column.name, declared, not in_key, default)


def initial_value(column: Column) -> Array | None:
    """What rows have that were written before the column was there; None where that is NULL."""
    return None if column.initial_default is None else from_text(column.initial_default, column.type)


def definition_of(dialect: Dialect, column: StoredColumn) -> str:
    default = "" if column.default is None else f" DEFAULT {column.default}"
    return f"{dialect.quote(column.name)} {column.declared}{default}{'' if column.nullable else ' NOT NULL'}"


def changed_column(dialect: Dialect, target: Target, column: Column, found: StoredColumn) -> StoredColumn:
    """The column as it must become: its own type when that takes the new one, else the new type, else one that takes both."""
    in_key = column.name in target.key
    declared = dialect.declare(column, in_key=in_key)
    has, wants = dialect.holds(found.declared), dialect.holds(declared)
    if has is None or wants is None or takes(has, wants):
        declared = found.declared
    elif not takes(wants, has):
        both = common(has.type, wants.type)
        if both is None:
            raise DataError(
                f"column '{column.name}' of {target.name} is {found.declared} in the target and {column.source_type} "
                f"({declared}) in the source now; no type takes the values of both",
                fix=f"rename or drop the target table {target.name} and load it again",
            )
        declared = dialect.declare(Column(column.name, both, "text"), in_key=in_key)
    return StoredColumn(found.name, declared, found.nullable or not in_key, found.default)


def must_be_ours(dialect: Dialect, target: Target, stored: StoredTable) -> None:
    has = {dialect.fold(column.name) for column in stored.columns}
    missing = [column for column in target.system_columns if dialect.fold(column.name) not in has]
    if missing:
        described = ", ".join(f"{column.name} {dialect.declare(column, in_key=False)} NOT NULL" for column in missing)
        raise ConfigError(
            f"the table {target.name} in the target database lacks the column(s) {', '.join(c.name for c in missing)}",
            fix=f"add to it: {described} (for its present rows 0, a time and 1), or name another table in `table`",
        )


def has_key(dialect: Dialect, target: Target, stored: StoredTable, renamed: Mapping[str, str]) -> bool:
    has = [dialect.fold(renamed.get(name, name)) for name in stored.key]
    return has == [dialect.fold(name) for name in target.key]


def must_have_key(dialect: Dialect, target: Target, stored: StoredTable, renamed: Mapping[str, str]) -> None:
    if not has_key(dialect, target, stored, renamed):
        raise DataError(
            f"the key of {target.name} is ({', '.join(target.key)}) in the source "
            f"and ({', '.join(stored.key) or 'none'}) in the target",
            fix=f"rename or drop the target table {target.name} and load it again",
        )
