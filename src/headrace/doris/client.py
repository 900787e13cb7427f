"""The service of loaders, as the command line asks it."""

from __future__ import annotations

from typing import Any, TypeAlias
from urllib.parse import quote

import urllib3

from headrace.errors import ConfigError, FatalError, RetryableError

Json: TypeAlias = "dict[str, Any]"
_TIMEOUT_S = 30.0


class ServiceClient:
    """RetryableError when the service is away, ConfigError when it refuses."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def loads(self) -> list[Json]:
        """All loaders."""
        found: list[Json] = self._ask("GET", "/v1/loads")["loads"]
        return found

    def change(self, name: str, what: str) -> Json:
        """`start`, `stop` or `restart`; the loader as it is then."""
        return self._ask("POST", f"/v1/loads/{quote(name, safe='')}/{what}")

    def _ask(self, method: str, path: str) -> Json:
        try:
            with urllib3.PoolManager() as pool:
                answer = pool.request(
                    method, f"{self._url}{path}", headers=self._headers, timeout=_TIMEOUT_S, retries=False
                )
                said: Json = answer.json()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise RetryableError(
                f"the service {self._url} does not answer: {error}",
                fix="start it: `headrace doris serve`; or correct `--url`",
            ) from error
        except ValueError as error:
            raise ConfigError(f"{self._url} is no service of loaders", fix="correct `--url`") from error
        if answer.status == 200:
            return said
        wrong, fix = str(said.get("error")), str(said.get("fix"))
        if answer.status < 500:
            raise ConfigError(wrong, fix=fix)
        raise FatalError(wrong, fix=fix)
