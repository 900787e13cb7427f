"""What is loaded again: rows by their keys where that is enough, else the whole table."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from headrace.flow.load import parse_as
from headrace.flow.spec import PipelineSpec
from headrace.verify.checks import Checked
from headrace.verify.compare import Difference, Row, TableResult
from headrace.verify.contents import Verified
from headrace.verify.repair import repairs

FLOW = """\
source: {{type: mysql, name: db1, host: h, user: u, password: p, tables: ["shop.*"]}}
log: {{type: directory, path: ./log}}
state: ./state
flows: [{{name: mart, from: "mysql.db1.shop.*", to: {{type: database, url: "sqlite:///./mart.db"}}{more}}}]
"""
Kind = Literal["missing", "extra", "different", "repeated"]


def pipeline(tmp_path: Path, more: str = "") -> PipelineSpec:
    return parse_as(FLOW.format(more=more), tmp_path / "flow.yaml", PipelineSpec, {})


def checked(*found: tuple[Kind, Row], differing: int | None = None, open_parts: int = 0) -> Checked:
    differences = tuple(Difference(kind, key, (), (), ()) for kind, key in found)
    differing = len(found) if differing is None else differing
    result = TableResult("mysql.db1.shop.t", 5, 5, "", "", (), differing, differences)
    return Checked("mart", "db1", "shop", "t", Verified(result, 0, open_parts), "", "", 0.1)


def test_rows_are_loaded_by_their_keys_when_these_are_numbers(tmp_path: Path) -> None:
    wrong = checked(("missing", {"a": "1", "b": "-2"}), ("different", {"a": "7", "b": "0"}))
    assert list(repairs(pipeline(tmp_path), [wrong])) == [("shop.t", "(`a` = 1 AND `b` = -2) OR (`a` = 7 AND `b` = 0)")]


@pytest.mark.parametrize(
    "wrong",
    [
        checked(("missing", {"a": "1"}), ("extra", {"a": "2"})),
        checked(("missing", {"a": "x'; DROP"})),
        checked(("missing", {"a": None})),
        checked(("missing", {"a": "1"}), differing=2),
        checked(("missing", {"a": "1"}), open_parts=1),
    ],
)
def test_else_the_table_is_loaded_whole(tmp_path: Path, wrong: Checked) -> None:
    assert list(repairs(pipeline(tmp_path), [wrong])) == [("shop.t", "")]
    assert list(repairs(pipeline(tmp_path), [checked(("missing", {"a": "1"})), wrong])) == [("shop.t", "")]


def test_keys_that_have_other_names_in_the_target_are_not_named(tmp_path: Path) -> None:
    renaming = pipeline(tmp_path, ", columns: {rename: {id: a}}")
    assert list(repairs(renaming, [checked(("missing", {"a": "1"}))])) == [("shop.t", "")]
