"""What every store keeps of alerts, on real databases: rules and channels, one alert of a kind, each message to one server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.control.alerts.book import AlertBook
from headrace.control.alerts.course import Alert, Told
from headrace.control.alerts.noted import TAKEN_US, Change, Message, NotedAlerts
from headrace.control.alerts.rules import Escalation, Rule, StateIs, Webhook
from headrace.control.backup import backup, restore
from headrace.control.journal import Journal
from headrace.control.pipelines import ConflictError, UnknownError
from headrace.control.runs import Lease, Runs
from headrace.control.tables import KEPT_US, ControlDatabase
from headrace.errors import ConfigError, FencedError
from tests.control import TEST, led

CHAT = Webhook(kind="webhook", url="${CHAT_URL}")
RULE = Rule(when=StateIs(kind="state"), to=["chat"], escalate=[Escalation(after_s=60, to=["sms"])])
S = 1_000_000


class Store:
    """A store with two channels, on a clock that a test moves."""

    def __init__(self, database: ControlDatabase) -> None:
        self.now_s = 1_000_000_000.0
        self.runs = Runs(database, lambda: self.now_s)
        self.book = AlertBook(database, lambda: self.now_s)
        self.alerts = NotedAlerts(database, self.runs, lambda: self.now_s)
        self.lease = led(self.runs, "first")

    def fire(self, pipeline: str = "shop") -> Alert:
        """One that is told to the chat."""
        new = Alert(
            None,
            "late",
            pipeline,
            "flow ☃",
            "critical",
            "firing",
            "it is late",
            self.alerts.now_us(),
            self.alerts.now_us(),
        )
        self.alerts.note(
            self.lease, [Change(None, replace(new, told=("chat",)), [Told("firing", ("chat",))], "wake up")]
        )
        return self.alerts.active()[-1]

    def taken(self, lease: Lease | None = None) -> Message:
        message = self.alerts.take(lease or self.lease, "chat")
        assert message is not None
        return message


@pytest.fixture
def store(database: ControlDatabase) -> Store:
    found = Store(database)
    for name in ("chat", "sms"):
        found.book.put_channel(name, CHAT, TEST)
    return found


def test_rules_and_channels_are_kept_and_hold_each_other(store: Store, database: ControlDatabase) -> None:
    with pytest.raises(ConfigError, match="no channel nobody"):
        store.book.put_rule("late", RULE.model_copy(update={"to": ["nobody"]}), TEST)
    store.book.put_rule("late", RULE, TEST)
    store.book.put_rule("late", changed := RULE.model_copy(update={"note": "☃"}), TEST)
    assert [(named.name, named.rule, named.author) for named in store.book.rules()] == [("late", changed, "test")]
    assert [named.channel for named in store.book.channels()] == [CHAT, CHAT]
    with pytest.raises(ConflictError, match="rule late"):
        store.book.remove_channel("sms", TEST)
    store.book.remove_rule("late", TEST)
    store.book.remove_channel("sms", TEST)
    for remove in (store.book.remove_rule, store.book.remove_channel):
        with pytest.raises(UnknownError):
            remove("sms", TEST)
    did = [deed.action for deed in Journal(database).deeds()]
    assert did == ["no alert channel", "no alert rule", "alert rule", "alert rule", "alert channel", "alert channel"]


def test_silences_hold_for_what_they_match_until_they_end(store: Store) -> None:
    silence = store.book.silence("la*", "shop", 60, "we know", TEST)
    now_us = store.alerts.now_us()
    assert silence.holds("late", "shop", now_us)
    assert not silence.holds("late", "other", now_us)
    assert not silence.holds("late", "shop", now_us + 60 * S)
    store.now_s += 10
    ended = store.book.end_silence(silence.id, TEST)
    assert not ended.holds("late", "shop", store.alerts.now_us())
    assert store.book.silences() == [ended]
    with pytest.raises(UnknownError):
        store.book.end_silence(silence.id + 1, TEST)


def test_a_message_is_one_servers_and_goes_on_with_the_next_that_leads(store: Store) -> None:
    alert = store.fire()
    assert (alert.told, alert.text, alert.subject) == (("chat",), "it is late", "flow ☃")
    store.fire("other")
    with ThreadPoolExecutor(4) as pool:
        taken = list(pool.map(lambda _: store.alerts.take(store.lease, "chat"), range(6)))
    [message] = [found for found in taken if found is not None]
    assert [notice.content["pipeline"] for notice in message.notices] == ["shop", "other"]
    store.now_s += 11
    second = led(store.runs, "second")
    with pytest.raises(FencedError):
        store.alerts.take(store.lease, "chat")
    with pytest.raises(FencedError):
        store.alerts.note(store.lease, [])
    assert store.alerts.take(second, "chat") is None, "the first one may still be sending it"
    store.now_s += TAKEN_US / 1e6
    again = store.taken(led(store.runs, "second"))
    assert (again.id, again.attempt) == (message.id, 2)
    assert len(again.notices) == 2
    store.alerts.away(message, "the first one says late that it could not be sent")
    store.alerts.sent(again)
    assert {
        (notice.state, notice.attempts, notice.why) for notice in store.alerts.notices(alert=None, before=None, limit=9)
    } == {("sent", 2, "")}
    assert store.alerts.waiting() == {}


def test_while_a_channel_is_away_nothing_overtakes(store: Store) -> None:
    store.fire()
    first = store.taken()
    store.alerts.away(first, "no answer")
    store.fire("other")
    assert store.alerts.take(store.lease, "chat") is None
    assert store.alerts.waiting() == {"chat": 2}
    store.now_s += 3
    second = store.taken()
    assert (second.id, len(second.notices)) == (first.id, 1)
    store.alerts.sent(second)
    third = store.taken()
    assert [notice.content["pipeline"] for notice in third.notices] == ["other"]
    store.alerts.refused(third, "too long")
    found = store.alerts.notices(alert=third.notices[0].alert, before=None, limit=9)
    assert [(notice.state, notice.why) for notice in found] == [("refused", "too long")]


def test_what_cannot_be_told_for_a_day_is_given_up(store: Store) -> None:
    store.fire()
    pauses = []
    while store.alerts.waiting():
        message = store.taken()
        store.alerts.away(message, "no answer")
        [notice] = store.alerts.notices(alert=None, before=None, limit=9)
        pauses.append((notice.next_us - store.alerts.now_us()) / S)
        store.now_s += max(pauses[-1], 0)
        store.lease = led(store.runs, "first")
    assert notice.state == "given up"
    assert pauses[:3] == [2, 4, 8]
    assert max(pauses) == 300


def test_an_alert_is_acknowledged_by_one_while_it_is_looked_at(store: Store) -> None:
    alert = store.fire()
    assert alert.id is not None
    assert store.alerts.acknowledge(alert.id, TEST).acknowledged_by == "test"
    over = replace(alert, state="over", over_us=store.alerts.now_us())
    store.alerts.note(store.lease, [Change(alert, over, [Told("over", ("chat", "gone"))])])
    [found] = store.alerts.page("over", before=None, limit=9)
    assert (found.acknowledged_by, store.alerts.active()) == ("test", [])
    with pytest.raises(ConflictError):
        store.alerts.acknowledge(alert.id, TEST)
    with pytest.raises(UnknownError):
        store.alerts.acknowledge(alert.id + 99, TEST)
    kinds = [notice.kind for notice in store.alerts.notices(alert=alert.id, before=None, limit=9)]
    assert kinds == ["over", "firing"], "a channel that is not there gets nothing"
    store.now_s += KEPT_US / 1e6 + 1
    store.lease = led(store.runs, "first")
    newer = store.fire()
    assert store.alerts.page(None, before=None, limit=9) == [newer], "what is old is forgotten when something new comes"


def test_a_pending_alert_that_comes_to_nothing_leaves_nothing(store: Store) -> None:
    pending = Alert(None, "late", "shop", "", "info", "pending", "", store.alerts.now_us())
    store.alerts.note(store.lease, [Change(None, pending, [])])
    store.alerts.note(store.lease, [Change(store.alerts.active()[0], None, [])])
    assert store.alerts.page(None, before=None, limit=9) == []


def test_a_channel_is_tried(store: Store) -> None:
    tried = store.alerts.try_channel("chat", TEST)
    assert (tried.kind, tried.alert, tried.state) == ("test", None, "waiting")
    assert store.taken().notices[0].id == tried.id
    with pytest.raises(UnknownError):
        store.alerts.try_channel("nobody", TEST)


def test_alerts_are_in_backups(store: Store, database: ControlDatabase, tmp_path: Path) -> None:
    store.book.put_rule("late", RULE, TEST)
    alert = store.fire()
    backup(database, tmp_path / "backup.gz")
    with closing(ControlDatabase(f"sqlite:///{tmp_path / 'restored.db'}")) as restored:
        restored.open()
        restore(restored, tmp_path / "backup.gz")
        other = Store(restored)
        assert other.alerts.active() == [alert]
        assert other.book.rules() == store.book.rules()
        assert len(other.taken().notices) == 1
