"""What every store of a control plane keeps, on real databases: SQLite, PostgreSQL, MariaDB, MySQL."""

from __future__ import annotations

import gzip
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import update

from headrace.control.backup import backup, restore
from headrace.control.journal import Journal
from headrace.control.launch import End
from headrace.control.people import People
from headrace.control.pipelines import ConflictError, Pipelines, UnknownError
from headrace.control.placement import Local, SparkSubmit
from headrace.control.runs import Runs
from headrace.control.tables import SCHEDULES, SCHEMA, VERIFICATIONS, ControlDatabase
from headrace.control.verifications import Verifications, record
from headrace.errors import ConfigError, CorruptError, FencedError, RetryableError
from tests.control import PASSWORD, TEST, led
from tests.servers.process import free_port


def test_many_servers_open_a_new_store_at_once(url: str) -> None:
    def opened(_: int) -> int:
        with closing(ControlDatabase(url)) as own:
            own.open()
            return len(Pipelines(own).all())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(opened, range(8))) == [0] * 8


def test_a_store_of_a_newer_headrace_is_left_alone(database: ControlDatabase) -> None:
    with database.transaction() as connection:
        connection.execute(update(SCHEMA).values(version=99))
    with pytest.raises(ConfigError, match="version 99"):
        database.open()


def test_a_store_of_an_older_headrace_gets_what_it_lacks(database: ControlDatabase) -> None:
    with database.transaction() as connection:
        for table in (VERIFICATIONS, SCHEDULES):
            table.drop(connection)
        connection.execute(update(SCHEMA).values(version=1))
    database.open()
    assert Verifications(database).newest() == []


def test_of_verifications_the_newest_count_and_each_schedule_is_taken_once(database: ControlDatabase) -> None:
    now = [1000.0]
    verifications = Verifications(database, lambda: now[0])
    for name in ("shop", "other"):
        Pipelines(database).create(name, "", Local(), TEST)
    line = {
        "ok": True,
        "took_s": 0.5,
        "problem": "",
        "fix": "",
        "expected_rows": 5,
        "actual_rows": 5,
        "differing_keys": 0,
    }
    red = line | {"ok": False, "actual_rows": 2**40, "differing_keys": 1, "differences": [{"kind": "extra"}]}
    with database.transaction() as connection:
        record(
            connection,
            "shop",
            "a" * 32,
            7,
            [line | {"flow": "mart", "table": "s.☃"}, red | {"flow": "raw", "table": "s.t"}],
        )
        before_and_after = [red | {"flow": "mart", "table": "s.☃"}, line | {"flow": "mart", "table": "s.☃"}]
        record(connection, "shop", "b" * 32, 8, before_and_after)
        record(connection, "other", "c" * 32, 8, [{"ok": True, "lake": "of windows"}])
    newest = verifications.newest()
    assert [(found.flow, found.ok, found.operation[0]) for found in newest] == [
        ("mart", True, "b"),
        ("raw", False, "a"),
    ]
    assert (newest[1].actual_rows, newest[1].differences, newest[1].changed) == (2**40, [{"kind": "extra"}], None)
    history = verifications.of("shop", flow="mart", table="s.☃", before=None, limit=5)
    assert [found.operation[0] for found in history] == ["b", "a"]

    verifications.put_schedule("shop", 60, {"flow": "mart"}, TEST)
    with ThreadPoolExecutor(4) as pool:
        taken = [due for found in pool.map(lambda _: verifications.take_due(), range(8)) for due in found]
    assert [(due.pipeline, due.options) for due in taken] == [("shop", {"flow": "mart"})]
    now[0] += 61
    assert [due.pipeline for due in verifications.take_due()] == ["shop"]
    Pipelines(database).remove("shop", TEST)
    assert (verifications.newest(), verifications.schedule("shop")) == ([], None)
    with pytest.raises(UnknownError):
        verifications.put_schedule("shop", 60, {}, TEST)


def test_pipelines_have_revisions_and_wishes(database: ControlDatabase) -> None:
    pipelines = Pipelines(database)
    pipelines.create("shop", "one: 1", Local(), TEST)
    with pytest.raises(ConflictError, match="already"):
        pipelines.create("shop", "one: 1", Local(), TEST)
    assert pipelines.change("shop", "two: ☃", 1, TEST).revision == 2
    with pytest.raises(ConflictError, match="revision 2 by now"):
        pipelines.change("shop", "three: 3", 1, TEST)
    assert [revision.text for revision in pipelines.revisions("shop")] == ["two: ☃", "one: 1"]
    assert pipelines.start("shop", TEST).wanted == "running"
    with pytest.raises(ConflictError, match="runs"):
        pipelines.remove("shop", TEST)
    moved = pipelines.drift("shop", SparkSubmit(queue="etl"), TEST)
    assert (moved.placement, moved.generation) == (SparkSubmit(queue="etl"), 2)
    assert pipelines.stop("shop", TEST).wanted == "stopped"
    pipelines.remove("shop", TEST)
    with pytest.raises(UnknownError):
        pipelines.get("shop")
    did = [deed.action for deed in Journal(database).deeds()]
    assert did == ["remove", "stop", "drift", "start", "change", "create"]


def test_one_leads_and_who_led_before_changes_nothing(url: str, database: ControlDatabase) -> None:
    now = [1000.0]
    pipelines, runs = Pipelines(database), Runs(database, lambda: now[0])
    pipelines.create("shop", "", Local(), TEST)
    pipeline = pipelines.start("shop", TEST)
    first = led(runs, "first")
    assert led(runs, "first") == first
    with closing(ControlDatabase(url)) as other_database:
        other = Runs(other_database, lambda: now[0])
        assert other.lead("second", "there", 10) is None
        assert runs.launching(first, "a" * 32, pipeline, "host", 1)
        now[0] += 11
        second = led(other, "second")
        assert second.fence == first.fence + 1
        run = other.get("shop", "a" * 32)
        with pytest.raises(FencedError):
            runs.running(first, run, "host", 7)
        other.running(second, run, "host", 7)
        other.ended(second, run, End(1, "it broke", "mend it"), "failed")
        assert (other.get("shop", run.id).why, other.get("shop", run.id).fix) == ("it broke", "mend it")
        other.resign(second)
        assert led(runs, "first").fence == second.fence + 1
    kinds = [event.kind for event in Journal(database).events(pipeline="shop")]
    assert kinds == ["failed", "running", "launching"]


def test_nothing_is_launched_that_is_not_wanted_any_more(database: ControlDatabase) -> None:
    pipelines, runs = Pipelines(database), Runs(database)
    pipelines.create("shop", "", Local(), TEST)
    wanted = pipelines.start("shop", TEST)
    lease = led(runs, "one")
    pipelines.restart("shop", TEST)
    assert not runs.launching(lease, "a" * 32, wanted, "host", 1)
    assert runs.of("shop") == []


def test_people_come_in_by_password_session_and_token(database: ControlDatabase) -> None:
    now = [1000.0]
    people = People(database, lambda: now[0])
    people.add("ada", "admin", PASSWORD, TEST)
    people.add("bob", "operator", PASSWORD, TEST)
    session = people.log_in("bob", PASSWORD, "127.0.0.1")
    assert session is not None
    admitted = people.of_session(session)
    assert admitted is not None
    assert (admitted.user, admitted.role, admitted.csrf is not None) == ("bob", "operator", True)
    token, secret = people.add_token("bob", "ci", "viewer", 1, TEST)
    assert people.of_token(secret) is not None
    with pytest.raises(ConfigError, match="may not do"):
        people.add_token("bob", "ci", "admin", 1, TEST)
    people.change("bob", TEST, active=False)
    assert people.of_session(session) is None
    assert people.of_token(secret) is None
    people.change("bob", TEST, active=True)
    assert people.of_token(secret) is not None
    now[0] += 2 * 86400
    assert people.of_token(secret) is None
    people.remove_token("bob", token.id, TEST)
    with pytest.raises(ConflictError, match="admin"):
        people.remove("ada", TEST)
    people.remove("bob", TEST)


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
def test_guessing_passwords_takes_longer_and_longer(database: ControlDatabase) -> None:
    now = [1000.0]
    people = People(database, lambda: now[0])
    people.add("ada", "admin", PASSWORD, TEST)
    for _ in range(6):
        assert people.log_in("ada", "wrong", "") is None
    assert people.log_in("ada", PASSWORD, "") is None, "locked"
    now[0] += 3
    assert people.log_in("ada", PASSWORD, "") is not None
    assert people.log_in("nobody", PASSWORD, "") is None


def test_a_backup_goes_into_any_store(database: ControlDatabase, tmp_path: Path) -> None:
    pipelines, runs, people = Pipelines(database), Runs(database), People(database)
    pipelines.create("shop", "text: '\N{SNOWMAN} \"quoted\"'", SparkSubmit(), TEST)
    lease = led(runs, "one")
    runs.launching(lease, "a" * 32, pipelines.start("shop", TEST), "host", 1)
    people.add("ada", "admin", PASSWORD, TEST)
    people.add_token("ada", "ci", "viewer", 1, TEST)
    path = tmp_path / "backup.gz"
    assert backup(database, path) > 5
    with closing(ControlDatabase(f"sqlite:///{tmp_path / 'restored.db'}")) as restored:
        restored.open()
        assert restore(restored, path) == backup(restored, tmp_path / "again.gz")
        assert Pipelines(restored).revisions("shop") == pipelines.revisions("shop")
        assert Runs(restored).of("shop") == runs.of("shop")
        assert Journal(restored).deeds() == Journal(database).deeds()
        assert People(restored).log_in("ada", PASSWORD, "") is not None
        with pytest.raises(ConfigError, match="not empty"):
            restore(restored, path)


def test_a_restored_store_goes_on(url: str, tmp_path: Path) -> None:
    """Numbers that the database gives itself do not begin anew."""
    with closing(ControlDatabase(f"sqlite:///{tmp_path / 'before.db'}")) as before:
        before.open()
        for number in range(3):
            Pipelines(before).create(f"p{number}", "", Local(), TEST)
        backup(before, tmp_path / "backup.gz")
    with closing(ControlDatabase(url)) as database:
        database.open()
        restore(database, tmp_path / "backup.gz")
        Pipelines(database).create("later", "", Local(), TEST)
        assert [deed.id for deed in Journal(database).deeds()] == [4, 3, 2, 1]


def test_a_damaged_backup_is_refused_whole(tmp_path: Path) -> None:
    with closing(ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")) as database:
        database.open()
        Pipelines(database).create("shop", "one: 1", Local(), TEST)
        backup(database, tmp_path / "backup.gz")
    whole = gzip.decompress((tmp_path / "backup.gz").read_bytes())
    lines = whole.splitlines(keepends=True)
    for damaged in (b"".join(lines[:-1]), b"".join([*lines[:1], *lines[2:]]), whole.replace(b"shop", b"shoq"), b""):
        (tmp_path / "damaged.gz").write_bytes(gzip.compress(damaged))
        with closing(ControlDatabase(f"sqlite:///{tmp_path / 'new.db'}")) as new:
            new.open()
            with pytest.raises(CorruptError, match="not a whole backup"):
                restore(new, tmp_path / "damaged.gz")
            assert Pipelines(new).all() == []


def test_a_store_that_is_away_is_said_to_be() -> None:
    with (
        closing(ControlDatabase(f"postgresql://me:secret@127.0.0.1:{free_port()}/nowhere")) as database,
        pytest.raises(RetryableError, match="cannot be used") as raised,
    ):
        database.open()
    assert "secret" not in str(raised.value)


def test_what_is_old_is_forgotten_when_something_new_comes(database: ControlDatabase) -> None:
    now = [1000.0]
    pipelines, runs = Pipelines(database), Runs(database, lambda: now[0])
    pipelines.create("shop", "", Local(), TEST)
    wanted = pipelines.start("shop", TEST)
    lease = led(runs, "one")
    runs.launching(lease, "a" * 32, wanted, "host", 1)
    runs.ended(lease, runs.get("shop", "a" * 32), End(1, "it broke"), "failed")
    now[0] += 91 * 86400
    assert runs.launching(led(runs, "one"), "b" * 32, wanted, "host", 2)
    assert [run.id for run in runs.of("shop")] == ["b" * 32]
    assert [event.kind for event in Journal(database).events()] == ["launching"]
