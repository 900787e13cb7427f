"""The webhook sink: changes are posted to a URL, some hundred a time.

::

    POST /hook HTTP/1.1
    Content-Type: application/json
    Idempotency-Key: 5f0c…            the same whenever the same rows are posted again, as SHA-256 of flow and body
    webhook-id: 5f0c…                 the same, and with `secret` the signature, as Standard Webhooks have them (signing.py)
    webhook-timestamp: 1782345600
    webhook-signature: v1,K5oZ…

    {"flow": "mart", "namespace": "mysql.db1.shop.orders.0.0.0", "key": ["id"],
     "rows": [{"id": 10, "note": "x", "_ums_id_": "3000000001234", "_ums_ts_": "2024-02-29 23:59:59.000000", "_is_active_": 1}, …]}
    {"flow": "mart", "namespace": "mysql.db1.shop.orders.0.0.0", "clear": {"id": "3000000001300", "cause": "truncated", …}}

Rows are flat JSON (codec/foreign/flat.py), or with `format: ums` the body is a UMS message.

What the receiver must bear: rows come in the order of the log, and again from an earlier place after each crash, outage or refusal,
perhaps put together in another way. Of two changes of a key the one with the larger `_ums_id_` counts, whichever comes first. A clear
says that all rows of the table with a smaller `_ums_id_` are gone. What it answers with 2xx must be durable there.

=========================== =================================================================================================
2xx                         taken
408, 425, 429, 5xx, no      posted again, later and later, not before `Retry-After` (up to 30 s), as long as `give_up_after`
answer within `timeout`     lasts
401, 403, 404, 405, 407,    the flow stops: it is not the rows' fault
410, and redirects
other 4xx                   these rows are refused: the flow stops, or finds out which they are by posting parts of them, and sets
                            them aside (`set_aside` of the flow)
=========================== =================================================================================================
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

import urllib3
from pydantic import Field, field_validator, model_validator

from headrace.codec.entries import EntryWriter
from headrace.codec.foreign.changes import of_batch
from headrace.codec.foreign.flat import FlatWriter
from headrace.errors import ConfigError, DataError, Finding, HeadraceError, RetryableError
from headrace.log.base import EntryForm, Form
from headrace.model import Component, Duration, LocalPath
from headrace.signing import signing_key, webhook_headers
from headrace.sinks.base import Capabilities, Position, refuse_names, refuse_types, refused
from headrace.sinks.gathered import GatheringSink
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import TableSchema
from headrace.ums.system_columns import USUAL, SystemColumns

_AGAIN = {408, 425, 429}
_STOP = {401, 403, 404, 405, 407, 410}
_LONGEST_WAIT_S = 30.0
_ANSWER_SHOWN = 200


class WebhookConfig(Component):
    """Posts changes to a URL."""

    type: Literal["webhook"]
    url: str
    """``https://host/path``."""
    format: Literal["json", "ums"] = "json"
    """What a body is: an object with rows as they are now, or a UMS message."""
    headers: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], Annotated[str, Field(pattern=r"^[\x20-\x7e]*$")]
    ] = Field(default_factory=dict)
    """Sent with each request: ``{Authorization: "Bearer ${TOKEN}"}``."""
    secret: str | None = None
    """Signs each request: ``whsec_`` and base64, or any text; not signed when left out."""
    ca: LocalPath | None = None
    """PEM file with the authorities that the server's certificate is checked against; the system's when left out."""
    system_columns: SystemColumns = USUAL
    """What `format: json` says of a row beside the columns; set by the flow's `system_columns`."""
    batch_rows: Annotated[int, Field(ge=1, le=100_000)] = 500
    """How many rows one request has at most."""
    timeout: Annotated[Duration, Field(gt=0)] = 10.0
    """How long the server may take to answer before that counts as an outage."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("write the URL as https://host/path")
        return url

    @model_validator(mode="after")
    def _format_has_it(self) -> WebhookConfig:
        if self.system_columns != USUAL and self.format != "json":
            raise ValueError("only `format: json` has system columns: leave `system_columns` out")
        return self

    @field_validator("secret")
    @classmethod
    def _is_secret(cls, secret: str | None) -> str | None:
        if secret is not None:
            signing_key(secret)
        return secret


class WebhookSink(GatheringSink):
    """Gathers what comes, and posts it when there is enough, or a commit."""

    Config = WebhookConfig
    capabilities: ClassVar[Capabilities] = Capabilities(needs_key=False, remembers_position=False, scans=False)

    def __init__(self, config: WebhookConfig, flow: str) -> None:
        super().__init__(config.batch_rows)
        self._config = config
        self._flow = flow
        self._ums = EntryWriter(EntryForm(Form.UMS, rows=config.batch_rows), source_type="")
        self._pool: urllib3.PoolManager | None = None

    def prepare(self, table: TableSchema) -> None:
        refuse_types(table)
        if self._config.format == "json":
            refuse_names(table, self._config.system_columns.of_rows)

    def misfits(self, tables: Sequence[TableSchema]) -> Iterator[Finding]:
        return refused(*(partial(self.prepare, table) for table in tables))

    def clear(self, clear: Clear) -> None:
        self.flush()
        self._post_all(clear)

    def flush(self) -> None:
        for batch in self._take():
            self._post_all(batch)

    def commit(self, position: Position) -> None:
        self.flush()

    def check(self) -> None:
        """Asks without posting anything; whatever is answered, somebody is there."""
        self._answer("HEAD", b"")

    def close(self) -> None:
        super().close()
        if self._pool is not None:
            self._pool.clear()
            self._pool = None

    # --- bodies

    def _bodies(self, change: ChangeBatch | Clear) -> Iterator[bytes]:
        if self._config.format == "ums":
            yield from (entry.value for entry in self._ums.changes(change, 0))
            return
        head = {"flow": self._flow, "namespace": str(change.table.namespace)}
        if isinstance(change, Clear):
            header = {**change.statement.header(), "cause": change.cause, "id": str(change.id)}
            yield json.dumps({**head, "clear": header}, ensure_ascii=False).encode()
            return
        try:
            rows = ",\n".join(row for _, row in FlatWriter(self._config.system_columns).messages(of_batch(change)))
        except (ValueError, OverflowError) as error:
            raise DataError(
                f"{change.table.namespace}: a value cannot be written as JSON: {error}",
                fix="use `format: ums`, which holds every value, or drop the column",
            ) from error
        text = json.dumps({**head, "key": list(change.table.key)}, ensure_ascii=False)
        yield f'{text[:-1]}, "rows": [\n{rows}\n]}}'.encode()

    # --- requests

    def _post_all(self, change: ChangeBatch | Clear) -> None:
        for body in self._bodies(change):
            self._post(body)

    def _post(self, body: bytes) -> None:
        answer = self._answer("POST", body)
        if not 200 <= answer.status < 300:
            raise self._failure(answer)

    def _answer(self, method: str, body: bytes) -> urllib3.BaseHTTPResponse:
        try:
            return self._connected().request(
                method,
                self._config.url,
                body=body,
                headers={**self._config.headers, **self._own_headers(body)},
                timeout=self._config.timeout,
                retries=False,
                redirect=False,
            )
        except urllib3.exceptions.SSLError as error:
            raise ConfigError(
                f"{self._place} is not who it should be, or does not speak TLS: {error}",
                fix="correct `url`, or name the authority of its certificate in `ca`",
            ) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise RetryableError(f"{self._place} does not answer: {error}", fix="start it, or correct `url`") from error

    def _own_headers(self, body: bytes) -> dict[str, str]:
        name = hashlib.sha256(self._flow.encode() + b"\0" + body).hexdigest()
        own = {"Content-Type": "application/json", "Idempotency-Key": name}
        return own | webhook_headers(name, body, self._config.secret)

    def _failure(self, answer: urllib3.BaseHTTPResponse) -> HeadraceError:
        said = answer.data[:_ANSWER_SHOWN].decode("utf-8", "replace").strip()
        what = f"{self._place} answers {answer.status}{f': {said}' if said else ''}"
        if answer.status in _AGAIN or answer.status >= 500:
            return RetryableError(what, fix="see the log of that server", retry_after_s=_wanted_pause_s(answer))
        if answer.status in _STOP or answer.status < 400:
            return ConfigError(what, fix="correct `url` and `headers` of the flow's target")
        return DataError(
            what, fix="see why that server refuses these rows; where there are too many, lower `batch_rows`"
        )

    @property
    def _place(self) -> str:
        """The URL without what may be secret in it."""
        parts = urlsplit(self._config.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"

    def _connected(self) -> urllib3.PoolManager:
        if self._config.ca is not None and not self._config.ca.is_file():
            raise ConfigError(f"there is no file {self._config.ca}", fix="correct `ca` of the flow's target")
        if self._pool is None:
            self._pool = urllib3.PoolManager(ca_certs=None if self._config.ca is None else str(self._config.ca))
        return self._pool


def _wanted_pause_s(answer: urllib3.BaseHTTPResponse) -> float:
    """Seconds until the server wants to be asked again."""
    text = answer.headers.get("Retry-After", "")
    try:
        wanted = float(text) if text.isdecimal() else parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, TypeError):
        return 0.1
    return min(_LONGEST_WAIT_S, max(0.1, wanted))
