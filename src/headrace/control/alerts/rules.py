"""What people write down of alerts: when there is one (rules), and how it is told (channels). Secrets are named in them as ``${NAME}``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, field_validator, model_validator

from headrace.control.secrets import clear_in_text, names_secret
from headrace.control.states import Name as StateName
from headrace.model import Model

DAY_S = 86_400
Severity = Literal["info", "warning", "critical"]
ChannelName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
Pattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9_*?.-]{1,100}$")]
Secret = Annotated[
    str, Field(pattern=r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$", description="The name of a secret, as ${NAME}.")
]
"""Never the secret itself."""
_Seconds = Annotated[int, Field(ge=0, le=31 * DAY_S)]
_Within = Annotated[int, Field(ge=60, le=31 * DAY_S)]
_Table = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]{1,200}$")]
_Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9.!#$%&'*+/=?^_{|}~-]{1,64}@[A-Za-z0-9._-]{1,150}$")]
_Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$", max_length=500)]
_Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:-]{1,253}$")]
_Header = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,60}$")]
_HeaderText = Annotated[str, Field(pattern=r"^[\x20-\x7e]{0,1000}$")]
_TROUBLE: tuple[StateName, ...] = ("stalled", "waiting", "failed")
PLACEHOLDERS = ("title", "text", "severity", "state", "count", "id", "alerts")
"""What a webhook's body may name as ``{title}``; `channels.messages` fills them in."""
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_PLACEHOLDER = re.compile(r"\{([a-z]+)\}")


class _Said(Model):
    model_config = ConfigDict(strict=True)


class StateIs(_Said):
    """A pipeline is in one of these states."""

    kind: Literal["state"]
    states: Annotated[list[StateName], Field(min_length=1, max_length=7, default_factory=lambda: [*_TROUBLE])]


class LagAbove(_Said):
    """A stage is so far behind its source (`captured` alone: the standby or server that is read; `delivered`: the target)."""

    kind: Literal["lag"]
    above_s: Annotated[float, Field(gt=0, le=366 * DAY_S)]
    stage: Literal["captured", "delivered"] | None = None


class LatencyAbove(_Said):
    """One change in a hundred takes longer from its commit to a stage."""

    kind: Literal["latency"]
    above_s: Annotated[float, Field(gt=0, le=366 * DAY_S)]
    stage: Literal["captured", "delivered"] | None = None


class WatermarkBehind(_Said):
    """The event time that is complete in a target is so old."""

    kind: Literal["watermark"]
    above_s: Annotated[float, Field(gt=0, le=366 * DAY_S)]


class PathSilent(_Said):
    """Neither changes nor heartbeats come through a stage."""

    kind: Literal["silent"]


class HostSilent(_Said):
    """A member of a watermark's stage (a host, a partition, a source) is not heard of any more."""

    kind: Literal["host"]


class RowsSetAside(_Said):
    """More rows are in the error ledgers since the process began."""

    kind: Literal["set_aside"]
    above: Annotated[int, Field(ge=0)] = 0


class VerificationRed(_Said):
    """A target did not hold what it should when it was verified last."""

    kind: Literal["verification"]


class DiskFull(_Said):
    """A file system has less free space: that of the server, of a run's state, of its log, of a lake on a disk."""

    kind: Literal["disk"]
    below_percent: Annotated[float, Field(gt=0, lt=100)] = 10.0


class TableChanged(_Said):
    """A captured table has got another version (columns, their types or names, the key), or was dropped, renamed or created anew."""

    kind: Literal["schema"]
    within_s: _Within = DAY_S
    """So long it is told after capture has met it."""
    table: _Table = "*"
    """Of which tables, as ``schema.table``; with * and ?."""


class LogNumberFell(_Said):
    """The number of a server's log file fell (its log was reset, or another server answers), or the server lost what was not captured yet."""

    kind: Literal["log_number"]
    within_s: _Within = DAY_S
    """So long a fall is told after it was seen; a loss is told until capture goes on."""


When = Annotated[
    StateIs | LagAbove | LatencyAbove | WatermarkBehind | PathSilent | HostSilent | RowsSetAside | VerificationRed | DiskFull
    | TableChanged | LogNumberFell,
    Field(discriminator="kind"),
]  # fmt: skip


class Escalation(_Said):
    """Who else is told of an alert that goes on and that nobody has acknowledged."""

    after_s: Annotated[int, Field(ge=1, le=31 * DAY_S)]
    to: Annotated[list[ChannelName], Field(min_length=1, max_length=20)]


class Rule(_Said):
    """When there is an alert, and who is told of it."""

    when: When
    pipeline: Pattern = "*"
    """Of which pipelines; with * and ?."""
    flow: Pattern = "*"
    """Of which flows, where it is about flows; with * and ?."""
    severity: Severity = "warning"
    holds_s: _Seconds = 60
    """For how long it must hold before it is told."""
    settles_s: _Seconds = 60
    """For how long it must be well again before it is over."""
    again_s: Annotated[int, Field(ge=60, le=31 * DAY_S)] | None = 4 * 3600
    """After how long it is told again while it goes on and nobody has acknowledged it; null: once."""
    to: Annotated[list[ChannelName], Field(default_factory=list, max_length=20)]
    escalate: Annotated[list[Escalation], Field(default_factory=list, max_length=10)]
    note: Annotated[str, Field(max_length=2000)] = ""
    """What to do; it is told with the alert."""
    active: bool = True

    @property
    def channels(self) -> set[str]:
        """All that it names."""
        return {*self.to, *(channel for step in self.escalate for channel in step.to)}


class Email(_Said):
    """By SMTP."""

    kind: Literal["email"]
    host: _Host
    port: Annotated[int, Field(ge=1, le=65_535)] = 587
    encryption: Literal["starttls", "tls", "none"] = "starttls"
    ca: _Line | None = None
    """PEM file on the servers with the authorities that the certificate is checked against; the system's when left out."""
    user: _Line | None = None
    password: Secret | None = None
    sender: _Address
    to: Annotated[list[_Address], Field(min_length=1, max_length=50)]

    @model_validator(mode="after")
    def _password_is_of_a_user(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("`user` and `password` go together")
        if self.password is not None and self.encryption == "none":
            raise ValueError("a password is not sent in clear: choose starttls or tls")
        return self

    @property
    def place(self) -> str:
        """Where it goes, for people."""
        return f"{', '.join(self.to)} by {self.host}:{self.port}"


class Webhook(_Said):
    """By a POST to an address: chats, SMS gateways, on-call services."""

    kind: Literal["webhook"]
    url: Annotated[str, Field(max_length=1000)]
    """``https://host/path``; what is secret in it is written as ${NAME}, or all of it is one."""
    headers: Annotated[dict[_Header, _HeaderText], Field(default_factory=dict, max_length=20)]
    """``{"Authorization": "Bearer ${TOKEN}"}``."""
    body: Annotated[dict[str, JsonValue], Field(max_length=100)] | None = None
    """What is sent, with {title}, {text}, {severity}, {state}, {count}, {id} and {alerts} in its texts, and secrets as ${NAME}; all of it when left out."""
    format: Literal["json", "form"] = "json"
    signed_by: Secret | None = None
    """Signs each request as Standard Webhooks have it: ``whsec_`` and base64, or any text."""
    ca: _Line | None = None
    """PEM file on the servers with the authorities that the certificate is checked against; the system's when left out."""

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        parts = urlsplit(url)
        if not re.fullmatch(r"\$\{\w+\}", url) and (parts.scheme not in {"http", "https"} or not parts.hostname):
            raise ValueError("write https://host/path, or the name of a secret, ${NAME}")
        if clear_in_text(url):
            raise ValueError("it has a secret in clear; write its name, ${NAME}")
        return url

    @field_validator("headers")
    @classmethod
    def _names_secrets(cls, headers: dict[str, str]) -> dict[str, str]:
        _refuse_clear(headers)
        return headers

    @field_validator("body")
    @classmethod
    def _names_what_there_is(cls, body: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        unknown = {name for text in texts(body) for name in _PLACEHOLDER.findall(text)} - {*PLACEHOLDERS}
        if unknown:
            raise ValueError(f"there is no {{{min(unknown)}}}; there are {', '.join(PLACEHOLDERS)}")
        _refuse_clear(body or {})
        return body

    @model_validator(mode="after")
    def _forms_are_flat(self) -> Self:
        if self.format == "form" and (
            self.body is None or not all(isinstance(each, str) for each in self.body.values())
        ):
            raise ValueError("`format: form` needs a `body` of texts")
        return self

    @property
    def place(self) -> str:
        """Where it goes, for people, without what may be secret in it."""
        parts = urlsplit(self.url)
        return self.url if self.url.startswith("${") else f"{parts.scheme}://{parts.hostname}"


Channel = Annotated[Email | Webhook, Field(discriminator="kind")]
CHANNEL: TypeAdapter[Email | Webhook] = TypeAdapter(Channel)


def _refuse_clear(values: Mapping[str, JsonValue]) -> None:
    """ValueError when something whose name says that it is secret names none."""
    for name, value in values.items():
        if names_secret(name.replace("-", "_")) and isinstance(value, str) and not _REFERENCE.search(value):
            raise ValueError(f"`{name}` has a secret in clear; write its name, ${{NAME}}")


def texts(value: JsonValue) -> list[str]:
    """All texts in a JSON value, not the names of its members."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.values() for text in texts(each)]
    return [text for each in value for text in texts(each)] if isinstance(value, list) else []
