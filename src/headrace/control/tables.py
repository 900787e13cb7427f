"""The control plane's store: what is to run, what ran, what happened, and who may say so.

::

    control_schema      version: how many of MIGRATIONS this store has had
    control_leases      name, holder, address, until_us, fence: which server leads
    control_pipelines   name, revision (the newest), wanted, generation, placement, run (the newest), changed_us
    control_revisions   pipeline, number, text (YAML, secrets as ${NAMES}), author, at_us
    control_runs        id, pipeline, revision, generation, placement, state, host, pid, attempt, asked_us, began_us, stopping_us,
                        ended_us, code, why, fix
    control_events      id, at_us, pipeline, run, kind, message
    control_operations  id, pipeline, kind, options (JSON), user, asked_us, until_us, ended_us, code, result (JSON), why, fix
    control_users       name, role, password (argon2), made_us, active, failures, locked_until_us
    control_tokens      id, user, name, role, digest (SHA-256), made_us, expires_us
    control_sessions    digest (SHA-256), user, csrf, until_us
    control_verifications  id, pipeline, flow, source_table, operation, at_us, ok, expected_rows, actual_rows, differing_keys, changed, took_s,
                        differences (JSON, the first of them), problem, fix
    control_schedules   pipeline, every_s, options (JSON), author, next_us: when its targets are verified
    control_alert_channels  name, options (JSON; secrets as ${NAMES}), author, changed_us: how alerts are told
    control_alert_rules     name, options (JSON), author, changed_us: when there is one, and who is told
    control_alert_silences  id, rule, pipeline (patterns), reason, author, from_us, until_us
    control_alerts      id, rule, pipeline, subject, severity, state, text, began_us, fired_us, well_us, over_us, told (JSON: channels), told_us,
                        acknowledged_by, acknowledged_us
    control_notices     id, alert, channel, kind, content (JSON), made_us, state, message, attempts, next_us, sent_us, why: what is to be told
    control_audit       id, at_us, user, address, action, object, detail

`wanted` is running or stopped. `generation` grows when somebody asks for a new process (start, restart, drift): a run of an older one is
stopped first. A run's `state` is launching, running, stopping or ended (reconciler.py says how it goes from one to the next).

**Crash story.** Each change is one transaction, together with the event or audit row that tells of it. Changes by the server that leads
carry the fence of its lease and are refused when another one has led since. Migrations run under a lock, each in one transaction with
the version that it makes (on MySQL, whose DDL commits by itself, one that was interrupted is done again: each must bear that).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.dialects.mysql import MEDIUMTEXT

from headrace.errors import ConfigError
from headrace.own_database import OwnDatabase

META = MetaData()
_NAME = String(100)
_LONG = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")

SCHEMA = Table("control_schema", MetaData(), Column("version", Integer, nullable=False))
LEASES = Table(
    "control_leases",
    META,
    Column("name", _NAME, primary_key=True),
    Column("holder", String(64), nullable=False),
    Column("address", String(255), nullable=False),
    Column("until_us", BigInteger, nullable=False),
    Column("fence", BigInteger, nullable=False),
)
PIPELINES = Table(
    "control_pipelines",
    META,
    Column("name", _NAME, primary_key=True),
    Column("revision", Integer, nullable=False),
    Column("wanted", String(10), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("placement", Text, nullable=False),
    Column("run", String(32)),
    Column("changed_us", BigInteger, nullable=False),
)
REVISIONS = Table(
    "control_revisions",
    META,
    Column("pipeline", ForeignKey("control_pipelines.name"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("text", _LONG, nullable=False),
    Column("author", _NAME, nullable=False),
    Column("at_us", BigInteger, nullable=False),
)
RUNS = Table(
    "control_runs",
    META,
    Column("id", String(32), primary_key=True),
    Column("pipeline", ForeignKey("control_pipelines.name"), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("placement", Text, nullable=False),
    Column("state", String(10), nullable=False),
    Column("host", String(255), nullable=False),
    Column("pid", Integer),
    Column("attempt", Integer, nullable=False),
    Column("asked_us", BigInteger, nullable=False),
    Column("began_us", BigInteger),
    Column("stopping_us", BigInteger),
    Column("ended_us", BigInteger),
    Column("code", Integer),
    Column("why", Text, nullable=False),
    Column("fix", Text, nullable=False),
    Index("control_runs_of", "pipeline", "asked_us"),
)
EVENTS = Table(
    "control_events",
    META,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at_us", BigInteger, nullable=False),
    Column("pipeline", _NAME, nullable=False),
    Column("run", String(32)),
    Column("kind", String(20), nullable=False),
    Column("message", Text, nullable=False),
    Index("control_events_of", "pipeline", "id"),
)
OPERATIONS = Table(
    "control_operations",
    META,
    Column("id", String(32), primary_key=True),
    Column("pipeline", ForeignKey("control_pipelines.name"), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("options", Text, nullable=False),
    Column("user", _NAME, nullable=False),
    Column("asked_us", BigInteger, nullable=False),
    Column("until_us", BigInteger, nullable=False),
    Column("ended_us", BigInteger),
    Column("code", Integer),
    Column("result", _LONG, nullable=False),
    Column("why", Text, nullable=False),
    Column("fix", Text, nullable=False),
    Index("control_operations_of", "pipeline", "asked_us"),
)
USERS = Table(
    "control_users",
    META,
    Column("name", _NAME, primary_key=True),
    Column("role", String(10), nullable=False),
    Column("password", String(200), nullable=False),
    Column("made_us", BigInteger, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("locked_until_us", BigInteger, nullable=False),
)
TOKENS = Table(
    "control_tokens",
    META,
    Column("id", String(16), primary_key=True),
    Column("user", ForeignKey("control_users.name"), nullable=False),
    Column("name", _NAME, nullable=False),
    Column("role", String(10), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("made_us", BigInteger, nullable=False),
    Column("expires_us", BigInteger, nullable=False),
)
SESSIONS = Table(
    "control_sessions",
    META,
    Column("digest", String(64), primary_key=True),
    Column("user", ForeignKey("control_users.name"), nullable=False),
    Column("csrf", String(64), nullable=False),
    Column("until_us", BigInteger, nullable=False),
)
AUDIT = Table(
    "control_audit",
    META,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at_us", BigInteger, nullable=False),
    Column("user", _NAME, nullable=False),
    Column("address", String(100), nullable=False),
    Column("action", String(40), nullable=False),
    Column("object", String(255), nullable=False),
    Column("detail", Text, nullable=False),
)

VERIFICATIONS = Table(
    "control_verifications",
    META,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("pipeline", ForeignKey("control_pipelines.name"), nullable=False),
    Column("flow", _NAME, nullable=False),
    Column("source_table", String(255), nullable=False),
    Column("operation", String(32), nullable=False),
    Column("at_us", BigInteger, nullable=False),
    Column("ok", Boolean, nullable=False),
    Column("expected_rows", BigInteger),
    Column("actual_rows", BigInteger),
    Column("differing_keys", BigInteger),
    Column("changed", BigInteger),
    Column("took_s", Float, nullable=False),
    Column("differences", _LONG, nullable=False),
    Column("problem", Text, nullable=False),
    Column("fix", Text, nullable=False),
    Index("control_verifications_of", "pipeline", "id"),
)
SCHEDULES = Table(
    "control_schedules",
    META,
    Column("pipeline", ForeignKey("control_pipelines.name"), primary_key=True),
    Column("every_s", BigInteger, nullable=False),
    Column("options", Text, nullable=False),
    Column("author", _NAME, nullable=False),
    Column("next_us", BigInteger, nullable=False),
)
ALERT_CHANNELS, ALERT_RULES = (
    Table(
        name,
        META,
        Column("name", _NAME, primary_key=True),
        Column("options", _LONG, nullable=False),
        Column("author", _NAME, nullable=False),
        Column("changed_us", BigInteger, nullable=False),
    )
    for name in ("control_alert_channels", "control_alert_rules")
)
ALERT_SILENCES = Table(
    "control_alert_silences",
    META,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("rule", _NAME, nullable=False),
    Column("pipeline", _NAME, nullable=False),
    Column("reason", Text, nullable=False),
    Column("author", _NAME, nullable=False),
    Column("from_us", BigInteger, nullable=False),
    Column("until_us", BigInteger, nullable=False),
)
ALERTS = Table(
    "control_alerts",
    META,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("rule", _NAME, nullable=False),
    Column("pipeline", _NAME, nullable=False),
    Column("subject", Text, nullable=False),
    Column("severity", String(10), nullable=False),
    Column("state", String(10), nullable=False),
    Column("text", Text, nullable=False),
    Column("began_us", BigInteger, nullable=False),
    Column("fired_us", BigInteger),
    Column("well_us", BigInteger),
    Column("over_us", BigInteger),
    Column("told", Text, nullable=False),
    Column("told_us", BigInteger),
    Column("acknowledged_by", _NAME),
    Column("acknowledged_us", BigInteger),
    Index("control_alerts_in", "state", "id"),
)
NOTICES = Table(
    "control_notices",
    META,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("alert", ForeignKey("control_alerts.id")),
    Column("channel", _NAME, nullable=False),
    Column("kind", String(10), nullable=False),
    Column("content", Text, nullable=False),
    Column("made_us", BigInteger, nullable=False),
    Column("state", String(10), nullable=False),
    Column("message", String(32)),
    Column("attempts", Integer, nullable=False),
    Column("next_us", BigInteger, nullable=False),
    Column("sent_us", BigInteger),
    Column("why", Text, nullable=False),
    Index("control_notices_in", "state", "channel", "id"),
)

MIGRATIONS: Sequence[Callable[[Connection], None]] = (META.create_all, META.create_all, META.create_all)
"""What makes each version out of the one before; never changed once released, only added to. The second makes what verification needs, the third
what alerts need."""
KEPT_US = 90 * 86_400_000_000
"""Runs, events and operations that are older are forgotten when newer ones come; the audit is kept."""
_LOCK = 715_517
"""The number under which PostgreSQL and MySQL lock migrations; SQLite locks for writing anyway."""


class ControlDatabase(OwnDatabase):
    """The store, for those who keep a part of what is in it. RetryableError when it cannot be reached."""

    def __init__(self, url: str) -> None:
        super().__init__(url, META, "store of the control plane")

    def open(self) -> None:
        """Brings the store to this version of headrace. ConfigError when a newer one has written it."""
        with self.transaction() as connection:
            _lock(connection)
            try:
                _migrate(connection)
            finally:
                _unlock(connection)

    def transaction(self) -> AbstractContextManager[Connection]:
        """A transaction, committed at the end."""
        return self._transaction()


def _migrate(connection: Connection) -> None:
    has = 0
    if inspect(connection).has_table(SCHEMA.name):
        has = connection.scalar(select(SCHEMA.c.version)) or 0
    else:
        SCHEMA.create(connection)
        connection.execute(insert(SCHEMA).values(version=0))
    if has > len(MIGRATIONS):
        raise ConfigError(
            f"the store of the control plane has version {has}, and this headrace knows {len(MIGRATIONS)}",
            fix="use the newer headrace that wrote it, or restore a backup of the older one (`headrace restore`)",
        )
    for version, migration in enumerate(MIGRATIONS[has:], start=has + 1):
        migration(connection)
        connection.execute(update(SCHEMA).values(version=version))


def _lock(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
    elif connection.dialect.name in {"mysql", "mariadb"}:
        connection.execute(text(f"SELECT GET_LOCK('headrace-{_LOCK}', 60)"))


def _unlock(connection: Connection) -> None:
    if connection.dialect.name in {"mysql", "mariadb"}:
        connection.execute(text(f"SELECT RELEASE_LOCK('headrace-{_LOCK}')"))
