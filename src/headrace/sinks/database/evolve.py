"""What must change in a target table so that it takes a version of its source: pure decisions, run by `prepare`.

A table only ever grows: columns are added, types widened, NOT NULL relaxed. A column that the source has dropped stays, with
the values it had; rows written from then on have NULL there. What cannot be taken is refused, and nothing is changed.
"""

from __future__ import annotations

import math

import pyarrow as pa

from headrace.errors import ConfigError, DataError
from headrace.sinks.database.dialect import (
    SYSTEM_COLUMNS,
    Destination,
    Dialect,
    StoredColumn,
    StoredTable,
    StoredType,
    Target,
)
from headrace.sinks.values import from_text
from headrace.ums.schema import Column

_ARROW_DIGITS = 76
_LONGEST_TEXT = 27
"""Characters of a float, a date or a time at most."""


def prepare(dialect: Dialect, target: Target, dropped: frozenset[str] = frozenset()) -> Destination:
    """Creates the target or evolves it, safe to race; `dropped` names columns that this version's predecessor had.

    What was written before and not committed is committed first when the table must change (a change of a table stands
    between transactions in the source's log, too).
    """
    for name in (target.name, *(column.name for column in target.columns)):
        dialect.check_name(name)
    stored = dialect.describe(target)
    if stored is None or _statements(dialect, target, stored, dropped):
        with dialect.shaping(target):
            stored = dialect.describe(target)
            for statement in _statements(dialect, target, stored, dropped):
                dialect.run(statement)
        stored = dialect.describe(target)
    assert stored is not None
    return Destination(target, stored)


def _statements(dialect: Dialect, target: Target, stored: StoredTable | None, dropped: frozenset[str]) -> list[str]:
    if stored is None:
        return [_create(dialect, target)]
    _check_ours(dialect, target, stored)
    existing = {dialect.fold(column.name): column for column in stored.columns}
    statements: list[str] = []
    for column in target.columns:
        found = existing.pop(dialect.fold(column.name), None)
        if found is None:
            wanted = _wanted(dialect, target, column)
            statements.append(f"ALTER TABLE {dialect.table(target)} ADD COLUMN {_definition(dialect, wanted)}")
        elif (changed := _changed(dialect, target, column, found)) != found:
            statements += dialect.change_column(target, changed)
    return statements + _left_out(dialect, target, existing, {dialect.fold(name) for name in dropped})


def _left_out(dialect: Dialect, target: Target, left: dict[str, StoredColumn], dropped: set[str]) -> list[str]:
    """Columns of the table that the version does not bring: they must take NULL, and get it when the source dropped them."""
    statements: list[str] = []
    for system in SYSTEM_COLUMNS:
        del left[system.name]
    for name, column in left.items():
        if (name in dropped and column.default is not None) or (not column.nullable and column.default is None):
            statements += dialect.change_column(target, StoredColumn(column.name, column.declared, nullable=True))
    return statements


def _create(dialect: Dialect, target: Target) -> str:
    columns = [_definition(dialect, _wanted(dialect, target, column)) for column in target.columns]
    system = [f"{dialect.quote(c.name)} {dialect.declare(c, in_key=False)} NOT NULL" for c in SYSTEM_COLUMNS]
    key = ", ".join(dialect.quote(name) for name in target.key)
    return f"CREATE TABLE {dialect.table(target)} ({', '.join([*columns, *system])}, PRIMARY KEY ({key}))"


def _wanted(dialect: Dialect, target: Target, column: Column) -> StoredColumn:
    in_key = column.name in target.key
    declared = dialect.declare(column, in_key=in_key)
    value = None if column.initial_default is None or in_key else from_text(column.initial_default, column.type)
    default = None if value is None else dialect.default(value, declared)
    return StoredColumn(column.name, declared, not in_key, default)


def _definition(dialect: Dialect, column: StoredColumn) -> str:
    default = "" if column.default is None else f" DEFAULT {column.default}"
    return f"{dialect.quote(column.name)} {column.declared}{default}{'' if column.nullable else ' NOT NULL'}"


def _changed(dialect: Dialect, target: Target, column: Column, found: StoredColumn) -> StoredColumn:
    """The column as it must become: its own type when that takes the new one, else the new type, else one that takes both."""
    in_key = column.name in target.key
    declared = dialect.declare(column, in_key=in_key)
    has, wants = dialect.holds(found.declared), dialect.holds(declared)
    if has is None or wants is None or takes(has, wants):
        declared = found.declared
    elif not takes(wants, has):
        both = _common(has.type, wants.type)
        if both is None:
            raise DataError(
                f"column '{column.name}' of {target.name} is {found.declared} in the target and {column.source_type} "
                f"({declared}) in the source now; no type takes the values of both",
                fix=f"rename or drop the target table {target.name} and load it again",
            )
        declared = dialect.declare(Column(column.name, both, "text"), in_key=in_key)
    return StoredColumn(found.name, declared, found.nullable or not in_key, found.default)


def _check_ours(dialect: Dialect, target: Target, stored: StoredTable) -> None:
    has = {dialect.fold(column.name) for column in stored.columns}
    missing = [column for column in SYSTEM_COLUMNS if column.name not in has]
    if missing:
        described = ", ".join(f"{column.name} {dialect.declare(column, in_key=False)} NOT NULL" for column in missing)
        raise ConfigError(
            f"the table {target.name} in the target database lacks the column(s) {', '.join(c.name for c in missing)}",
            fix=f"add to it: {described} (for its present rows 0, a time and 1), or name another table in `table`",
        )
    if [dialect.fold(name) for name in stored.key] != [dialect.fold(name) for name in target.key]:
        raise DataError(
            f"the key of {target.name} is ({', '.join(target.key)}) in the source "
            f"and ({', '.join(stored.key) or 'none'}) in the target",
            fix=f"rename or drop the target table {target.name} and load it again",
        )


def takes(wide: StoredType, narrow: StoredType) -> bool:
    """True when every value of `narrow` can be stored in `wide` unchanged; text takes every value but binary."""
    a, b = wide.type, narrow.type
    if wide.length is not None and _length(narrow) > wide.length:
        return False
    if a == b or pa.types.is_string(a):
        return a == b or not pa.types.is_binary(b)
    if pa.types.is_timestamp(a):
        return pa.types.is_date(b) and a.tz is None
    if pa.types.is_floating(a):
        return _float_takes(a, b)
    outer, inner = _digits(a), _digits(b)
    if outer is None or inner is None or outer[0] < inner[0] or outer[1] < inner[1]:
        return False
    return not (pa.types.is_integer(a) and pa.types.is_integer(b)) or _contains(a, b)


def _common(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """A type that takes the values of both, when there is a sensible one."""
    digits = [_digits(kind) for kind in (a, b)]
    if None not in digits:
        whole, fraction = (max(parts) for parts in zip(*filter(None, digits), strict=True))
        return pa.decimal256(whole + fraction, fraction) if whole + fraction <= _ARROW_DIGITS else None
    one_is_text = pa.types.is_string(a) or pa.types.is_string(b)
    return pa.utf8() if one_is_text and not (pa.types.is_binary(a) or pa.types.is_binary(b)) else None


def _length(kind: StoredType) -> float:
    """How long the values are at most, written as text."""
    if pa.types.is_string(kind.type) or pa.types.is_binary(kind.type):
        return math.inf if kind.length is None else kind.length
    digits = _digits(kind.type)
    return _LONGEST_TEXT if digits is None else sum(digits) + len("-0.")


def _float_takes(a: pa.DataType, b: pa.DataType) -> bool:
    if pa.types.is_floating(b):
        return a.bit_width >= b.bit_width
    return pa.types.is_boolean(b) or (pa.types.is_integer(b) and b.bit_width <= a.bit_width // 2)


def _digits(kind: pa.DataType) -> tuple[int, int] | None:
    """How many digits a number has at most before and after its point."""
    if pa.types.is_decimal(kind):
        return kind.precision - kind.scale, kind.scale
    if pa.types.is_integer(kind):
        return len(str(_range(kind)[1])), 0
    return (1, 0) if pa.types.is_boolean(kind) else None


def _contains(a: pa.DataType, b: pa.DataType) -> bool:
    return _range(a)[0] <= _range(b)[0] and _range(b)[1] <= _range(a)[1]


def _range(kind: pa.DataType) -> tuple[int, int]:
    bits = kind.bit_width
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if pa.types.is_signed_integer(kind) else (0, 2**bits - 1)
