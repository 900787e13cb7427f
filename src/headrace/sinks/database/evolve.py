"""Makes a target table ready for a version of its source, whoever else is at it: what must change says evolution.py."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import ConfigError, RetryableError
from headrace.on_change import OnChange
from headrace.sinks.database import columns
from headrace.sinks.database.columns import Known, Memory
from headrace.sinks.database.dialect import Destination, Dialect, StoredTable, Target
from headrace.sinks.database.evolution import Evolution, Plan, is_over, over
from headrace.sinks.database.merging import is_shared
from headrace.sinks.database.rekeying import NoKeyError, rekey
from headrace.sinks.database.stored import create_table, must_be_ours, wanted_column
from headrace.ums.schema import TableSchema


def ensure(dialect: Dialect, target: Target) -> Destination:
    """Creates one of headrace's own tables, safe to race."""
    stored = dialect.describe(target)
    if stored is None:
        with dialect.shaping(target):
            if dialect.describe(target) is None:
                dialect.run(create_table(dialect, target))
        stored = dialect.describe(target)
    assert stored is not None
    return Destination(target, stored)


def prepare(
    dialect: Dialect, target: Target, table: TableSchema, memory: Destination, on_change: OnChange
) -> Destination:
    """Creates the target of a version of `table` or evolves it, safe to race. `memory` is the table of columns.py.

    What was written before and not committed is committed first when the table must change (a change of a table stands
    between transactions in the source's log, too).
    """
    _refuse_names(dialect, target)
    source = table.namespace.all_versions
    known = columns.find(dialect, memory, target.name, source, is_held=True)
    if not known.is_kept:
        columns.keep(dialect, memory, target.name, source)
        known = columns.find(dialect, memory, target.name, source, is_held=True)
    # Of a target that is being shaped nothing can be said from outside.
    plan = None if known.is_changing else _plan(dialect, target, table, known, on_change)
    if plan is None or not plan.is_done:
        with dialect.shaping(target):
            known = columns.find(dialect, memory, target.name, source, is_held=True)
            plan = _plan(dialect, target, table, known, on_change)
            if known.is_changing or not plan.is_done:
                _run(dialect, plan)
                known = columns.find(dialect, memory, target.name, source, is_held=True)
                plan = _plan(dialect, target, table, known, on_change)
    return plan.destination()


def rehearse(dialect: Dialect, target: Target, table: TableSchema, on_change: OnChange) -> None:
    """Raises what `prepare` would raise, and leaves the target as it is."""
    _refuse_names(dialect, target)
    memory = dialect.describe(columns.TARGET)
    known = Memory(Known(table.namespace.all_versions))
    if memory is not None:
        to = Destination(columns.TARGET, memory)
        known = columns.find(dialect, to, target.name, table.namespace.all_versions)
    if known.is_changing:
        return  # of a target that is being shaped nothing can be said from outside
    _plan(dialect, target, table, known, on_change)
    if dialect.describe(target) is None:
        dialect.rehearse(target, create_table(dialect, target))


def _refuse_names(dialect: Dialect, target: Target) -> None:
    """ConfigError for names that the store cannot have, or that are one name to it."""
    seen: dict[str, str] = {}
    for name in (target.name, *(column.name for column in target.columns)):
        dialect.check_name(name)
    for column in target.columns:
        other = seen.setdefault(dialect.fold(column.name), column.name)
        if other != column.name:
            raise ConfigError(
                f"the columns '{other}' and '{column.name}' of {target.name} are one column to the target database",
                fix=f"rename one of them: `columns: {{rename: {{{column.name}: …}}}}`",
            )


def _run(dialect: Dialect, plan: Plan) -> None:
    # Before all else, so that who writes has committed, and who comes now knows (columns.py).
    columns.begin(dialect, plan.target.name)
    for statement in plan.statements:
        dialect.run(statement)
    known = [plan.known.own, *plan.known.others]
    if plan.is_rekeyed:
        try:
            rekey(dialect, plan.target)
        except NoKeyError:
            dialect.rollback()
            columns.end(dialect, plan.target.name, known)
            dialect.commit()
            raise
    for statement in plan.afterwards:
        dialect.run(statement)
    columns.end(dialect, plan.target.name, known)


def placed(dialect: Dialect, target: Target, table: TableSchema, memory: Destination) -> Destination:
    """The target as it is, with those of the version's columns that it has.

    Raises ConfigError when there is none, RetryableError while it is shaped.
    """
    known = columns.find(dialect, memory, target.name, table.namespace.all_versions)
    if known.is_changing:
        raise RetryableError(
            f"the columns of the target table {target.name} are being changed",
            fix="wait until that is done; when nothing delivers into it now, run the flow, which ends what was broken off",
        )
    if is_over(known.own, table):
        return over(target, known).destination()
    stored = dialect.describe(target)
    if stored is None:
        raise ConfigError(f"there is no table {target.name} in the target", fix="run the flow first")
    nothing = OnChange.model_validate("ignore")
    return Evolution(dialect, target, stored, known, table=table, on_change=nothing).plan().destination()


def _plan(dialect: Dialect, target: Target, table: TableSchema, known: Memory, on_change: OnChange) -> Plan:
    if is_over(known.own, table):
        return over(target, known)
    stored = dialect.describe(target)
    if stored is None:
        created = StoredTable(tuple(wanted_column(dialect, target, column) for column in target.columns), target.key)
        others = tuple(Known(other.source) for other in known.others)
        fresh = replace(known, own=Known(known.own.source), others=others)
        plan = Evolution(dialect, target, created, fresh, table=table, on_change=on_change).plan()
        return replace(plan, statements=[create_table(dialect, target)], is_done=False)
    must_be_ours(dialect, target, stored)
    _refuse_others(target, known)
    return Evolution(dialect, target, stored, known, table=table, on_change=on_change).plan()


def _refuse_others(target: Target, known: Memory) -> None:
    """ConfigError for rows of another source: which of two changes is newer says `_ums_id_` within one source only."""
    others = [other.source for other in known.others if other.newest is not None]
    if others and not is_shared(target):
        raise ConfigError(
            f"the table {target.name} has the rows of {others[0]}, and {known.own.source} would be written to it",
            fix="name another table in `table`, or drop this one; if they are shards of one table, write `merge: true`",
        )
