"""What a flow file says about a cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headrace.log.retention import Retention
from headrace.model import Component, Duration, LocalPath, Model


class Tls(Model):
    """Encryption of the connection. ``tls: {}`` trusts the system's authorities."""

    ca: LocalPath | None = None
    """PEM file with the authorities that the brokers' certificates are checked against; the system's when left out."""
    certificate: LocalPath | None = None
    """PEM file with this client's certificate, where brokers ask for one."""
    key: LocalPath | None = None
    """PEM file with the private key of `certificate`."""


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
