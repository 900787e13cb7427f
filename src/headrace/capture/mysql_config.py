"""Configuration of a MySQL or MariaDB source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from headrace.capture.position import FILE_START, BinlogPosition
from headrace.codec.binlog import GtidSet
from headrace.errors import HeadraceError
from headrace.model import LocalPath, Model, SourceConfig

_PLACE = re.compile(r"(?P<file>[^:]+\.\d+):(?P<offset>\d+)")
_FORMS = (
    "write earliest, latest, FILE:OFFSET (binlog.000003:4), a time with its zone (2026-11-21T08:00:00Z) or the set of GTIDs"
    " that are not wanted (what another reader has executed)"
)


@dataclass(frozen=True, slots=True)
class StartBehind:
    """Start with the first transaction that is not in a set of GTIDs."""

    gtids: str


def _start(value: object) -> object:
    if isinstance(value, (BinlogPosition, StartBehind)):
        return value
    if isinstance(value, str) and value in ("earliest", "latest"):
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


def _time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


class Tls(Model):
    """How the connection to the server is encrypted."""

    ca: LocalPath | None = None
    """File of the certificate authorities that are trusted; the system's own when left out."""
    cert: LocalPath | None = None
    """The client's certificate, where the server wants one."""
    key: LocalPath | None = None
    """The key of the client's certificate."""
    verify: Literal["identity", "ca", "none"] = "identity"
    """What is checked: the authority and the server's name, the authority alone, or nothing."""


class MySqlConfig(SourceConfig):
    """A MySQL or MariaDB source: a server (`host`, `user`, `password`) or recorded binlogs (`files`)."""

    type: Literal["mysql"]
    files: LocalPath | None = None
    """Pattern of recorded binlog files, for instance ``./binlogs/binlog.0000*``; instead of a server."""
    host: str | None = None
    """The server, best a standby (replica with log_replica_updates), so that the primary is not loaded."""
    port: Annotated[int, Field(ge=1, le=65535)] = 3306
    failover: list[Annotated[str, Field(pattern=r"^[^:\s]+(:\d+)?$")]] = Field(default_factory=list)
    """Other servers of the same replication group, ``host`` or ``host:port``: when `host` is away the first that answers is read,
    from the same transaction on. They must use GTIDs (MySQL: gtid_mode=ON)."""
    user: str | None = None
    """A user with REPLICATION SLAVE and REPLICATION CLIENT (MariaDB: BINLOG MONITOR)."""
    password: SecretStr = SecretStr("")
    tls: Tls | None = None
    """Encryption of the connection; none when left out."""
    tables: Annotated[list[str], Field(min_length=1)]
    """Which tables, as ``schema.table`` patterns with ``*`` and ``?``."""
    start: Annotated[
        Literal["earliest", "latest"] | BinlogPosition | datetime | StartBehind, BeforeValidator(_start)
    ] = "earliest"
    """Where the first run begins: earliest, latest, FILE:OFFSET, a time, or behind a set of GTIDs. Later runs go on where the log
    ends.

    On a server whose log is compressed, ids after a start in the middle of a file are smaller, up to that file's end, than those
    of a capture that read it from its beginning: ordered and repeatable in themselves, but not to be mixed with the others.
    """
    dump: Annotated[LocalPath | None, Field(alias="schema")] = None
    """A dump of the tables' definitions as they were where the log begins (``mysqldump --no-data --databases shop``): for a log
    without full metadata (binlog_row_metadata) whose tables neither its own statements nor the server can tell."""
    server_id: Annotated[int, Field(ge=1, le=0xFFFF_FFFF)] | None = None
    """The id under which the server knows this replica; must be unique among its replicas. By default made from the name."""

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.files is None) == (self.host is None):
            raise ValueError("give either `host` (a live server) or `files` (recorded binlogs)")
        if self.host is not None and self.user is None:
            raise ValueError("`user` is missing")
        if self.files is not None and isinstance(self.start, StartBehind):
            raise ValueError("recorded files cannot be started behind a set of GTIDs: name FILE:OFFSET or a time")
        return self

    def captures(self, schema: str, table: str) -> bool:
        """Whether `tables` names a table."""
        return any(fnmatchcase(f"{schema}.{table}", pattern) for pattern in self.tables)

    @property
    def servers(self) -> list[tuple[str, int]]:
        """Host and port of every server that may be read, the wanted one first."""
        assert self.host is not None
        others = [address.partition(":") for address in self.failover]
        return [(self.host, self.port), *((host, int(port or 3306)) for host, _, port in others)]

    @field_validator("tables")
    @classmethod
    def _two_parts(cls, tables: list[str]) -> list[str]:
        for pattern in tables:
            if pattern.count(".") != 1:
                raise ValueError(f"write schema.table, not '{pattern}'")
        return tables
