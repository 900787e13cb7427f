"""docs/rules-of-sinks.md names tests that are there, and every target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace import registry

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "rules-of-sinks.md").read_text()
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", PAGE)))


@pytest.mark.parametrize(("file", "test"), NAMED, ids=["::".join(filter(None, named)) for named in NAMED])
def test_a_test_that_is_named_is_there(file: str, test: str) -> None:
    assert re.search(rf"def {test}\b" if test else "def test_", (ROOT / file).read_text())


def test_every_target_has_its_row() -> None:
    assert set(re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE)) == set(registry.SINKS)
