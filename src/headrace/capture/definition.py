"""What a table is, and what CREATE TABLE and ALTER TABLE make of it.

An ALTER takes effect as a whole, as in the servers: columns that were there are dropped, renamed and modified in their places; then
new columns and those with FIRST or AFTER are put where they say, in the statement's order. A change that does not fit the table (a
column that is not there) means that the definition was not the server's: UnreadableError, and the table is not known any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from headrace.capture.columns import PRIMARY, KeyDefinition
from headrace.capture.ddl import Change, Effect
from headrace.capture.tokens import UnreadableError
from headrace.codec.binlog import DefinedColumn, Definition

_ROW_START, _ROW_END = "row_start", "row_end"


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """One version of a table's definition."""

    columns: tuple[DefinedColumn, ...]
    keys: tuple[KeyDefinition, ...]
    charset: str | None
    """The default of new columns; None: not known."""
    row_end: str = ""
    """The column with the end of a row's lifetime, in a table with system versioning; the server adds it to every unique key."""

    @classmethod
    def created(cls, change: Change, schema_charset: str | None) -> Self:
        """By a CREATE change; UnreadableError when the statement or one of its types could not be read."""
        if not change.columns:
            raise UnreadableError
        charset = change.charset or schema_charset
        columns = tuple(column.defined(charset) for column in change.columns)
        return cls(columns, _with_keys((), change.keys, _names(columns)), charset)

    def altered(self, changes: Sequence[Change], schema_charset: str | None) -> Self:
        """After all changes of one ALTER."""
        charset = self.charset
        converted: str | None = None
        for change in changes:
            if change.effect is Effect.CHARSET:
                charset = change.charset
            elif change.effect is Effect.CONVERT:
                charset = converted = change.charset or schema_charset
        columns = _Columns(self.columns, changes, charset, converted).altered()
        keys = _altered_keys(self.keys, changes, _names(columns))
        return replace(self, columns=columns, keys=keys, charset=charset, row_end=_row_end(self.row_end, changes))

    def for_decoder(self) -> Definition:
        columns = self.columns
        if self.row_end and not any(column.name == self.row_end for column in columns):
            # Nobody sees these two, and the log has them.
            columns += tuple(DefinedColumn(name, "timestamp", False, None, ()) for name in (_ROW_START, _ROW_END))
        keys = tuple(
            key.columns + ((self.row_end,) if self.row_end and self.row_end not in key.columns else ())
            for key in self.keys
            if key.tells_rows_apart
        )
        return Definition(columns, keys)

    def encoded(self) -> dict[str, Any]:
        columns = [[one.name, one.kind, one.unsigned, one.charset, one.labels] for one in self.columns]
        keys = [[one.name, one.columns, one.tells_rows_apart] for one in self.keys]
        return {"columns": columns, "keys": keys, "charset": self.charset, "row_end": self.row_end}

    @classmethod
    def decoded(cls, content: dict[str, Any]) -> Self:
        columns = tuple(
            DefinedColumn(name, kind, unsigned, charset, tuple(labels))
            for name, kind, unsigned, charset, labels in content["columns"]
        )
        keys = tuple(KeyDefinition(name, tuple(names), tells) for name, names, tells in content["keys"])
        return cls(columns, keys, content["charset"], content["row_end"])


class _Columns:
    """The columns of one ALTER."""

    def __init__(
        self,
        before: Sequence[DefinedColumn],
        changes: Sequence[Change],
        charset: str | None,
        converted: str | None,
    ) -> None:
        """`charset`: the default of new columns; `converted`: what CONVERT makes of the others."""
        self._before = before
        self._changes = changes
        self._charset = charset
        self._converted_charset = converted
        self._after: list[DefinedColumn] = []

    def altered(self) -> tuple[DefinedColumn, ...]:
        dropped = self._of(Effect.DROP_COLUMN)
        modified = self._of(Effect.MODIFY_COLUMN)
        renamed = self._of(Effect.RENAME_COLUMN)
        converted = any(change.effect is Effect.CONVERT for change in self._changes)
        there = {column.name.casefold() for column in self._before}
        for name, change in {**dropped, **renamed, **modified}.items():
            if name not in there and not change.conditional:
                raise UnreadableError
        for column in self._before:
            name = column.name.casefold()
            if name in dropped:
                continue
            if name in modified:
                self._keep_modified(modified[name])
            elif name in renamed:
                self._after.append(replace(column, name=renamed[name].new_name))
            elif converted:
                self._after.append(self._converted(column))
            else:
                self._after.append(column)
        for change in self._changes:
            known = change.column.casefold() in there
            # IF NOT EXISTS asks what was there before, also of a column that is dropped in the same statement.
            if (change.effect is Effect.ADD_COLUMN and not (known and change.conditional)) or (
                change.effect is Effect.MODIFY_COLUMN and known
            ):
                self._place(change)
        return tuple(self._after)

    def _of(self, effect: Effect) -> dict[str, Change]:
        return {change.column.casefold(): change for change in self._changes if change.effect is effect}

    def _converted(self, column: DefinedColumn) -> DefinedColumn:
        # MariaDB 10.11 takes the bytes of labels as they are for the new set: é of latin1 becomes й of cp1251.
        charset = self._converted_charset
        wide = charset is None or charset.startswith(("ucs2", "utf16", "utf32"))
        if column.labels and (wide or not all(label.isascii() for label in column.labels)):
            raise UnreadableError
        return column if column.charset in (None, "binary") else replace(column, charset=charset)

    def _keep_modified(self, change: Change) -> None:
        assert change.definition is not None
        if change.definition.after is None:
            self._after.append(change.definition.defined(self._charset))

    def _place(self, change: Change) -> None:
        assert change.definition is not None
        after = change.definition.after
        if change.effect is Effect.ADD_COLUMN:
            if change.column.casefold() in _names(self._after):
                if change.conditional:
                    return
                raise UnreadableError
        elif after is None:
            return
        column = change.definition.defined(self._charset)
        if after is None:
            self._after.append(column)
        elif not after:
            self._after.insert(0, column)
        else:
            names = [other.name.casefold() for other in self._after]
            if after.casefold() not in names:
                raise UnreadableError
            self._after.insert(names.index(after.casefold()) + 1, column)


def _names(columns: Iterable[DefinedColumn]) -> dict[str, str]:
    """Names of columns by what the server compares of them."""
    return {column.name.casefold(): column.name for column in columns}


def _altered_keys(
    before: Sequence[KeyDefinition], changes: Sequence[Change], names: dict[str, str]
) -> tuple[KeyDefinition, ...]:
    dropped = {change.column.casefold() for change in changes if change.effect is Effect.DROP_KEY}
    new_names = {c.column.casefold(): c.new_name for c in changes if c.effect is Effect.RENAME_KEY}
    gone = {change.column.casefold() for change in changes if change.effect is Effect.DROP_COLUMN}
    renamed = {c.column.casefold(): c.new_name for c in changes if c.effect is Effect.RENAME_COLUMN}
    kept = [
        replace(
            key,
            name=new_names.get(key.name.casefold(), key.name),
            columns=tuple(renamed.get(n.casefold(), n) for n in key.columns if n.casefold() not in gone),
        )
        for key in before
        if key.name.casefold() not in dropped
    ]
    added = [key for change in changes if change.effect is Effect.ADD_KEY for key in change.keys]
    return _with_keys([key for key in kept if key.columns], added, names)


def _with_keys(
    before: Sequence[KeyDefinition], added: Sequence[KeyDefinition], names: dict[str, str]
) -> tuple[KeyDefinition, ...]:
    """Keys with those that are added; the server makes names where there are none, and puts the primary key first."""
    keys = list(before)
    for key in added:
        taken = {other.name.casefold() for other in keys}
        if key.name and key.name.casefold() in taken:
            continue  # IF NOT EXISTS
        columns = tuple(names.get(name.casefold(), name) for name in key.columns)
        keys.append(replace(key, name=key.name or _free_name(columns, taken), columns=columns))
    return tuple(sorted(keys, key=lambda key: key.name != PRIMARY))


def _free_name(columns: Sequence[str], taken: set[str]) -> str:
    name = columns[0] if columns else "functional_index"
    number = 2
    found = name
    while found.casefold() in taken:
        found = f"{name}_{number}"
        number += 1
    return found


def _row_end(before: str, changes: Sequence[Change]) -> str:
    for change in changes:
        if change.effect is Effect.VERSIONED:
            ends = [c.definition.name for c in changes if c.definition is not None and c.definition.ends_row]
            return ends[0] if ends else _ROW_END
        if change.effect is Effect.UNVERSIONED:
            return ""
    return before
