"""What must change in a target table so that it takes a version of its source: pure decisions, run by evolve.py.

Columns are added, renamed and dropped as `on_change` says; types are only ever widened and NOT NULL relaxed. A column that is not
dropped with the source's stays, with the values it had; rows written from then on have NULL there. An older version than the newest
that was seen renames and drops nothing. What cannot be taken is refused, and nothing is changed; so is what `on_change` wants to stop at:
rows of a full load may bring a new version before the end of the old one has been read, at which a flow else stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headrace.errors import DataError
from headrace.on_change import OnChange, Policy, how_to_go_on
from headrace.sinks.database.columns import Known, Memory
from headrace.sinks.database.dialect import (
    Destination,
    Dialect,
    StoredColumn,
    StoredTable,
    StoredType,
    Target,
)
from headrace.sinks.database.merging import is_shared, name_of
from headrace.sinks.database.stored import (
    changed_column,
    definition_of,
    has_key,
    initial_value,
    must_have_key,
    wanted_column,
)
from headrace.sinks.database.widening import takes
from headrace.ums.schema import Column, TableSchema
from headrace.ums.values import Array


@dataclass(frozen=True, slots=True)
class Plan:
    """What makes a target ready for a version, and what it is then."""

    target: Target
    """Under the target's names, the columns that are brought."""
    brought: tuple[int, ...]
    fitted: Mapping[str, StoredType]
    stored: StoredTable
    filled: Mapping[str, Array]
    statements: list[str]
    known: Memory
    """What is known behind it; its number is that of before."""
    is_done: bool
    """The target is ready: nothing is to be run and nothing to be remembered."""
    is_rekeyed: bool = False
    """Behind the statements the target gets another key."""
    afterwards: list[str] = field(default_factory=list)
    """What is run then."""
    is_over: bool = False

    def destination(self) -> Destination:
        return Destination(
            self.target,
            self.stored,
            self.brought,
            self.fitted,
            self.filled,
            is_over=self.is_over,
            number=self.known.number,
        )


def is_over(known: Known, table: TableSchema) -> bool:
    """The version is older than one that has another key."""
    newest = known.newest
    return (
        newest is not None and table.namespace.version < known.version and newest.key_identities != table.key_identities
    )


def over(target: Target, known: Memory) -> Plan:
    """The plan for such a version: nothing is done, and nothing is written (rekeying.py)."""
    nowhere = StoredTable((), ())
    return Plan(replace(target, columns=()), (), {}, nowhere, {}, [], known, is_done=True, is_over=True)


class Evolution:
    """What must change in a target for one version of its source: no I/O, made anew for each plan."""

    def __init__(
        self,
        dialect: Dialect,
        target: Target,
        stored: StoredTable,
        memory: Memory,
        *,
        table: TableSchema,
        on_change: OnChange,
    ) -> None:
        self._dialect = dialect
        self._target = target
        self._stored = stored
        self._memory = memory
        self._known = memory.own
        self._table = table
        self._version = table.namespace.version
        self._on_change = on_change
        self._is_newer = self._version >= self._known.version
        newest = self._known.newest
        self._is_rekeyed = (
            newest is not None
            and self._version > self._known.version
            and newest.key_identities != table.key_identities
            and not is_shared(target)
        )
        self._declared = target
        """The target as its columns are declared: a new key comes behind them."""
        if newest is not None and self._is_rekeyed:
            old = newest.key_identities
            self._declared = replace(
                target, key=tuple(column.name for column in target.columns if column.identity in old)
            )
        self._afterwards: list[str] = []
        self._existing = {dialect.fold(column.name): column for column in stored.columns}
        self._statements: list[str] = []
        self._fitted: dict[str, StoredType] = {}
        self._moved: dict[str, str] = {}
        """Columns of the target that get another name: from, to."""
        self._left: dict[str, str] = {}
        """Columns that stay behind when one beside them takes over what the source has renamed."""
        self._taken_over: list[tuple[str, str]] = []
        """Columns of which a shard's values go over into those that other shards have under the new name."""

    def plan(self) -> Plan:
        places = self._present_places()
        if self._version > self._known.version >= 0:
            self._refuse(places)
        if self._is_newer:
            self._rename(places)
        dropped = self._dropped(places)
        for column in self._target.columns:
            self._place(column, places)
        for old, new in self._taken_over:
            self._of_own_rows(
                f"{self._dialect.quote(new)} = {self._dialect.quote(old)}, {self._dialect.quote(old)} = NULL"
            )
        brought = tuple(at for at, column in enumerate(self._target.columns) if self._id(column) in places)
        names = {
            column.name: places[self._id(column)] for at, column in enumerate(self._target.columns) if at in brought
        }
        target = replace(
            self._target,
            columns=tuple(
                replace(self._target.columns[at], name=names[self._target.columns[at].name]) for at in brought
            ),
            key=tuple(names.get(name, name) for name in self._target.key),
        )
        if self._is_rekeyed and all(name in names for name in self._target.key):
            self._is_rekeyed = not has_key(self._dialect, target, self._stored, self._moved)
        else:
            must_have_key(self._dialect, target, self._stored, self._moved)
        self._leave_out(target, dropped)
        filled = self._filled()
        known = replace(self._memory, own=self._remembered(places, dropped), others=self._others())
        is_done = not self._statements and not self._afterwards and known == self._memory
        return Plan(
            target,
            brought,
            self._fitted,
            self._stored,
            filled,
            self._statements,
            known,
            is_done,
            self._is_rekeyed,
            self._afterwards,
        )

    def _id(self, column: Column) -> str:
        return self._dialect.fold(column.identity)

    def _present(self, known: Known) -> dict[str, str]:
        """Folded identity -> name in the source, of the columns of the newest version."""
        return {self._id(column): column.name for column in known.newest.columns} if known.newest else {}

    def _present_places(self) -> dict[str, str]:
        """Of the version's columns those that the target has: identity -> its name there."""
        places = {}
        for column in self._target.columns:
            name = self._known.names.get(self._id(column))
            if name is None and self._known.version < 0:
                # Nothing is remembered of this table: its columns are what they are called, or were called once.
                here = [n for n in (column.name, column.identity) if self._dialect.fold(n) in self._existing]
                name = here[0] if here else None
            if name is not None and self._dialect.fold(name) in self._existing:
                places[self._id(column)] = self._existing[self._dialect.fold(name)].name
        return places

    def _refuse(self, places: Mapping[str, str]) -> None:
        """DataError when `on_change` says that the flow is to stop at what this version has otherwise than the one before."""
        before = self._present(self._known)
        columns = {self._id(column): column for column in self._target.columns}
        both = [(before[identity], column) for identity, column in columns.items() if identity in before]
        changes = {
            "added": [column.name for identity, column in columns.items() if identity not in before],
            "dropped": [name for identity, name in before.items() if identity not in columns],
            "retyped": [column.name for _, column in both if self._outgrows(column, places)],
            "renamed": [name for name, column in both if name != column.name],
        }
        if self._is_rekeyed and self._on_change.rekeyed in (Policy.FAIL, Policy.IGNORE):
            raise DataError(
                f"{self._known.source} has the key ({', '.join(self._table.key)}) in version {self._version}, and the flow is to stop then",
                fix=how_to_go_on("rekeyed"),
            )
        for kind, names in changes.items():
            if names and getattr(self._on_change, kind) is Policy.FAIL:
                raise DataError(
                    f"{self._known.source} has column(s) {kind} in version {self._version}: {', '.join(names)}, "
                    "and the flow is to stop then",
                    fix=how_to_go_on(kind),
                )

    def _outgrows(self, column: Column, places: Mapping[str, str]) -> bool:
        """The type of its place is another one, and does not take its values."""
        if self._id(column) not in places:
            return False
        has = self._dialect.holds(self._existing[self._dialect.fold(places[self._id(column)])].declared)
        wants = self._dialect.holds(self._dialect.declare(column, in_key=column.name in self._target.key))
        return has is not None and wants is not None and has.type != wants.type and not takes(has, wants)

    def _rename(self, places: dict[str, str]) -> None:
        fold = self._dialect.fold
        wanted = {
            self._id(column): column.name
            for column in self._target.columns
            if fold(places.get(self._id(column), column.name)) != fold(column.name) and self._has_renamed(column)
        }
        if self._on_change.renamed is Policy.LENIENT:
            for identity in wanted:
                name = places.pop(identity)
                self._left[f"{identity} as {name}"] = name
            return
        if self._on_change.renamed is not Policy.EVOLVE:
            return
        for identity in [identity for identity, name in wanted.items() if fold(name) in self._used_by_others()]:
            name = self._existing[fold(wanted.pop(identity))].name
            self._taken_over.append((places[identity], name))
            places[identity] = name
        moving = {fold(places[identity]) for identity in wanted}
        kept = {fold(name) for name in places.values()} - moving
        wanted = {identity: name for identity, name in wanted.items() if fold(name) not in kept}
        waiting = {identity: fold(name) in moving for identity, name in wanted.items()}
        for number, (identity, name) in enumerate(wanted.items()):
            if waiting[identity]:
                # Another column has the name still: by way of a third one.
                self._to(places[identity], f"_headrace_{number}")
                places[identity] = f"_headrace_{number}"
            elif fold(name) in self._existing:
                self._set_aside(name)
        for identity in sorted(wanted, key=lambda identity: waiting[identity]):
            self._to(places[identity], wanted[identity])
            places[identity] = wanted[identity]

    def _has_renamed(self, column: Column) -> bool:
        """Where shards share a target, the name in it may be another shard's doing."""
        before = self._present(self._known)
        return not is_shared(self._target) or before.get(self._id(column), column.name) != column.name

    def _to(self, old: str, new: str) -> None:
        self._statements.append(self._dialect.rename_column(self._target, old, new))
        column = self._existing.pop(self._dialect.fold(old))
        self._existing[self._dialect.fold(new)] = replace(column, name=new)
        first = next((name for name, now in self._moved.items() if now == old), old)
        self._moved[first] = new

    def _set_aside(self, name: str) -> None:
        """An earlier column of a name that another one gets now."""
        free = f"{name}_v{self._known.version}"
        while self._dialect.fold(free) in self._existing:
            free += "_"
        self._to(self._existing[self._dialect.fold(name)].name, free)

    def _dropped(self, places: Mapping[str, str]) -> frozenset[str]:
        """Identities that the version before had and this one has not."""
        if self._version <= self._known.version:
            return frozenset()
        return frozenset(self._present(self._known).keys() - {self._id(column) for column in self._target.columns})

    def _place(self, column: Column, places: dict[str, str]) -> None:
        if self._id(column) in places:
            self._retype(column, self._existing[self._dialect.fold(places[self._id(column)])])
            return
        there = self._existing.get(self._dialect.fold(column.name))
        if there is not None and self._dialect.fold(there.name) in {
            self._dialect.fold(name) for name in places.values()
        }:
            return  # an older version's column, whose name a newer one has: its values have no place any more
        remembered = {self._dialect.fold(name) for name in self._known.names.values()}
        if there is not None and self._dialect.fold(there.name) not in remembered:
            places[self._id(column)] = there.name  # somebody has made it ready, or another shard has it
            self._retype(column, there)
            self._fill_old_rows(column, there.declared)
            return
        if self._on_change.added is Policy.IGNORE and self._known.version >= 0:
            return
        if there is not None:
            if not self._is_newer:
                return
            self._set_aside(there.name)
        wanted = wanted_column(self._dialect, self._declared, column)
        definition = definition_of(self._dialect, wanted)
        self._statements.append(self._dialect.add_column(self._target, definition))
        self._existing[self._dialect.fold(column.name)] = wanted
        places[self._id(column)] = column.name
        self._fill_old_rows(column, wanted.declared)

    def _fill_old_rows(self, column: Column, declared: str) -> None:
        """A shard's old rows get what its source has given them."""
        value = initial_value(column)
        if not is_shared(self._target) or value is None or self._known.newest is None:
            return
        self._of_own_rows(f"{self._dialect.quote(column.name)} = {self._dialect.default(value, declared)}")

    def _of_own_rows(self, changes: str) -> None:
        """A shard changes what its own rows have."""
        mine = (
            f"{self._dialect.quote(self._target.system.source)} = {self._dialect.default(name_of(self._table), 'text')}"
        )
        self._statements.append(f"UPDATE {self._dialect.table(self._target)} SET {changes} WHERE {mine}")

    def _filled(self) -> dict[str, Array]:
        """Of a shard's older version: what its rows have in columns that came later."""
        newest = self._known.newest
        if not is_shared(self._target) or self._is_newer or newest is None:
            return {}
        brought = {self._id(column) for column in self._target.columns}
        later = [column for column in newest.columns if self._id(column) not in brought]
        values = {self._known.names.get(self._id(column), ""): initial_value(column) for column in later}
        return {
            name: value
            for name, value in values.items()
            if value is not None and self._dialect.fold(name) in self._existing
        }

    def _retype(self, column: Column, found: StoredColumn) -> None:
        as_stored = replace(column, name=found.name)
        key = tuple(found.name if name == column.name else name for name in self._declared.key)
        target = replace(self._target, key=key)
        if self._on_change.retyped is Policy.IGNORE:
            has, wants = (
                self._dialect.holds(kind)
                for kind in (found.declared, self._dialect.declare(as_stored, in_key=found.name in key))
            )
            if has is not None and (wants is None or not takes(has, wants)):
                self._fitted[found.name] = has
            return
        changed = changed_column(self._dialect, target, as_stored, found)
        if changed != found:
            self._statements += self._dialect.change_column(target, changed)
            self._existing[self._dialect.fold(found.name)] = changed

    def _leave_out(self, target: Target, dropped: frozenset[str]) -> None:
        """Columns of the table that the version does not bring: they must take NULL, and get it when the source dropped them."""
        fold = self._dialect.fold
        brought = {fold(column.name) for column in (*target.columns, *target.system_columns)}
        names = [self._known.names[identity] for identity in dropped if identity in self._known.names]
        gone = {fold(self._moved.get(name, name)) for name in names} - self._used_by_others()
        for name, column in list(self._existing.items()):
            if name in brought:
                continue
            if name in gone and self._on_change.dropped is Policy.EVOLVE:
                self._afterwards.append(self._dialect.drop_column(self._target, column.name))
                del self._existing[name]
            elif (name in gone and column.default is not None) or (not column.nullable and column.default is None):
                relaxed = StoredColumn(column.name, column.declared, nullable=True)
                self._afterwards += self._dialect.change_column(target, relaxed)

    def _remembered(self, places: Mapping[str, str], dropped: frozenset[str]) -> Known:
        names = {
            identity: self._moved.get(name, name) for identity, name in (self._known.names | self._left).items()
        } | dict(places)
        if self._on_change.dropped is Policy.EVOLVE:
            names = {identity: name for identity, name in names.items() if identity not in dropped}
        newest = self._known.newest
        if newest is None or self._version > self._known.version or not newest.same_shape(self._table):
            newest = self._table if self._is_newer else newest
        return Known(self._known.source, newest, names)

    def _others(self) -> tuple[Known, ...]:
        """What is known of other shards when columns have other names."""
        return tuple(
            replace(other, names={identity: self._moved.get(name, name) for identity, name in other.names.items()})
            for other in self._memory.others
        )

    def _used_by_others(self) -> set[str]:
        """Columns that other shards bring."""
        if not is_shared(self._target):
            return set()
        return {
            self._dialect.fold(other.names[identity])
            for other in self._others()
            for identity in self._present(other)
            if identity in other.names
        }
