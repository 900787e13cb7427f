"""The connection to OpenSearch or Elasticsearch: bulk requests, what a server that has enough to do says, and its errors as ours."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from opensearchpy import OpenSearch
from opensearchpy.exceptions import (
    AuthenticationException,
    AuthorizationException,
    ConnectionError,  # noqa: A004 - the library's name for it
    OpenSearchException,
    SSLError,
    TransportError,
)
from pydantic import BeforeValidator, Field, field_validator

from headrace.errors import ConfigError, DataError, FatalError, HeadraceError, RetryableError
from headrace.model import Duration, Model, names_server
from headrace.tls import Tls

# What the library has to say comes as an error of ours; it would write each document that is not there yet on the screen as well.
logging.getLogger("opensearch").addHandler(logging.NullHandler())
logging.getLogger("opensearch").propagate = False

_BUSY = (429, 502, 503, 504)
_BUSY_FOR_S = 30.0
_PAGE = 1000
_SCROLL = "5m"
Document = dict[str, Any]


def as_list(value: object) -> object:
    """One value or a list of them."""
    return value if isinstance(value, list) else [value]


class ServerConfig(Model):
    """How the servers are reached."""

    url: Annotated[list[str], BeforeValidator(as_list), Field(min_length=1)]
    """``https://user:password@host:9200``, or a list of the cluster's nodes, of which one that answers is used."""
    tls: Tls = Tls()
    """Authorities and certificates."""
    api_key: str | None = None
    """A key of Elasticsearch instead of user and password, as text in base64."""
    timeout: Annotated[Duration, Field(gt=0)] = 60.0
    """How long a server may take for an answer before that counts as an outage."""
    batch_bytes: Annotated[int, Field(ge=1000)] = 4_000_000
    """How large a bulk request gets; the server's `http.max_content_length` must be larger."""
    parallel: Annotated[int, Field(ge=1, le=32)] = 2
    """How many bulk requests are under way at a time."""

    @field_validator("url")
    @classmethod
    def _are_urls(cls, urls: list[str]) -> list[str]:
        for url in urls:
            if not names_server(url, "http", "https"):
                raise ValueError("write a URL as https://user:password@host:9200")
        return urls


class SearchServer:
    """A client of one cluster; connects with the first request."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._open: OpenSearch | None = None

    @property
    def client(self) -> OpenSearch:
        if self._open is None:
            hosts = [self._host(url) for url in self._config.url]
            key = self._config.api_key
            self._open = OpenSearch(
                hosts,
                ssl_context=self._config.tls.context() if any(host["use_ssl"] for host in hosts) else None,
                headers={"authorization": f"ApiKey {key}"} if key else None,
                timeout=self._config.timeout,
                maxsize=self._config.parallel,
                max_retries=len(hosts) - 1,  # of other nodes
                retry_on_status=(),
            )
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _host(self, url: str) -> dict[str, Any]:
        parts = urlsplit(url)
        is_tls = parts.scheme == "https"
        host: Document = {"host": parts.hostname, "port": parts.port or (443 if is_tls else 9200), "use_ssl": is_tls}
        host["url_prefix"] = parts.path
        if parts.username is not None:
            host["http_auth"] = (unquote(parts.username), unquote(parts.password or ""))
        return host

    # --- requests

    def bulk(self, index: str, lines: Sequence[bytes], refresh: bool = False) -> None:
        """Sends items of a bulk request, each with its line feeds; items that have been overtaken by newer ones are well.

        DataError when the server refuses a document, with the first of them; RetryableError when it has too much to do for too long.
        """
        parts = list(self._parts(lines))
        if len(parts) == 1 or self._config.parallel == 1:
            for part in parts:
                self._send(index, part, refresh)
            return
        with ThreadPoolExecutor(self._config.parallel) as pool:
            for done in [pool.submit(self._send, index, part, refresh) for part in parts]:
                done.result()

    def _parts(self, lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """As few requests as take them all, but no fewer than are sent at a time."""
        total = sum(map(len, lines))
        limit = min(self._config.batch_bytes, max(100_000, total // self._config.parallel + 1))
        start = size = 0
        for at, line in enumerate(lines):
            if size and size + len(line) > limit:
                yield lines[start:at]
                start, size = at, 0
            size += len(line)
        if size:
            yield lines[start:]

    def _send(self, index: str, lines: Sequence[bytes], refresh: bool) -> None:
        give_up_at, pause_s = time.monotonic() + _BUSY_FOR_S, 0.05
        while lines:
            lines = self._sent(index, lines, refresh)
            if lines and time.monotonic() > give_up_at:
                raise RetryableError(
                    "the OpenSearch server has more to do than it can (429)",
                    fix="give it more resources, or write less to it: `parallel: 1`, smaller `batch_bytes`",
                    retry_after_s=1.0,
                )
            if lines:
                time.sleep(pause_s)
                pause_s = min(2.0, pause_s * 2)

    def _sent(self, index: str, lines: Sequence[bytes], refresh: bool) -> Sequence[bytes]:
        """Sends once; returns what the server has turned down because it is busy."""
        told = {"filter_path": "errors,items.*.status,items.*.error.type", "refresh": "true" if refresh else "false"}
        try:
            with self.errors():
                answer = self.client.bulk(body=b"".join(lines), index=index, params=told)
        except _BusyError:
            return lines
        if not answer["errors"]:
            return []
        found = [_status(item) for item in answer["items"]]
        refused = [
            line for line, status in zip(lines, found, strict=True) if not _is_well(status) and status not in _BUSY
        ]
        if refused:
            self._explain(index, refused[0])
        return [line for line, status in zip(lines, found, strict=True) if status in _BUSY]

    def _explain(self, index: str, line: bytes) -> None:
        """Sends an item that was refused once more, alone, to hear why."""
        with self.errors():
            [item] = self.client.bulk(body=line, index=index)["items"]
        if _is_well(_status(item)):
            return
        [said] = item.values()
        error = said["error"]
        reason = "; ".join(part["reason"] for part in _chain(error))
        if said["status"] == 403:
            raise RetryableError(f"index {said['_index']} is not to be written: {reason}", fix=_BLOCKED)
        if said["status"] == 404:
            raise RetryableError(f"index {said['_index']} is gone: {reason}", fix="let headrace make it again")
        raise DataError(
            f"index {said['_index']}, document {said['_id']}: {reason}",
            fix="correct the mapping of the index, or the value at the source, or leave the column out with `columns: {drop: […]}`",
        )

    def search(self, index: str, query: Mapping[str, object], refresh: bool = True) -> Iterator[list[Document]]:
        """Pages of documents with `_id`, `_index`, `_version` and `_source`, as they are when the search begins."""
        if refresh:
            self.client.indices.refresh(index=index)
        body = {"query": query, "version": True, "sort": ["_doc"], "size": _PAGE}
        page = self.client.search(index=index, body=body, params={"scroll": _SCROLL})
        try:
            while hits := page["hits"]["hits"]:
                yield hits
                page = self.client.scroll(body={"scroll_id": page["_scroll_id"], "scroll": _SCROLL})
        finally:
            self.client.clear_scroll(body={"scroll_id": [page["_scroll_id"]]})

    @contextmanager
    def errors(self) -> Iterator[None]:
        """What the library raises becomes an error of ours."""
        try:
            yield
        except (OpenSearchException, OSError) as error:
            raise _translated(error) from error


class _BusyError(RetryableError):
    """The server turned a whole request down, because it has too much to do or misses a part."""


_BLOCKED = 'look for the reason, a full disk for instance, and take the block away: PUT /INDEX/_settings {"index.blocks.read_only_allow_delete": null}'


def _status(item: Document) -> int:
    """What became of an item of a bulk request; a delete of what is not there is done."""
    [said] = item.values()
    return int(said["status"]) if "error" in said else 200


def _is_well(status: int) -> bool:
    """Done; or, 409, a newer change is there."""
    return status in (200, 409)


def _chain(error: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    cause: Mapping[str, Any] | None = error
    while cause:
        yield cause
        cause = cause.get("caused_by")


def _translated(error: Exception) -> HeadraceError:
    if isinstance(error, SSLError):
        return ConfigError(
            f"the OpenSearch server's encryption is not accepted: {error.error}",
            fix="name its authority with `tls: {ca: FILE}`, and the host as its certificate does",
        )
    if isinstance(error, ConnectionError) or not isinstance(error, TransportError):
        what = error.error if isinstance(error, ConnectionError) else error
        return RetryableError(f"the OpenSearch server is away: {what}", fix="start it, or correct `url`")
    return _refused(error, f"the OpenSearch server said: {_said(error)}")


def _refused(error: TransportError, what: str) -> HeadraceError:
    """The server's answer to a whole request."""
    if isinstance(error, AuthenticationException):
        return ConfigError(what, fix="correct user and password in `url`, or `api_key`")
    if isinstance(error, AuthorizationException):
        rights = ConfigError(what, fix="give the user the rights to create, map, read and write the flow's indices")
        return RetryableError(what, fix=_BLOCKED) if "cluster_block" in str(error.error) else rights
    if error.status_code in _BUSY:
        return _BusyError(what, fix="look at the cluster's health; headrace tries again", retry_after_s=1.0)
    if error.status_code == 413:
        return ConfigError(what, fix="make `batch_bytes` smaller than the server's http.max_content_length")
    return FatalError(what, fix="see the server's log for the reason, then start again")


def _said(error: TransportError) -> str:
    found = error.info.get("error") if isinstance(error.info, dict) else None
    if isinstance(found, dict) and "reason" in found:
        return f"{error.status_code} {found['type']}: " + "; ".join(str(part.get("reason")) for part in _chain(found))
    return f"{error.status_code} {error.error}" if isinstance(error.error, str) else json.dumps(error.info)
