"""A comparison as people and programs read it: a table on the screen, JSON lines for everything else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from headrace.verify.compare import Difference, Row, TableResult


@dataclass(frozen=True, slots=True)
class Report:
    """What a verification found, table by table."""

    tables: tuple[TableResult, ...]

    @property
    def ok(self) -> bool:
        """True when there was something to compare and all of it is the same."""
        return bool(self.tables) and all(table.ok for table in self.tables)

    def json_lines(self) -> Iterator[str]:
        """One JSON object per table: its result with `ok`."""
        for table in self.tables:
            yield json.dumps({"ok": table.ok, **asdict(table)}, ensure_ascii=False)

    def rendered(self) -> RenderableType:
        """A summary of all tables, then the differences of each that has some."""
        return Group(self._summary(), *(_details(table) for table in self.tables if not table.ok))

    def _summary(self) -> Table:
        summary = Table("Table", "Expected rows", "Actual rows", "Differing keys", "Result")
        summary.columns[0].overflow = "fold"
        for column in summary.columns[1:4]:
            column.justify = "right"
        for table in self.tables:
            counts = (f"{table.expected_rows:,}", f"{table.actual_rows:,}", f"{table.differing_keys:,}")
            summary.add_row(escape(table.table), *counts, "[green]same[/]" if table.ok else "[red]DIFFERENT[/]")
        return summary


def _details(result: TableResult) -> Table:
    title = f"{escape(result.table)}: {len(result.differences)} of {result.differing_keys:,} differing keys"
    if result.missing_columns:
        title += f"; one side lacks {escape(', '.join(result.missing_columns))}"
    details = Table("What", "Key", "Expected", "Actual", title=title, title_justify="left", show_lines=True)
    for difference in result.differences:
        key = _row(difference.key, tuple(difference.key))
        details.add_row(
            difference.kind, key, _rows(difference.expected, difference), _rows(difference.actual, difference)
        )
    return details


def _rows(rows: tuple[Row, ...], difference: Difference) -> str:
    """The columns that differ; whole rows when they stand alone."""
    counted = Counter(_row(row, difference.columns or tuple(row)) for row in rows)
    return "\n".join(text if times == 1 else f"{times} times: {text}" for text, times in counted.items())


def _row(row: Row, columns: tuple[str, ...]) -> str:
    return escape(", ".join(f"{name}={'NULL' if row[name] is None else repr(row[name])}" for name in columns))
