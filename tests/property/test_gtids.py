"""Sets of GTIDs against Python's own sets."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.codec.binlog import GtidSet
from headrace.errors import CorruptError

SERVERS = ("3e11fa47-71ca-11e1-9e33-c80aa9429562", "00000000-0000-0000-0000-00000000000a")
members = st.sets(st.tuples(st.sampled_from(SERVERS), st.sampled_from(["", "blue"]), st.integers(1, 30)))


def as_text(transactions: set[tuple[str, str, int]]) -> str:
    """One by one, as no server writes it."""
    return ",".join(":".join(filter(None, (server, tag, str(number)))) for server, tag, number in transactions)


def of(transactions: set[tuple[str, str, int]]) -> GtidSet:
    return GtidSet(as_text(transactions))


@pytest.mark.demand(6)
@given(members, members)
def test_the_algebra_is_that_of_sets(one: set[tuple[str, str, int]], other: set[tuple[str, str, int]]) -> None:
    assert of(one) | of(other) == of(one | other)
    assert of(one) - of(other) == of(one - other)
    assert (of(one) <= of(other)) == (one <= other)
    assert (of(one) == of(other)) == (one == other)
    assert bool(of(one)) == bool(one)


@given(members)
def test_the_text_is_normal_and_reads_back(transactions: set[tuple[str, str, int]]) -> None:
    text = str(of(transactions))
    assert GtidSet(text) == of(transactions)
    assert text == str(GtidSet(text.upper().replace(",", " ,\n")))
    runs = sum(
        1
        for _, numbers in groupby(sorted(transactions), key=lambda member: member[:2])
        for _ in groupby(enumerate(sorted(n for *_, n in numbers)), key=lambda pair: pair[1] - pair[0])
    )
    assert sum(part.count(":") - ("blue" in part) for part in text.split(",")) == runs


@given(st.dictionaries(st.integers(0, 5), st.tuples(st.integers(1, 3), st.integers(1, 99))))
def test_mariadb_keeps_the_newest_of_each_domain(newest: dict[int, tuple[int, int]]) -> None:
    older = ",".join(f"{domain}-{server}-{sequence - 1}" for domain, (server, sequence) in newest.items())
    text = ",".join(f"{domain}-{server}-{sequence}" for domain, (server, sequence) in sorted(newest.items()))
    assert str(GtidSet(older) | GtidSet(text)) == text
    assert GtidSet(older) <= GtidSet(text)
    assert (GtidSet(text) <= GtidSet(older)) == (not newest)
    assert str(GtidSet(text) - GtidSet(older)) == text


@pytest.mark.parametrize("text", ["x", "1-2", f"{SERVERS[0]}:0", f"{SERVERS[0]}:5-4", f"1-2-3,{SERVERS[0]}:1"])
def test_what_is_none_is_refused(text: str) -> None:
    with pytest.raises(CorruptError):
        GtidSet(text)
