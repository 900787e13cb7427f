"""The connection to Cassandra: statements, batches of rows that lie together, and the driver's errors as ours."""

from __future__ import annotations

import logging
import ssl
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

from cassandra import (
    AuthenticationFailed,
    ConsistencyLevel,
    DriverException,
    InvalidRequest,
    OperationTimedOut,
    RequestExecutionException,
    Unauthorized,
)
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, ResponseFuture, Session
from cassandra.policies import DCAwareRoundRobinPolicy, RoundRobinPolicy, TokenAwarePolicy
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement
from pydantic import BeforeValidator, Field, field_validator

from headrace.errors import ConfigError, DataError, HeadraceError, RetryableError
from headrace.model import Duration, Model
from headrace.tls import Tls

# What the driver has to say comes as an error of ours; it would write each lost connection on the screen as well.
logging.getLogger("cassandra").addHandler(logging.NullHandler())
logging.getLogger("cassandra").propagate = False

_PORT = 9042
_PIECE_ROWS = 1000
_PROTOCOL = 5
"""Of the native protocol, by which single values of all versions are read."""
_REFUSED = "correct the value at the source, or leave the column or the table out"
_LEVELS = ConsistencyLevel.name_to_value
Row = Sequence[Any]


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


class SessionConfig(Model):
    """How the cluster is reached, and what it is asked for."""

    hosts: Annotated[list[str], BeforeValidator(_as_list), Field(min_length=1)]
    """Some nodes of the cluster, ``cassandra.internal`` or ``10.0.0.7:9042``; the others are found through them. All have one port."""
    user: str | None = None
    """The user's name, where the cluster asks for one."""
    password: str | None = None
    """The user's password, best from the environment: ``${CASSANDRA_PASSWORD}``."""
    tls: Tls | None = None
    """Encrypts the connection."""
    datacenter: str | None = None
    """The data center whose nodes are spoken to; all when left out."""
    consistency: str = "LOCAL_QUORUM"
    """How many replicas must have a row before it counts as written. With less than a quorum changes of tables may be missed by other writers."""
    timeout: Annotated[Duration, Field(gt=0)] = 20.0
    """How long the cluster may take for an answer before that counts as an outage."""
    batch_rows: Annotated[int, Field(ge=1, le=1000)] = 50
    """How many rows that lie on the same nodes are sent together, as an unlogged batch."""
    batch_bytes: Annotated[int, Field(ge=100)] = 30_000
    """How large such a batch gets; the server's `batch_size_fail_threshold` (50 KiB) must be larger."""
    parallel: Annotated[int, Field(ge=1, le=1024)] = 16
    """How many batches are under way at a time."""

    @field_validator("consistency")
    @classmethod
    def _is_level(cls, level: str) -> str:
        if level not in _LEVELS or level in ("ANY", "SERIAL", "LOCAL_SERIAL"):
            raise ValueError(
                f"'{level}' is no consistency level for rows: write LOCAL_QUORUM, QUORUM, LOCAL_ONE, ONE, ALL, …"
            )
        return level

    @field_validator("hosts")
    @classmethod
    def _have_one_port(cls, hosts: list[str]) -> list[str]:
        ports = {port for _, port in map(_host_and_port, hosts)}
        if len(ports) != 1:
            raise ValueError("write the hosts with one port, the same for all")
        return hosts


def _host_and_port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port or (":" in host and not host.startswith("[")):
        return text.strip("[]"), _PORT
    if not port.isdecimal() or not host:
        raise ValueError(f"write HOST or HOST:PORT, not '{text}'")
    return host.strip("[]"), int(port)


class CassandraSession:
    """A session of one cluster; connects with the first statement."""

    def __init__(self, config: SessionConfig, keyspace: str) -> None:
        self._config = config
        self._keyspace = keyspace
        self._open: Session | None = None
        self._prepared: dict[str, PreparedStatement] = {}

    @property
    def session(self) -> Session:
        if self._open is None:
            self._open = self._connect()
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open.cluster.shutdown()
            self._open = None
            self._prepared = {}

    def use_keyspace(self) -> None:
        """Makes the keyspace that of all statements without one, and learns where its rows lie."""
        with _known_everywhere():
            self.session.set_keyspace(self._keyspace)
        self.session.cluster.refresh_keyspace_metadata(self._keyspace)

    def run(self, statement: str, values: Row = ()) -> list[Any]:
        """Runs a statement and returns its rows, of which there are few."""
        return (
            list(self.session.execute(self._prepare(statement), values))
            if values
            else list(self.session.execute(statement))
        )

    def pages(self, statement: str, size: int) -> Iterator[list[Any]]:
        """The rows of a SELECT, page by page."""
        found = self.session.execute(_sized(self._prepare(statement), size))
        while True:
            yield found.current_rows
            if not found.has_more_pages:
                return
            found.fetch_next_page()

    def find(self, statement: str, keys: Sequence[Row]) -> Iterator[Row]:
        """The rows that a SELECT finds for each of many keys, as many of them under way as batches are when rows are written.

        ConfigError when the tables or the types of the keys do not fit the statement, also without any key.
        """
        under_way: deque[ResponseFuture] = deque()
        try:
            prepared = self.session.prepare(statement) if statement not in self._prepared else self._prepared[statement]
            self._prepared[statement] = prepared
            for key in keys:
                if len(under_way) >= self._config.parallel:
                    yield from under_way.popleft().result()
                under_way.append(self.session.execute_async(prepared.bind(key)))
            while under_way:
                yield from under_way.popleft().result()
        except (InvalidRequest, TypeError) as error:
            raise ConfigError(
                f"Cassandra does not answer {statement}: {error}",
                fix="correct the names, and let the key be of the table's types",
            ) from error

    def write(self, statement: str, rows: Sequence[Row]) -> None:
        """Runs a statement for many rows, in batches of rows that lie on the same nodes.

        DataError when a row is refused, with its values.
        """
        prepared = self._prepare(statement)
        under_way: deque[tuple[ResponseFuture, list[BoundStatement]]] = deque()
        # In pieces, so that the cluster is at work while the next one is put in order.
        for first in range(0, len(rows), _PIECE_ROWS):
            for together in self._batches([prepared.bind(row) for row in rows[first : first + _PIECE_ROWS]]):
                if len(under_way) >= self._config.parallel:
                    self._wait(*under_way.popleft())
                under_way.append((self.session.execute_async(_batch(together)), together))
        while under_way:
            self._wait(*under_way.popleft())

    def _wait(self, future: ResponseFuture, together: list[BoundStatement]) -> None:
        try:
            future.result()
        except InvalidRequest:
            for row in together:
                self._send_alone(row)

    def _send_alone(self, row: BoundStatement) -> None:
        """One of a batch that was refused: DataError names it when it is the one."""
        try:
            self.session.execute(row)
        except InvalidRequest as error:
            prepared: PreparedStatement = row.prepared_statement
            key = [prepared.column_metadata[at] for at in prepared.routing_key_indexes or ()]
            values = zip(key, (row.values[at] for at in prepared.routing_key_indexes or ()), strict=True)
            named = ", ".join(f"{one.name}={one.type.from_binary(value, _PROTOCOL)!r}" for one, value in values)
            raise DataError(
                f"Cassandra refuses the row with {named} of table {prepared.column_metadata[0].table_name}: {error}",
                fix=_REFUSED,
            ) from error

    def _batches(self, rows: list[BoundStatement]) -> Iterator[list[BoundStatement]]:
        """Rows in the order of their tokens, cut where another node's begin, and where they are enough."""
        tokens = self.session.cluster.metadata.token_map
        if tokens is None or len(rows) == 1:
            places = [(0, 0)] * len(rows)
        else:
            found = [tokens.token_class.from_key(row.routing_key) for row in rows]
            places = [(bisect_left(tokens.ring, token), token.value) for token in found]
        together: list[BoundStatement] = []
        size, last = 0, None
        for at in sorted(range(len(rows)), key=places.__getitem__):
            row, (owner, _) = rows[at], places[at]
            bytes_ = sum(map(_size, row.values))
            full = len(together) >= self._config.batch_rows or size + bytes_ > self._config.batch_bytes
            if together and (full or owner != last):
                yield together
                together, size = [], 0
            together.append(row)
            size, last = size + bytes_, owner
        if together:
            yield together

    def _prepare(self, statement: str) -> PreparedStatement:
        if statement not in self._prepared:
            with _known_everywhere():
                self._prepared[statement] = self.session.prepare(statement)
        return self._prepared[statement]

    def _connect(self) -> Session:
        config = self._config
        hosts = [_host_and_port(host) for host in config.hosts]
        nodes = DCAwareRoundRobinPolicy(config.datacenter) if config.datacenter else RoundRobinPolicy()
        serial = ConsistencyLevel.LOCAL_SERIAL if config.consistency.startswith("LOCAL") else ConsistencyLevel.SERIAL
        profile = ExecutionProfile(
            TokenAwarePolicy(nodes),
            consistency_level=_LEVELS[config.consistency],
            serial_consistency_level=serial,
            request_timeout=config.timeout,
        )
        login = None if config.user is None else PlainTextAuthProvider(config.user, config.password or "")
        cluster = Cluster(
            [host for host, _ in hosts],
            port=hosts[0][1],
            auth_provider=login,
            ssl_context=None if config.tls is None else config.tls.context(),
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            connect_timeout=config.timeout,
            schema_metadata_enabled=False,
        )
        try:
            return cluster.connect()
        except BaseException:
            cluster.shutdown()
            raise

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the driver raises becomes an error of ours."""
        try:
            yield
        except (
            DriverException,
            RequestExecutionException,
            InvalidRequest,
            Unauthorized,
            NoHostAvailable,
            OSError,
        ) as error:
            raise _translated(error) from error


@contextmanager
def _known_everywhere() -> Iterator[None]:
    """What others have made is known to one node a little later than to another."""
    try:
        yield
    except InvalidRequest as error:
        raise RetryableError(
            f"a node of Cassandra does not know yet what another one does: {error}",
            fix="wait; when it stays, a table of headrace was changed by hand: undo that",
        ) from error


def _batch(together: list[BoundStatement]) -> BatchStatement | BoundStatement:
    if len(together) == 1:
        return together[0]
    batch = BatchStatement(BatchType.UNLOGGED)
    for row in together:
        batch.add(row)
    return batch


def _size(value: object) -> int:
    return len(value) if isinstance(value, bytes) else 8


def _sized(prepared: PreparedStatement, size: int) -> BoundStatement:
    bound: BoundStatement = prepared.bind(())
    bound.fetch_size = size
    return bound


def _translated(error: Exception) -> HeadraceError:
    if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict):
        said = [
            one for one in error.errors.values() if isinstance(one, AuthenticationFailed | Unauthorized | ssl.SSLError)
        ]
        error = said[0] if said else error
    if isinstance(error, NoHostAvailable | OperationTimedOut) or not isinstance(error, DriverException | ssl.SSLError):
        return RetryableError(f"Cassandra is away: {_without_type(error)}", fix="start it, or correct `hosts`")
    return _refused(error, f"Cassandra said: {error}")


def _refused(error: Exception, what: str) -> HeadraceError:
    """The cluster's answer."""
    if isinstance(error, AuthenticationFailed):
        return ConfigError(what, fix="correct `user` and `password`")
    if isinstance(error, ssl.SSLError):
        return ConfigError(what, fix="name the servers' authority with `tls: {ca: FILE}`")
    if isinstance(error, Unauthorized):
        return ConfigError(what, fix="give the user CREATE, ALTER, SELECT and MODIFY on the keyspace")
    if isinstance(error, InvalidRequest):
        return DataError(what, fix=_REFUSED)
    return RetryableError(what, fix="look at the cluster's health; headrace tries again", retry_after_s=0.5)


def _without_type(error: Exception) -> str:
    if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict):
        return "; ".join(f"{host}: {reason}" for host, reason in error.errors.items()) or "no node answers"
    return str(error)
