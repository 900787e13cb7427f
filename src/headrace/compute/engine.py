"""DuckDB as the engine of SQL in flow files: one connection, in this process's memory or over one file, one thread, no other files, no network.

SQL in a flow file reads rows, not the disk of whoever runs it: access to files, extensions and settings is shut before any of it is bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType

from headrace.compute.functions import functions
from headrace.errors import ConfigError, DataError, FatalError, HeadraceError, RetryableError, StorageError

_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,  # a run has a follower for each flow and partition, and each has its own
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
}
_ALIGNED = 8
_FIX = "correct the SQL of the flow; `headrace check` says which columns there are"


class Engine:
    """Runs SQL over batches, and over tables of its own where it has a file. Opened when it is first asked, gone with its last user or `close`;
    serves one thread."""

    def __init__(self, file: Path | None = None, memory: str = "") -> None:
        """`memory`: what it may take, as DuckDB writes it (``1GB``); the rest of what it works on goes to disk beside the file."""
        self._file = file
        self._memory = memory
        self._opened: duckdb.DuckDBPyConnection | None = None

    def value(self, sql: str, *parameters: str) -> str:
        """The one value of a query. Errors as of `rows`."""
        with _ours("SQL"):
            row = self._connection.execute(sql, parameters).fetchone()
        assert row is not None
        return str(row[0])

    def rows(self, sql: str, relations: Mapping[str, pa.Table]) -> pa.Table:
        """What a query makes of relations, its rows in their order. ConfigError: it does not fit their columns. DataError: it fails on a value."""
        connection = self._connection
        for name, rows in relations.items():
            connection.register(name, _aligned(rows))
        try:
            with _ours("its SQL"):
                return connection.execute(sql).fetch_arrow_table()
        finally:
            for name in relations:
                connection.unregister(name)

    def run(self, sql: str, *parameters: object) -> list[tuple[object, ...]]:
        """Runs a statement; its rows, when it has some. Errors as of `rows`; StorageError and RetryableError of the file."""
        with _ours("its SQL"):
            return self._connection.execute(sql, parameters).fetchall()

    def put(self, sql: str, **relations: pa.Table) -> None:
        """Runs a statement that reads relations. Errors as of `run`."""
        for name, rows in relations.items():
            self._connection.register(name, _aligned(rows))
        try:
            self.run(sql)
        finally:
            for name in relations:
                self._connection.unregister(name)

    def close(self) -> None:
        """Gives up the file; what was not committed is gone. Idempotent."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def aggregates(self) -> frozenset[str]:
        """The names of functions of many rows."""
        return _aggregates()

    def unstable(self) -> frozenset[str]:
        """The names of functions that may answer otherwise when they are asked again."""
        return _unstable()

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._opened is None:
            with _ours("SQL"):
                self._opened = _open(self._file, self._memory)
        return self._opened


def _aligned(rows: pa.Table) -> pa.Table:
    """The rows, or a copy, in buffers that begin where processors like it, as those of blocks on the log do not: Arrow, which reads tables for DuckDB,
    complains of each."""
    buffers = (found for column in rows.columns for chunk in column.chunks for found in chunk.buffers())
    if all(found is None or found.address % _ALIGNED == 0 for found in buffers):
        return rows
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


def _open(file: Path | None = None, memory: str = "") -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:" if file is None else str(file), config=_SETTINGS)
    if memory:
        connection.execute(f"SET memory_limit = '{memory}'")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET python_enable_replacements = false")
    _teach(connection)
    connection.execute("SET lock_configuration = true")
    return connection


def _teach(connection: duckdb.DuckDBPyConnection) -> None:
    """Functions of users. ConfigError when the engine has such a name already, or no such types."""
    for name, function in functions().items():
        nulls = FunctionNullHandling.SPECIAL if function.takes_null else FunctionNullHandling.DEFAULT
        try:
            parameters, returns = [*map(duckdb.sqltype, function.parameters)], duckdb.sqltype(function.returns)
            connection.create_function(
                name, function.call, parameters, returns, type=PythonUDFType.ARROW, null_handling=nulls
            )
        except (duckdb.Error, RuntimeError) as error:  # a RuntimeError is the binding's, of a type that there is not
            told = str(error).strip().split("\n")[0]
            types = f"({', '.join(function.parameters)}) -> {function.returns}"
            raise ConfigError(
                f"the function {name} {types} is not taken: {told}", fix="give it another name, or types of SQL"
            ) from error


@cache
def _aggregates() -> frozenset[str]:
    return _functions("function_type = 'aggregate'")


@cache
def _unstable() -> frozenset[str]:
    return _functions("stability <> 'CONSISTENT' AND function_name <> 'error'")


def _functions(condition: str) -> frozenset[str]:
    connection = _open()
    try:
        rows = connection.execute(f"SELECT DISTINCT function_name FROM duckdb_functions() WHERE {condition}").fetchall()
        return frozenset(str(row[0]) for row in rows)
    finally:
        connection.close()


@contextmanager
def _ours(what: str) -> Iterator[None]:
    """Errors of DuckDB as ours."""
    try:
        yield
    except duckdb.Error as error:
        raise _error(what, error) from error


def _error(what: str, error: duckdb.Error) -> HeadraceError:
    told = str(error).strip().split("\n\n")[0].replace("\n", " ")
    if isinstance(error, duckdb.IOException):
        return _of_file(told)
    if isinstance(error, (duckdb.OutOfMemoryException, duckdb.InternalException, duckdb.InterruptException)):
        return FatalError(
            f"{what} could not be run: {told}",
            fix="nothing is lost: give the run (a computed table: its `memory`) more, and start again",
        )
    if isinstance(
        error, (duckdb.BinderException, duckdb.CatalogException, duckdb.ParserException, duckdb.PermissionException)
    ):
        return ConfigError(f"{what} does not fit: {told}", fix=_FIX)
    return DataError(
        f"{what} fails on a value: {told}",
        fix="let the SQL take such values (TRY_CAST, CASE), or set the rows aside with `set_aside` in the flow",
    )


def _of_file(told: str) -> HeadraceError:
    if "set lock" in told:
        return RetryableError(f"the state is in use: {told}", fix="end the other process that has the file open")
    return StorageError(
        f"the state could not be read or written: {told}",
        fix="see whether the disk is full or failing; a file that is damaged may be removed, it is made again from the log",
    )
