"""Rows as named fields, for stores whose tables have no columns: which field holds which column, and what must happen to rows that are
there when a table changes. Pure decisions; a store keeps the `Shape` beside its rows and carries out what `evolved` says.

Columns are known by their identity (`Column.identity`), so a rename is seen however many versions lie between. Rows of older versions,
which may come at any time, go into the fields of the newest one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Self, TypeVar

from headrace.errors import DataError
from headrace.on_change import OnChange, Policy, how_to_go_on
from headrace.ums.schema import Column, TableSchema
from headrace.ums.values import from_text, to_text

V = TypeVar("V")


@dataclass(frozen=True)
class Shape:
    """What the rows of a table look like in a store: nothing is known when `version` is -1."""

    version: int = -1
    """The newest version of the source's table that has shaped them."""
    names: dict[str, str] = field(default_factory=dict)
    """Identity -> field, of all columns that have one."""
    present: dict[str, str] = field(default_factory=dict)
    """Identity -> name in the source, of the columns of `version`."""
    defaults: dict[str, str] = field(default_factory=dict)
    """Identity -> what rows from before the column was added have in it, as text (ums.values.to_text)."""
    key: tuple[str, ...] = ()
    """Identities of the key's columns."""
    types: dict[str, str] = field(default_factory=dict)
    """Identity -> type, of the columns of `version`."""

    def to_json(self) -> str:
        """The form that a store keeps."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` wrote."""
        found = json.loads(text)
        return cls(**{**found, "key": tuple(found["key"])})

    def placed(self, table: TableSchema) -> list[tuple[Column, str]]:
        """Of a version's columns those that have a field, with it."""
        return [(column, self.names[column.identity]) for column in table.columns if column.identity in self.names]

    def later(self, table: TableSchema) -> dict[str, str]:
        """Identity -> field, of columns with a default that came after a version: its rows have that default there."""
        missing = self.present.keys() - {column.identity for column in table.columns}
        return {one: self.names[one] for one in missing if one in self.defaults and one in self.names}

    def default(self, identity: str) -> str | bytes:
        """Of a column that has one: binary as it is, all else as text."""
        text, kind = self.defaults[identity], self.types[identity]
        return bytes.fromhex(text) if kind in ("binary", "large_binary") else text


@dataclass(frozen=True)
class Evolved:
    """What becomes of rows that are there: all at once, so that fields may exchange names."""

    shape: Shape
    moved: Mapping[str, str] = field(default_factory=dict)
    """Field -> the name that it gets."""
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    """Identities of new columns for which rows that are there have a default."""

    @property
    def changes_rows(self) -> bool:
        return bool(self.moved or self.removed or self.added)

    def to_json(self) -> str:
        """The form that a store keeps while rows are being changed."""
        return json.dumps({**asdict(self), "moved": dict(self.moved)}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` wrote."""
        found = json.loads(text)
        shape = Shape.from_json(json.dumps(found["shape"]))
        return cls(shape, found["moved"], tuple(found["removed"]), tuple(found["added"]))

    def row(self, fields: Mapping[str, V]) -> dict[str, V | str | bytes]:
        """The fields of a row behind the change."""
        row: dict[str, V | str | bytes] = {
            self.moved.get(name, name): value for name, value in fields.items() if name not in self.removed
        }
        return row | {self.shape.names[identity]: self.shape.default(identity) for identity in self.added}


def evolved(shape: Shape, table: TableSchema, on_change: OnChange) -> Evolved:
    """What rows of `shape` become so that they take a version of the table; `shape` itself when there is nothing to do.

    DataError when `on_change` says that the flow is to stop, or the table has another key.
    """
    version = table.namespace.version
    columns = {column.identity: column for column in table.columns}
    key = tuple(next(c.identity for c in table.columns if c.name == name) for name in table.key)
    if shape.version >= version:
        return Evolved(shape)
    if shape.version < 0:
        names = {identity: column.name for identity, column in columns.items()}
        return Evolved(Shape(version, names, dict(names), _defaults(table), key, _types(table)))
    if key != shape.key:
        raise DataError(
            f"the key of {table.namespace.all_versions} is ({', '.join(table.key)}) in version {version}, and its rows in the target "
            "are kept by another one",
            fix="give the flow a new name and a new place in the target, and load the table again",
        )
    _refuse(shape, table, on_change)
    return _Change(shape, table, on_change).evolved()


class _Change:
    """One step from a shape to the next version."""

    def __init__(self, shape: Shape, table: TableSchema, on_change: OnChange) -> None:
        self._shape = shape
        self._columns = {column.identity: column for column in table.columns}
        self._version = table.namespace.version
        self._defaults = _defaults(table)
        self._types = _types(table)
        self._on_change = on_change
        self._names = dict(shape.names)
        self._wanted: dict[str, str] = {}
        """Identity -> the field that it is to have, whoever has it now."""
        self._left: dict[str, str] = {}
        """Fields that stay behind under their old names, when a renamed column goes on in a new one."""

    def evolved(self) -> Evolved:
        self._rename()
        gone = self._shape.present.keys() - self._columns.keys()
        removed = [self._names.pop(one) for one in sorted(gone & self._names.keys())] if self._drops else []
        added = self._add()
        self._set_aside()
        self._names |= self._wanted
        moved = {old: self._names[one] for one, old in self._shape.names.items() if self._names.get(one, old) != old}
        for identity in [one for one in self._names if one in self._left]:
            moved[self._left[identity]] = self._names[identity]
        present = {identity: column.name for identity, column in self._columns.items()}
        shape = replace(
            self._shape,
            version=self._version,
            names=self._names,
            present=present,
            defaults=self._shape.defaults | self._defaults,
            types=self._types,
        )
        return Evolved(shape, {old: new for old, new in moved.items() if old != new}, tuple(removed), tuple(added))

    @property
    def _drops(self) -> bool:
        return self._on_change.dropped is Policy.EVOLVE

    def _rename(self) -> None:
        for identity, column in self._columns.items():
            old = self._names.get(identity)
            if old is None or self._shape.present.get(identity, column.name) == column.name:
                continue
            if self._on_change.renamed is Policy.LENIENT:
                left = f"{identity} as {old}"
                self._names[left] = self._left[left] = self._names.pop(identity)
            elif self._on_change.renamed is Policy.EVOLVE:
                self._wanted[identity] = column.name

    def _add(self) -> list[str]:
        """Columns without a field get one; returns those for which rows that are there have a default."""
        new = [identity for identity in self._columns if identity not in self._names]
        if self._on_change.added is Policy.IGNORE:
            new = [identity for identity in new if identity in self._shape.names]  # what `_rename` has left behind
        self._wanted |= {identity: self._columns[identity].name for identity in new}
        return [one for one in new if one not in self._shape.present and one in self._defaults]

    def _set_aside(self) -> None:
        """Fields that stay, of a name that another one gets now."""
        taken = {*self._names.values(), *self._wanted.values()}
        for identity, name in self._names.items():
            if identity not in self._wanted and name in self._wanted.values():
                free = f"{name}_v{self._shape.version}"
                while free in taken:
                    free += "_"
                taken.add(free)
                self._names[identity] = free


def _refuse(shape: Shape, table: TableSchema, on_change: OnChange) -> None:
    columns = {column.identity: column.name for column in table.columns}
    types = _types(table)
    changes = {
        "retyped": [columns[one] for one, kind in types.items() if shape.types.get(one, kind) != kind],
        "added": [name for identity, name in columns.items() if identity not in shape.present],
        "dropped": [name for identity, name in shape.present.items() if identity not in columns],
        "renamed": [old for identity, old in shape.present.items() if columns.get(identity, old) != old],
    }
    for kind, names in changes.items():
        if names and getattr(on_change, kind) is Policy.FAIL:
            raise DataError(
                f"{table.namespace.all_versions} has column(s) {kind} in version {table.namespace.version}: {', '.join(names)}, "
                "and the flow is to stop then",
                fix=how_to_go_on(kind),
            )


def _defaults(table: TableSchema) -> dict[str, str]:
    found = {}
    for column in table.columns:
        value = None if column.initial_default is None else from_text(column.initial_default, column.type)
        if value is not None:
            found[column.identity] = str(to_text(value)[0])
    return found


def _types(table: TableSchema) -> dict[str, str]:
    return {column.identity: str(column.type) for column in table.columns}
