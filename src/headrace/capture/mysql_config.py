"""Configuration of a MySQL or MariaDB source."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from headrace.capture.load.base import LoadConfig
from headrace.capture.online_ddl import helped_table
from headrace.capture.position import FILE_START, BinlogPosition
from headrace.codec.binlog import GtidSet
from headrace.errors import HeadraceError
from headrace.model import Duration, LocalPath, Model, SourceConfig
from headrace.tls import Tls

_PLACE = re.compile(r"(?P<file>[^:]+\.\d+):(?P<offset>\d+)")
_SERVER = re.compile(r"(?P<host>[^\s:\[\]]+|\[[^\s\[\]]+\])(:(?P<port>\d+))?")
_OF_A_SERVER = ("port", "failover", "user", "password", "tls", "server_id", "load", "heartbeat")
_FORMS = (
    "write earliest, latest, FILE:OFFSET (binlog.000003:4), a time with its zone (2026-11-21T08:00:00Z) or the set of GTIDs"
    " that are not wanted (what another reader has executed)"
)


@dataclass(frozen=True, slots=True)
class StartBehind:
    """Start with the first transaction that is not in a set of GTIDs."""

    gtids: str


Start = Literal["earliest", "latest"] | BinlogPosition | datetime | StartBehind
"""Where capture can begin."""


def parsed_start(value: object) -> Start:
    """What `start` means; ValueError when it is no start."""
    if isinstance(value, (BinlogPosition, StartBehind)):
        return value
    if value == "earliest" or value == "latest":  # noqa: PLR1714 - so that the type is narrowed
        return value
    if isinstance(value, str) and (found := _PLACE.fullmatch(value)):
        if int(found["offset"]) < FILE_START:
            raise ValueError(f"the first event of a file is at {FILE_START}")
        return BinlogPosition(found["file"], int(found["offset"]))
    time = _time(value) if isinstance(value, str) else value
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError("a time needs its zone, for instance 2026-11-21T08:00:00Z")
        return time
    try:
        if isinstance(value, str) and (gtids := str(GtidSet(value))):
            return StartBehind(gtids)
    except HeadraceError:
        pass
    raise ValueError(_FORMS)


def _server(text: str) -> tuple[str, int]:
    """``host``, ``host:port``, ``[::1]`` or ``[::1]:port``."""
    found = _SERVER.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is no server: write host, host:port or, for IPv6, [::1]:3306")
    port = int(found["port"] or 3306)
    if not 1 <= port <= 65535:
        raise ValueError(f"'{text}': a port is a number from 1 to 65535")
    return found["host"].strip("[]"), port


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _load(value: object) -> object:
    """`true` is short for `{}`, `false` for nothing."""
    if isinstance(value, bool):
        return LoadConfig() if value else None
    return value


class ServerTls(Tls):
    """How the connection to the server is encrypted."""

    verify: Literal["identity", "ca", "none"] = "identity"
    """What is checked: the authority and the server's name, the authority alone, or nothing."""

    def context(self) -> ssl.SSLContext:
        context = super().context()
        context.check_hostname = self.verify == "identity"
        if self.verify == "none":
            context.verify_mode = ssl.CERT_NONE
        return context


class HeartbeatConfig(Model):
    """Signs of life, sent at the source and seen at every stage up to each flow's target.

    Without `table` nothing is written: the server is asked where its log ends, and the sign of life is on its way when capture has
    come up to there. With `table` a row of each captured table, and one of the source as a whole, is written there; it comes back in
    the log, through replication too.
    """

    every: Annotated[Duration, Field(gt=0)] = 60.0
    """How often."""
    table: Annotated[str, Field(pattern=r"^[^.]+\.[^.]+$")] | None = None
    """The table for signs of life, ``schema.table``; `headrace check` says how it is created. It is not captured as data."""
    host: str | None = None
    """Where the table is written, ``host`` or ``host:port``: the primary, when a standby is read. The source's own server when left out."""
    user: str | None = None
    """Who writes it; the source's own user when left out."""
    password: SecretStr | None = None

    @field_validator("host")
    @classmethod
    def _is_a_server(cls, host: str | None) -> str | None:
        if host is not None:
            _server(host)
        return host

    @model_validator(mode="after")
    def _only_who_writes_needs_a_place(self) -> Self:
        if self.table is None and (self.host or self.user or self.password):
            raise ValueError("`host`, `user` and `password` are for writing: name the `table` too")
        return self


def _heartbeat(value: object) -> object:
    """``60s`` is short for ``{every: 60s}``, ``off`` (false in YAML) for none."""
    if value is True:
        raise ValueError("write a period such as 60s, off, or a mapping")
    if value is False:
        return None
    return {"every": value} if isinstance(value, (str, int, float)) else value


class MySqlConfig(SourceConfig):
    """A MySQL or MariaDB source: a server (`host`, `user`, `password`) or recorded binlogs (`files`)."""

    type: Literal["mysql"]
    files: LocalPath | None = None
    """Pattern of recorded binlog files, for instance ``./binlogs/binlog.0000*``; instead of a server."""
    host: str | None = None
    """The server, best a standby (replica with log_replica_updates), so that the primary is not loaded."""
    port: Annotated[int, Field(ge=1, le=65535)] = 3306
    failover: list[str] = Field(default_factory=list)
    """Other servers of the same replication group, ``host``, ``host:port`` or ``[::1]:port``: when `host` is away the first that answers is read,
    from the same transaction on. They must use GTIDs (MySQL: gtid_mode=ON)."""
    user: str | None = None
    """A user with REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR)."""
    password: SecretStr = SecretStr("")
    tls: ServerTls | None = None
    """Encryption of the connection; none when left out."""
    tables: Annotated[list[str], Field(min_length=1)]
    """Which tables, as ``schema.table`` patterns with ``*`` and ``?``. Helper tables of gh-ost and pt-online-schema-change (``_x_gho``,
    ``_x_ghc``, ``_x_del``, ``_x_new``, ``_x_old``) are left out unless they are named here in full."""
    start: Annotated[Start, BeforeValidator(parsed_start)] = "earliest"
    """Where the first run begins: earliest, latest, FILE:OFFSET, a time, or behind a set of GTIDs. Later runs go on where the log
    ends.

    On a server whose log is compressed, ids after a start in the middle of a file are smaller, up to that file's end, than those
    of a capture that read it from its beginning: ordered and repeatable in themselves, but not to be mixed with the others.
    """
    dump: Annotated[LocalPath | None, Field(alias="schema")] = None
    """A dump of the tables' definitions as they were where the log begins (``mysqldump --no-data --databases shop``): for a log
    without full metadata (binlog_row_metadata) whose tables neither its own statements nor the server can tell."""
    load: Annotated[LoadConfig | None, BeforeValidator(_load)] = None
    """Load the tables as they are when capture begins, besides their changes: true, or how (`LoadConfig`). Tables without a key need
    columns named in `load.key`, or are left out by `load.exclude`."""
    server_id: Annotated[int, Field(ge=1, le=0xFFFF_FFFF)] | None = None
    """The id under which the server knows this replica; must be unique among its replicas. By default made from the name."""

    heartbeat: Annotated[HeartbeatConfig | None, BeforeValidator(_heartbeat)] = HeartbeatConfig()
    """How often a sign of life is sent through to all targets (``60s``), ``off``, or a mapping; recorded files have none."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.files is None) == (self.host is None):
            raise ValueError("give either `host` (a live server) or `files` (recorded binlogs)")
        if self.host is not None and self.user is None:
            raise ValueError("`user` is missing")
        unused = [f"`{name}`" for name in _OF_A_SERVER if name in self.model_fields_set]
        if self.files is not None and unused:
            raise ValueError(f"{', '.join(unused)} would not be used: `files` are read without a server")
        if self.files is not None and isinstance(self.start, StartBehind):
            raise ValueError("recorded files cannot be started behind a set of GTIDs: name FILE:OFFSET or a time")
        return self

    def captures(self, schema: str, table: str) -> bool:
        """Whether `tables` names a table; that of the heartbeats is none of them."""
        name = f"{schema}.{table}"
        return any(fnmatchcase(name, pattern) for pattern in self.tables) and name != self.heartbeat_table

    def reads(self, schema: str, table: str) -> bool:
        """Whether a table's rows are wanted out of the log."""
        return self.captures(schema, table) or f"{schema}.{table}" == self.heartbeat_table

    @property
    def read_patterns(self) -> list[str]:
        """Patterns of the tables whose rows are wanted out of the log."""
        return [*self.tables, *([self.heartbeat_table] if self.heartbeat_table else [])]

    @property
    def heartbeat_table(self) -> str | None:
        """The table that heartbeats are written to; None where nothing is written."""
        return self.heartbeat.table if self.heartbeat is not None else None

    @property
    def heartbeat_every_s(self) -> float | None:
        return self.heartbeat.every if self.heartbeat is not None and self.files is None else None

    def delivers(self, schema: str, table: str) -> bool:
        """Whether rows of a table go to the log: it is named, and no helper of another one."""
        return self.captures(schema, table) and not self.helped(schema, table)

    def helped(self, schema: str, table: str) -> str:
        """The captured table that an online ALTER changes by way of this one; empty when it is no such helper, or is named in full."""
        of = helped_table(table)
        named = f"{schema}.{table}" in self.tables
        return of if of is not None and not named and self.captures(schema, of) else ""

    @property
    def servers(self) -> list[tuple[str, int]]:
        """Host and port of every server that may be read, the wanted one first."""
        assert self.host is not None
        return [(self.host, self.port), *map(_server, self.failover)]

    @property
    def heartbeat_server(self) -> tuple[str, int]:
        """Host and port of the server at which heartbeats are written."""
        elsewhere = self.heartbeat.host if self.heartbeat is not None else None
        return _server(elsewhere) if elsewhere else self.servers[0]

    @field_validator("failover")
    @classmethod
    def _are_servers(cls, failover: list[str]) -> list[str]:
        for text in failover:
            _server(text)
        return failover

    @field_validator("tables")
    @classmethod
    def _two_parts(cls, tables: list[str]) -> list[str]:
        for pattern in tables:
            if pattern.count(".") != 1:
                raise ValueError(f"write schema.table, not '{pattern}'")
        return tables
