"""Clients of a cluster, and the errors of librdkafka turned into ours, sorted by who must act."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headrace.errors import ConfigError, FatalError, FencedError, HeadraceError, RetryableError
from headrace.log.kafka.config import KafkaConfig

T = TypeVar("T")
GROUP = "headrace"
"""Consumers of librdkafka must name a group; ours never join it and commit nothing."""

_MIB = 1 << 20
_LOGGER = logging.getLogger("headrace.log.kafka.librdkafka")
_LOGGER.addHandler(logging.NullHandler())  # what matters becomes an error of ours; the rest is for who asks for it
_LOGIN = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Read, Write, Create, Describe and DescribeConfigs on its topics",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Write and Describe on the transactional ids that begin with `headrace-`",
    KafkaError.GROUP_AUTHORIZATION_FAILED: f"Describe on the group `{GROUP}`",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "Create on its topics (or make the topics beforehand)",
}
"""What a refused request lacks."""
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_PASSING_S = 5.0
"""What is missing for longer was deleted."""
_GONE = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
}
_AWAY = {
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,  # the connection ended while the answer was waited for
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._WAIT_COORD,
    KafkaError._PREV_IN_PROGRESS,
    KafkaError._INCONSISTENT,  # some message of a transaction timed out
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
    KafkaError.CONCURRENT_TRANSACTIONS,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.OFFSET_NOT_AVAILABLE,
}


class Cluster:
    """The way to one cluster. Makes clients, and knows what went wrong when one fails."""

    def __init__(self, config: KafkaConfig) -> None:
        self.config = config
        self._said: deque[KafkaError] = deque(maxlen=20)
        self._asker: Consumer | None = None
        self._asking = threading.Lock()
        self._missing_since: float | None = None

    def asker(self) -> Consumer:
        """The one client for questions about topics and offsets; it reads nothing. Threads may share it."""
        with self._asking:
            if self._asker is None:
                self._asker = self.consumer()
            return self._asker

    def consumer(self) -> Consumer:
        """A new client that reads committed records of partitions that it is assigned."""
        return self._made(
            Consumer,
            {
                "group.id": GROUP,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                # A seek waits for the request that is under way: this is the longest that one waits for new records.
                "fetch.wait.max.ms": 20,
                "fetch.message.max.bytes": 8 * _MIB,
                "queued.max.messages.kbytes": 32 * 1024,
                "fetch.queue.backoff.ms": 5,
            },
        )

    def producer(self, transactional_id: str, max_message_bytes: int, *, only_errors: bool = False) -> Producer:
        """A new client that writes in transactions. `only_errors`: callbacks come for records that are not delivered."""
        timeout_ms = int(self.config.timeout * 1000)
        return self._made(
            Producer,
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": max(60_000, 2 * timeout_ms),
                "message.timeout.ms": timeout_ms,
                "message.max.bytes": max_message_bytes,
                "compression.type": self.config.compression,
                "delivery.report.only.error": only_errors,
                "queue.buffering.max.kbytes": 128 * 1024,
                # The topic is there: one that is not known any more has been deleted.
                "topic.metadata.propagation.max.ms": 2_000,
            },
        )

    def admin(self) -> AdminClient:
        """A new client that makes and describes topics. Keep it as long as its futures are waited for."""
        return self._made(AdminClient, {})

    def close(self) -> None:
        """Ends the client for questions. Idempotent."""
        with self._asking:
            if self._asker is not None:
                self._asker.close()
                self._asker = None

    def failure(self, cause: KafkaError | KafkaException, doing: str) -> HeadraceError:
        """The error that a failed operation is to raise; `doing` says what was tried, for instance ``append to topic db1``."""
        error: KafkaError = cause.args[0] if isinstance(cause, KafkaException) else cause
        code = error.code()
        what = f"could not {doing} on Kafka ({self.config.brokers}): {error.str()}"
        if code in _LOGIN:
            return self._no_login(error, doing)
        if code in _AWAY or error.retriable():
            return self._away(what, doing)
        if code in _FENCED:
            return FencedError(
                f"could not {doing} on Kafka: another process has become its writer",
                fix="one process writes a topic: stop one of the two; what was acknowledged is in the log",
            )
        if code in _RIGHTS:
            return ConfigError(what, fix=f"grant the user of `sasl` (or of the certificate) {_RIGHTS[code]}")
        if code in _GONE:
            return self.missing(what)
        return FatalError(f"{what} ({error.name()})", fix="see the broker's log for the reason, then start again")

    def missing(self, what: str) -> HeadraceError:
        """A topic that was there is not. Brokers that have just started may not know their topics: that passes."""
        now = time.monotonic()
        self._missing_since = self._missing_since or now
        fix = "bring the topic back; or give the source a new name and the targets a new place, to capture everything anew"
        if now - self._missing_since < _PASSING_S:
            return RetryableError(what, fix=fix, retry_after_s=0.2)
        return FatalError(what, fix=fix)

    def found(self) -> None:
        """What was missing is there."""
        self._missing_since = None

    def _away(self, what: str, doing: str) -> HeadraceError:
        """No answer: the brokers are away, or have shown us out, which a client tells only when it is polled."""
        if self._asker is not None:
            self._asker.poll(0)
        for said in reversed(self._said):
            if said.code() in _LOGIN:
                return self._no_login(said, doing)
        heard = f" ({self._said[-1].str()})" if self._said else ""
        return RetryableError(what + heard, fix="start the brokers, or correct `brokers` of the log", retry_after_s=0.5)

    def _no_login(self, error: KafkaError, doing: str) -> ConfigError:
        return ConfigError(
            f"could not {doing}: Kafka ({self.config.brokers}) refused the connection: {error.str()}",
            fix="correct `sasl` and `tls` of the log: name, password, mechanism, certificates",
        )

    def _made(self, kind: Callable[[dict[str, Any]], T], properties: dict[str, Any]) -> T:
        try:
            return kind(self._connection() | properties)
        except KafkaException as error:
            raise ConfigError(
                f"the log on Kafka ({self.config.brokers}) cannot be opened: {error.args[0].str()}",
                fix="correct `tls` and `sasl` of the log: files that are there, a certificate together with its key",
            ) from error

    def _connection(self) -> dict[str, Any]:
        config = self.config
        protocol = ("SASL_" if config.sasl else "") + ("SSL" if config.tls else "PLAINTEXT")
        properties: dict[str, Any] = {
            "bootstrap.servers": config.brokers,
            "client.id": "headrace",
            "security.protocol": protocol,
            "socket.keepalive.enable": True,
            "reconnect.backoff.max.ms": 1_000,
            "logger": _LOGGER,
            "error_cb": self._said.append,
        }
        if config.sasl is not None:
            sasl = config.sasl
            properties |= {
                "sasl.mechanism": sasl.mechanism,
                "sasl.username": sasl.username,
                "sasl.password": sasl.password,
            }
        if config.tls is not None:
            places = {"ca": config.tls.ca, "certificate": config.tls.certificate, "key": config.tls.key}
            properties |= {f"ssl.{what}.location": str(path) for what, path in places.items() if path is not None}
        return properties
