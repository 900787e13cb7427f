"""Passwords and sessions, in a real store on a clock of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.control.people import SESSION_S, People
from headrace.control.tables import ControlDatabase
from headrace.errors import ConfigError
from tests.control import PASSWORD, TEST

OTHER = "vier Wörter sind gut zu merken"


class Clock:
    now_s = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def people(tmp_path: Path, clock: Clock) -> Iterator[People]:
    database = ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")
    database.open()
    found = People(database, clock)
    found.add("ada", "admin", PASSWORD, TEST)
    yield found
    database.close()


def session(people: People, password: str = PASSWORD) -> str:
    secret = people.log_in("ada", password, "here")
    assert secret is not None
    return secret


@pytest.mark.parametrize(
    "password", ["passwordpassword", "123456789012", "qwertyuiop123", "a" * 60, "headraceheadrace", "ada-ada-ada-ada"]
)
def test_passwords_that_are_tried_first_are_refused(people: People, password: str) -> None:
    with pytest.raises(ConfigError, match="tried first"):
        people.add("bob", "viewer", password, TEST)
    with pytest.raises(ConfigError, match="tried first"):
        people.change_own("ada", PASSWORD, password, TEST)


@pytest.mark.parametrize(
    "password", [OTHER, "密码是四个随机的词语和数字", "x" * 20 + OTHER * 4, "   leading and trailing   "]
)
def test_every_kind_of_character_and_length_is_a_password(people: People, password: str) -> None:
    people.add("bob", "viewer", password, TEST)
    assert people.log_in("bob", password, "here") is not None
    assert people.log_in("bob", password[:-1], "here") is None


def test_ones_own_password_is_changed_by_who_knows_it(people: People) -> None:
    before = session(people)
    with pytest.raises(ConfigError, match="current password is wrong"):
        people.change_own("ada", "a wrong password", OTHER, TEST)
    assert people.of_session(before) is not None
    people.change_own("ada", PASSWORD, OTHER, TEST)
    assert people.of_session(before) is None, "all sessions end"
    assert people.log_in("ada", PASSWORD, "here") is None
    assert people.of_session(session(people, OTHER)) is not None


def test_guessing_the_current_password_locks_like_guessing_at_the_door(people: People, clock: Clock) -> None:
    for _ in range(6):
        with pytest.raises(ConfigError):
            people.change_own("ada", "a wrong password", OTHER, TEST)
    with pytest.raises(ConfigError):
        people.change_own("ada", PASSWORD, OTHER, TEST)
    assert people.log_in("ada", PASSWORD, "here") is None
    clock.now_s += 900
    people.change_own("ada", PASSWORD, OTHER, TEST)


def test_sessions_are_random_and_end(people: People, clock: Clock) -> None:
    found = {session(people) for _ in range(4)}
    assert len(found) == 4
    assert all(len(secret) >= 43 for secret in found), "32 random bytes"
    one = found.pop()
    clock.now_s += SESSION_S - 1
    assert people.of_session(one) is not None
    clock.now_s += 2
    assert people.of_session(one) is None


def test_a_user_who_may_not_log_in_any_more_is_out_at_once(people: People) -> None:
    people.add("bob", "admin", OTHER, TEST)
    secret = session(people)
    _, token = people.add_token("ada", "t", "viewer", 1, TEST)
    people.change("ada", TEST, active=False)
    assert people.of_session(secret) is None
    assert people.of_token(token) is None
    assert people.log_in("ada", PASSWORD, "here") is None
