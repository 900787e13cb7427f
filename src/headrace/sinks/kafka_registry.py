"""A schema registry with Confluent's REST API (Confluent's own, Karapace, Apicurio, Cloudera's): schemas by subject, each under a number."""

from __future__ import annotations

import json
from typing import Annotated
from urllib.parse import quote

import urllib3
from pydantic import BeforeValidator, Field

from headrace.errors import ConfigError, DataError, HeadraceError, RetryableError
from headrace.model import Model
from headrace.tls import Tls

_JSON = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S = 20.0
_CONFLUENT = "is_compatible", "messages"
_CLOUDERAS = "compatible", "errorMessage"
"""Where an answer says whether a schema would be taken, and why not."""
_CLOUDERA = "/confluent"
"""How the address of Cloudera's Confluent API ends: it has all of it but the question whether a schema would be taken, which is in its own API."""


class RegistryConfig(Model):
    """How the registry is reached."""

    url: Annotated[str, Field(pattern=r"^https?://[^\s/@?]+[^\s@?]*$")]
    """Where its API begins: ``http://registry:8081``."""
    user: str | None = None
    """The user's name, where the registry asks for one."""
    password: str | None = None
    """The user's password, best from the environment: ``${REGISTRY_PASSWORD}``."""
    tls: Tls | None = None
    """Which authority vouches for an ``https://`` registry, where that is not one that the machine knows."""


def _from_url(value: object) -> object:
    return {"url": value} if isinstance(value, str) else value


RegistryAt = Annotated[RegistryConfig, BeforeValidator(_from_url)]
"""In a flow file the address alone, or an object with how to log in."""


class Registry:
    """One registry; connects with the first schema."""

    def __init__(self, config: RegistryConfig) -> None:
        self._config = config
        self._pool: urllib3.PoolManager | None = None
        self._numbers: dict[tuple[str, str], int] = {}

    def number(self, subject: str, schema: str) -> int:
        """The number of a schema, which is registered under its subject when it is not there.

        DataError when the subject's rule of compatibility refuses it, RetryableError when the registry is away.
        """
        if (subject, schema) not in self._numbers:
            self._numbers[subject, schema] = self._register(subject, schema)
        return self._numbers[subject, schema]

    def check(self) -> None:
        """Raises what `number` would when the registry cannot be asked."""
        answer = self._ask("GET", "/subjects", None)
        if answer.status != 200:
            raise self._refused("the list of subjects", answer)

    def rehearse(self, subject: str, schema: str) -> None:
        """Raises what `number` would of a schema, as far as the registry tells; registers nothing."""
        body = json.dumps({"schema": schema}).encode()
        name = quote(subject, safe="")
        there = self._ask("POST", f"/subjects/{name}", body)
        if there.status == 200:
            return
        if there.status == 422:  # is no schema to the registry
            raise self._refused(f"the schema of subject {subject}", there)
        answer = self._ask("POST", f"/compatibility/subjects/{name}/versions/latest?verbose=true", body)
        is_taken, why = _CONFLUENT
        if answer.status != 200 and self._config.url.rstrip("/").endswith(_CLOUDERA):
            own = self._config.url.rstrip("/").removesuffix(_CLOUDERA) + f"/schemaregistry/schemas/{name}/compatibility"
            answer = self._ask_at("POST", own, schema.encode(), "application/json")
            is_taken, why = _CLOUDERAS
        said = json.loads(answer.data) if answer.status == 200 else {}
        if not said.get(is_taken, True):
            raise self._incompatible(
                f"the schema registry {self._config.url} would refuse the schema of subject {subject}: {said.get(why) or 'it is not compatible'}"
            )

    def close(self) -> None:
        """Ends the connection; numbers stay known. Idempotent."""
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    def _register(self, subject: str, schema: str) -> int:
        body = json.dumps({"schema": schema}).encode()
        answer = self._ask("POST", f"/subjects/{quote(subject, safe='')}/versions", body)
        if answer.status != 200:
            raise self._refused(f"the schema of subject {subject}", answer)
        return int(json.loads(answer.data)["id"])

    def _ask(self, method: str, path: str, body: bytes | None) -> urllib3.BaseHTTPResponse:
        return self._ask_at(method, self._config.url.rstrip("/") + path, body, _JSON)

    def _ask_at(self, method: str, url: str, body: bytes | None, form: str) -> urllib3.BaseHTTPResponse:
        config = self._config
        headers = {"Content-Type": form, "Accept": form}
        if config.user is not None:
            headers |= urllib3.make_headers(basic_auth=f"{config.user}:{config.password or ''}")
        try:
            return self._opened().request(method, url, body=body, headers=headers, timeout=_TIMEOUT_S, retries=False)
        except urllib3.exceptions.HTTPError as error:
            raise RetryableError(
                f"the schema registry {config.url} is away: {error}", fix="start it, or correct `registry`"
            ) from error

    def _opened(self) -> urllib3.PoolManager:
        if self._pool is None:
            context = None if self._config.tls is None else self._config.tls.context()
            self._pool = urllib3.PoolManager(ssl_context=context)
        return self._pool

    def _incompatible(self, said: str) -> DataError:
        return DataError(
            said,
            fix="let the subject take it (its compatibility: NONE, or BACKWARD where it is FULL), give the flow another `topic`, or"
            " leave the column out",
        )

    def _refused(self, what: str, answer: urllib3.BaseHTTPResponse) -> HeadraceError:
        said = f"the schema registry {self._config.url} refuses {what} ({answer.status}): {answer.data.decode(errors='replace')[:500]}"
        if answer.status == 409:
            return self._incompatible(said)
        if answer.status in (401, 403):
            return ConfigError(
                said, fix="correct `user` and `password` of `registry`, or let the user register schemas"
            )
        if answer.status == 404:
            return ConfigError(said, fix="correct the address in `registry`")
        if answer.status == 422:
            return DataError(said, fix="leave the column out with `columns: {drop: [...]}`")
        return RetryableError(said, fix="look at the registry's log; headrace tries again")
