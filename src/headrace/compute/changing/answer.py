"""What the SQL of a computed table answers over the inputs that a state has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from headrace.compute.changing.config import ClosingSpec, SqlSourceConfig, WindowSpec
from headrace.compute.changing.late import late_table
from headrace.compute.changing.narrow import ROWS, VALUES, Narrowing, narrowing, touched
from headrace.compute.changing.question import Question, wanted_columns
from headrace.compute.changing.rows import InputRows
from headrace.compute.changing.state import State
from headrace.compute.changing.told import answered
from headrace.compute.changing.windows import END, START, Belonging, windowed
from headrace.compute.engine import Engine
from headrace.compute.steps import quoted
from headrace.errors import ConfigError, DataError, HeadraceError
from headrace.ums.schema import COMMIT_TS, ID, TS, Namespace, TableSchema

_SYSTEM = (ID, TS, COMMIT_TS)
_FEW = 0.25
"""When more of the rows than that may have changed, the whole answer costs less than finding them."""


class Answers:
    """The question of one source. Serves one thread."""

    def __init__(self, config: SqlSourceConfig) -> None:
        """ConfigError when the SQL is no question over the inputs."""
        self._config = config
        self.question = Question.parse(Engine(), config.sql, config.inputs)
        self._narrowing: Narrowing | None = None
        self.namespace = Namespace(config.type, config.name, "headrace", config.called)
        self.windows = config.windows

    def wanted(self, table: TableSchema) -> list[str]:
        """The columns of a table that the SQL, or its windows, may need."""
        named = {name.casefold() for _, spec in self._windows_of(table) for name in (spec.time, *spec.by)}
        question = replace(self.question, names=self.question.names | named)
        return wanted_columns(question, {c.name: c.identity for c in table.columns}, table.key)

    def belonging(self, table: TableSchema) -> Belonging | None:
        """What its rows belong to; None when they are never over. ConfigError when it does not have the columns for that."""
        found = self._windows_of(table)
        if not found:
            return None
        inputs = [name for name, patterns in self._config.inputs.items() if any(map(table.namespace.matches, patterns))]
        if len(inputs) > 1:
            raise ConfigError(
                f"{table.namespace.all_versions} is in the inputs {' and '.join(inputs)}, and its rows are forgotten by windows of {found[0][0]}",
                fix="name it once in `from`, and twice in the SQL",
            )
        return Belonging.of(found[0][1], found[0][0], table)

    def _windows_of(self, table: TableSchema) -> list[tuple[str, WindowSpec]]:
        windows = {} if self.windows is None else self.windows.of
        return [
            (name, spec)
            for name, spec in windows.items()
            if any(map(table.namespace.matches, self._config.inputs[name]))
        ]

    def unknown(self, state: State) -> list[str]:
        """The inputs of which no table is known."""
        return [name for name in self._config.inputs if not self._tables(state, name)]

    def takes(self, table: TableSchema) -> bool:
        """Whether a table is one of some input's."""
        return any(map(table.namespace.matches, self._config.reads_from_log))

    def prepare(self, state: State) -> TableSchema:
        """Makes the inputs relations that the SQL can read; the table that it makes of them. ConfigError when it does not fit them.

        SQL that was written before a column was renamed goes on: when it does not fit the columns' names, their first ones are tried.
        """
        try:
            return self._prepare(state, first_names=False)
        except ConfigError as error:
            try:
                return self._prepare(state, first_names=True)
            except HeadraceError:
                raise ConfigError(f"source {self._config.name}: {error.message}", fix=error.fix) from error

    def require_known(self, state: State) -> None:
        """ConfigError when nothing is known of an input."""
        if missing := self.unknown(state):
            raise ConfigError(
                f"source {self._config.name}: nothing matches the input {missing[0]}, {', '.join(self._config.inputs[missing[0]])}",
                fix="write namespaces of tables that the sources of this file have: type.source.schema.table",
            )

    def besides(self) -> list[TableSchema]:
        """What is told beside the table itself: rows that come too late for its windows."""
        return [] if self.windows is None else [late_table(self.namespace)]

    def explained(self, state: State) -> str:
        """What the SQL makes of the inputs of a state, how, and what is kept for that. ConfigError as of `prepare`."""
        table = self.prepare(state)
        columns = ", ".join(f"{column.name} {column.source_type}" for column in table.columns)
        how = "the whole answer is computed anew when an input changes"
        if self.windows is not None:
            how = "windows are told " + ("early, and corrected" if self.windows.early else "when they are final")
        elif self._narrowing is not None:
            how = f"computed anew by {', '.join(self._narrowing.part)} when an input changes"
        kept = "; ".join(f"{family} ({', '.join(rows.columns)})" for family, rows in sorted(state.inputs.items()))
        return (
            f"{table.namespace.all_versions} is ({columns}), key {', '.join(table.key)}; {how}, and"
            f" what differs is told; state: the newest rows of {kept}; and the answer itself{self._forgotten()}"
        )

    def _forgotten(self) -> str:
        if self.windows is None:
            return ""
        late = late_table(self.namespace).namespace.all_versions
        return f"; forgotten when the watermark has passed: {', '.join(self.windows.of)}; rows that come later go to {late}"

    def difference(self, state: State, *, whole: bool, passed_us: int | None) -> list[pa.RecordBatch]:
        """What is to be told behind `prepare` and what was taken since `State.begin` (Told.difference). `whole`: more than that may have changed.

        `passed_us`: of windows, the time up to which they are final.
        """
        if self.windows is not None:
            return self._of_windows(self.windows, state, passed_us)
        narrow = self._narrowing
        if not whole and narrow is not None:
            state.engine.run(f"CREATE OR REPLACE TEMP TABLE {VALUES} AS {narrow.values()}")
            values = int(state.engine.value(f"SELECT count(*) FROM {VALUES}"))
            if values <= _FEW * state.told.count():
                return state.told.difference(narrow.sql, narrow.told())
        return state.told.difference(f"SELECT * FROM (\n{self.question.sql}\n)")

    def _of_windows(self, windows: ClosingSpec, state: State, passed_us: int | None) -> list[pa.RecordBatch]:
        """Those that are not over; without `early` those alone that the watermark has passed."""
        after = [] if state.over_us is None else [f"epoch_us({END}) > {state.over_us}"]
        until = [] if windows.early else [f"epoch_us({END}) <= {passed_us}"]
        where = f"WHERE {END} IS NULL OR ({' AND '.join([*after, *until])})" if after or until else ""
        found = state.told.difference(f"SELECT * FROM (\n{self.question.sql}\n) {where}")
        if int(state.engine.value(f"SELECT count(*) FROM answer WHERE {END} IS NULL")):
            raise DataError(
                f"the SQL makes a row without a {END}: it could never be final",
                fix=f"leave such rows out (HAVING count(*) > 0), or compute {END} of columns that are never null",
            )
        return found

    def _prepare(self, state: State, *, first_names: bool) -> TableSchema:
        inputs: dict[str, list[str]] = {}
        for name in self._config.inputs:
            tables = self._tables(state, name)
            spec = None if self.windows is None else self.windows.of.get(name)
            for view, kept in (
                (name, [rows.live for rows in tables]),
                (touched(name), [rows.touched for rows in tables]),
            ):
                parts = [self._select(rows, first_names=first_names) for rows in tables]
                union = " UNION ALL BY NAME ".join(f"{part} FROM {of}" for part, of in zip(parts, kept, strict=True))
                shown = union if spec is None else f"FROM {windowed(spec, f'({union})')}"
                state.engine.run(f"CREATE OR REPLACE TEMP VIEW {quoted(view)} AS {shown}")
            inputs[name] = state.engine.rows(f"FROM {quoted(name)} LIMIT 0", {}).schema.names
        table = answered(state.engine, self.question.sql, self.namespace, self._config.key)
        if self.windows is None:
            self._narrow(state, inputs)
        else:
            _require_end(table)
        return table

    def _narrow(self, state: State, inputs: Mapping[str, Sequence[str]]) -> None:
        self._narrowing = narrowing(state.engine, self.question.node, inputs, self._config.key)
        if self._narrowing is not None:
            state.engine.run(f"CREATE OR REPLACE TEMP TABLE {VALUES} AS {self._narrowing.values()} LIMIT 0")
            state.engine.run(f"CREATE OR REPLACE TEMP VIEW {ROWS} AS {self._narrowing.rows()}")

    def _select(self, rows: InputRows, *, first_names: bool) -> str:
        belonging = rows.belonging
        hidden = {START, END} if belonging is not None and belonging.adds_windows else set()
        columns = [
            f"{quoted(identity)} AS {quoted(identity if first_names else name)}"
            for name, identity in rows.columns.items()
            if (identity if first_names else name).casefold() not in hidden
        ]
        columns += [] if belonging is None else belonging.tagged()
        system = [name for name in _SYSTEM if name in self.question.names]
        return f"SELECT {', '.join([*columns, *system]) or ID}"

    def _tables(self, state: State, name: str) -> list[InputRows]:
        patterns = self._config.inputs[name]
        return [rows for rows in state.inputs.values() if any(map(rows.table.namespace.matches, patterns))]


def _require_end(table: TableSchema) -> None:
    end = next((column for column in table.columns if column.name == END), None)
    if end is None or not str(end.type).startswith("timestamp"):
        what = f"no column {END}" if end is None else f"{END} of type {end.source_type}"
        raise ConfigError(
            f"the SQL makes {what}, and a row with windows is final when the watermark has passed that time",
            fix=f"select {END}; of a join within an hour that is a.placed + INTERVAL 1 hour AS {END}, of rows by themselves placed + INTERVAL 1 microsecond",
        )
