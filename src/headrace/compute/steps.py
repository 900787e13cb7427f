"""The steps of a flow, in its file. Each is a SELECT over the rows that have come so far, which it knows as `input`.

What a step makes of a table is found out when the table's columns are known (plan.py); nothing here needs an engine.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny

from headrace.model import Component, Duration, Model, config_of

INPUT = "input"
"""What SQL calls the rows that come, whichever table they are of."""

_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_ ]*(\(\d+(, ?\d+)?\))?")


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def _type(text: str) -> str:
    if not _TYPE.fullmatch(text):
        raise ValueError(
            f"'{text}' is no type; write one of DuckDB's, for instance text, bigint, decimal(12,2), timestamp"
        )
    return text


class Step(Model):
    """Makes rows of rows, each of its own."""

    do: str
    """Which step it is."""


class Selecting(Step):
    """A step that is a SELECT."""

    @abstractmethod
    def select(self, names: Sequence[str]) -> str:
        """The step in SQL. `names`: the columns of `input`, headrace's own left out."""


class Filter(Selecting):
    """Leaves out the rows for which a condition does not hold."""

    do: Literal["filter"]
    where: str
    """``amount > 10 AND status <> 'draft'``."""

    def select(self, names: Sequence[str]) -> str:
        return f"SELECT * FROM {INPUT} WHERE (\n{self.where}\n)"


class Set(Selecting):
    """Computes columns: new ones, or others in the place of those that there are."""

    do: Literal["set"]
    columns: Annotated[dict[str, str], Field(min_length=1)]
    """Column -> expression: ``{gross: "amount * 1.2"}``. An expression sees the columns as they were before the step."""

    def select(self, names: Sequence[str]) -> str:
        there = {name.casefold() for name in names}
        replaced = [self._item(name) for name in self.columns if name.casefold() in there]
        added = [self._item(name) for name in self.columns if name.casefold() not in there]
        star = f"* REPLACE ({', '.join(replaced)})" if replaced else "*"
        return f"SELECT {', '.join([star, *added])} FROM {INPUT}"

    def _item(self, name: str) -> str:
        return f"(\n{self.columns[name]}\n) AS {quoted(name)}"


class Drop(Selecting):
    """Leaves columns out."""

    do: Literal["drop"]
    columns: Annotated[list[str], Field(min_length=1)]
    """Their names."""

    def select(self, names: Sequence[str]) -> str:
        return f"SELECT * EXCLUDE ({', '.join(map(quoted, self.columns))}) FROM {INPUT}"


class Member(Model):
    """A value within a JSON document."""

    path: Annotated[str, Field(pattern=r"^\$|^/")]
    """Where it stands: ``$.address.city``, ``$.items[0].sku``; null where there is none."""
    type: Annotated[str, AfterValidator(_type)] = "text"
    """What it becomes."""


class Flatten(Selecting):
    """Takes values out of a column of JSON into columns of their own. A document that is not JSON is refused."""

    do: Literal["flatten"]
    column: str
    """The column of JSON."""
    to: Annotated[dict[str, Member], Field(min_length=1)]
    """New column -> what it gets: ``{city: {path: $.address.city}, age: {path: $.age, type: int}}``."""
    keep: bool = False
    """Whether the column of JSON stays."""

    def select(self, names: Sequence[str]) -> str:
        star = "*" if self.keep else f"* EXCLUDE ({quoted(self.column)})"
        return f"SELECT {', '.join([star, *map(self._item, self.to)])} FROM {INPUT}"

    def _item(self, name: str) -> str:
        member = self.to[name]
        path = member.path.replace("'", "''")
        return f"CAST(json_extract_string({quoted(self.column)}, '{path}') AS {member.type}) AS {quoted(name)}"


class Sql(Selecting):
    """Any SELECT that makes each row of one row."""

    do: Literal["sql"]
    query: str
    """``SELECT id, upper(name) AS name FROM input WHERE active``; instead of `input` the table's own name may stand there."""

    def select(self, names: Sequence[str]) -> str:
        return self.query


class Taken(Model):
    """A column of the store."""

    column: str | None = None
    """What the store calls it; as the new column when left out."""
    type: Annotated[str, AfterValidator(_type)]
    """What it becomes."""


def _taken(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


class LookUp(Step):
    """Finds a row in another store for each row, by a key, and takes columns of it. Deleted rows are not looked up."""

    do: Literal["lookup"]
    store: Annotated[SerializeAsAny[Component], config_of("lookups"), Field(alias="from")]
    """The store: `type` and its options."""
    on: Annotated[dict[str, str], Field(min_length=1)]
    """Column of the rows -> column of the store, in which it is unique (all of them together, when they are several)."""
    take: Annotated[dict[str, Annotated[Taken, BeforeValidator(_taken)]], Field(min_length=1)]
    """New column -> its type, ``{segment: text}``, or column and type, ``{most: {column: credit_limit, type: "decimal(12,2)"}}``."""
    active: str | None = None
    """The column of the store that is 0 in rows that do not count, `_is_active_` in tables that headrace fills."""
    missing: Literal["keep", "drop", "fail"] = "keep"
    """A row whose key the store does not have: `keep` leaves the new columns null, `drop` leaves the row out as a filter does, `fail` refuses it."""
    cache_rows: Annotated[int, Field(ge=0)] = 100_000
    """How many answers are kept, for each partition of a source."""
    cache_ttl: Annotated[Duration, Field(ge=0)] = 600.0
    """How long an answer counts, that there is no row too."""

    def columns(self) -> list[str]:
        """The columns of the store that are asked for: those of `take` in its order, then `active`."""
        return [*(taken.column or name for name, taken in self.take.items()), *filter(None, [self.active])]


AnyStep = Annotated[Filter | Set | Drop | Flatten | Sql | LookUp, Field(discriminator="do")]
