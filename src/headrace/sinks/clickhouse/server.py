"""The connection to ClickHouse: statements over HTTP, rows as Arrow, and the client's errors as ours."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import unquote, urlsplit

import clickhouse_connect
import pyarrow as pa
import urllib3
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError
from pydantic import Field, field_validator

from headrace.errors import ConfigError, DataError, FatalError, HeadraceError, RetryableError, StorageError
from headrace.model import Duration, Model
from headrace.tls import Tls

# What the client has to say comes as an error of ours; it would write each lost connection on the screen as well.
logging.getLogger("clickhouse_connect").addHandler(logging.NullHandler())
logging.getLogger("clickhouse_connect").propagate = False

_PORTS = {"http": 8123, "https": 8443}
_INSERT_SETTINGS = {"async_insert": "0", "insert_deduplicate": "0"}
"""What is acknowledged is in the table, also when the same rows come a second time."""
_MUTATION_SETTINGS = {"mutations_sync": "2"}
_TEXT_SETTINGS = {"output_format_arrow_string_as_string": "1"}
_BINARY_SETTINGS = {"output_format_arrow_string_as_string": "0"}


class ServerConfig(Model):
    """How a server is reached."""

    url: str
    """``http://host:8123/database`` or ``https://…``; the database must exist, and is `default` when none is named."""
    user: str = "default"
    """The user's name."""
    password: str = ""
    """The user's password, best from the environment: ``${CLICKHOUSE_PASSWORD}``."""
    tls: Tls | None = None
    """Which authority vouches for an ``https://`` server, where that is not one that the machine knows."""
    timeout: Annotated[Duration, Field(gt=0)] = 60.0
    """How long the server may take for an answer before that counts as an outage."""

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            parts, port = urlsplit(""), None
        if parts.scheme not in _PORTS or not parts.hostname or port == 0 or parts.username or parts.query:
            raise ValueError(
                "write `url: http://host:8123/database` or https://…; user and password have settings of their own"
            )
        return url


class Server:
    """One client of one server; connects with the first statement."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        parts = urlsplit(config.url)
        self._parts = parts
        self.database = unquote(parts.path.strip("/")) or "default"
        self._client: Client | None = None

    @property
    def _open(self) -> Client:
        if self._client is None:
            parts, tls = self._parts, self._config.tls
            self._client = clickhouse_connect.get_client(
                host=parts.hostname,
                port=parts.port or _PORTS[parts.scheme],
                interface=parts.scheme,
                username=self._config.user,
                password=self._config.password,
                database=self.database,
                compress=False,
                query_limit=0,
                query_retries=0,  # the flow tries again
                connect_timeout=min(10, max(1, round(self._config.timeout))),
                send_receive_timeout=max(1, round(self._config.timeout)),
                autogenerate_session_id=False,  # sinks of one process work beside each other
                ca_cert=None if tls is None or tls.ca is None else str(tls.ca),
                client_cert=None if tls is None or tls.certificate is None else str(tls.certificate),
                client_cert_key=None if tls is None or tls.key is None else str(tls.key),
            )
        return self._client

    def close(self) -> None:
        """Ends the connection. Idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def run(self, statement: str) -> None:
        """Runs a statement that has no answer; ALTER … UPDATE returns when all parts are changed."""
        self._open.command(statement, settings=_MUTATION_SETTINGS)

    def select(self, statement: str) -> pa.Table:
        """The rows of a SELECT, of which there are few."""
        content = self._open.raw_query(statement, fmt="ArrowStream", settings=_TEXT_SETTINGS)
        return pa.ipc.open_stream(content).read_all()

    def stream(self, statement: str) -> Iterator[pa.RecordBatch]:
        """The rows of a SELECT, block by block; strings come as binary."""
        with self._open.raw_stream(statement, fmt="ArrowStream", settings=_BINARY_SETTINGS) as content:
            yield from pa.ipc.open_stream(content)

    def insert(self, table: str, rows: pa.Table) -> None:
        """Adds rows to a table, whose name is SQL; they are in it, as one part or a few, on return."""
        # The client's own insert_arrow does the same, and imports pandas where that is installed.
        content = pa.BufferOutputStream()
        with pa.ipc.new_file(content, rows.schema) as file:
            file.write_table(rows)
        block = content.getvalue().to_pybytes()
        self._open.raw_insert(table, rows.column_names, block, settings=_INSERT_SETTINGS, fmt="Arrow")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the client raises becomes an error of ours."""
        try:
            yield
        except (ClickHouseError, urllib3.exceptions.HTTPError, OSError) as error:
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> HeadraceError:
        at = f"ClickHouse at {self._parts.hostname}:{self._parts.port or _PORTS[self._parts.scheme]}"
        code = getattr(error, "code", None)
        if code is None and isinstance(error, OperationalError | urllib3.exceptions.HTTPError | OSError):
            return RetryableError(f"{at} is away: {error}", fix="start it, or correct `url`")
        kind, fix = _ERRORS.get(
            code or 0, (FatalError, "see ClickHouse's message; if it is not clear, report it with the flow file")
        )
        return kind(f"{at}, database {self.database}: {error}", fix=fix)


_LOGIN = ConfigError, "correct `user` and `password`"
_CHANGED = RetryableError, "somebody changed the target table; it is prepared again on the next try"
_BUSY = RetryableError, "look at the server's load; headrace tries again"
_VALUE = DataError, "correct the value at the source, or leave the column out with `columns: {drop: [...]}`"
_ERRORS: dict[int, tuple[type[HeadraceError], str]] = {
    # ClickHouse's numbers of errors: src/Common/ErrorCodes.cpp there
    6: _VALUE,  # CANNOT_PARSE_TEXT
    10: _CHANGED,  # NOT_FOUND_COLUMN_IN_BLOCK
    15: _CHANGED,  # DUPLICATE_COLUMN
    16: _CHANGED,  # NO_SUCH_COLUMN_IN_TABLE
    36: _VALUE,  # BAD_ARGUMENTS
    38: _VALUE,  # CANNOT_PARSE_DATE
    41: _VALUE,  # CANNOT_PARSE_DATETIME
    47: _CHANGED,  # UNKNOWN_IDENTIFIER
    60: _CHANGED,  # UNKNOWN_TABLE
    69: _VALUE,  # ARGUMENT_OUT_OF_BOUND
    70: _VALUE,  # CANNOT_CONVERT_TYPE
    81: (ConfigError, "create the database, or correct the sink's `url`"),  # UNKNOWN_DATABASE
    159: _BUSY,  # TIMEOUT_EXCEEDED
    192: _LOGIN,  # UNKNOWN_USER
    193: _LOGIN,  # WRONG_PASSWORD
    202: _BUSY,  # TOO_MANY_SIMULTANEOUS_QUERIES
    209: _BUSY,  # SOCKET_TIMEOUT
    210: _BUSY,  # NETWORK_ERROR
    241: _BUSY,  # MEMORY_LIMIT_EXCEEDED
    242: _BUSY,  # TABLE_IS_READ_ONLY
    243: (StorageError, "free space on the server's disk"),  # NOT_ENOUGH_SPACE
    252: (
        RetryableError,
        "raise `commit_interval` of the flow's target, so that it writes fewer and larger parts",
    ),  # TOO_MANY_PARTS
    407: _VALUE,  # DECIMAL_OVERFLOW
    497: (
        ConfigError,
        "grant the user CREATE TABLE, ALTER, DROP TABLE, SELECT and INSERT on the database",
    ),  # ACCESS_DENIED
    516: _LOGIN,  # AUTHENTICATION_FAILED
    999: _BUSY,  # KEEPER_EXCEPTION
}
