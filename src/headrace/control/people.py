"""Users, and what they show to be let in: passwords (argon2), tokens and sessions (random, kept as digests only)."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerifyMismatchError
from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update
from zxcvbn import zxcvbn

from headrace.control.journal import Actor, audit
from headrace.control.pipelines import ConflictError, UnknownError
from headrace.control.tables import SESSIONS, TOKENS, USERS, ControlDatabase
from headrace.errors import ConfigError

Role = Literal["viewer", "operator", "admin"]
ROLES: tuple[Role, ...] = ("viewer", "operator", "admin")
"""Each may do what those before it may: look; start, stop, verify and deliver again; write pipelines and users."""
SHORTEST_PASSWORD = 12
SESSION_S = 12 * 3600.0
_PREFIX = "hr_"
_SAFE_SCORE = 3
"""Of zxcvbn's 0 to 4: "safely unguessable". It knows 30,000 passwords that are often used, names, words, dates, rows of keys and repetitions."""
_JUDGED = 72
"""So many characters it looks at; more make no password worse."""
_FREE_FAILURES = 5
_LONGEST_LOCK_S = 900.0


@dataclass(frozen=True, slots=True)
class User:
    """Who may use the API; one that is not active may not."""

    name: str
    role: Role
    made_us: int
    active: bool


@dataclass(frozen=True, slots=True)
class Token:
    """What a program shows. Its role is never more than its user's."""

    id: str
    user: str
    name: str
    role: Role
    made_us: int
    expires_us: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who was let in. `csrf`: what a browser must send beside its cookie; None for tokens, which no browser sends by itself."""

    user: str
    role: Role
    csrf: str | None


def allows(role: Role, needed: Role) -> bool:
    """Whether a role may do what another one may."""
    return ROLES.index(role) >= ROLES.index(needed)


class People:
    """All users of a store. Methods that change something leave an audit row in the same transaction."""

    def __init__(self, database: ControlDatabase, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._hasher = PasswordHasher()
        self._nobody = self._hasher.hash(secrets.token_hex())
        """What a password is compared with when there is no such user: it takes as long."""

    def all(self) -> list[User]:
        with self._database.transaction() as connection:
            return [_user(row) for row in connection.execute(select(USERS).order_by(USERS.c.name)).mappings()]

    def add(self, name: str, role: Role, password: str, actor: Actor) -> User:
        """ConflictError when the name is taken; ConfigError for a password that is too short or easily guessed."""
        hashed = self._hashed(name, password)
        with self._database.transaction() as connection:
            if connection.scalar(select(USERS.c.name).where(USERS.c.name == name)) is not None:
                raise ConflictError(f"there is a user {name} already", fix="choose another name, or change that one")
            state = {"made_us": self._now_us(), "active": True, "failures": 0, "locked_until_us": 0}
            connection.execute(insert(USERS).values(name=name, role=role, password=hashed, **state))
            audit(connection, self._now_us(), actor, "add user", name, detail=role)
            return _found(connection, name)

    def change(
        self,
        name: str,
        actor: Actor,
        *,
        role: Role | None = None,
        active: bool | None = None,
        password: str | None = None,
    ) -> User:
        """Changes what is given, and ends the user's sessions. ConflictError when no active admin would be left."""
        hashed = self._hashed(name, password) if password is not None else None
        given = {"role": role, "active": active, "password": hashed}
        values = {key: value for key, value in given.items() if value is not None}
        with self._database.transaction() as connection:
            before = _found(connection, name)
            if values:
                connection.execute(
                    update(USERS).where(USERS.c.name == name).values(**values, failures=0, locked_until_us=0)
                )
            connection.execute(delete(SESSIONS).where(SESSIONS.c.user == name))
            _require_admin(connection, before)
            told = [f"{key} {value}" if key != "password" else "password" for key, value in values.items()]
            audit(connection, self._now_us(), actor, "change user", name, detail=", ".join(told))
            return _found(connection, name)

    def change_own(self, name: str, current: str, new: str, actor: Actor) -> None:
        """A user's new password, and the end of all sessions. ConfigError when the current one is wrong, or too many were wrong before, or
        the new one will not do."""
        hashed = self._hashed(name, new)
        with self._proven(name, current, actor.address) as connection:
            is_proven = connection is not None
            if connection is not None:
                connection.execute(update(USERS).where(USERS.c.name == name).values(password=hashed))
                connection.execute(delete(SESSIONS).where(SESSIONS.c.user == name))
                audit(connection, self._now_us(), actor, "change password", name)
        if not is_proven:  # said out here, as the failure that was noted would be taken back in there
            raise ConfigError(
                "the current password is wrong, or too many were wrong before", fix="try again in a while"
            )

    def remove(self, name: str, actor: Actor) -> None:
        """With all tokens and sessions. ConflictError when no active admin would be left."""
        with self._database.transaction() as connection:
            before = _found(connection, name)
            for table in (SESSIONS, TOKENS):
                connection.execute(delete(table).where(table.c.user == name))
            connection.execute(delete(USERS).where(USERS.c.name == name))
            _require_admin(connection, before)
            audit(connection, self._now_us(), actor, "remove user", name)

    def log_in(self, name: str, password: str, address: str) -> str | None:
        """A session's secret; None when name or password is wrong, or too many were wrong before."""
        with self._proven(name, password, address) as connection:
            if connection is None:
                return None
            now_us = self._now_us()
            connection.execute(delete(SESSIONS).where(SESSIONS.c.until_us < now_us))
            secret, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
            until_us = now_us + round(SESSION_S * 1e6)
            connection.execute(insert(SESSIONS).values(digest=_digest(secret), user=name, csrf=csrf, until_us=until_us))
            audit(connection, now_us, Actor(name, address), "log in", name)
            return secret

    @contextmanager
    def _proven(self, name: str, password: str, address: str) -> Iterator[Connection | None]:
        """A transaction for what a password allows; None, and the failure noted, when it is wrong, or too many were wrong before."""
        with self._database.transaction() as connection:
            row = connection.execute(select(USERS).where(USERS.c.name == name)).mappings().first()
        # Outside of the transaction: it takes long on purpose.
        right = self._verify(row["password"] if row is not None else self._nobody, password)
        with self._database.transaction() as connection:
            user = connection.execute(select(USERS).where(USERS.c.name == name).with_for_update()).mappings().first()
            if row is None or user is None or user["locked_until_us"] > self._now_us() or not user["active"]:
                yield None
            elif not right or user["password"] != row["password"]:
                self._failed(connection, user, address)
                yield None
            else:
                connection.execute(update(USERS).where(USERS.c.name == name).values(failures=0, locked_until_us=0))
                yield connection

    def log_out(self, secret: str) -> None:
        """Idempotent."""
        with self._database.transaction() as connection:
            connection.execute(delete(SESSIONS).where(SESSIONS.c.digest == _digest(secret)))

    def of_session(self, secret: str) -> Admitted | None:
        """Whose session it is; None when there is none, or not any more."""
        of = select(USERS, SESSIONS.c.csrf).join(SESSIONS, SESSIONS.c.user == USERS.c.name)
        valid = (SESSIONS.c.digest == _digest(secret), SESSIONS.c.until_us > self._now_us(), USERS.c.active)
        with self._database.transaction() as connection:
            row = connection.execute(of.where(*valid)).mappings().first()
        return Admitted(row["name"], row["role"], row["csrf"]) if row is not None else None

    def add_token(self, user: str, name: str, role: Role, days: int, actor: Actor) -> tuple[Token, str]:
        """A token and its secret, which nobody can see again. ConfigError for a role above the user's."""
        secret, id_ = _PREFIX + secrets.token_urlsafe(32), secrets.token_hex(8)
        now_us = self._now_us()
        with self._database.transaction() as connection:
            if not allows(_found(connection, user).role, role):
                raise ConfigError(f"user {user} may not do what the role {role} may", fix="choose a lower role")
            values = {"id": id_, "user": user, "name": name, "role": role, "made_us": now_us}
            expires_us = now_us + days * 86_400_000_000
            connection.execute(insert(TOKENS).values(digest=_digest(secret), expires_us=expires_us, **values))
            audit(connection, now_us, actor, "add token", f"{user}/{id_}", detail=f"{name}, {role}, {days} days")
        return Token(id_, user, name, role, now_us, expires_us), secret

    def tokens(self, user: str | None = None) -> list[Token]:
        """Of a user, or of all, the newest first."""
        wanted = select(TOKENS).order_by(TOKENS.c.made_us.desc())
        if user is not None:
            wanted = wanted.where(TOKENS.c.user == user)
        with self._database.transaction() as connection:
            rows = connection.execute(wanted).mappings()
            return [Token(**{key: value for key, value in row.items() if key != "digest"}) for row in rows]

    def remove_token(self, user: str, id_: str, actor: Actor) -> None:
        """UnknownError when the user has none of that id."""
        with self._database.transaction() as connection:
            gone = delete(TOKENS).where(TOKENS.c.id == id_, TOKENS.c.user == user)
            if not connection.execute(gone).rowcount:
                raise UnknownError(f"user {user} has no token {id_}", fix="list the tokens")
            audit(connection, self._now_us(), actor, "remove token", f"{user}/{id_}")

    def of_token(self, secret: str) -> Admitted | None:
        """Whose token it is; None when there is none, or not any more."""
        of = select(USERS.c.name, USERS.c.role, TOKENS.c.role.label("granted")).join(
            TOKENS, TOKENS.c.user == USERS.c.name
        )
        valid = (TOKENS.c.digest == _digest(secret), TOKENS.c.expires_us > self._now_us(), USERS.c.active)
        with self._database.transaction() as connection:
            row = connection.execute(of.where(*valid)).mappings().first()
        if row is None:
            return None
        return Admitted(row["name"], min(row["role"], row["granted"], key=ROLES.index), None)

    def _failed(self, connection: Connection, user: RowMapping, address: str) -> None:
        """After some failures each one locks the user for twice as long."""
        failures = user["failures"] + 1
        lock_s = min(_LONGEST_LOCK_S, 2.0 ** (failures - _FREE_FAILURES)) if failures > _FREE_FAILURES else 0.0
        until_us = self._now_us() + round(lock_s * 1e6)
        values = {"failures": failures, "locked_until_us": until_us if lock_s else 0}
        connection.execute(update(USERS).where(USERS.c.name == user["name"]).values(**values))
        audit(
            connection,
            self._now_us(),
            Actor(user["name"], address),
            "failed log in",
            user["name"],
            detail=f"number {failures}",
        )

    def _hashed(self, name: str, password: str) -> str:
        if len(password) < SHORTEST_PASSWORD:
            raise ConfigError(
                f"a password has at least {SHORTEST_PASSWORD} characters", fix="choose a longer one, such as four words"
            )
        if zxcvbn(password[:_JUDGED], user_inputs=[name, "headrace"])["score"] < _SAFE_SCORE:
            raise ConfigError(
                "the password is one of those that are tried first", fix="choose another one, such as four words"
            )
        return self._hasher.hash(password)

    def _verify(self, hashed: str, password: str) -> bool:
        try:
            return self._hasher.verify(hashed, password)
        except (VerifyMismatchError, InvalidHashError):
            return False

    def _now_us(self) -> int:
        return round(self._clock() * 1e6)


def same(one: str, other: str) -> bool:
    """Compares secrets in a time that does not tell where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _user(row: RowMapping) -> User:
    return User(row["name"], row["role"], row["made_us"], bool(row["active"]))


def _found(connection: Connection, name: str) -> User:
    row = connection.execute(select(USERS).where(USERS.c.name == name).with_for_update()).mappings().first()
    if row is None:
        raise UnknownError(f"there is no user {name}", fix="list the users to see their names")
    return _user(row)


def _require_admin(connection: Connection, before: User) -> None:
    if before.role != "admin" or not before.active:
        return
    admins = select(func.count()).select_from(USERS).where(USERS.c.role == "admin", USERS.c.active)
    if not connection.scalar(admins):
        raise ConflictError("nobody who is active would be an admin any more", fix="make another user an admin first")
