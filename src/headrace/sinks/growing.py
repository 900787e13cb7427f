"""Tables of stores in which a field, once there, keeps its name and its type: what becomes of them when the source's table changes, and how
writers of several versions beside each other end in the same rows.

A column goes on in a new field when it is renamed or no longer fits the old one, and rows that are there get a value in the new field: the
one of the old field, or the column's default. No field is ever given to another column.

What a store keeps of a table is a `Record`, which is replaced by compare-and-set. The protocol, of any number of writers:

* who finds that a version needs other fields puts a record with a larger `number` in place, with the `fills` that rows need; then fills
  all rows that are there, one by one and each only as long as no newer change of it is there; then takes the fills out of the record. Who finds fills in a record carries them out as well: that is how one that was broken off is ended;
* who clears a table raises `number` and `cleared`, then ends the rows that are older;
* who writes rows writes by the record that it knows, then looks whether the number is still the same, and if it is not writes them again
  by the new one, with those that `cleared` has overtaken as deletes by it.

Why that is right. Let W write a row by number n while R puts n + 1 in place and then goes over the rows. If W's write was done before R began
to go over them, R finds the row. If not, it was done after n + 1 was there, so W, which looks afterwards, sees it and writes again; and when W
dies before it does, its position has not been committed, and whoever goes on writes the same changes by a newer record. A change that is
written again has the same id, and a store takes a row of the id that it has: both forms of a row are the same change. Filling a row
twice is filling it once: a row of the new form has all its fields.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError, DataError, RetryableError
from headrace.on_change import OnChange, Policy, how_to_go_on
from headrace.sinks.base import has_other_system_columns
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import ID, OP, TS, Column, TableSchema
from headrace.ums.system_columns import SystemColumns
from headrace.ums.values import Array, from_text, to_text

_ATTEMPTS = 50


@dataclass(frozen=True)
class Place:
    """A field of a store, and what it holds."""

    name: str
    kind: str
    """The store's word for its type."""
    default: str | None = None
    """What rows from before the column was added have in it, as text (ums.values.to_text)."""


@dataclass(frozen=True)
class Fill:
    """What rows that have no field `name` get in it: the value of the field `source`, or the default of the column."""

    identity: str
    name: str
    source: str | None


@dataclass(frozen=True)
class Record:
    """What a store keeps of a table, drawn as JSON; nothing is known when `version` is -1."""

    number: int = 0
    """Grows with each change of the record that writers must know of."""
    owner: str = ""
    """The table, as `Namespace.all_versions`."""
    version: int = -1
    """The newest version of the source's table that has shaped the fields."""
    key: tuple[str, ...] = ()
    """Identities of the key's columns."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """Identity -> field, of all columns that have one, also of those that the source has no more."""
    present: Mapping[str, str] = field(default_factory=dict)
    """Identity -> name in the source, of the columns of `version`."""
    types: Mapping[str, str] = field(default_factory=dict)
    """Identity -> type, of the columns of `version`."""
    left: Mapping[str, str] = field(default_factory=dict)
    """Field -> kind, of fields that a column was in before: no other column gets them."""
    fills: tuple[Fill, ...] = ()
    """What rows that are there still need."""
    system: tuple[str, ...] = ()
    """What the fields beside the columns are called."""
    cleared: int | None = None
    """The `_ums_id_` of the newest clear: older changes are gone."""
    cleared_us: int = 0
    """The commit time of that clear."""

    def to_json(self) -> str:
        """The form that a store keeps."""
        return json.dumps(asdict(self), ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` wrote."""
        found = json.loads(text)
        return cls(
            **found
            | {
                "key": tuple(found["key"]),
                "system": tuple(found["system"]),
                "places": {identity: Place(**place) for identity, place in found["places"].items()},
                "fills": tuple(Fill(**fill) for fill in found["fills"]),
            }
        )

    def placed(self, table: TableSchema) -> list[tuple[Column, Place]]:
        """Of a version's columns those that have a field, with it."""
        return [(column, self.places[column.identity]) for column in table.columns if column.identity in self.places]

    def later(self, table: TableSchema) -> dict[str, Place]:
        """Identity -> field, of columns with a default that came after a version: its rows have that default there."""
        missing = self.present.keys() - {column.identity for column in table.columns}
        return {one: self.places[one] for one in missing if one in self.places and self.places[one].default is not None}

    def fields(self) -> dict[str, str]:
        """Field -> kind, of all that there are."""
        return {place.name: place.kind for place in self.places.values()} | dict(self.left)

    def not_cleared(self, batch: ChangeBatch) -> ChangeBatch:
        """Without the changes that a clear has overtaken."""
        return batch.not_before(self.cleared)

    def overtaken(self, batch: ChangeBatch) -> ChangeBatch:
        """The changes that a clear has overtaken, as deletes by it."""
        ids = batch.data.column(ID)
        if self.cleared is None or not len(batch) or batch.id_range[0] >= self.cleared:
            return ChangeBatch(batch.table, batch.data.slice(0, 0))
        data = batch.data.filter(pc.less(ids, pa.scalar(self.cleared)))
        times = pa.array([self.cleared_us] * data.num_rows, pa.int64()).view(pa.timestamp("us", "UTC"))
        said: dict[str, Array] = {
            ID: pa.array([self.cleared] * data.num_rows, pa.int64()),
            TS: times,
            OP: pa.array(["d"] * data.num_rows),
        }
        arrays: list[Array] = [said.get(name, data.column(name)) for name in data.schema.names]
        return ChangeBatch(batch.table, pa.RecordBatch.from_arrays(arrays, schema=data.schema))


Kinds = Callable[[Column, str | None], str | None]
"""A store's types: that of a field for a column, which also holds what a field of the other type has; None when there is none."""


class Records(ABC):
    """Where a store keeps records, and its rows."""

    @abstractmethod
    def read(self, table: TableSchema) -> Record:
        """The record of a table, which nobody else has replaced yet; an empty one when there is none."""

    @abstractmethod
    def replace(self, table: TableSchema, old: Record, new: Record) -> bool:
        """Puts `new` in the place of `old`; False when that is not there any more."""

    @abstractmethod
    def grow(self, table: TableSchema, old: Record, new: Record) -> bool:
        """As `replace`; the fields of `new` are there before anybody writes by it."""

    @abstractmethod
    def fill(self, table: TableSchema, record: Record) -> None:
        """Carries out the record's fills on all rows that are there."""


def settled(records: Records, table: TableSchema, kinds: Kinds, on_change: OnChange, system: SystemColumns) -> Record:
    """The record of a table with a field for each column of this version, and with no fills left."""
    for _ in range(_ATTEMPTS):
        record = records.read(table)
        if record.fills:
            records.fill(table, record)
            records.replace(table, record, replace(record, fills=()))
            continue
        new = grown(record, table, kinds, on_change, system)
        if new == record:
            return record
        records.grow(table, record, new)
    raise RetryableError(
        f"the target's fields of {table.namespace.all_versions} are being changed by others all the time",
        fix="wait until that is done",
    )


def cleared(records: Records, table: TableSchema, clear: Clear) -> Record:
    """The record behind a clear."""
    for _ in range(_ATTEMPTS):
        record = records.read(table)
        if record.cleared is not None and record.cleared >= clear.id:
            return record
        new = replace(record, number=record.number + 1, cleared=clear.id, cleared_us=clear.commit_ts_us)
        if records.replace(table, record, new):
            return new
    raise RetryableError(
        f"the target's record of {table.namespace.all_versions} is being changed by others all the time",
        fix="wait until that is done",
    )


def refuse_null_keys(batch: ChangeBatch) -> None:
    """DataError when a row has no value in a column of its key."""
    if empty := [name for name in batch.table.key if batch.data.column(name).null_count]:
        raise DataError(
            f"table {batch.table.namespace.all_versions}: a row has no value in the key column '{empty[0]}'",
            fix="name key columns that are never null, or leave the table out",
        )


def refuse_policy(on_change: OnChange, target: str) -> None:
    """ConfigError for what no field of such a store can do."""
    if on_change.retyped is Policy.IGNORE:
        raise ConfigError(
            f"{target} cannot keep the type of a column that gets another one (`retyped: ignore`)",
            fix="write `on_change: {retyped: evolve}`, or `fail`",
        )


def grown(record: Record, table: TableSchema, kinds: Kinds, on_change: OnChange, system: SystemColumns) -> Record:
    """The record with a field for each column of a version: ConfigError or DataError when the rows that are there cannot get them."""
    version, owner = table.namespace.version, table.namespace.all_versions
    if record.owner not in ("", owner):
        raise ConfigError(
            f"{owner} would be written to the place of {record.owner} in the target",
            fix="give it a name of its own in the flow's `to`, or write it by a flow with a place of its own",
        )
    if record.version >= 0 and record.system != system.of_rows:
        raise has_other_system_columns(table, record.system)
    if record.version >= version:
        return record
    if record.version >= 0:
        _refuse_key(record, table)
        _refuse(record, table, on_change)
    growth = _Growth(record, table, kinds, on_change)
    for column in table.columns:
        growth.take(column)
    return replace(
        record,
        number=record.number + 1,
        owner=owner,
        version=version,
        key=table.key_identities,
        places=growth.places,
        present={column.identity: column.name for column in table.columns},
        types=_types(table),
        system=system.of_rows,
        left=growth.left,
        fills=tuple(growth.fills),
    )


class _Growth:
    """One step from a record to the next version."""

    def __init__(self, record: Record, table: TableSchema, kinds: Kinds, on_change: OnChange) -> None:
        self._record, self._table, self._kinds, self._on_change = record, table, kinds, on_change
        self.places = dict(record.places)
        self.left = dict(record.left)
        self.fills: list[Fill] = []

    def take(self, column: Column) -> None:
        if column.identity in self.places:
            self._go_on(column, self.places[column.identity])
        elif self._record.version < 0 or self._on_change.added is not Policy.IGNORE:
            self._add(column)

    def _add(self, column: Column) -> None:
        value = None if column.initial_default is None else from_text(column.initial_default, column.type)
        default = None if value is None else str(to_text(value)[0])
        place = Place(self._free(column.name), self._kind(column, None), default)
        self.places[column.identity] = place
        if self._record.version >= 0 and default is not None:
            self.fills.append(Fill(column.identity, place.name, None))

    def _go_on(self, column: Column, old: Place) -> None:
        if column.identity in self._record.key:
            return  # a key's column stays where it is
        kind = self._kind(column, old.kind)
        renamed = self._record.present.get(column.identity, column.name) != column.name
        follows = renamed and self._on_change.renamed is not Policy.IGNORE and not self._is_taken(column.name)
        if kind == old.kind and not follows:
            return
        self.left[old.name] = old.kind
        place = replace(old, name=self._free(column.name if follows else old.name), kind=kind)
        self.places[column.identity] = place
        if not follows or self._on_change.renamed is Policy.EVOLVE:
            self.fills.append(Fill(column.identity, place.name, old.name))

    def _kind(self, column: Column, held: str | None) -> str:
        kind = self._kinds(column, held)
        if kind is None:
            raise DataError(
                f"{self._table.namespace.all_versions}, column '{column.name}': no type of the target holds {column.source_type}"
                f" and what a field of type {held} has",
                fix="leave the column out with `columns: {drop: […]}`, or give the flow a new name and a new place and load the table again",
            )
        return kind

    def _is_taken(self, name: str) -> bool:
        return name in self.left or any(place.name == name for place in self.places.values())

    def _free(self, name: str) -> str:
        free = f"{name}_v{self._table.namespace.version}" if self._is_taken(name) else name
        while self._is_taken(free):
            free += "_"
        return free


def _refuse_key(record: Record, table: TableSchema) -> None:
    """A store keeps a row under the text, or the value, of its key."""
    forms = [_form(record.types.get(identity, "")) for identity in record.key]
    if record.key == table.key_identities and forms == [_form(str(table.column(name).type)) for name in table.key]:
        return
    raise DataError(
        f"the key of {table.namespace.all_versions} is another one, or of another type, in version {table.namespace.version}:"
        f" ({', '.join(table.key)}), and its rows in the target are kept by the old one",
        fix="give the flow a new name and a new place in the target, and load the table again",
    )


def _form(kind: str) -> str:
    """What types have in common whose equal values are equal keys."""
    if kind.startswith(("int", "uint")):
        return "integer"
    return kind.partition(",")[2] if kind.startswith("decimal") else kind


def _refuse(record: Record, table: TableSchema, on_change: OnChange) -> None:
    columns = {column.identity: column.name for column in table.columns}
    changes = {
        "retyped": [columns[one] for one, kind in _types(table).items() if record.types.get(one, kind) != kind],
        "added": [name for identity, name in columns.items() if identity not in record.present],
        "dropped": [name for identity, name in record.present.items() if identity not in columns],
        "renamed": [old for identity, old in record.present.items() if columns.get(identity, old) != old],
    }
    stop = [kind for kind, names in changes.items() if names and getattr(on_change, kind) is Policy.FAIL]
    for kind in stop:
        raise DataError(
            f"{table.namespace.all_versions} has column(s) {kind} in version {table.namespace.version}:"
            f" {', '.join(changes[kind])}, and the flow is to stop then",
            fix=how_to_go_on(kind),
        )


def _types(table: TableSchema) -> dict[str, str]:
    return {column.identity: str(column.type) for column in table.columns}
