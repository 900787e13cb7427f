"""Every demand has tests that name it, and docs/demands.md says which."""

from __future__ import annotations

from tests.demands import DEMANDS, PAGE, page, proofs


def test_every_demand_is_named_by_tests_and_no_test_names_another() -> None:
    assert set(proofs()) == set(DEMANDS)


def test_the_page_is_what_the_tests_say() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.demands`"
