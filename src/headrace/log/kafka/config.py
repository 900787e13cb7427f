"""What a flow file says about a cluster."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import Field, model_validator

from headrace.log.base import Form
from headrace.log.retention import Retention
from headrace.model import Component, Duration, Model
from headrace.tls import Tls


class Sasl(Model):
    """Login by name and password."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """How the password is shown to the brokers; use PLAIN only together with `tls`."""
    username: str
    """The user's name."""
    password: str
    """The user's password, best from the environment: ``${KAFKA_PASSWORD}``."""


class KafkaConfig(Component):
    """Topics of an Apache Kafka cluster."""

    type: Literal["kafka"] = "kafka"
    brokers: Annotated[str, Field(pattern=r"^[^\s,]+:\d+(,[^\s,]+:\d+)*$")]
    """Some brokers to ask for the others: ``host:port,host:port``."""
    tls: Tls | None = None
    """Encrypts the connection."""
    sasl: Sasl | None = None
    """Logs in."""
    format: Form = Form.UMS
    """How changes are written: `ums`, JSON that any consumer understands; `ums-dbus`, the same as DBus writes and Wormhole reads it;
    `block`, Arrow for headrace alone, smaller and faster. What is on a topic already is read in any of them.
    """
    zone: str = "UTC"
    """Time zone in which `ums-dbus` writes instants, as the original does in that of its process."""
    message_rows: Annotated[int, Field(ge=1)] | None = None
    """Changes in one UMS message at most; 500 when left out, 5 in `ums-dbus`, as in the original."""
    message_bytes: Annotated[int, Field(ge=1)] | None = None
    """Bytes in one UMS message of several changes at most; 512 KiB when left out, 100 KiB in `ums-dbus`. Never more than the topic takes."""
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]*$")] = ""
    """Stands before each source's name in the names of topics."""
    replicas: Annotated[int, Field(ge=1)] | None = None
    """Copies of a topic that is made here; the cluster's own default when left out."""
    min_insync_replicas: Annotated[int, Field(ge=1)] | None = None
    """Copies that must have an entry before it counts as durable: topics made here get it, others with less are refused.

    When left out: 2 for a topic of three copies or more, else 1.
    """
    retention: Retention = Retention()
    """When old entries of topics made here may go. Everything is kept by default."""
    compression: Literal["none", "lz4", "zstd", "snappy", "gzip"] = "lz4"
    """How records are compressed on their way and on the brokers' disks."""
    timeout: Annotated[Duration, Field(ge=1)] = 10.0
    """How long brokers may take for an answer before that counts as an outage."""

    @model_validator(mode="after")
    def _zone_is_known(self) -> Self:
        if self.zone != "UTC" and self.format is not Form.UMS_DBUS:
            raise ValueError("only `format: ums-dbus` writes instants in a zone: leave `zone` out")
        try:
            ZoneInfo(self.zone)
        except (OSError, KeyError, ValueError) as error:
            raise ValueError(f"there is no time zone '{self.zone}'; write a name such as Asia/Shanghai") from error
        return self
