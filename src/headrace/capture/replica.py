"""The network side of MySQL/MariaDB capture: a connection that asks the server for its binlog as a replica would.

PyMySQL carries connection, TLS and authentication. Once the dump has been asked for, the raw bytes of the socket go to the
native decoder in large pieces, which also takes the packets apart; nothing in Python touches a single event.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
import zlib
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pymysql
from pymysql.constants import CR, ER

from headrace.capture.mysql_config import Tls
from headrace.capture.position import FILE_START, BinlogPosition, first_event_seconds, newest_before
from headrace.codec.binlog import GtidSet
from headrace.errors import ConfigError, HeadraceError, RetryableError, SourceError

_BUFFER_BYTES = 4 << 20
_COM_REGISTER_SLAVE = 0x15
_COM_BINLOG_DUMP = 0x12
_COM_BINLOG_DUMP_GTID = 0x1E
_FORMAT_DESCRIPTION = 15
_SEND_ANNOTATE_ROWS = 0x02
_HEARTBEAT_S = 10
_READ_TIMEOUT_S = 3 * _HEARTBEAT_S
_LAST_OFFSET = 0xFFFF_FFFF

_GRANTS = "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'  (on MariaDB: REPLICATION SLAVE, BINLOG MONITOR)"
_WRONG_SETTINGS = {
    "log_bin": ("ON", "start the server with --log-bin"),
    "binlog_format": (
        "ROW",
        "SET GLOBAL binlog_format = 'ROW' and put binlog_format=ROW into the server's configuration",
    ),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = 'FULL' and put it into the server's configuration"),
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and who asks."""

    host: str
    port: int
    user: str
    password: str
    server_id: int
    tls: Tls | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Replica:
    """One connection to a server; first asks questions, then becomes a stream of binlog bytes."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: pymysql.Connection[Any] | None = None
        self._buffer = bytearray(_BUFFER_BYTES)
        self._filled = 0
        self._heard_at = 0.0
        self.server = ""
        """Which server answers: the same on every connection to it, another for every other server."""
        self.names_transactions = False
        """Transactions have GTIDs, and the server finds its place by them."""

    def connect(self) -> None:
        """Connects and logs in; RetryableError when the server is away, ConfigError when it refuses the login."""
        address = self._address
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
                **_tls_arguments(address.tls),
            )
        except pymysql.MySQLError as error:
            raise self._error("connect to", error) from error
        except OSError as error:
            raise ConfigError(
                f"could not encrypt the connection to {address}: {error}",
                fix="check the files in `tls` of the source, and that the server's certificate is for this host",
            ) from error
        self._learn_the_server()

    def check_settings(self) -> None:
        """SourceError when the server does not write its log so that it can be captured; says every wrong setting at once."""
        found = {
            name: str(value)
            for name, value in self._rows(
                "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'binlog_row_image')"
            )
        }
        replicates = not self._is_mariadb or bool(self._value("SELECT @@gtid_slave_pos"))
        updates = self._rows(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_slave_updates', 'log_replica_updates')"
        )
        wrong = [
            (f"{name} is {found.get(name, 'unknown to this server')}, not {wanted}", fix)
            for name, (wanted, fix) in _WRONG_SETTINGS.items()
            if found.get(name) != wanted
        ]
        if replicates and any(value == "OFF" for _, value in updates):
            fix = "start the server with log_replica_updates=ON (MariaDB: log_slave_updates), or read the primary"
            wrong.append((f"{updates[0][0]} is OFF: what it replicates is missing in its own log", fix))
        if wrong:
            raise SourceError(
                f"{self._address}: " + "; ".join(problem for problem, _ in wrong),
                fix="; ".join(fix for _, fix in wrong),
            )

    def first_position(self) -> BinlogPosition:
        """Where the oldest binlog that the server still has begins."""
        return BinlogPosition(self._files()[0], FILE_START, server=self.server)

    def last_position(self) -> BinlogPosition:
        """Where the server's binlog ends now."""
        older = self._is_mariadb or self._version < (8, 2)
        rows = self._rows("SHOW MASTER STATUS" if older else "SHOW BINARY LOG STATUS")
        if not rows:
            raise SourceError(f"{self._address} has no binlog", fix="start the server with --log-bin")
        file, offset = str(rows[0][0]), int(rows[0][1])
        if self._is_mariadb:
            gtids = str(self._value("SELECT BINLOG_GTID_POS(%s, %s)", (file, offset)) or "")
        else:
            gtids = str(rows[0][4]) if self.names_transactions else ""
        return BinlogPosition(file, offset, gtids=str(GtidSet(gtids)), server=self.server)

    def position_before(self, time: datetime) -> BinlogPosition:
        """The start of the newest file that was begun before `time`; of the oldest when all are younger."""
        return replace(self.first_position(), file=newest_before(self._files(), time, self._begun_at))

    def must_have(self, gtids: str) -> None:
        """The server can go on behind these transactions: it has all of them, and still has in its log all that came after.

        RetryableError while it lacks some (a standby that lags), SourceError when some that follow are purged.
        """
        wanted = GtidSet(gtids)
        if self._is_mariadb:
            # Not gtid_current_pos: that has replicated transactions too, which need not be in the binlog.
            executed, purged = str(self._value("SELECT @@gtid_binlog_pos")), ""
        else:
            executed, purged = self._rows("SELECT @@gtid_executed, @@gtid_purged")[0]
        missing = wanted - GtidSet(executed)
        if missing:
            raise RetryableError(
                f"{self._address} does not have all transactions that were captured: {missing} are missing",
                fix="let it catch up with the server that was read before; if they are lost there, capture it under a new source"
                " name and load the tables again",
            )
        gone = GtidSet(purged) - wanted
        if gone:
            raise SourceError(
                f"{self._address} has purged transactions that were not captured yet: {gone}",
                fix="load the tables again under a new source name; keep binlogs longer (binlog_expire_logs_seconds)",
            )

    def describes_tables(self) -> bool:
        """Whether the server writes names, keys and character sets into its log now (binlog_row_metadata=FULL)."""
        return self._rows("SHOW GLOBAL VARIABLES LIKE 'binlog_row_metadata'") == [("binlog_row_metadata", "FULL")]

    def tables(self) -> list[tuple[str, str]]:
        """Schema and name of every table that the user may see; views and the server's own tables left out."""
        rows = self._rows(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE NOT LIKE '%VIEW'"
            " AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
        )
        return [(str(schema), str(table)) for schema, table in rows]

    def schema_charsets(self) -> list[tuple[str, str]]:
        """The default character set of every schema that the user may see."""
        rows = self._rows("SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA")
        return [(str(schema), str(charset)) for schema, charset in rows]

    def create_statement(self, schema: str, table: str) -> str | None:
        """CREATE TABLE as the server tells it, with all that it implies; None when there is no such table any more, or the
        user may not read it."""
        self._rows("SET SESSION sql_mode = '', sql_quote_show_create = 1")
        name = ".".join(f"`{part.replace('`', '``')}`" for part in (schema, table))
        try:
            with self._connected().cursor() as cursor:
                cursor.execute(f"SHOW CREATE TABLE {name}")
                row = cursor.fetchone()
        except pymysql.MySQLError as error:
            if error.args and error.args[0] in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR, ER.TABLEACCESS_DENIED_ERROR):
                return None
            raise self._error(f"read the definition of {schema}.{table} at", error) from error
        return None if row is None else str(row[1])

    def start_dump(self, position: BinlogPosition) -> None:
        """Asks for everything from `position` on, by GTIDs where it has them; from now on only `read` makes sense."""
        connection = self._connected()
        heartbeat_ns = _HEARTBEAT_S * 1_000_000_000
        self._rows(f"SET @master_heartbeat_period = {heartbeat_ns}, @source_heartbeat_period = {heartbeat_ns}")
        self._rows("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
        self._rows("SET @mariadb_slave_capability = 4")
        server_id = self._address.server_id
        host = socket.gethostname().encode()[:60]
        register = struct.pack("<IB", server_id, len(host)) + host + b"\0\0" + struct.pack("<HII", 0, 0, 0)
        command, arguments = self._dump_command(position)
        try:
            # These two commands have no public face in PyMySQL.
            connection._execute_command(_COM_REGISTER_SLAVE, register)  # type: ignore[attr-defined]
            connection._read_packet()  # type: ignore[no-untyped-call]
            self._heard_at = time.monotonic()
            connection._execute_command(command, arguments)  # type: ignore[attr-defined]
        except pymysql.MySQLError as error:
            raise self._error("register as a replica at", error) from error

    def _dump_command(self, position: BinlogPosition) -> tuple[int, bytes]:
        """::

        COM_BINLOG_DUMP       offset u32 | flags u16 | server id u32 | file
        COM_BINLOG_DUMP_GTID  flags u16 | server id u32 | length u32, file | offset u64 | length u32, set of GTIDs
        """
        server_id = self._address.server_id
        by_name = self.names_transactions and position.gtids
        if by_name and not self._is_mariadb:
            gtids = GtidSet(position.gtids).to_wire()
            place = struct.pack("<HIIQI", 0, server_id, 0, FILE_START, len(gtids))
            return _COM_BINLOG_DUMP_GTID, place + gtids
        file, offset = position.file, position.offset
        if by_name:
            self._rows("SET @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0")
            self._rows("SET @slave_connect_state = %s", (position.gtids,))
            file, offset = "", FILE_START
        elif offset > _LAST_OFFSET:
            raise SourceError(
                f"{position} is beyond 4 GiB, where this server can start only by GTID",
                fix="switch GTIDs on (gtid_mode=ON), or set max_binlog_size to 1 GiB and start at the next file",
            )
        return _COM_BINLOG_DUMP, struct.pack("<IHI", offset, _SEND_ANNOTATE_ROWS, server_id) + file.encode()

    def another(self) -> Replica:
        """A connection of its own to the same server, to be closed before this one asks for its dump: the id is the same."""
        other = Replica(self._address)
        other.connect()
        return other

    def _begun_at(self, file: str) -> int:
        """When a file was begun: a connection of its own reads its format description, seconds since 1970 UTC."""
        other = self.another()
        try:
            other.start_dump(BinlogPosition(file, FILE_START))
            while True:
                data = bytes(other.read(_READ_TIMEOUT_S))
                while len(data) >= 4 and len(data) >= (end := 4 + int.from_bytes(data[:3], "little")):
                    payload, data = data[4:end], data[end:]
                    if payload[:1] != b"\0":
                        raise SourceError(
                            f"{self._address} does not send {file}: {payload[9:].decode(errors='replace')}",
                            fix="see the server's text and its error log",
                        )
                    if payload[5] == _FORMAT_DESCRIPTION:
                        return first_event_seconds(payload[1:])
        finally:
            other.close()

    def read(self, timeout_s: float) -> memoryview:
        """Bytes of the stream that were not consumed yet, after waiting up to `timeout_s` for more; valid until the next call."""
        sock: socket.socket = self._connected()._sock  # type: ignore[attr-defined]
        try:
            if not self._has_more(sock, timeout_s):
                self._must_not_be_silent()
            else:
                if self._filled == len(self._buffer):
                    self._buffer.extend(bytes(len(self._buffer)))
                with memoryview(self._buffer) as whole:
                    count = sock.recv_into(whole[self._filled :])
                if count == 0:
                    raise self._away("the server closed the connection")
                self._filled += count
                self._heard_at = time.monotonic()
        except OSError as error:
            raise self._away(str(error)) from error
        return memoryview(self._buffer)[: self._filled]

    def consumed(self, count: int) -> None:
        """The first `count` bytes of the last `read` are done with."""
        if count:
            self._buffer[: self._filled - count] = self._buffer[count : self._filled]
            self._filled -= count

    def close(self) -> None:
        if self._connection is not None:
            # Not `close()`: that would send a QUIT into the middle of the stream.
            self._connection._force_close()  # type: ignore[attr-defined]
            self._connection = None

    def _must_not_be_silent(self) -> None:
        """A server sends heartbeats; a connection without any is dead, though no end says so."""
        if time.monotonic() - self._heard_at > _READ_TIMEOUT_S:
            raise self._away(f"no heartbeat for {_READ_TIMEOUT_S} s")

    def _has_more(self, sock: socket.socket, timeout_s: float) -> bool:
        # TLS may hold decrypted bytes that select() does not see.
        pending = getattr(sock, "pending", None)
        return bool(pending and pending()) or bool(select.select([sock], [], [], timeout_s)[0])

    def _connected(self) -> pymysql.Connection[Any]:
        assert self._connection is not None, "connect first"
        return self._connection

    def _files(self) -> list[str]:
        return [str(row[0]) for row in self._rows("SHOW BINARY LOGS")]

    def _value(self, statement: str, arguments: tuple[object, ...] = ()) -> object:
        return self._rows(statement, arguments)[0][0]

    def _rows(self, statement: str, arguments: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._connected().cursor() as cursor:
                cursor.execute(statement, arguments or None)
                return list(cursor.fetchall())
        except pymysql.MySQLError as error:
            raise self._error(f"run `{statement}` at", error) from error

    def _learn_the_server(self) -> None:
        version = str(self._connected().get_server_info())  # type: ignore[no-untyped-call]
        self._is_mariadb = "MariaDB" in version
        major, minor = (int(part) for part in version.removeprefix("5.5.5-").split(".")[:2])
        self._version = (major, minor)
        if self._is_mariadb:
            self.server, self.names_transactions = f"server_id {self._value('SELECT @@server_id')}", True
        else:
            uuid, mode = self._rows("SELECT @@server_uuid, @@gtid_mode")[0]
            self.server, self.names_transactions = str(uuid), mode == "ON"

    def _error(self, action: str, error: pymysql.MySQLError) -> HeadraceError:
        code = error.args[0] if error.args else 0
        text = str(error.args[1]) if len(error.args) > 1 else str(error)
        user = self._address.user
        what = f"could not {action} {self._address} as {user}: {text}"
        if code in (ER.ACCESS_DENIED_ERROR, ER.HANDSHAKE_ERROR, ER.HOST_NOT_PRIVILEGED):
            return ConfigError(
                what, fix="check `user` and `password` of the source, and from where that user may log in"
            )
        if code in (ER.SPECIFIC_ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR):
            return SourceError(what, fix=_GRANTS.format(user=user))
        if code in (CR.CR_CONN_HOST_ERROR, CR.CR_SERVER_LOST, CR.CR_SERVER_GONE_ERROR, CR.CR_UNKNOWN_HOST) or code == 0:
            return self._away(text)
        return SourceError(what, fix="read the server's message above and its error log")

    def _away(self, reason: str) -> RetryableError:
        return RetryableError(
            f"the server {self._address} is away: {reason}",
            fix="start it or correct `host` and `port`; capture then goes on where it stopped",
        )


def _tls_arguments(tls: Tls | None) -> dict[str, Any]:
    if tls is None:
        return {"ssl_disabled": True}
    context = ssl.create_default_context(cafile=tls.ca)
    context.check_hostname = tls.verify == "identity"
    if tls.verify == "none":
        context.verify_mode = ssl.CERT_NONE
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    return {"ssl": context}


def default_server_id(source_name: str) -> int:
    """A replica id for a source that names none: the same every time, far above what people choose by hand."""
    return 0x8000_0000 | (zlib.crc32(source_name.encode()) & 0x7FFF_FFFF)
