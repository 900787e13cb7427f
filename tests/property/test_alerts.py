"""How alerts go, whatever is seen: one at a time, each channel told once, nothing kept from those who are to know."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.control.alerts.course import Alert, Reading, Told, begun, next_of
from headrace.control.alerts.rules import Escalation, Rule, StateIs

S = 1_000_000
RULES = st.builds(
    Rule,
    when=st.just(StateIs(kind="state")),
    holds_s=st.integers(0, 4),
    settles_s=st.integers(0, 4),
    again_s=st.none() | st.just(60),
    to=st.just(["mail"]),
    escalate=st.just([]) | st.just([Escalation(after_s=5, to=["sms", "mail"])]),
)
SEEN = st.tuples(st.sampled_from([True, True, False, None, "gone"]), st.booleans(), st.integers(1, 3), st.booleans())
"""What is seen, whether it is silenced, how many seconds later, and whether somebody acknowledges it."""


@dataclass
class Known:
    """What the world outside knows of the alert that there is."""

    alert: Alert | None = None
    bad_since_us: int = 0
    channels: set[str] = field(default_factory=set)

    def tell(self, told: Told, *, is_silenced: bool, now_us: int) -> None:
        """Holds what is told against what was told before."""
        assert self.alert is not None
        if told.kind == "firing":
            assert not self.channels & set(told.channels), "nobody is told twice that it fires"
            assert not is_silenced
            self.channels |= set(told.channels)
        elif told.kind == "again":
            assert set(told.channels) <= self.channels
            assert self.alert.told_us is not None
            assert now_us - self.alert.told_us >= 60 * S
            assert self.alert.acknowledged_by is None
        else:
            assert set(told.channels) == self.channels, "who knows of it hears of its end, and nobody else"

    def hold(self, after: Alert | None, rule: Rule, *, is_silenced: bool, now_us: int) -> None:
        """Holds what has become of the alert against what its rule says."""
        assert self.alert is not None
        if after is None:
            assert self.alert.state == "pending"
            assert not self.channels
        elif after.state == "firing":
            assert now_us - self.bad_since_us >= rule.holds_s * S
            assert is_silenced or "mail" in self.channels
            is_due = bool(rule.escalate) and now_us - (after.fired_us or 0) >= 5 * S and after.acknowledged_by is None
            assert is_silenced or not is_due or "sms" in self.channels


@given(RULES, st.lists(SEEN, max_size=60))
def test_each_alert_is_told_once_and_its_end_to_those_who_know_of_it(
    rule: Rule, course: list[tuple[object, bool, int, bool]]
) -> None:
    now_us, known = 0, Known()
    for seen, is_silenced, later_s, acknowledges in course:
        now_us += later_s * S
        reading = None if seen == "gone" else Reading("shop", "", seen if isinstance(seen, bool) else None)
        if known.alert is None and reading is not None and (new := begun("rule", rule, reading, now_us)) is not None:
            known = Known(replace(new, id=1), now_us)
        if known.alert is None:
            continue
        after, told = next_of(known.alert, rule, reading, is_silenced=is_silenced, now_us=now_us)
        for each in told:
            known.tell(each, is_silenced=is_silenced, now_us=now_us)
        known.hold(after, rule, is_silenced=is_silenced, now_us=now_us)
        if after is not None and after.state == "over":
            assert seen is not True
            assert [each.kind for each in told] == (["over"] if known.channels else [])
            after = None
        known.alert = replace(after, acknowledged_by="ada") if after is not None and acknowledges else after


@given(RULES, st.lists(st.sampled_from([True, None]), max_size=20))
def test_what_is_not_known_changes_nothing(rule: Rule, course: list[bool | None]) -> None:
    alert = Alert(1, "rule", "shop", "", "warning", "firing", "", 0, 0, told=("mail",), told_us=0)
    for seconds, is_bad in enumerate(course):
        after, _ = next_of(alert, rule, Reading("shop", "", is_bad), is_silenced=False, now_us=seconds * S)
        assert after is not None
        assert after.state == "firing"
        alert = after
