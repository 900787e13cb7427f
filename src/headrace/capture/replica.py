"""The network side of MySQL/MariaDB capture: a connection that asks the server for its binlog as a replica would.

Once the dump has been asked for, the raw bytes of the connection go to the native decoder; nothing in Python touches a single
event.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from headrace.capture.connection import GRANTS, Address, Connection
from headrace.capture.position import FILE_START, BinlogPosition, first_event_seconds, newest_before
from headrace.codec.binlog import GtidSet
from headrace.errors import ConfigError, SourceError

_COM_REGISTER_SLAVE = 0x15
_COM_BINLOG_DUMP = 0x12
_COM_BINLOG_DUMP_GTID = 0x1E
_FORMAT_DESCRIPTION = 15
_SEND_ANNOTATE_ROWS = 0x02
_HEARTBEAT_S = 10
_SILENCE_S = 3 * _HEARTBEAT_S
_LAST_OFFSET = 0xFFFF_FFFF

OWN_HOST = socket.gethostname()[:60]
"""The host that servers are told when a replica registers."""


class Replica:
    """One connection to a server; first asks questions, then becomes a stream of binlog bytes."""

    def __init__(self, address: Address, server_id: int) -> None:
        """`server_id`: under which the server knows this replica."""
        self._address = address
        self._server_id = server_id
        self.connection = self._connection = Connection(address)
        """For other questions than those below."""
        self.server = ""
        """Which server answers: the same on every connection to it, another for every other server."""
        self.names_transactions = False
        """Transactions have GTIDs, and the server finds its place by them."""

    def connect(self) -> None:
        """Connects and logs in; RetryableError when the server is away, ConfigError when it refuses the login."""
        self._connection.connect()
        if self._connection.is_mariadb:
            self.server, self.names_transactions = f"server_id {self._value('SELECT @@server_id')}", True
        else:
            uuid, mode = self._rows("SELECT @@server_uuid, @@gtid_mode")[0]
            self.server, self.names_transactions = str(uuid), mode == "ON"

    def variables(self, *names: str) -> dict[str, str]:
        """The global settings of these names that the server knows."""
        listed = ", ".join(f"'{name}'" for name in names)
        rows = self._rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({listed})")
        return {str(name): str(value) for name, value in rows}

    @property
    def address(self) -> Address:
        """Where it is, and who asks."""
        return self._address

    @property
    def replicates(self) -> bool:
        """Whether it may get changes from another server. MySQL shows only to users with more rights that it does not."""
        return not self._connection.is_mariadb or bool(self._value("SELECT @@gtid_slave_pos"))

    @property
    def own_id(self) -> int:
        """The server's own id, which no replica of it may have."""
        return int(str(self._value("SELECT @@server_id")))

    def replicas(self) -> list[tuple[int, str]]:
        """Id and host of every replica that is connected; SourceError when the user may not see them."""
        older = self._connection.is_mariadb or self._connection.version < (8, 1)
        return [(int(row[0]), str(row[1])) for row in self._rows("SHOW SLAVE HOSTS" if older else "SHOW REPLICAS")]

    def first_position(self) -> BinlogPosition:
        """Where the oldest binlog that the server still has begins."""
        return BinlogPosition(self._files()[0], FILE_START, server=self.server)

    def last_position(self) -> BinlogPosition:
        """Where the server's binlog ends now."""
        end = self.end_for_comparison()
        if not self._connection.is_mariadb:
            return end
        gtids = self._value("SELECT BINLOG_GTID_POS(%s, %s)", (end.file, end.offset))
        return replace(end, gtids=str(GtidSet(str(gtids or ""))))

    def clock_us(self) -> int:
        """The server's clock, by which it gives commit times, µs since 1970 UTC."""
        return int(str(self._value("SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)")))

    def end_for_comparison(self) -> BinlogPosition:
        """As `last_position`, and cheap: MariaDB would read its log for it. Its GTIDs may be newer than the place there; those of
        MySQL may lack the last before it, which are in the log and not yet counted as executed; the decoder passes over them when they come."""
        status = self._status()
        if self._connection.is_mariadb:
            gtids = str(self._value("SELECT @@gtid_binlog_pos"))
        else:
            gtids = str(status[4]) if self.names_transactions else ""
        return BinlogPosition(str(status[0]), int(str(status[1])), gtids=str(GtidSet(gtids)), server=self.server)

    def writes(self, schema: str) -> bool:
        """Whether changes in a schema come into the binlog at all, or are left out by --binlog-do-db or --binlog-ignore-db."""
        only, ignored = (str(names).split(",") if names else [] for names in self._status()[2:4])
        return schema in only if only else schema not in ignored

    def _status(self) -> tuple[object, ...]:
        older = self._connection.is_mariadb or self._connection.version < (8, 2)
        rows = self._rows("SHOW MASTER STATUS" if older else "SHOW BINARY LOG STATUS")
        if not rows:
            raise SourceError(f"{self._address} has no binlog", fix="start the server with --log-bin")
        return rows[0]

    def position_before(self, time: datetime) -> BinlogPosition:
        """The start of the newest file that was begun before `time`; of the oldest when all are younger."""
        return replace(self.first_position(), file=newest_before(self._files(), time, self._begun_at))

    def sizes(self) -> dict[str, int]:
        """The files of the server's binlog, oldest first, and how many bytes they have now."""
        return {str(row[0]): int(row[1]) for row in self._rows("SHOW BINARY LOGS")}

    def missing_of(self, gtids: str) -> str:
        """Those of some transactions that the server does not have in its log, and never had; empty when there are none."""
        # Of MariaDB not gtid_current_pos: that has replicated transactions too, which need not be in the binlog.
        executed = self._value("SELECT @@gtid_binlog_pos" if self._connection.is_mariadb else "SELECT @@gtid_executed")
        return str(GtidSet(gtids) - GtidSet(str(executed)))

    def purged_behind(self, gtids: str) -> str:
        """The transactions that are not among `gtids` and not in the server's log any more; empty when there are none."""
        if self._connection.is_mariadb:
            purged = self._value("SELECT BINLOG_GTID_POS(%s, %s)", (self._files()[0], FILE_START))
        else:
            purged = self._value("SELECT @@gtid_purged")
        return str(GtidSet(str(purged or "")) - GtidSet(gtids))

    def describes_tables(self) -> bool:
        """Whether the server writes names, keys and character sets into its log now (binlog_row_metadata=FULL)."""
        return self.variables("binlog_row_metadata") == {"binlog_row_metadata": "FULL"}

    def tables(self) -> list[tuple[str, str]]:
        """Schema and name of every table that the user may see; views and the server's own tables left out."""
        rows = self._rows(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE NOT LIKE '%VIEW'"
            " AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
        )
        return [(str(schema), str(table)) for schema, table in rows]

    def columns(self) -> list[tuple[str, str, str, bool]]:
        """Schema, table, name of every column that the user may see, and whether it is of the primary key."""
        rows = self._rows("SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_KEY FROM information_schema.COLUMNS")
        return [(str(schema), str(table), str(column), key == "PRI") for schema, table, column, key in rows]

    def schema_charsets(self) -> list[tuple[str, str]]:
        """The default character set of every schema that the user may see."""
        rows = self._rows("SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME FROM information_schema.SCHEMATA")
        return [(str(schema), str(charset)) for schema, charset in rows]

    def create_statement(self, schema: str, table: str) -> str | None:
        """As `Connection.create_statement`."""
        return self._connection.create_statement(schema, table)

    def write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        """As `Connection.write`."""
        self._connection.write(statement, rows)

    def start_dump(self, position: BinlogPosition) -> None:
        """Asks for everything from `position` on, by GTIDs where it has them; from now on only `read` makes sense."""
        heartbeat_ns = _HEARTBEAT_S * 1_000_000_000
        self._rows(f"SET @master_heartbeat_period = {heartbeat_ns}, @source_heartbeat_period = {heartbeat_ns}")
        self._rows("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
        self._rows("SET @mariadb_slave_capability = 4")
        self.register()
        self._connection.command(*self._dump_command(position), "ask for the log of")
        self._connection.stream(_SILENCE_S)

    def register(self) -> None:
        """Makes this connection known as a replica; SourceError when the user may not be one."""
        host = OWN_HOST.encode()
        names = struct.pack("<IB", self._server_id, len(host)) + host + b"\0\0"
        action = "register as a replica at"
        self._connection.command(_COM_REGISTER_SLAVE, names + struct.pack("<HII", 0, 0, 0), action)
        try:
            self._connection.packet(action)
        except ConfigError as error:
            # The login was good: what is refused is this.
            raise SourceError(error.message, fix=GRANTS.format(user=self._address.user)) from error

    def _dump_command(self, position: BinlogPosition) -> tuple[int, bytes]:
        """::

        COM_BINLOG_DUMP       offset u32 | flags u16 | server id u32 | file
        COM_BINLOG_DUMP_GTID  flags u16 | server id u32 | length u32, file | offset u64 | length u32, set of GTIDs
        """
        server_id = self._server_id
        by_name = self.names_transactions and position.gtids
        if by_name and not self._connection.is_mariadb:
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
        other = Replica(self._address, self._server_id)
        other.connect()
        return other

    def _begun_at(self, file: str) -> int:
        """When a file was begun: a connection of its own reads its format description, seconds since 1970 UTC."""
        other = self.another()
        try:
            other.start_dump(BinlogPosition(file, FILE_START))
            while True:
                data = bytes(other.read(_SILENCE_S))
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
        """As `Connection.read`: a server sends heartbeats, so that one which is silent is away."""
        return self._connection.read(timeout_s)

    def consumed(self, count: int) -> None:
        """The first `count` bytes of the last `read` are done with."""
        self._connection.consumed(count)

    def close(self) -> None:
        self._connection.close()

    def _files(self) -> list[str]:
        return list(self.sizes())

    def _value(self, statement: str, arguments: tuple[object, ...] = ()) -> object:
        return self._connection.value(statement, arguments)

    def _rows(self, statement: str, arguments: tuple[object, ...] = ()) -> list[tuple[Any, ...]]:
        return self._connection.rows(statement, arguments)


def default_server_id(source_name: str) -> int:
    """A replica id for a source that names none: the same every time, far above what people choose by hand."""
    return 0x8000_0000 | (zlib.crc32(source_name.encode()) & 0x7FFF_FFFF)
