"""The sink's `url` -> the dialect and the address: ``sqlite:///./mart.db``, ``duckdb:///./mart.duckdb``, ``postgresql://user:pw@host:port/db``,
``mysql://…``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from headrace.errors import ConfigError
from headrace.registry import missing_driver
from headrace.sinks.database.dialect import Address, Dialect


@dataclass(frozen=True, slots=True)
class _Scheme:
    target: str
    port: int
    options: frozenset[str]


_POSTGRESQL = _Scheme(
    "headrace.sinks.database.postgresql:PostgreSql",
    5432,
    frozenset({"sslmode", "sslrootcert", "sslcert", "sslkey", "application_name"}),
)
_MYSQL = _Scheme("headrace.sinks.database.mysql:MySql", 3306, frozenset({"ssl_ca", "ssl_cert", "ssl_key"}))
_SCHEMES = {
    "sqlite": _Scheme("headrace.sinks.database.sqlite:Sqlite", 0, frozenset()),
    "duckdb": _Scheme("headrace.sinks.database.duckdb:DuckDb", 0, frozenset({"memory_limit", "threads"})),
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
}
_FILES = {"sqlite": "SQLite", "duckdb": "DuckDB"}
"""Stores that are files."""
_EXAMPLES = "write sqlite:///./mart.db, duckdb:///./mart.duckdb, postgresql://user:password@host:5432/database or mysql://user:password@host:3306/database"


def dialect_of(url: str, schema: str | None) -> Dialect:
    """The dialect for a URL, not yet connected; ConfigError when the URL is not clear or the driver is not installed."""
    address = parse(url)
    if address.scheme == "sqlite" and schema is not None:
        raise ConfigError("SQLite has no schemas", fix="remove `schema`")
    if address.scheme in {"mysql", "mariadb"} and not (schema or address.database):
        raise ConfigError("the sink's `url` names no database", fix=_EXAMPLES)
    module, _, name = _SCHEMES[address.scheme].target.partition(":")
    try:
        made: Dialect = getattr(import_module(module), name)(address, schema)
    except ModuleNotFoundError as error:
        raise missing_driver(error) from error
    return made


def parse(url: str) -> Address:
    """The parts of a URL; no message shows the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"the sink's `url` cannot be read: {error}", fix=_EXAMPLES) from error
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None:
        raise ConfigError(
            f"the sink's `url` begins with '{parts.scheme}:', which is no known database",
            fix=f"use one of: {', '.join(_SCHEMES)}; {_EXAMPLES}",
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := sorted(options.keys() - scheme.options):
        raise ConfigError(
            f"the sink's `url` has the unknown option(s) {', '.join(unknown)}",
            fix=f"use one of: {', '.join(sorted(scheme.options)) or 'none'}",
        )
    if parts.scheme in _FILES:
        return _file(parts, options)
    if not parts.hostname:
        raise ConfigError("the sink's `url` names no host", fix=_EXAMPLES)
    return Address(
        parts.scheme,
        parts.hostname,
        port or scheme.port,
        unquote(parts.username or ""),
        unquote(parts.password or ""),
        unquote(parts.path.removeprefix("/")),
        options,
    )


def _file(parts: SplitResult, options: dict[str, str]) -> Address:
    path = unquote(parts.path.removeprefix("/"))
    if parts.netloc or not path:
        raise ConfigError(
            "the sink's `url` names no file",
            fix=f"write {parts.scheme}:///relative/path.db or {parts.scheme}:////absolute/path.db",
        )
    if path == ":memory:":
        raise ConfigError(
            f"a {_FILES[parts.scheme]} database in memory is gone when the sink closes",
            fix="name a file, or use a sink of type memory",
        )
    return Address(parts.scheme, "", 0, "", "", path, options)
