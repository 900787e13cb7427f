"""What is known of lines on their way through the steps of a rule: texts by name, a row for each line or piece of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

Array: TypeAlias = "pa.Array[Any]"

LINE, HOST, PATH, EVENT = "line", "host", "path", "event"
"""What every line begins with: its text, where it comes from, and (from a shipper) the whole JSON object that it came in."""
GIVEN = (LINE, HOST, PATH, EVENT)


@dataclass(frozen=True, slots=True)
class Fields:
    """Rows of texts. `lines`: which line each row is of, as a number that only grows from row to row."""

    texts: dict[str, Array]
    lines: Array

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, name: str) -> Array:
        return self.texts[name]

    def with_field(self, name: str, texts: Array) -> Fields:
        """With one more field, or another one of that name."""
        return Fields({**self.texts, name: texts}, self.lines)

    def where(self, kept: Array) -> Fields:
        """Only the rows for which `kept` is true."""
        if pc.all(kept, skip_nulls=False).as_py():
            return self
        return Fields({name: texts.filter(kept) for name, texts in self.texts.items()}, self.lines.filter(kept))

    def take(self, rows: Array) -> Fields:
        """These rows, by their numbers."""
        return Fields({name: texts.take(rows) for name, texts in self.texts.items()}, self.lines.take(rows))

    def slice(self, start: int, count: int) -> Fields:
        """Some rows, with their lines numbered from 0."""
        texts = {name: column.slice(start, count) for name, column in self.texts.items()}
        return Fields(texts, call("subtract", self.lines.slice(start, count), start))

    def sizes(self) -> list[int]:
        """How many bytes the texts of each row have."""
        sizes: Array = pa.repeat(pa.scalar(0, pa.int64()), len(self))
        for texts in self.texts.values():
            sizes = call("add", sizes, call("coalesce", call("binary_length", texts), 0))
        found: list[Any] = sizes.to_pylist()
        return found

    def only(self, names: Sequence[str]) -> Fields:
        """Without the fields that nobody will ask for."""
        return Fields({name: texts for name, texts in self.texts.items() if name in names}, self.lines)


def texts_of(values: Sequence[str | None]) -> Array:
    """A column of texts."""
    return pa.array(values, pa.utf8())


def numbers(count: int) -> Array:
    """0, 1, 2, …"""
    ones: Array = pa.repeat(pa.scalar(1, pa.int64()), count)
    return call("subtract", pc.cumulative_sum(ones), 1)


def call(
    function: str, *inputs: Array | pa.Scalar[Any] | str | float, options: pc.FunctionOptions | None = None
) -> Array:
    """A function of Arrow on columns and constants: its own wrappers are typed for columns of one type each."""
    values = [pa.scalar(one) if isinstance(one, (str, int, float)) else one for one in inputs]
    found: Array = pc.call_function(function, values, options)
    return found


def is_true(condition: Array) -> Array:
    """A condition as true or false, where null is false."""
    return call("coalesce", condition, pa.scalar(value=False))


def holds_for_any(condition: Array) -> bool:
    """Whether a condition is true somewhere."""
    return bool(pc.any(condition).as_py())
