"""Which cell holds which column, through all versions of a table; and how rows that are there come to a new layout while others write.

A table's record is a row of the table `records` (family ``h``), under the HBase table's name::

    layout     JSON: the Layout below, with `number`, which grows by one with each change of it
    cleared    JSON: {"id":…,"ts_us":…} of the newest clear; its version is that of the clear, so the newest is what is read

**A cell never changes its meaning.** A column's cells have the qualifier that is its name. Where that name was used before, by another column
or for values of another kind, it is the name with ``_v`` and the table's version behind it. So bringing rows to a new layout is nothing but
copying: from a qualifier that nobody writes any more to one that nobody has written before, each cell with its version. Copying twice, or
while rows are written, or from where somebody else has died, changes nothing.

Why no row is left behind. Whoever changes a record does so *before* looking at the rows: the record is written, then every row is copied (or,
for a clear, ended). Whoever writes rows looks at the record *after* writing them, and when it is another one than he went by, writes
the same rows again by the new one. So for a row and a change of the record: either the row was written before the change was, and the
copying, which comes later, finds it; or the look comes behind the change, and the row is written again. A writer that dies in between has not
committed; his rows come again. The record changes by compare-and-put, so of two that change it at once one sees the other's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Self

import pyarrow as pa

from headrace.on_change import OnChange
from headrace.sinks.fields import Evolved, Shape, evolved
from headrace.sinks.hbase.cells import RAW, kind_of, to_cells
from headrace.ums.schema import TableSchema
from headrace.ums.values import from_text


@dataclass(frozen=True)
class Place:
    """Where a column's values are, and how they are to be read."""

    qualifier: str
    kind: str


@dataclass(frozen=True)
class Move:
    """Something that old rows still need: values of a column at another place, or its default."""

    identity: str
    to: Place
    type: str
    """What it is now: an Arrow schema of one field, in hexadecimal digits."""
    start: Place | None = None
    """None: there is none, and rows get the default."""

    @property
    def arrow_type(self) -> pa.DataType:
        found: pa.DataType = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self.type))).field(0).type
        return found


@dataclass(frozen=True)
class Layout:
    """What a table's rows look like; `shape` says the columns, `places` where each of them is."""

    settings: Mapping[str, str]
    """What rows depend on and must stay as it is: the source's table, row key, form, values."""
    number: int = 0
    shape: Shape = field(default_factory=Shape)
    places: Mapping[str, Place] = field(default_factory=dict)
    defaults: Mapping[str, str] = field(default_factory=dict)
    """Identity -> what rows from before the column was added have in its cell, in hexadecimal digits."""
    used: tuple[str, ...] = ()
    """All qualifiers that some column had at some time."""
    moves: tuple[Move, ...] = ()
    """What rows that are there still need."""
    removed: tuple[str, ...] = ()
    """Qualifiers of columns that are to go."""

    @property
    def abandoned(self) -> list[str]:
        """Qualifiers whose cells are to go, because what they held is elsewhere now or nowhere."""
        return [*self.removed, *(move.start.qualifier for move in self.moves if move.start)]

    @property
    def is_settled(self) -> bool:
        return not self.moves and not self.removed

    def settled(self) -> Layout:
        """The layout when all rows have come to it."""
        return replace(self, number=self.number + 1, moves=(), removed=())

    def to_json(self) -> bytes:
        """The form in which it is kept."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """What `to_json` wrote."""
        found = json.loads(text)
        moves = [
            Move(
                move["identity"],
                Place(**move["to"]),
                move["type"],
                None if move["start"] is None else Place(**move["start"]),
            )
            for move in found["moves"]
        ]
        return cls(
            found["settings"],
            found["number"],
            Shape.from_json(json.dumps(found["shape"])),
            {identity: Place(**place) for identity, place in found["places"].items()},
            found["defaults"],
            tuple(found["used"]),
            tuple(moves),
            tuple(found["removed"]),
        )

    def of_columns(self, table: TableSchema) -> list[tuple[str, Place]]:
        """Name and place of those columns of a version that have one."""
        return [(column.name, self.places[column.identity]) for column, _ in self.shape.placed(table)]

    def later(self, table: TableSchema) -> list[tuple[str, Place]]:
        """Identity and place of columns with a default that came after a version: its rows have that default there."""
        return [(identity, self.places[identity]) for identity in self.shape.later(table)]

    def default(self, identity: str) -> bytes:
        """The cell of rows from before a column that has a default."""
        return bytes.fromhex(self.defaults[identity])

    def evolved(self, table: TableSchema, on_change: OnChange) -> Layout:
        """The layout that takes a version of the table; this one, which must be settled, when it does already. DataError when the flow
        is to stop.
        """
        change = evolved(self.shape, table, on_change)
        if change.shape == self.shape:
            return self
        return _Step(self, change, table).layout()


class _Step:
    """One step to another layout."""

    def __init__(self, before: Layout, change: Evolved, table: TableSchema) -> None:
        self._before = before
        self._change = change
        self._version = table.namespace.version
        values = before.settings["values"]
        self._table = table
        self._kinds = {column.identity: kind_of(column.type, values) for column in table.columns}
        self._used = set(before.used)
        self._of_fields = {name: before.places[one] for one, name in before.shape.names.items()}

    def layout(self) -> Layout:
        before, shape = self._before, self._change.shape
        # What stays as it is comes first, and no new column gets its qualifier.
        places = {one: self._kept(one) for one in shape.names}
        made = {one: place or self._new(one) for one, place in places.items()}
        moves = [
            Move(one, made[one], self._type(one), before.places.get(one))
            for one in shape.names
            if places[one] is None
            and one in shape.present
            and (one in self._change.added or self._takes_its_values_along(one))
        ]
        return Layout(
            before.settings,
            before.number + 1,
            shape,
            made,
            {**before.defaults, **self._defaults(made)},
            tuple(sorted(self._used)),
            tuple(moves),
            tuple(self._of_fields[name].qualifier for name in self._change.removed),
        )

    def _kept(self, identity: str) -> Place | None:
        """The place of a column that has one already and keeps it."""
        name = self._change.shape.names[identity]
        if identity not in self._change.shape.present:
            # A column that is no more, or what a renamed one has left behind: it stays where it is.
            back = {new: old for old, new in self._change.moved.items()}
            return self._before.places.get(identity) or self._of_fields[back.get(name, name)]
        place = self._before.places.get(identity)
        same_name = self._before.shape.names.get(identity) == name
        return place if place and same_name and place.kind == self._kinds[identity] else None

    def _new(self, identity: str) -> Place:
        wish = free = self._change.shape.names[identity]
        if free in self._used:
            free = f"{wish}_v{self._version}"
        while free in self._used:
            free += "_"
        self._used.add(free)
        return Place(free, self._kinds.get(identity, RAW))

    def _defaults(self, places: Mapping[str, Place]) -> dict[str, str]:
        found = {}
        for column in self._table.columns:
            if column.initial_default is not None and column.identity in places:
                value = from_text(column.initial_default, column.type)
                if value is not None:
                    found[column.identity] = to_cells(value, places[column.identity].kind)[0].hex()
        return found

    def _type(self, identity: str) -> str:
        [found] = [column.type for column in self._table.columns if column.identity == identity]
        return pa.schema([pa.field(identity, found)]).serialize().to_pybytes().hex()

    def _takes_its_values_along(self, identity: str) -> bool:
        """Whether old rows' values of a column belong at its new place: not where a lenient rename left them behind."""
        old = self._before.shape.names.get(identity)
        left = f"{identity} as {old}"
        return old is not None and (left not in self._change.shape.names or left in self._before.shape.names)
