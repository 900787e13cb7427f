"""Lookups in OpenSearch and Elasticsearch: one search for some hundred keys.

What is found is what is searchable, which an index makes of new documents once a second by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from headrace.compute.lookups.base import Key, Lookup, Values
from headrace.errors import ConfigError
from headrace.model import Component
from headrace.sinks.opensearch.server import SearchServer, ServerConfig

_ASKED_TOGETHER = 500
_MOST_FOUND = 10_000
ID = "_id"
"""The name under which a document's own id is looked up."""


class OpenSearchLookupConfig(ServerConfig, Component):
    """Looks documents up in an index of OpenSearch or Elasticsearch."""

    type: Literal["opensearch"]
    index: Annotated[str, Field(min_length=1)]
    """The index, an alias or a pattern."""


class OpenSearchLookup(Lookup):
    """`on` names ``_id``, or fields that are kept as they are (``keyword``, numbers, dates); `take` members of the document, ``address.city``."""

    Config = OpenSearchLookupConfig

    def __init__(self, config: OpenSearchLookupConfig, on: Sequence[str], take: Sequence[str]) -> None:
        self._index = config.index
        self._on, self._take = list(on), list(take)
        self._server = SearchServer(config)

    def find(self, keys: Sequence[Key]) -> Iterable[tuple[Key, Values]]:
        with self._server.errors():
            if not self._server.client.indices.exists(index=self._index):
                raise ConfigError(f"there is no index {self._index} for a lookup", fix="correct `index` of the step")
            for first in range(0, len(keys), _ASKED_TOGETHER):
                body = {
                    "query": self._query(keys[first : first + _ASKED_TOGETHER]),
                    "fields": [name for name in self._on if name != ID],
                    "_source": self._take,
                    "size": _MOST_FOUND,
                }
                for hit in self._server.client.search(index=self._index, body=body)["hits"]["hits"]:
                    yield tuple(self._key(hit)), tuple(_member(hit["_source"], name) for name in self._take)

    def close(self) -> None:
        self._server.close()

    def _query(self, keys: Sequence[Key]) -> dict[str, Any]:
        if self._on == [ID]:
            return {"ids": {"values": [str(key[0]) for key in keys]}}
        if len(self._on) == 1:
            return {"bool": {"filter": {"terms": {self._on[0]: [_json(key[0]) for key in keys]}}}}
        terms = [[{"term": {n: _json(v)}} for n, v in zip(self._on, key, strict=True)] for key in keys]
        return {"bool": {"should": [{"bool": {"filter": each}} for each in terms], "minimum_should_match": 1}}

    def _key(self, hit: dict[str, Any]) -> Iterable[object]:
        for name in self._on:
            values = [hit[ID]] if name == ID else hit.get("fields", {}).get(name, [None])
            yield values[0]


def _json(value: object) -> object:
    return value if isinstance(value, (bool, int, float, str)) else str(value)


def _member(document: Any, path: str) -> object:
    """A member of a document, by its name or by the names on the way to it."""
    if path in document:
        found: object = document[path]
        return found
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document
