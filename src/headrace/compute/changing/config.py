"""A source of `type: sql` in a flow file."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from headrace.model import Duration, Model, SourceConfig

_OURS = {
    "answer", "becoming", "changed", "clears", "coming", "defaults", "fresh", "known_late", "late", "narrowed", "narrowed_rows", "nothing", "over", "place",
    "rows_of_it", "told", "versions",
}  # fmt: skip
"""What the modules of this package call tables and relations of their own."""


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


class WindowSpec(Model):
    """What the rows of an input belong to, by a time in them. Exactly one of `length`, `gap` and `keep`."""

    time: str
    """The column of event time; ``_ums_ts_`` and ``_ums_commit_ts_`` are times of the change itself."""
    length: Annotated[Duration, Field(gt=0)] | None = None
    """Windows of this length, the first from 1970-01-01T00:00:00 UTC. The SQL sees `window_start` and `window_end` with each row."""
    every: Annotated[Duration, Field(gt=0)] | None = None
    """Windows of `length` overlap: one begins every so often, and the SQL sees a row once for each that it is in."""
    gap: Annotated[Duration, Field(gt=0)] | None = None
    """Sessions: one ends when nothing has come for so long. The SQL sees `window_start` and `window_end` (the newest time and the gap)."""
    by: list[str] = Field(default_factory=list)
    """Whose sessions they are: ``[customer]``; of all rows together when left out."""
    keep: Annotated[Duration, Field(gt=0)] | None = None
    """No windows: rows are kept until the watermark is so far behind their time, for joins and deduplication within that time."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if sum(each is not None for each in (self.length, self.gap, self.keep)) != 1:
            raise ValueError("say one of `length` (windows), `gap` (sessions) and `keep` (rows by themselves)")
        if self.every is not None and (self.length is None or self.every > self.length):
            raise ValueError("`every` is of windows with a `length`, and not longer than that")
        if self.by and self.gap is None:
            raise ValueError("`by` is of sessions, which have a `gap`")
        return self


class ClosingSpec(Model):
    """Which inputs are streams whose rows are forgotten, and when what is computed of them is final."""

    of: Annotated[dict[str, WindowSpec], Field(min_length=1)]
    """By input: ``{visits: {time: at, length: 1m}}``. Inputs that are not named stay tables, which are never forgotten."""
    delay: Annotated[Duration, Field(ge=0)] = 0.0
    """How far event times may be behind the watermark: the usual lateness of a column where commit times say how far all is."""
    amend: Annotated[Duration, Field(ge=0)] = 0.0
    """For so long behind the watermark windows are corrected by rows that come late."""
    early: bool = False
    """Tell windows from their first row on, and correct them until they are final."""


class SqlSourceConfig(SourceConfig):
    """A table that SQL computes from tables on the log, kept up as they change."""

    type: Literal["sql"]
    inputs: Annotated[dict[str, Annotated[list[str], BeforeValidator(_as_list)]], Field(alias="from", min_length=1)]
    """What the SQL reads: its name there -> namespace patterns, ``{orders: "mysql.db1.shop.orders"}``; several tables (shards) are one."""
    sql: str
    """``SELECT status, count(*) AS orders, sum(total) AS amount FROM orders GROUP BY status``, over the newest rows of all of them."""
    key: Annotated[list[str], Field(min_length=1)]
    """The columns that tell its rows apart; never null."""
    table: Annotated[str, Field(min_length=1)] | None = None
    """What the table is called; as the source when left out."""
    keys: dict[str, list[str]] = Field(default_factory=dict)
    """Key columns of inputs that have no primary key: ``{"shop.visits": [day, page]}``. Tables without any must only be added to."""
    start: Literal["all", "kept"] = "all"
    """Where to begin in a log that has given up its oldest entries: `all` refuses that, `kept` begins with what is there (load the tables again then)."""
    tombstones: Annotated[Duration, Field(ge=0)] = 604800.0
    """For how long the keys of deleted rows are remembered, so that older changes that come late lose."""
    windows: ClosingSpec | None = None
    """Rows are final when the watermark has passed their `window_end`, and inputs are forgotten behind it; when left out everything is kept."""
    memory: Annotated[str, Field(pattern=r"^\d+(MB|GB)$")] = "1GB"
    """How much memory it may use; what does not fit goes to disk as far as DuckDB can."""

    @model_validator(mode="after")
    def _fits_sql(self) -> Self:
        for name in self.inputs:
            if not name.isidentifier():
                raise ValueError(f"'{name}' is no name for SQL: letters, digits and underscores, no digit first")
            if name.casefold() in _OURS:
                raise ValueError(f"headrace itself has a table {name} in the state: call the input otherwise")
        if len({name.casefold() for name in self.inputs}) < len(self.inputs):
            raise ValueError(
                "SQL does not tell upper and lower case in names of tables apart: give each input a name of its own"
            )
        if self.mask:
            raise ValueError(
                "what was told is compared with what is computed: leave `mask` out, and mask at the sources of the inputs"
            )
        for name in self.windows.of if self.windows is not None else ():
            if name not in self.inputs:
                raise ValueError(f"`windows` are of {name}, which is no input: `from` names {', '.join(self.inputs)}")
        return self

    @property
    def reads_from_log(self) -> list[str]:
        return [pattern for patterns in self.inputs.values() for pattern in patterns]

    @property
    def needs_watermark(self) -> bool:
        return self.windows is not None

    @property
    def called(self) -> str:
        """The table's name."""
        return self.table or self.name

    @property
    def fingerprint(self) -> str:
        """What its rows are computed by; other rows than these come of another one."""
        said: dict[str, object] = {"from": self.inputs, "sql": self.sql, "key": self.key, "keys": self.keys}
        said["table"] = self.called
        if self.windows is not None:
            said["windows"] = self.windows.model_dump()
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:16]
