"""Which of a source's servers is read: the first in the configured order that answers and can go on from where capture stopped. And
where heartbeats are written."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.capture.connection import Address
from headrace.capture.lost import position_lost, why_lost
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.position import BinlogPosition
from headrace.capture.replica import Replica, default_server_id
from headrace.capture.server_check import require_settings
from headrace.errors import RetryableError, SourceError


def connect(
    config: MySqlConfig,
    *,
    position: BinlogPosition | None = None,
    tables: Sequence[str] = (),
    server_id: int | None = None,
) -> Replica:
    """The first of the servers that answers and can go on from `position`; what the last one says when none does.

    `tables`: what is told when the position is lost (`require`).
    """
    *others, last = config.servers
    for server in others:
        try:
            return _connect_to(config, server, position, tables, server_id)
        except (RetryableError, SourceError):
            continue
    return _connect_to(config, last, position, tables, server_id)


def _connect_to(
    config: MySqlConfig,
    server: tuple[str, int],
    position: BinlogPosition | None,
    tables: Sequence[str],
    server_id: int | None,
) -> Replica:
    replica = open_server(config, server, server_id)
    try:
        require_settings(replica)
        if position is not None:
            require(replica, config, position, tables)
    except BaseException:
        replica.close()
        raise
    return replica


def open_server(config: MySqlConfig, server: tuple[str, int], server_id: int | None = None) -> Replica:
    """One of the servers, whatever its settings are."""
    assert config.user is not None
    address = Address(*server, config.user, config.password.get_secret_value(), config.tls)
    replica = Replica(address, server_id or own_id(config))
    try:
        replica.connect()
    except BaseException:
        replica.close()
        raise
    return replica


def own_id(config: MySqlConfig) -> int:
    """The id under which a source asks its servers."""
    return config.server_id or default_server_id(config.name)


def require(replica: Replica, config: MySqlConfig, position: BinlogPosition, tables: Sequence[str]) -> None:
    """The server can go on from a position: RetryableError while a standby lags, SourceError when it is lost there.

    `tables`: those whose changes are lost then, the configured patterns when there are none.
    """
    why = why_lost(replica, position)
    if why is not None:
        raise position_lost(replica.address, config.name, position, why, tables or config.tables)
    missing = replica.missing_of(position.gtids) if replica.names_transactions and position.gtids else ""
    if missing:
        raise RetryableError(
            f"{replica.address} does not have all transactions that were captured: {missing} are missing",
            fix="let it catch up with the server that was read before; if they are lost there, let capture go on at what it has"
            f" (`headrace skip FLOW.yaml --source {config.name}`) and load the tables again",
        )


def connect_to_write(config: MySqlConfig) -> Replica:
    """The server with the heartbeat table, as the user who may write there."""
    heartbeat = config.heartbeat
    assert heartbeat is not None
    user = heartbeat.user or config.user
    password = config.password if heartbeat.password is None else heartbeat.password
    assert user is not None
    address = Address(*config.heartbeat_server, user, password.get_secret_value(), config.tls)
    server = Replica(address, own_id(config))
    server.connect()
    return server
