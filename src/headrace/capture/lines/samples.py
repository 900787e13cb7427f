"""Rules tried on the lines that their author gives as samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from headrace.capture.lines.rules import Rule
from headrace.capture.lines.tables import Lines
from headrace.errors import Finding


def sample_findings(rules: Sequence[Rule], as_lines: Callable[[Sequence[str]], Lines]) -> Iterator[Finding]:
    """Samples that do not become a row of their rule, or one with values that their columns cannot hold.

    `as_lines`: samples as the source's lines; ValueError when one is none.
    """
    for number, rule in enumerate(rules, 1):
        for sample in rule.sample:
            name = f"the sample {sample!r} of rule {number} (table {rule.table})"
            try:
                taken, beyond = _taken(rules, as_lines([sample]))
            except ValueError as error:
                yield Finding(f"{name} is not one of this source's lines: {error}", "correct the sample", stops=True)
                continue
            if taken != number:
                what = "fits no rule" if taken is None else f"is taken by rule {taken} (table {rules[taken - 1].table})"
                fix = "correct the rule, the order of rules or the sample; `headrace decode applog` shows what becomes of lines"
                yield Finding(f"{name} {what}", fix, stops=True)
            elif beyond:
                fix = "give the column a type that holds it, or name what means no value in `nulls`"
                yield Finding(f"{name} has no value of its type in {beyond}", fix, stops=False)


def _taken(rules: Sequence[Rule], lines: Lines) -> tuple[int | None, str]:
    """The number of the rule that takes the line, from 1, and a column that cannot hold its value."""
    now_us = time.time_ns() // 1000
    for number, rule in enumerate(rules, 1):
        found = rule.rows(lines.fields, lines.times_us, now_us)
        if len(found.fields):
            beyond = [name for name, texts in found.beyond.items() if texts.null_count < len(texts)]
            return number, ", ".join(beyond)
    return None, ""
