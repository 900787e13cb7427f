"""What rows of a stream belong to, as SQL: windows, sessions, or each row to itself; and when that is over.

A *bound* D is a time behind which nothing is corrected any more (the watermark, less `amend`). All times here are whole µs since 1970::

    length, every   each window [s, s + length), s a multiple of every, that a time t is in    over when its end is <= D
    gap             a session: rows of one `by`, each less than a gap behind the one before    over when its newest time + gap is <= D
    keep            the row itself                                                             needed until t + keep <= D

A row that comes is *late* when all that it could belong to is over: the last of its windows; for sessions and rows by themselves, its own time
(t < D). The last is what keeps a session that was told as it is: a row in time has t >= D >= its end, so it begins another one.

What is forgotten is in no answer that is open. Windows: an answer with window_end > D is of rows in a window with that end. Sessions: all rows of one have the
same end. Rows by themselves: that is the promise of `keep`, that an answer which ends at e looks at no time before e - keep: while it is open, D < e <= t + keep.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.compute.changing.config import WindowSpec
from headrace.compute.steps import quoted
from headrace.errors import ConfigError
from headrace.ums.schema import COMMIT_TS, TS, TableSchema

START, END = "window_start", "window_end"
TIME, BY = "_headrace_time_", "_headrace_by_{}_"
_NUMBER, _FIRST, _LAST = "_headrace_number_", "_headrace_first_", "_headrace_last_"


def us(seconds: float) -> int:
    return round(seconds * 1_000_000)


@dataclass(frozen=True, slots=True)
class Belonging:
    """Of the rows of one table in the state, whose columns are called by their identities."""

    input: str
    """The name of the input that the table is of."""
    spec: WindowSpec
    time: str
    """SQL for the time of a row, without alias."""
    by: tuple[str, ...]

    @classmethod
    def of(cls, spec: WindowSpec, name: str, table: TableSchema) -> Belonging:
        """ConfigError when the table has no such columns."""
        return cls(name, spec, f"epoch_us({_time(spec, name, table)})", tuple(_column(c, name, table) for c in spec.by))

    @property
    def adds_windows(self) -> bool:
        """Whether the SQL sees windows."""
        return self.spec.keep is None

    @property
    def is_by_its_own_time(self) -> bool:
        """Whether a row is late by its own time, whatever it would belong to."""
        return self.spec.length is None

    def tagged(self) -> list[str]:
        """What `windowed` needs of each row."""
        return [f"{self.time} AS {TIME}", *(f"{column} AS {BY.format(at)}" for at, column in enumerate(self.by))]

    def late(self, bound_us: int | None) -> str:
        """SQL: a row comes too late for everything, or has no time."""
        if bound_us is None:
            return f"{self.time} IS NULL"
        over = f"{self.time} < {bound_us}" if self.is_by_its_own_time else f"{self._last_end()} <= {bound_us}"
        return f"coalesce({over}, true)"

    def late_for_some(self, bound_us: int | None) -> str:
        """SQL: a row comes too late for something."""
        if bound_us is None or self.is_by_its_own_time:
            return self.late(bound_us)
        return f"coalesce({self.first_end()} <= {bound_us}, true)"

    def late_for(self, bound_us: int | None) -> str:
        """SQL for a list: the ends of the windows that a row comes too late for, its own time where it is by itself. Empty when it is in time."""
        no_time = f"WHEN {self.time} IS NULL THEN [0]"
        if bound_us is None:
            return f"CASE {no_time} ELSE []::BIGINT[] END"
        if self.is_by_its_own_time:
            return f"CASE {no_time} WHEN {self.time} < {bound_us} THEN [{self.time}] ELSE []::BIGINT[] END"
        return f"CASE {no_time} ELSE list_filter({self._ends()}, lambda e: e <= {bound_us}) END"

    def first_end(self) -> str:
        """SQL: no answer that a row is in ends before."""
        if self.spec.length is None:
            return self.time
        return (
            f"({_floor(f'({self.time} - {us(self.spec.length)})', self._every)} + {self._every + us(self.spec.length)})"
        )

    def is_over(self, bound_us: int) -> str:
        """SQL: a row that is not of a session is in no open answer any more."""
        end = self._last_end() if self.spec.keep is None else f"{self.time} + {us(self.spec.keep)}"
        return f"coalesce({end} <= {bound_us}, true)"

    @property
    def _every(self) -> int:
        assert self.spec.length is not None
        return us(self.spec.every or self.spec.length)

    def _last_end(self) -> str:
        assert self.spec.length is not None
        return f"({_floor(self.time, self._every)} + {us(self.spec.length)})"

    def _ends(self) -> str:
        return f"generate_series({self.first_end()}, {self._last_end()}, {self._every})"


def windowed(spec: WindowSpec, rows: str) -> str:
    """SQL for rows (a relation with what `Belonging.tagged` names) as the SQL of a user sees them."""
    by = [BY.format(at) for at in range(len(spec.by))]
    if spec.gap is not None:
        return _sessions(rows, by, us(spec.gap))
    there = f"(SELECT * FROM {rows} WHERE {TIME} IS NOT NULL)"
    if spec.length is None:
        return f"(SELECT * EXCLUDE ({TIME}) FROM {there})"
    length, every = us(spec.length), us(spec.every or spec.length)
    last = _floor(TIME, every)
    if every == length:
        start = last
    else:
        start = f"unnest(generate_series({_floor(f'({TIME} - {length})', every)} + {every}, {last}, {every}))"
    cut = f"SELECT *, {start} AS {_FIRST} FROM {there}"
    ends = f"make_timestamp({_FIRST}) AS {START}, make_timestamp({_FIRST} + {length}) AS {END}"
    return f"(SELECT * EXCLUDE ({TIME}, {_FIRST}), {ends} FROM ({cut}))"


def _sessions(rows: str, by: list[str], gap_us: int) -> str:
    whose = f"PARTITION BY {', '.join(by)} " if by else ""
    begins = f"CASE WHEN {TIME} - lag({TIME}) OVER w < {gap_us} THEN 0 ELSE 1 END"
    marked = f"SELECT *, {begins} AS {_FIRST} FROM {rows} WHERE {TIME} IS NOT NULL WINDOW w AS ({whose}ORDER BY {TIME})"
    count = f"sum({_FIRST}) OVER ({whose}ORDER BY {TIME} ROWS UNBOUNDED PRECEDING)"
    numbered = f"SELECT * EXCLUDE ({_FIRST}), {count} AS {_NUMBER} FROM ({marked})"
    same = f"WINDOW w AS (PARTITION BY {', '.join([*by, _NUMBER])})"
    spans = f"SELECT *, min({TIME}) OVER w AS {_FIRST}, max({TIME}) OVER w AS {_LAST} FROM ({numbered}) {same}"
    ends = f"make_timestamp({_FIRST}) AS {START}, make_timestamp({_LAST} + {gap_us}) AS {END}"
    return f"(SELECT * EXCLUDE ({', '.join([TIME, *by, _NUMBER, _FIRST, _LAST])}), {ends} FROM ({spans}))"


def _floor(value: str, step: int) -> str:
    """SQL: the multiple of a step at or before a value, which may be negative."""
    return f"({value} - (({value} % {step}) + {step}) % {step})"


def _time(spec: WindowSpec, name: str, table: TableSchema) -> str:
    if spec.time in {TS, COMMIT_TS}:
        return spec.time
    column = _column(spec.time, name, table)
    kinds = {quoted(each.identity): each for each in table.columns}
    if not str(kinds[column].type).startswith(("timestamp", "date")):
        raise ConfigError(
            f"the windows of {name} are by {spec.time}, which is {kinds[column].source_type}, no time",
            fix="name a column of times, `_ums_ts_` or `_ums_commit_ts_`",
        )
    return column


def _column(named: str, name: str, table: TableSchema) -> str:
    for column in table.columns:
        if named.casefold() in {column.name.casefold(), column.identity.casefold()}:
            return quoted(column.identity)
    raise ConfigError(
        f"the windows of {name} name the column {named}, which {table.namespace.all_versions} does not have",
        fix=f"it has {', '.join(column.name for column in table.columns)}",
    )
