"""What a server's settings mean for capture: what would stop it, and what could be better, each with the statement that repairs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.position import BinlogPosition
from headrace.capture.replica import OWN_HOST, Replica
from headrace.errors import Finding, SourceError
from headrace.ums.change import Mark

_DAY_S = 86_400
_KEEP_LONGER = "SET GLOBAL binlog_expire_logs_seconds = 604800 (before MariaDB 10.6: expire_logs_days = 7), also in its configuration"
_TABLES_NAMED = 5
_REQUIRED = {
    "log_bin": ("ON", "start the server with --log-bin"),
    "binlog_format": (
        "ROW",
        "SET GLOBAL binlog_format = 'ROW' and put binlog_format=ROW into the server's configuration",
    ),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = 'FULL' and put it into the server's configuration"),
}


def wrong_settings(replica: Replica) -> list[Finding]:
    """Every setting that lets the server write its log so that it cannot be captured."""
    found = replica.variables(*_REQUIRED)
    wrong = [
        Finding(f"{name} is {found.get(name, 'unknown to this server')}, not {wanted}", fix, stops=True)
        for name, (wanted, fix) in _REQUIRED.items()
        if found.get(name) != wanted
    ]
    for name, value in replica.variables("log_slave_updates", "log_replica_updates").items():
        if found.get("log_bin") == "ON" and value == "OFF" and replica.replicates:
            fix = "start the server with log_replica_updates=ON (MariaDB: log_slave_updates), or read the primary"
            wrong.append(Finding(f"{name} is OFF: what it replicates is missing in its own log", fix, stops=True))
            break
    return wrong


def require_settings(replica: Replica) -> None:
    """SourceError that tells all `wrong_settings`."""
    wrong = wrong_settings(replica)
    if wrong:
        raise SourceError(
            f"{replica.address}: " + "; ".join(finding.message for finding in wrong),
            fix="; ".join(finding.fix for finding in wrong),
        )


def check_server(
    replica: Replica, config: MySqlConfig, own_id: int, newest: Mark | None, now_s: float
) -> Iterator[Finding]:
    """All findings of one server; `own_id` is the id under which capture asks, `newest` where it goes on."""
    yield from wrong_settings(replica)
    if replica.variables("log_bin") != {"log_bin": "ON"}:
        return
    yield from _gtids(replica, config)
    yield from _server_id(replica, own_id)
    missing_grants = list(_grants(replica))
    yield from missing_grants
    tables = [name for name in replica.tables() if config.captures(*name)]
    yield from _tables(replica, config, tables)
    yield from _advice(replica)
    if not missing_grants:
        yield from _filters(replica, tables)
        yield from _lag(replica, newest, now_s)


def _gtids(replica: Replica, config: MySqlConfig) -> Iterator[Finding]:
    if config.failover and not replica.names_transactions:
        yield Finding(
            "gtid_mode is not ON: the place where one server of `failover` stops cannot be found on another",
            "on every server of the group SET GLOBAL enforce_gtid_consistency = ON, then SET GLOBAL gtid_mode ="
            " OFF_PERMISSIVE, ON_PERMISSIVE and ON, one after the other; or leave `failover` out",
            stops=True,
        )


def _server_id(replica: Replica, own_id: int) -> Iterator[Finding]:
    fix = "give the source another `server_id`, unique among all servers and replicas of the group"
    if replica.own_id == own_id:
        yield Finding(f"server_id {own_id} of the source is the server's own", fix, stops=True)
    try:
        others = replica.replicas()
    except SourceError:
        # MariaDB shows replicas only with a right that capture does not need.
        return
    for id_, host in others:
        # A capture of this source that is running is no other replica.
        if id_ == own_id and host != OWN_HOST:
            yield Finding(f"server_id {own_id} of the source is used by a replica at {host}", fix, stops=True)


def _grants(replica: Replica) -> Iterator[Finding]:
    """By trying, for rights may come by roles and under several names."""

    def registers() -> None:
        other = replica.another()
        try:
            other.register()
        finally:
            other.close()

    attempts: Sequence[Callable[[], object]] = (replica.last_position, registers)
    told: set[str] = set()
    for attempt in attempts:
        try:
            attempt()
        except SourceError as error:
            if error.fix not in told:
                told.add(error.fix)
                yield Finding.of(error)


def _tables(replica: Replica, config: MySqlConfig, seen: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    user = replica.address.user
    if not seen:
        yield Finding(
            f"no table that {user} may see matches `tables` ({', '.join(config.tables)})",
            f"correct `tables` of the source, unless they are still to come; or GRANT SELECT ON the tables TO '{user}'@'%'",
            stops=False,
        )
    unreadable = [f"{schema}.{table}" for schema, table in seen if not replica.connection.can_read(schema, table)]
    if unreadable:
        more = f" and {len(unreadable) - _TABLES_NAMED} more" if len(unreadable) > _TABLES_NAMED else ""
        yield Finding(
            f"{user} may not read {', '.join(unreadable[:_TABLES_NAMED])}{more}: their changes are captured, a full load is not"
            " possible",
            "; ".join(f"GRANT SELECT ON {table} TO '{user}'@'%'" for table in unreadable[:_TABLES_NAMED]),
            stops=False,
        )


def _filters(replica: Replica, tables: Sequence[tuple[str, str]]) -> Iterator[Finding]:
    for schema in sorted({schema for schema, _ in tables}):
        if not replica.writes(schema):
            yield Finding(
                f"the server leaves schema {schema} out of its binlog: its changes are not captured",
                "take --binlog-do-db and --binlog-ignore-db out of the server's configuration",
                stops=False,
            )


def _advice(replica: Replica) -> Iterator[Finding]:
    kept_s = _kept_s(replica)
    if kept_s is not None and kept_s < _DAY_S:
        message = (
            f"the server keeps its binlog for only {kept_s} s: a capture that stands still for longer loses changes"
        )
        yield Finding(message, _KEEP_LONGER, stops=False)
    if replica.variables("binlog_row_metadata").get("binlog_row_metadata", "FULL") != "FULL":
        yield Finding(
            "binlog_row_metadata is not FULL: names and keys of columns are taken from statements in the log and from the server",
            "SET GLOBAL binlog_row_metadata = 'FULL' and put it into the server's configuration",
            stops=False,
        )
    if replica.variables("time_zone").get("time_zone") == "SYSTEM":
        yield Finding(
            "time_zone is SYSTEM: what NOW() puts into DATETIME columns depends on the server's machine",
            "SET GLOBAL time_zone = '+00:00' (or the zone that is meant) and put it into the server's configuration",
            stops=False,
        )


def _lag(replica: Replica, newest: Mark | None, now_s: float) -> Iterator[Finding]:
    """A quiet source is not behind, however old its newest change is."""
    kept_s = _kept_s(replica)
    if newest is None or not newest.commit_ts_us or kept_s is None:
        return
    lag_s = round(now_s - newest.commit_ts_us / 1e6)
    if lag_s > kept_s and BinlogPosition.of(newest).order < replica.last_position().order:
        yield Finding(
            f"capture is {lag_s} s behind, and the server keeps its binlog for {kept_s} s: changes may go before they are captured",
            _KEEP_LONGER,
            stops=False,
        )


def _kept_s(replica: Replica) -> int | None:
    """How long the server keeps files of its binlog, in seconds; None when it never removes them."""
    found = replica.variables("binlog_expire_logs_seconds", "expire_logs_days", "binlog_expire_logs_auto_purge")
    if found.get("binlog_expire_logs_auto_purge") == "OFF":
        return None
    seconds = int(found.get("binlog_expire_logs_seconds", 0)) or round(float(found.get("expire_logs_days", 0)) * _DAY_S)
    return seconds or None
