"""Lookups in Redis (or Valkey): a key of hash fields or of a JSON text per row, some hundred asked for in one round trip."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal

import redis
from pydantic import Field

from headrace.compute.lookups.base import Key, Lookup, Values
from headrace.compute.lookups.pattern import KeyPattern, filled
from headrace.errors import ConfigError, FatalError, RetryableError
from headrace.model import Component, Duration
from headrace.sinks.redis_config import RedisUrl

_ASKED_TOGETHER = 500


class RedisLookupConfig(Component):
    """Looks rows up in keys of a Redis (or Valkey) server."""

    type: Literal["redis"]
    url: RedisUrl
    """``redis://user:password@host:port/0``, ``rediss://…`` with TLS."""
    key: KeyPattern
    """The key of a row, with the names of the step's `on` in braces: ``customer:{id}``."""
    form: Literal["hash", "json"] = "hash"
    """hash: `take` names fields. json: it names members of an object in the text."""
    timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """How long the server may take for an answer before that counts as an outage."""


class RedisLookup(Lookup):
    """Values are texts, but for numbers and the like in JSON. A hash without any of the fields counts as no row."""

    Config = RedisLookupConfig

    def __init__(self, config: RedisLookupConfig, on: Sequence[str], take: Sequence[str]) -> None:
        self._config = config
        self._on, self._take = list(on), list(take)
        self._client: redis.Redis | None = None

    def find(self, keys: Sequence[Key]) -> Iterable[tuple[Key, Values]]:
        try:
            if not keys:
                self._connected().ping()
            for first in range(0, len(keys), _ASKED_TOGETHER):
                together = keys[first : first + _ASKED_TOGETHER]
                for key, values in zip(together, map(self._values, self._answers(together)), strict=True):
                    if values is not None:
                        yield key, values
        except redis.AuthenticationError as error:
            raise ConfigError(
                f"the Redis server of a lookup does not let us in: {error}", fix="correct `url` of the step"
            ) from error
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise RetryableError(
                f"the Redis server of a lookup is away: {error}", fix="start it, or correct `url` of the step"
            ) from error
        except redis.RedisError as error:
            raise FatalError(
                f"the Redis server of a lookup refuses: {error}", fix="see that `form` is what the keys are"
            ) from error

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> redis.Redis:
        if self._client is None:
            timeout_s = self._config.timeout
            self._client = redis.Redis.from_url(
                self._config.url, decode_responses=True, socket_timeout=timeout_s, socket_connect_timeout=timeout_s
            )
        return self._client

    def _answers(self, keys: Sequence[Key]) -> list[Any]:
        pipeline = self._connected().pipeline(transaction=False)
        for key in keys:
            name = filled(self._config.key, self._on, key)
            if self._config.form == "hash":
                pipeline.hmget(name, self._take)
            else:
                pipeline.get(name)
        return pipeline.execute()

    def _values(self, answer: Any) -> Values | None:
        if self._config.form == "hash":
            return None if all(value is None for value in answer) else tuple(answer)
        if answer is None:
            return None
        try:
            document = json.loads(answer)
            return tuple(document.get(name) for name in self._take)
        except (ValueError, AttributeError) as error:
            raise FatalError(
                f"a value in Redis is no JSON object: {answer[:100]}", fix="correct it, or `key` of the step"
            ) from error
