"""What a flow file says of an OpenSearch target."""

from __future__ import annotations

from string import Formatter
from typing import Annotated, Literal

from pydantic import Field, field_validator

from headrace.model import Component, Duration
from headrace.on_change import OnChange
from headrace.sinks.opensearch.server import ServerConfig
from headrace.ums.system_columns import USUAL, SystemColumns

NAMES = ("type", "source", "schema", "table")
"""What an index may be named by: parts of the table's namespace."""


class OpenSearchConfig(Component, ServerConfig):
    """Delivers into indices of OpenSearch or Elasticsearch."""

    type: Literal["opensearch"]
    index: str = "{schema}.{table}"
    """The index of a table; may use {type}, {source}, {schema}, {table}, in small letters, and dates of a key's column: ``{created:%Y.%m}``."""
    records: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")] = "headrace"
    """The index in which headrace keeps what it knows of tables, and how far it has come."""
    settings: dict[str, object] = Field(default_factory=dict)
    """Settings of indices that are made: ``{number_of_shards: 3, refresh_interval: 30s}``."""
    delete: Literal["soft", "hard"] = "soft"
    """soft: a deleted row stays with `_is_active_` = 0. hard: its document is removed; a document in another index remembers the delete."""
    tombstones: Annotated[Duration, Field(ge=60)] = 7 * 86400.0
    """How long a hard delete is remembered: longer than an older change of the row can still come."""
    refresh: Literal["index", "commit"] = "index"
    """When searches see rows: index, by the index' own `refresh_interval`; commit, with each commit, which costs the server more."""
    system_columns: SystemColumns = USUAL
    """What the fields beside those of the source are called; set by the flow's `system_columns`."""
    on_change: OnChange = OnChange()
    """What becomes of fields when columns change at the source; set by the flow's `on_change`."""

    @field_validator("index")
    @classmethod
    def _is_pattern(cls, index: str) -> str:
        try:
            fields = [(name, spec) for _, name, spec, _ in Formatter().parse(index) if name is not None]
        except ValueError:
            fields = [("", "")]
        if any(not name or (not spec and name not in NAMES) for name, spec in fields):
            raise ValueError(f"'{index}' may use {{type}}, {{source}}, {{schema}}, {{table}} and {{COLUMN:%Y.%m}}")
        return index
