"""What is loaded again so that a target is right: the rows that differ, or the whole table.

A load of chosen rows cannot end what the source does not have any more. So a table that has rows too many is loaded whole; so is one of
which more keys differ than are known, whose keys are no numbers (how a text is written in SQL depends on the server's settings), or whose
columns have other names in the target.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from headrace.flow.spec import PipelineSpec
from headrace.verify.checks import Checked

KEYS = 1_000
"""So many keys are loaded one by one at most."""
_NUMBER = re.compile(r"-?\d+")


def repairs(pipeline: PipelineSpec, wrong: Iterable[Checked]) -> Iterator[tuple[str, str]]:
    """Tables, each once, with the condition that chooses their rows; empty for all of them."""
    renaming = {flow.name for flow in pipeline.flows if flow.columns.rename}
    wanted: dict[str, set[str] | None] = {}
    for checked in wrong:
        name = f"{checked.schema}.{checked.table}"
        chosen = None if checked.flow in renaming else _chosen(checked)
        before = wanted.setdefault(name, set())
        wanted[name] = None if chosen is None or before is None else before | chosen
    for name, conditions in wanted.items():
        yield name, " OR ".join(sorted(conditions)) if conditions else ""


def _chosen(checked: Checked) -> set[str] | None:
    """Conditions, one for each row; None when the table is to be loaded whole."""
    if checked.verified is None or checked.verified.open_parts:
        return None
    result = checked.verified.result
    are_known = len(result.differences) == result.differing_keys <= KEYS
    if not are_known or any(found.kind not in {"missing", "different"} for found in result.differences):
        return None
    keys = [found.key for found in result.differences]
    if not all(value is not None and _NUMBER.fullmatch(value) for key in keys for value in key.values()):
        return None
    return {"(" + " AND ".join(f"`{name}` = {value}" for name, value in key.items()) + ")" for key in keys}
