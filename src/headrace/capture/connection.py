"""A connection to a MySQL or MariaDB server: questions with their answers, and answers that are a stream of raw bytes.

PyMySQL carries connection, TLS and authentication, and answers questions of a few rows. Streams (the binlog, the rows of whole
tables) go past it: the bytes of the socket reach a native reader in large pieces, which also takes the packets apart.
"""

from __future__ import annotations

import select
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.constants import CR, ER

from headrace.errors import ConfigError, HeadraceError, RetryableError, SourceError, TableChangedError
from headrace.tls import Tls

_BUFFER_BYTES = 1 << 20
"""As much as stays in the processor's caches from the socket to the native reader; longer packets make it grow."""
_READ_TIMEOUT_S = 30
_MARIADB_CONNECTION_KILLED = 1927

GRANTS = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'  (on MariaDB: REPLICATION SLAVE, BINLOG MONITOR)"
"""What a user needs who reads the log."""
_LOST = (CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_LOST, CR.CR_SERVER_GONE_ERROR, CR.CR_UNKNOWN_HOST, 0)
_SORTED: tuple[tuple[tuple[int, ...], type[HeadraceError], str], ...] = (
    (
        (ER.ACCESS_DENIED_ERROR, ER.HANDSHAKE_ERROR, ER.HOST_NOT_PRIVILEGED),
        ConfigError,
        "check `user` and `password` of the source, and from where that user may log in",
    ),
    (
        (ER.SPECIFIC_ACCESS_DENIED_ERROR,),
        SourceError,
        GRANTS,
    ),
    (
        (ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR),
        SourceError,
        "GRANT SELECT ON *.* TO '{user}'@'%'  (or on the schemas and tables that are read)",
    ),
    (
        (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR, ER.BAD_FIELD_ERROR, ER.TABLE_DEF_CHANGED),
        TableChangedError,
        "look what the table is now, and read it as that",
    ),
    (
        (
            ER.SERVER_SHUTDOWN,
            ER.CON_COUNT_ERROR,
            ER.LOCK_WAIT_TIMEOUT,
            ER.LOCK_DEADLOCK,
            ER.QUERY_INTERRUPTED,
            _MARIADB_CONNECTION_KILLED,
        ),
        RetryableError,
        "nothing, when it succeeds later; else see who ends it at the server",
    ),
)
"""Error codes, who must act, and what to do."""
_UNKNOWN: tuple[type[HeadraceError], str] = (SourceError, "read the server's message above and its error log")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and who asks."""

    host: str
    port: int
    user: str
    password: str
    tls: Tls | None = None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection:
    """Asks questions, one after the other; between `stream` and the end of what it sends only `read` and `consumed` make sense."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.is_mariadb = False
        self.version = (0, 0)
        """Major and minor."""
        self._connection: pymysql.Connection[Any] | None = None
        self._buffer = bytearray()
        self._filled = 0
        self._silence_s = 0.0
        self._heard_at = 0.0
        self._is_stream = False

    def connect(self) -> None:
        """Connects and logs in; RetryableError when the server is away, ConfigError when it refuses the login."""
        address = self.address
        encryption: dict[str, Any] = {"ssl_disabled": True} if address.tls is None else {"ssl": address.tls.context()}
        try:
            self._connection = pymysql.connect(
                host=address.host,
                port=address.port,
                user=address.user,
                # As bytes: PyMySQL would encode text as latin1.
                password=address.password.encode(),
                connect_timeout=10,
                read_timeout=_READ_TIMEOUT_S,
                write_timeout=10,
                charset="utf8mb4",
                autocommit=True,
                **encryption,
            )
        except pymysql.MySQLError as error:
            cause = getattr(error, "original_exception", None)
            if _is_wrong_tls(cause) or error.args[0] == CR.CR_SSL_CONNECTION_ERROR:
                raise ConfigError(
                    f"could not encrypt the connection to {address}: {cause or error.args[1]}",
                    fix="check `tls` of the source: its files, that `ca` has signed the server's certificate, and that it is"
                    " for this host",
                ) from error
            raise self._error("connect to", error) from error
        version = str(self._connection.get_server_info())  # type: ignore[no-untyped-call]
        self.is_mariadb = "MariaDB" in version
        major, minor = (int(part) for part in version.removeprefix("5.5.5-").split(".")[:2])
        self.version = (major, minor)

    def rows(self, statement: str, arguments: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        """Everything that a statement answers; errors as in `error`."""
        try:
            with self._connected().cursor() as cursor:
                cursor.execute(statement, arguments or None)
                return list(cursor.fetchall())
        except pymysql.MySQLError as error:
            raise self._error(f"run `{statement}` at", error) from error

    def value(self, statement: str, arguments: tuple[object, ...] = ()) -> object:
        return self.rows(statement, arguments)[0][0]

    def write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        """Runs an INSERT of one row with many, in statements as large as they may be; errors as in `error`."""
        try:
            with self._connected().cursor() as cursor:
                cursor.executemany(statement, rows)
        except pymysql.MySQLError as error:
            raise self._error("write at", error) from error

    def create_statement(self, schema: str, table: str) -> str | None:
        """CREATE TABLE as the server tells it, with all that it implies; None when there is no such table any more, or the
        user may not read it."""
        self.rows("SET SESSION sql_mode = '', sql_quote_show_create = 1")
        try:
            with self._connected().cursor() as cursor:
                cursor.execute(f"SHOW CREATE TABLE {quoted(schema)}.{quoted(table)}")
                row = cursor.fetchone()
        except pymysql.MySQLError as error:
            if error.args and error.args[0] in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR, ER.TABLEACCESS_DENIED_ERROR):
                return None
            raise self._error(f"read the definition of {schema}.{table} at", error) from error
        return None if row is None else str(row[1])

    def can_read(self, schema: str, table: str) -> bool:
        """Whether the user may select from a table; True of one that is not there any more."""
        try:
            with self._connected().cursor() as cursor:
                cursor.execute(f"SELECT 1 FROM {quoted(schema)}.{quoted(table)} LIMIT 0")  # noqa: S608 - quoted
        except pymysql.MySQLError as error:
            if error.args and error.args[0] in (ER.TABLEACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR):
                return False
            if not error.args or error.args[0] != ER.NO_SUCH_TABLE:
                raise self._error(f"read {schema}.{table} at", error) from error
        return True

    def command(self, code: int, arguments: bytes, action: str) -> None:
        """Sends a command of the protocol that has no public face in PyMySQL; `action` says in errors what it is for."""
        try:
            self._connected()._execute_command(code, arguments)  # type: ignore[attr-defined]
        except pymysql.MySQLError as error:
            raise self._error(action, error) from error

    def packet(self, action: str) -> bytes:
        """The next packet that a command answers; an answer that is an error is raised (`error`)."""
        try:
            return bytes(self._connected()._read_packet().get_all_data())  # type: ignore[no-untyped-call]
        except pymysql.MySQLError as error:
            raise self._error(action, error) from error

    def stream(self, silence_s: float) -> None:
        """What the newest command answers is read as raw bytes from now on; a server that says nothing for so long is away."""
        if not self._buffer:
            self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self._is_stream = True
        self._silence_s = silence_s
        self._heard_at = time.monotonic()

    def read(self, timeout_s: float) -> memoryview:
        """Bytes of the stream that were not consumed yet, after waiting up to `timeout_s` for more; valid until the next call.

        RetryableError when the server is away.
        """
        sock: socket.socket = self._connected()._sock  # type: ignore[attr-defined]
        try:
            if not _has_more(sock, timeout_s):
                if time.monotonic() - self._heard_at > self._silence_s:
                    raise self.away(f"it said nothing for {self._silence_s:g} s")
            else:
                if self._filled == len(self._buffer):  # another one: the last view of this one may still be held
                    grown = bytearray(2 * len(self._buffer))
                    grown[: self._filled] = self._buffer
                    self._buffer = grown
                with memoryview(self._buffer) as whole:
                    count = sock.recv_into(whole[self._filled :])
                if count == 0:
                    raise self.away("the server closed the connection")
                self._filled += count
                self._heard_at = time.monotonic()
        except OSError as error:
            raise self.away(str(error)) from error
        return memoryview(self._buffer)[: self._filled]

    def consumed(self, count: int) -> None:
        """The first `count` bytes of the last `read` are done with."""
        if count:
            self._buffer[: self._filled - count] = self._buffer[count : self._filled]
            self._filled -= count

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    def close(self) -> None:
        if self._connection is not None:
            if self._is_stream or not self._connection.open:
                # Not `close()`: that would send a QUIT into the middle of the stream.
                self._connection._force_close()  # type: ignore[attr-defined]
            else:
                # With a QUIT, as the server would note an aborted connection for each heartbeat.
                self._connection.close()
            self._connection = None

    def error(self, action: str, code: int, text: str) -> HeadraceError:
        """An error of the server or of the way to it, sorted by who must act.

        ConfigError: the login is refused. RetryableError: the server is away, or what it did was interrupted. TableChangedError: a
        table, or a column, is not there. SourceError: a right is missing, and everything else.
        """
        if code in _LOST:
            return self.away(text)
        user = self.address.user
        found = ((class_, fix) for codes, class_, fix in _SORTED if code in codes)
        class_, fix = next(found, _UNKNOWN)
        return class_(f"could not {action} {self.address} as {user}: {text}", fix=fix.format(user=user))

    def away(self, reason: str) -> RetryableError:
        return RetryableError(
            f"the server {self.address} is away: {reason}",
            fix="start it or correct `host` and `port`; capture then goes on where it stopped",
        )

    def _error(self, action: str, error: pymysql.MySQLError) -> HeadraceError:
        code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        return self.error(action, code, str(error.args[1]) if len(error.args) > 1 else str(error))

    def _connected(self) -> pymysql.Connection[Any]:
        assert self._connection is not None, "connect first"
        return self._connection


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return f"`{name.replace('`', '``')}`"


def _has_more(sock: socket.socket, timeout_s: float) -> bool:
    # TLS may hold decrypted bytes that select() does not see.
    pending = getattr(sock, "pending", None)
    return bool(pending and pending()) or bool(select.select([sock], [], [], timeout_s)[0])


def _is_wrong_tls(cause: object) -> bool:
    """Certificates or versions do not fit. A connection that merely broke is an outage."""
    return isinstance(cause, ssl.SSLError) and not isinstance(cause, (ssl.SSLEOFError, ssl.SSLZeroReturnError))
