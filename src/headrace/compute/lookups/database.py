"""Lookups in PostgreSQL, MySQL, MariaDB, SQLite and whatever else SQLAlchemy has a dialect for: one SELECT for some thousand keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import (
    ColumnClause,
    ColumnElement,
    Engine,
    bindparam,
    column,
    create_engine,
    func,
    select,
    table,
    tuple_,
)
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError, ProgrammingError

from headrace.compute.lookups.base import Key, Lookup, Values
from headrace.errors import ConfigError, FatalError, HeadraceError, RetryableError
from headrace.model import Component, StoreUrl
from headrace.own_database import DRIVERS
from headrace.registry import missing_driver

_KEYS_TOGETHER = {"sqlite": 30_000}
"""How many parameters a statement may have; others take more than they get."""


class DatabaseLookupConfig(Component):
    """Looks rows up in a table of a database."""

    type: Literal["database"]
    url: StoreUrl
    """``postgresql://user:password@host:5432/database``, ``mysql://…``, ``sqlite:///./file.db``."""
    table: Annotated[str, Field(min_length=1)]
    """The table or view."""
    db_schema: Annotated[str | None, Field(alias="schema")] = None
    """Its schema; the connection's own when left out."""


class DatabaseLookup(Lookup):
    """One connection, which reads what is committed."""

    Config = DatabaseLookupConfig

    def __init__(self, config: DatabaseLookupConfig, on: Sequence[str], take: Sequence[str]) -> None:
        self._config = config
        self._on: list[ColumnClause[object]] = [column(name) for name in on]
        self._query = select(*self._on, *(column(name) for name in take)).select_from(
            table(config.table, schema=config.db_schema)
        )
        self._engine: Engine | None = None

    def find(self, keys: Sequence[Key]) -> Iterable[tuple[Key, Values]]:
        width = len(self._on)
        try:
            engine = self._engine = self._engine or _engine(self._config.url)
            _require_file(engine)
            step = _KEYS_TOGETHER.get(engine.dialect.name, len(keys) * width) // width
            with engine.connect() as connection:
                for first in range(0, len(keys) or 1, step or 1):
                    wanted = self._is_one_of(keys[first : first + step], engine.dialect.name)
                    for row in connection.execute(self._query.where(wanted)).fetchall():
                        yield tuple(row[:width]), tuple(row[width:])
        except DBAPIError as error:
            raise self._error(error) from error

    def close(self) -> None:
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None

    def _is_one_of(self, keys: Sequence[Key], dialect: str) -> ColumnElement[bool]:
        if len(self._on) == 1 and keys and dialect == "postgresql":
            # One parameter instead of thousands, which PostgreSQL would plan one by one.
            return self._on[0] == func.any(bindparam("keys", [key[0] for key in keys]))
        if len(self._on) == 1:
            return self._on[0].in_([key[0] for key in keys])
        return tuple_(*self._on).in_(keys)

    def _error(self, error: DBAPIError) -> HeadraceError:
        assert error.orig is not None
        told, where = str(error.orig).strip().splitlines()[0], f"the lookup in {self._config.table}"
        if (
            isinstance(error, ProgrammingError)
            or error.orig.args[0] in _MYSQL_REFUSES
            or any(text in told for text in _REFUSES)
        ):
            return ConfigError(f"{where} is refused: {told}", fix="correct `url`, `table`, `on` and `take` of the step")
        if isinstance(error, OperationalError):
            return RetryableError(
                f"the database of {where} is away: {told}", fix="start it, or correct `url` of the step"
            )
        return FatalError(f"{where} fails: {told}", fix="see what the database says; the types of `on` must fit")


_MYSQL_REFUSES = {1044, 1045, 1049, 1054, 1142, 1143, 1146}
"""Numbers of errors that the driver counts among outages: no right, no such database, table or column."""
_REFUSES = ("no such", "authentication failed", "does not exist")
"""What SQLite and PostgreSQL say of the same."""


def _require_file(engine: Engine) -> None:
    """SQLite would make a file that is not there."""
    path = engine.url.database
    if engine.dialect.name == "sqlite" and path and not Path(path).exists():
        raise RetryableError(
            f"the file of a lookup, {path}, is not there", fix="bring it, or correct `url` of the step"
        )


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        engine = create_engine(
            parsed.set(drivername=DRIVERS.get(parsed.drivername, parsed.drivername)),
            pool_pre_ping=True,
            isolation_level="AUTOCOMMIT",
        )
    except ModuleNotFoundError as error:
        raise missing_driver(error) from error
    except (ArgumentError, NoSuchModuleError) as error:
        raise ConfigError(
            "the `url` of a lookup is no URL of a database that can be looked into",
            fix="write postgresql://user:password@host/database, mysql://user:password@host/database or sqlite:///FILE",
        ) from error
    return engine
