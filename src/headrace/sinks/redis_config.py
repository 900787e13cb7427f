"""What stands under `to` in a flow file for a Redis target."""

from __future__ import annotations

import re
from string import Formatter
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator
from redis import Redis

from headrace.model import Component, Duration, names_server
from headrace.on_change import OnChange
from headrace.ums.system_columns import USUAL, SystemColumns


def _is_redis_url(url: str) -> str:
    if not names_server(url, "redis", "rediss") or re.fullmatch(r"/?\d*", urlsplit(url).path) is None:
        raise ValueError("write the URL as redis://user:password@host:port/0, with the number of the database")
    try:
        Redis.from_url(url).connection_pool.make_connection()  # connects to nobody yet
    except (TypeError, ValueError) as error:
        raise ValueError(f"the URL has an option behind ? that the client does not take: {error}") from None
    return url


RedisUrl = Annotated[str, AfterValidator(_is_redis_url)]
"""Of a Redis server, with user and password."""


class RedisConfig(Component):
    """Delivers into keys of a Redis (or Valkey) server."""

    type: Literal["redis"]
    url: RedisUrl
    """``redis://user:password@host:port/0``, ``rediss://…`` with TLS."""
    key: str = "{schema}:{table}:{key}"
    """The key of a row. {key} stands for the values of the table's key columns, joined by ``:``; may also use {type} and {source}."""
    form: Literal["hash", "json"] = "hash"
    """hash: a field per column. json: one text with an object."""
    delete: Literal["soft", "hard"] = "soft"
    """soft: a deleted row stays with `_is_active_` = 0. hard: its key is removed; a key beside it remembers the delete."""
    tombstones: Annotated[Duration, Field(ge=1)] = 7 * 86400.0
    """How long a hard delete is remembered: longer than an older change of the row can still come."""
    expire: Annotated[Duration, Field(gt=0)] | None = None
    """How long a row lives behind its newest change; for ever when left out."""
    system_columns: SystemColumns = USUAL
    """What the fields beside those of the source are called; set by the flow's `system_columns`."""
    batch_rows: Annotated[int, Field(ge=1, le=5000)] = 500
    """How many rows one script takes; the server answers nobody else meanwhile."""
    timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """How long the server may take for an answer before that counts as an outage."""
    on_change: OnChange = OnChange()
    """What becomes of rows when columns change at the source; set by the flow's `on_change`."""

    @field_validator("key")
    @classmethod
    def _is_pattern(cls, key: str) -> str:
        try:
            names = {name for _, name, _, _ in Formatter().parse(key) if name is not None}
        except ValueError:
            names = set()
        if "key" not in names or not key.endswith("{key}") or names - {"type", "source", "schema", "table", "key"}:
            raise ValueError(f"'{key}' must end in {{key}}, and may use {{type}}, {{source}}, {{schema}} and {{table}}")
        return key
