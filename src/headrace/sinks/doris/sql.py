"""A frontend's MySQL port: statements, and rows whose values come as the text that Doris sends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pymysql
from pymysql.cursors import Cursor, SSCursor

from headrace.errors import ConfigError, FatalError, HeadraceError, RetryableError
from headrace.sinks.doris.config import ClusterConfig

Row = Sequence[str | None]
_PAGE = 5000
_AWAY = {1040, 1053, 1105, 1158, 1159, 1160, 1161, 2002, 2003, 2006, 2013, 2014, 2055}
_DENIED = {1044, 1045, 1142, 1227, 1698}
_UNKNOWN_VARIABLE = 1193
_AS_TEXT: dict[Any, Any] = dict(pymysql.converters.encoders)  # no decoders: values stay what was sent


class Sql:
    """One connection, opened when it is used."""

    def __init__(self, config: ClusterConfig, database: str) -> None:
        self._config = config
        self._database = database
        self._connection: pymysql.Connection[Cursor] | None = None

    def run(self, statement: str, values: Sequence[object] = ()) -> list[Row]:
        """All rows of an answer."""
        with self._errors(), self._connected().cursor() as cursor:
            cursor.execute(statement, list(values) or None)
            return [list(row) for row in cursor.fetchall()]

    def pages(self, statement: str) -> Iterator[list[Row]]:
        """The rows of an answer, some thousand at a time, by a connection of their own."""
        with self._errors(), closing(self._opened()) as connection, connection.cursor(SSCursor) as cursor:
            cursor.execute(statement)
            while page := cursor.fetchmany(_PAGE):
                yield [list(row) for row in page]

    def close(self) -> None:
        """Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connected(self) -> pymysql.Connection[Cursor]:
        if self._connection is None or not self._connection.open:
            self._connection = self._opened()
        return self._connection

    def _opened(self) -> pymysql.Connection[Cursor]:
        host, _, port = self._config.query.rpartition(":")
        connection = pymysql.connect(
            host=host,
            port=int(port),
            user=self._config.user,
            password=self._config.password,
            database=self._database,
            autocommit=True,
            conv=_AS_TEXT,
            connect_timeout=max(1, round(self._config.timeout)),
            read_timeout=self._config.timeout,
            write_timeout=self._config.timeout,
            ssl=None if self._config.tls is None else self._config.tls.context(),
            ssl_disabled=self._config.tls is None,
        )
        with connection.cursor() as cursor:
            try:
                # A frontend that follows would answer with what it has heard of so far.
                cursor.execute("SET enable_strong_consistency_read = true")
            except pymysql.err.Error as error:
                if _number(error) != _UNKNOWN_VARIABLE:
                    raise
        return connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (pymysql.err.Error, OSError) as error:
            self.close()
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> HeadraceError:
        number = _number(error)
        said = f"the Doris frontend at {self._config.query} said: {error}"
        if number in _DENIED:
            return ConfigError(said, fix="correct `user` and `password`, and grant the user what it needs")
        if number == 1049:
            return ConfigError(said, fix=f"create the database: CREATE DATABASE `{self._database}`")
        if isinstance(error, OSError) or (number in _AWAY and "errCode" not in str(error)):
            return RetryableError(
                f"the Doris frontend at {self._config.query} is away: {error}", fix="start it, or correct `query`"
            )
        return FatalError(said, fix="see the frontend's log for the reason, then start again")


def _number(error: Exception) -> int:
    return int(error.args[0]) if error.args and isinstance(error.args[0], int) else 0


def quoted(name: str) -> str:
    """A name as statements have it."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """A text as statements have it, also where Doris takes no parameters."""
    escaped: str = pymysql.converters.escape_string(text)
    return f"'{escaped}'"
