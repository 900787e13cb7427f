"""A database in which headrace keeps what it must not forget (not a target): SQLite on one machine, PostgreSQL or MySQL for more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, MetaData, Table, create_engine, event, inspect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError, NoSuchModuleError, OperationalError
from sqlalchemy.schema import CreateTable

from headrace.errors import ConfigError, FatalError, HeadraceError, RetryableError

DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "mariadb": "mariadb+pymysql"}


class OwnDatabase:
    """The base of stores: each of their methods is a transaction."""

    def __init__(self, url: str, tables: MetaData, what: str) -> None:
        """Opens nothing yet. `what`: what messages call it, "store of watermarks"."""
        self._tables = tables
        self._what = what
        self._engine = _engine_of(url, what)

    def open(self) -> None:
        """Makes the tables that are missing.

        Another process that opens the same database may make them at the same moment. MySQL waits for it, as it is told IF NOT EXISTS; PostgreSQL fails all the
        same when the other one has committed. So an error counts only when nothing has been made meanwhile, which comes to an end.
        """
        while missing := self._missing():
            try:
                with self._transaction() as connection:
                    for table in missing:
                        connection.execute(CreateTable(table, if_not_exists=True))
            except HeadraceError:
                if self._missing() == missing:
                    raise

    def close(self) -> None:
        """Idempotent."""
        self._engine.dispose()

    def _missing(self) -> list[Table]:
        """In the order of what refers to what."""
        with self._transaction() as connection:
            there = inspect(connection).get_table_names()
        return [table for table in self._tables.sorted_tables if table.name not in there]

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        """Commits at the end. RetryableError when the database cannot be reached."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except OperationalError as error:
            raise RetryableError(
                f"the {self._what} {self._engine.url!r} cannot be used: {error.orig}",
                fix="look whether the database is up and reachable; nothing goes on without it",
            ) from error
        except IntegrityError as error:
            raise RetryableError(
                f"another process has written the same to the {self._what} at the same moment", fix="try again"
            ) from error
        except DBAPIError as error:
            raise FatalError(
                f"the {self._what} {self._engine.url!r} refuses: {error.orig}",
                fix="look at the user's rights; headrace makes its own tables",
            ) from error


def _engine_of(url: str, what: str) -> Engine:
    try:
        parsed = make_url(url)
        engine = create_engine(
            parsed.set(drivername=DRIVERS.get(parsed.drivername, parsed.drivername)), pool_pre_ping=True
        )
    except (ArgumentError, NoSuchModuleError) as error:
        raise ConfigError(
            f"the {what} is no URL of a database",
            fix="write sqlite:///FILE, postgresql://user:password@host/database or mysql://user:password@host/database",
        ) from error
    if engine.dialect.name == "sqlite":
        _make_sqlite_strict(engine)
    return engine


def _make_sqlite_strict(engine: Engine) -> None:
    """Durable at each commit, and locked for writing from a transaction's begin: what it reads cannot change under it."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: object, _: object) -> None:
        connection.isolation_level = None  # type: ignore[attr-defined]
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 30000"):
            connection.execute(f"PRAGMA {pragma}")  # type: ignore[attr-defined]

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
