"""What the file of a loader says."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field, field_validator, model_validator

from headrace.log.kafka.config import Sasl
from headrace.model import Duration, Model, StoreUrl
from headrace.sinks.doris.config import ClusterConfig
from headrace.tls import Tls


class TopicConfig(Model):
    """Where messages come from."""

    brokers: Annotated[str, Field(pattern=r"^[^\s,]+:\d+(,[^\s,]+:\d+)*$")]
    """Some brokers to ask for the others: ``host:port,host:port``."""
    topics: Annotated[list[str], Field(min_length=1)]
    """The topics, by name."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin at the first start."""
    group: str | None = None
    """The group under which offsets are committed for those who look at lags; ``headrace-NAME`` when left out. They are never read back."""
    tls: Tls | None = None
    """Encrypts the connection."""
    sasl: Sasl | None = None
    """Logs in."""
    timeout: Annotated[Duration, Field(ge=1)] = 10.0
    """How long brokers may take for an answer before that counts as an outage."""


Sign = Annotated[str, Field(pattern=r"^[\x21-\x7e]$")]
"""One sign of ASCII."""


class Separators(Model):
    """How values of a CSV are separated."""

    separator: Annotated[str, Field(min_length=1, max_length=8)] = "\t"
    """Between two values."""
    lines: Annotated[str, Field(min_length=1, max_length=8)] = "\n"
    """Behind each row."""
    enclose: Sign | None = None
    """What may stand around a value."""
    escape: Sign | None = None
    """What takes the meaning from the sign behind it."""

    @model_validator(mode="after")
    def _are_told_apart(self) -> Self:
        if self.separator in self.lines or self.lines in self.separator:
            raise ValueError("`separator` and `lines` must not be parts of one another")
        for sign in (self.enclose, self.escape):
            if sign is not None and sign in self.separator + self.lines:
                raise ValueError(f"{sign} stands in `separator` or `lines`: take another one to enclose or escape")
        return self


class JsonMessages(Model):
    """Each message is a JSON object, and a row."""

    format: Literal["json"] = "json"


class CsvMessages(Separators):
    """Each message is a row of separated values, or some."""

    format: Literal["csv"]
    fields: Annotated[list[str], Field(min_length=1)]
    """What the values are called, in their order. Those that no column asks for are left out."""
    null: str = "\\N"
    """What is NULL, where nothing encloses it."""

    @model_validator(mode="after")
    def _have_names_of_their_own(self) -> Self:
        if len(set(self.fields)) < len(self.fields):
            raise ValueError("two `fields` have one name")
        return self


class UmsMessages(Model):
    """Each message is UMS: changes of a table, a row each."""

    format: Literal["ums"]
    tables: Annotated[list[str], Field(min_length=1)]
    """Of which tables: their names, ``mysql.db1.shop.orders``, which may have ``*`` in them. What is of others is passed over."""


class JsonBody(Model):
    """Loads are lines of JSON, which hold any value."""

    format: Literal["json"] = "json"


class CsvBody(Separators):
    """Loads are CSV: smaller, but only with `enclose` and `escape` do they hold any value."""

    format: Literal["csv"]

    @model_validator(mode="after")
    def _both_or_none(self) -> Self:
        if (self.enclose is None) != (self.escape is None) or (
            self.enclose is not None and self.enclose == self.escape
        ):
            raise ValueError("give `enclose` and `escape`, two different signs, or neither")
        return self


class Partitions(Model):
    """Range partitions that are made ahead, in a table that does not make them itself."""

    unit: Literal["hour", "day", "week", "month", "year"] = "day"
    """What each is of. Weeks begin on Monday."""
    ahead: Annotated[int, Field(ge=1, le=1000)] = 3
    """So many behind the one of now."""
    back: Annotated[int, Field(ge=0, le=1000)] = 0
    """So many before it."""
    zone: str = "UTC"
    """The time zone of the column."""

    @field_validator("zone")
    @classmethod
    def _is_known(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"'{zone}' is no time zone") from error
        return zone


class LoaderConfig(Model):
    """From topics into one table."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$")]
    """The loader's name in the store, and first part of its labels."""
    kafka: TopicConfig
    """Where messages come from."""
    doris: ClusterConfig
    """How the cluster is reached."""
    database: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    """The table's database."""
    table: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]
    """The table, which is there."""
    messages: Annotated[JsonMessages | CsvMessages | UmsMessages, Field(discriminator="format")] = JsonMessages()
    """What messages are."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Column -> where its value stands in a message, ``{name: user.name}``; columns that are left out have it under their own names."""
    sequence: str | None = None
    """Where in a message stands which of two rows of a key is newer, for a table whose sequence is a hidden column (`function_column.sequence_type`).
    Changes in UMS have `_ums_id_`."""
    body: Annotated[JsonBody | CsvBody, Field(discriminator="format")] = JsonBody()
    """What is sent to Doris."""
    partitions: Partitions | None = None
    """Partitions that are made ahead; none when left out."""
    store: StoreUrl
    """The database with the meta table: ``sqlite:///FILE``, ``postgresql://…`` or ``mysql://…``."""
    batch_rows: Annotated[int, Field(ge=1)] = 500_000
    """A load has so many messages at most,"""
    batch_bytes: Annotated[int, Field(ge=1)] = 64 << 20
    """or about so many bytes of them,"""
    batch_wait: Annotated[Duration, Field(gt=0)] = 10.0
    """or what has come in this time."""
    in_flight: Annotated[int, Field(ge=1, le=64)] = 4
    """How many loads are under way at once. One only where the later of two rows stays: a unique key without a sequence column."""
    two_phase: bool = False
    """Pre-commits a load, writes the number of its transaction into the store, and commits it then."""
    bad_rows: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Which part of a load's rows may be bad: left out, and kept in the store with the reasons. With more, the loader stops."""
    commit_every: Annotated[int, Field(ge=1)] = 60
    """Offsets are committed to Kafka behind so many loads that follow one another."""
    keep: Annotated[Duration, Field(ge=0)] = 7 * 86400.0
    """How long rows of the meta table are kept."""
    audit_column: str | None = None
    """A column of the table that gets the label of its load: by it a load is found that Doris does not remember any more."""
    give_up_after: Annotated[Duration, Field(gt=0)] = 600.0
    """How long an outage may last."""
    look_every: Annotated[Duration, Field(gt=0)] = 60.0
    """How often the table is looked at: its columns, and whether it needs partitions."""

    @model_validator(mode="after")
    def _audit_is_no_column(self) -> Self:
        if self.audit_column is not None and self.audit_column.casefold() in map(str.casefold, self.columns):
            raise ValueError(f"`audit_column` {self.audit_column} gets the label: take it out of `columns`")
        return self
