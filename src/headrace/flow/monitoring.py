"""Where a run tells others how it goes, beside Prometheus: InfluxDB, OpenTelemetry, OpenLineage (docs/how-to/monitoring.md)."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from headrace.model import Duration, LocalPath, Model


def _is_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError("write the URL as http://host:port/path or https://…")
    return url


Url = Annotated[str, AfterValidator(_is_url)]
Headers = dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], Annotated[str, Field(pattern=r"^[\x20-\x7e]*$")]]


class InfluxSpec(Model):
    """Figures of each period in InfluxDB's line protocol, to a server or into a file."""

    url: Url | None = None
    """Where lines are posted: ``http://influx:8086/api/v2/write?org=ops&bucket=headrace`` (InfluxDB 2 and 3), ``http://influx:8086/write?db=headrace``
    (InfluxDB 1, VictoriaMetrics), Telegraf's ``http_listener_v2``."""
    path: LocalPath | None = None
    """The file that lines are appended to, which Telegraf's ``tail`` reads."""
    token: SecretStr | None = None
    """Shown to the server as ``Authorization: Token …``."""
    every: Annotated[Duration, Field(ge=0.1)] = 10.0
    """How long a period is."""
    tags: dict[Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")], Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]] = Field(default_factory=dict)  # fmt: skip
    """Put on each line: ``{pipeline: shop}``."""
    ca: LocalPath | None = None
    """PEM file with the authorities that the server's certificate is checked against; the system's when left out."""

    @model_validator(mode="after")
    def _one_place(self) -> InfluxSpec:
        if (self.url is None) == (self.path is None):
            raise ValueError("say where lines go: `url` or `path`")
        if self.url is None and (self.token is not None or self.ca is not None):
            raise ValueError("a file needs neither `token` nor `ca`: leave them out")
        taken = {*self.tags} & {"source", "stage", "flow", "table"}
        if taken:
            raise ValueError(f"lines have a tag `{min(taken)}` of their own: choose another name in `tags`")
        return self


class TracesSpec(Model):
    """Spans of the run, its epochs and their tasks, by OTLP over HTTP."""

    url: Url
    """Where spans are posted: ``http://collector:4318/v1/traces``."""
    headers: Headers = Field(default_factory=dict)
    """Sent with each request: ``{Authorization: "${COLLECTOR}"}``."""
    service: Annotated[str, Field(min_length=1, max_length=200)] = "headrace"
    """The name of the service that spans are of."""
    ca: LocalPath | None = None
    """PEM file with the authorities that the server's certificate is checked against; the system's when left out."""


class LineageSpec(Model):
    """OpenLineage events of each flow: a run that starts, goes on, completes or fails, with its tables on both sides."""

    url: Url
    """Where events are posted: ``http://marquez:5000/api/v1/lineage``."""
    token: SecretStr | None = None
    """Shown to the server as ``Authorization: Bearer …``."""
    namespace: Annotated[str, Field(min_length=1, max_length=200)] = "headrace"
    """The namespace of the jobs; a job is called as its flow."""
    every: Annotated[Duration, Field(ge=0.1)] = 60.0
    """How often it is told that a run goes on."""
    ca: LocalPath | None = None
    """PEM file with the authorities that the server's certificate is checked against; the system's when left out."""
