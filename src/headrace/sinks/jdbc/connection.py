"""A connection of a driver: statements that are kept, parameters, and what its errors mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import jpype

from headrace.errors import ConfigError, DataError, FatalError, HeadraceError, RetryableError, StorageError
from headrace.sinks.database.dialect import Row
from headrace.sinks.jdbc import jvm
from headrace.sinks.jdbc.binding import Binding, add_batch
from headrace.sinks.jdbc.codes import BIGINT, VARCHAR
from headrace.sinks.jdbc.jvm import Java, java
from headrace.sinks.jdbc.types import read

_READ_COMMITTED = 2
_KEPT_STATEMENTS = 200
_ANSWER_S = 5
_ROLLED_BACK = "40"
"""How SQLSTATE begins where the database has ended the transaction: whatever else went wrong in it is void."""


class Bound(NamedTuple):
    """A parameter as text, and how it is bound."""

    text: str | None
    kind: Binding


class Connection:
    """One connection in a transaction that reads what others have committed."""

    def __init__(self, url: str, jars: Sequence[Path], properties: Mapping[str, str]) -> None:
        self.java = jvm.connect(url, jars, properties)
        self._statements: dict[str, Java] = {}
        self.java.setAutoCommit(False)
        self.java.setTransactionIsolation(_READ_COMMITTED)

    def prepared(self, sql: str) -> Java:
        """A statement that is compiled once."""
        if sql not in self._statements:
            if len(self._statements) >= _KEPT_STATEMENTS:
                self._close_statements()
            self._statements[sql] = self.java.prepareStatement(sql)
        return self._statements[sql]

    def run(self, sql: str) -> list[Row]:
        statement = self.java.createStatement()
        try:
            return rows_of(statement.getResultSet()) if statement.execute(sql) else []
        finally:
            statement.close()

    def run_with(self, sql: str, rows: Sequence[Row]) -> list[Row]:
        """Once per row of parameters; returns what a query has found for the one row."""
        statement = self.prepared(sql)
        bound = [[_bound(value) for value in column] for column in zip(*rows, strict=True)]
        if len(rows) == 1:
            set_parameters(statement, [one for [one] in bound])
            return rows_of(statement.getResultSet()) if statement.execute() else []
        try:
            add_batch(
                statement, [[one.text for one in column] for column in bound], [column[0].kind for column in bound]
            )
            statement.executeBatch()
        finally:
            statement.clearBatch()
        return []

    def back_to(self, savepoint: Java) -> None:
        """Takes back what came behind a savepoint. RetryableError when the database has ended the whole transaction: of a deadlock in the
        middle of a batch Derby says nothing where the batch's first and last statement have failed, too."""
        try:
            self.java.rollback(savepoint)
        except jpype.JException as error:
            raise RetryableError("the JDBC target has ended the transaction on its own", fix=_BUSY[1]) from error

    def answers(self) -> bool:
        """Whether the server is still there: what drivers say of a connection that is gone differs."""
        try:
            return bool(self.java.isValid(_ANSWER_S))
        except jpype.JException:
            return False

    def close(self) -> None:
        for end in (self._close_statements, self.java.rollback, self.java.close):
            with suppress(jpype.JException):  # of a server that is gone
                end()

    def _close_statements(self) -> None:
        statements, self._statements = self._statements, {}
        for statement in statements.values():
            statement.close()


def set_parameters(statement: Java, parameters: Sequence[Bound]) -> None:
    for at, (text, kind) in enumerate(parameters):
        statement.setObject(at + 1, text, kind.code, kind.scale)


def rows_of(results: Java, limit: int | None = None) -> list[Row]:
    """The next rows of a result, `limit` of them unless it ends before."""
    described = results.getMetaData()
    codes = [(at, described.getColumnType(at)) for at in range(1, described.getColumnCount() + 1)]
    rows: list[Row] = []
    while len(rows) != limit:
        if not results.next():
            break
        rows.append(tuple(read(results, at, code) for at, code in codes))
    return rows


def _bound(value: object) -> Bound:
    if isinstance(value, Bound):
        return value
    return Bound(str(value), Binding(BIGINT if isinstance(value, int) else VARCHAR))


def is_conflict(error: jpype.JException) -> bool:
    """A constraint was violated, and the transaction goes on: of a batch another statement may have met a deadlock, which ends it."""
    states = [state[:2] for state, _ in _said(error)]
    return "23" in states and _ROLLED_BACK not in states


def sorted_error(error: jpype.JException, at: str, *, answers: bool) -> HeadraceError:
    """An error of a driver by who must act."""
    told = [text for _, text in _said(error)] or [str(error)]
    kind, fix = _kind(error, answers=answers)
    return kind(f"JDBC target {at}: {told[0]}", fix=fix)


def _said(error: jpype.JException) -> list[tuple[str, str]]:
    """SQLSTATE and first line of each error of a chain, the one that has ended the transaction first; a batch says of itself only that
    something in it has failed."""
    found = []
    each: Java = error
    while isinstance(each, java("java.sql.SQLException")):
        lines = str(each.getMessage() or each.toString()).splitlines()
        text = lines[0].removesuffix("; SQL statement:") if lines else ""
        found.append((str(each.getSQLState() or ""), text))
        each = each.getNextException()
    is_batch = isinstance(error, java("java.sql.BatchUpdateException")) and len(found) > 1
    return sorted(found[1:] if is_batch else found, key=lambda said: not said[0].startswith(_ROLLED_BACK))


def _kind(error: jpype.JException, *, answers: bool) -> tuple[type[HeadraceError], str]:
    for state, _ in _said(error):
        for prefix, found in _STATES.items():
            if state.startswith(prefix):
                return found
    if not answers:
        return _AWAY
    for name, found in _CLASSES.items():
        if isinstance(error, java(f"java.sql.{name}")):
            return found
    return FatalError, "see the database's message; if it is not clear, report it with the flow file"


_AWAY: tuple[type[HeadraceError], str] = (RetryableError, "check that the server runs and can be reached from here")
_BUSY = (RetryableError, "another transaction stands in the way; end it if this goes on")
_LOGIN = (ConfigError, "correct `user`, `password` and the database in the sink's `url`, or create them on the server")
_GRANT = (ConfigError, "give the user the right to create and alter tables in the schema, and to write them")
_SCHEMA = (ConfigError, "create the schema, or correct `schema`")
_VALUE = (DataError, "correct the value at the source, or leave the column out with `columns: {drop: [...]}`")
_CONSTRAINT = (
    DataError,
    "remove the constraint that headrace did not create, or correct the row; keys that are one to the database cannot be two there",
)
_ANOTHER_TYPE = (DataError, "the target's column cannot become what it is now: drop the target table and load it again")
_CHANGED = (RetryableError, "somebody changed the target table; it is prepared again on the next try")
_STATES: dict[str, tuple[type[HeadraceError], str]] = {
    # The beginning of SQLSTATE; the first that fits. Numbers of five digits beyond the standard's are H2's own.
    "08004": _LOGIN,
    "08": _AWAY,
    "28": _LOGIN,
    "3D": _LOGIN,
    **dict.fromkeys(("3F", "90079", "42Y07"), _SCHEMA),
    "40": _BUSY,
    "41000": _BUSY,
    "HYT0": _BUSY,
    "90131": _BUSY,
    **dict.fromkeys(("90007", "90067", "90098", "90121"), _AWAY),
    "90096": _GRANT,
    **dict.fromkeys(("90013", "90146", "90149"), _LOGIN),
    "53100": (StorageError, "free space on the server's disk, then start again; nothing that was acknowledged is lost"),
    "22": _VALUE,
    "23": _CONSTRAINT,
    "42622": (
        ConfigError,
        "map the table to a shorter name with `table`, or drop the column with `columns: {drop: [...]}`",
    ),
    **dict.fromkeys(("42821", "42846"), _ANOTHER_TYPE),
    # A table or a column is not there: ODBC's states, PostgreSQL's, Derby's, HSQLDB's.
    **dict.fromkeys(("42S02", "42S22", "42P01", "42703", "42X04", "42X05", "42X14", "42501", "42Y55"), _CHANGED),
    **dict.fromkeys(("42500", "42502", "42503", "42504", "42505", "42506", "42507", "42508"), _GRANT),
}
_CLASSES: dict[str, tuple[type[HeadraceError], str]] = {
    "SQLTransientException": _BUSY,
    "SQLRecoverableException": _AWAY,
    "SQLNonTransientConnectionException": _AWAY,
    "SQLInvalidAuthorizationSpecException": _LOGIN,
    "SQLDataException": _VALUE,
    "SQLIntegrityConstraintViolationException": _CONSTRAINT,
}
