"""Topics of a cluster: made where they are missing, refused where their settings would lose entries."""

from __future__ import annotations

import re
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.cimpl import NewPartitions, NewTopic

from headrace.errors import ConfigError, RetryableError
from headrace.log.kafka.cluster import Cluster
from headrace.retry import retrying

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SMALLEST_MESSAGE_BYTES = 4096
_REFUSED = {
    KafkaError.INVALID_REPLICATION_FACTOR: "the cluster has fewer brokers than `replicas` of the log asks for",
    KafkaError.TOPIC_EXCEPTION: "the cluster takes no topic of this name: see `prefix` of the log and the source's name",
    KafkaError.POLICY_VIOLATION: "the cluster's policy refuses the topic: make it by hand",
    KafkaError.INVALID_CONFIG: "the cluster refuses these settings: make the topic by hand",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a topic's settings say to its writer and to people."""

    partitions: int
    replicas: int
    max_message_bytes: int
    min_insync_replicas: int
    retention_ms: int
    retention_bytes: int


class Topics:
    """The topics of a cluster under their own names and under those of the log's configuration."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._config = cluster.config

    def name(self, topic: str) -> str:
        """The name on Kafka; ConfigError when Kafka cannot have it."""
        name = self._config.prefix + topic
        if not topic or not _NAME.fullmatch(name) or name in {".", ".."}:
            raise ConfigError(
                f"{topic[:80]!r} cannot be the name of a topic on Kafka",
                fix="use a source name of letters, digits, `_` and `-`, at most 249 with the log's `prefix`",
            )
        return name

    def names(self) -> list[str]:
        """The log's topics: those that begin with the prefix, without it, and not Kafka's own."""
        try:
            found = self._cluster.asker().list_topics(timeout=self._config.timeout).topics
        except KafkaException as error:
            raise self._cluster.failure(error, "list the topics") from error
        prefix = self._config.prefix
        return sorted(
            name.removeprefix(prefix) for name in found if name.startswith(prefix) and not name.startswith("__")
        )

    def partitions(self, name: str) -> int:
        """How many partitions a topic has; 0 when it is not there."""
        metadata = self._metadata(name)
        return 0 if metadata is None else len(metadata.partitions)

    def settings(self, name: str) -> Settings:
        """The settings of a topic that is there."""
        metadata = self._metadata(name)
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        admin = self._cluster.admin()
        found = self._result(admin.describe_configs([resource])[resource], f"read the settings of topic {name}")
        if "compact" in str(found["cleanup.policy"].value):
            raise ConfigError(
                f"topic {name} is compacted (cleanup.policy={found['cleanup.policy'].value}): Kafka would drop changes",
                fix="set its cleanup.policy to delete, or name another topic by `prefix` of the log",
            )
        return Settings(
            partitions=0 if metadata is None else len(metadata.partitions),
            replicas=0 if metadata is None else min(len(part.replicas) for part in metadata.partitions.values()),
            max_message_bytes=int(found["max.message.bytes"].value),
            min_insync_replicas=int(found["min.insync.replicas"].value),
            retention_ms=int(found["retention.ms"].value),
            retention_bytes=int(found["retention.bytes"].value),
        )

    def ready(self, name: str, partition: int) -> Settings:
        """Makes the topic and the partition where they are missing; ConfigError when its settings would lose entries."""
        there = self.partitions(name)
        if there <= partition:
            admin = self._cluster.admin()
            if there == 0:
                self._create(admin, name, partition + 1)
                # Brokers hear of it one after the other.
                retrying(lambda: self.settings(name), give_up_after_s=self._config.timeout)
            else:
                grown = admin.create_partitions([NewPartitions(name, partition + 1)])
                self._result(grown[name], f"add partitions to topic {name}")
                retrying(lambda: self._require(name, partition), give_up_after_s=self._config.timeout)
        settings = self.settings(name)
        wanted = self._config.min_insync_replicas or (2 if settings.replicas >= 3 else 1)
        if settings.min_insync_replicas < wanted:
            raise ConfigError(
                f"topic {name} takes an entry for durable with {settings.min_insync_replicas} of {settings.replicas} copies",
                fix=f"set its min.insync.replicas to {wanted} (kafka-configs --alter), or set `min_insync_replicas` of the log",
            )
        if settings.max_message_bytes < _SMALLEST_MESSAGE_BYTES:
            raise ConfigError(
                f"topic {name} takes records of only {settings.max_message_bytes} bytes",
                fix=f"set its max.message.bytes to {_SMALLEST_MESSAGE_BYTES} at least; 1 MB is Kafka's own default",
            )
        return settings

    def _require(self, name: str, partition: int) -> None:
        if self.partitions(name) <= partition:
            raise RetryableError(
                f"partition {partition} of topic {name} was added, and brokers do not know it yet",
                fix="see the brokers' logs",
                retry_after_s=0.05,
            )

    def _create(self, admin: AdminClient, name: str, partitions: int) -> None:
        config = self._config
        age_s, size_bytes = config.retention.age_s, config.retention.size_bytes
        settings = {
            "cleanup.policy": "delete",
            "retention.ms": str(-1 if age_s is None else age_s * 1000),
            "retention.bytes": str(-1 if size_bytes is None else size_bytes),
        }
        least = config.min_insync_replicas or (2 if (config.replicas or 0) >= 3 else None)
        if least is not None:
            settings["min.insync.replicas"] = str(least)
        new = NewTopic(name, partitions, config.replicas or -1, config=settings)
        try:
            self._result(admin.create_topics([new])[name], f"make topic {name}")
        except _AlreadyThere:
            return  # another process was quicker

    def _metadata(self, name: str) -> TopicMetadata | None:
        try:
            found = self._cluster.asker().list_topics(name, timeout=self._config.timeout).topics[name]
        except KafkaException as error:
            raise self._cluster.failure(error, f"look up topic {name}") from error
        assert isinstance(found, TopicMetadata)
        if found.error is None:
            return found
        if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise self._cluster.failure(found.error, f"look up topic {name}")

    def _result(self, future: Future[T], doing: str) -> T:
        try:
            return future.result(self._config.timeout)
        except TimeoutError as error:
            raise self._cluster.failure(KafkaError(KafkaError._TIMED_OUT), doing) from error
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                raise _AlreadyThere from error
            if code in _REFUSED:
                raise ConfigError(f"could not {doing}: {error.args[0].str()}", fix=_REFUSED[code]) from error
            raise self._cluster.failure(error, doing) from error


class _AlreadyThere(Exception):  # noqa: N818 - not an error: somebody else has done it
    """The topic to be made is there."""
