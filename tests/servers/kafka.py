"""A real Kafka broker of one node (KRaft: broker and controller in one process), as quick to start as it gets."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.servers import jars
from tests.servers.install import find_program
from tests.servers.process import Server, free_port

ADMIN, PASSWORD = "admin", "admin's secret"
QUICK_TO_START = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""Options of the JVM: what tests want."""
STEADY = ("-Xms1G", "-Xmx1G", "-Xmn640m", *QUICK_TO_START[1:])
"""What is measured: with a small heap the collector stops the broker for 20 ms every two seconds; without C1 alone, compiling takes a core."""
_OPTIONS = {
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INSIDE",
    # Whoever names a topic must have made it: as clusters that care for their data are set up.
    "auto.create.topics.enable": "false",
    # One node holds everything; what is acknowledged is as in production (acks=all, transactions, page cache).
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a crash the controller (the same process) takes a broker back only when its old session is over.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "log.cleaner.enable": "false",
    # The tests' entries are from 1970.
    "log.retention.ms": "-1",
    "num.io.threads": "2",
    "num.network.threads": "1",
}
_counter = itertools.count(1)


class Kafka(Server):
    """``with Kafka() as broker: AdminClient(broker.client())``; `options` are properties of the broker and win.

    With `users` (name -> password) clients must log in by SASL/PLAIN, and may do only what an ACL allows; `ADMIN` may do all.
    With `tls` the connection is encrypted, under a certificate of its own (`certificate`). With `joins` it is one more broker (`node`,
    from 2) of the cluster of another, which stays the only controller.
    """

    def __init__(
        self,
        users: dict[str, str] | None = None,
        *,
        tls: bool = False,
        joins: Kafka | None = None,
        node: int = 1,
        jvm: Sequence[str] = QUICK_TO_START,
        **options: str,
    ) -> None:
        super().__init__("kafka")
        self._jvm = jvm
        self._joins = joins
        self._node = node
        self.tls = tls
        self.users = None if users is None else {ADMIN: PASSWORD, **users}
        self.options = {name.replace("_", "."): value for name, value in options.items()}

    @property
    def brokers(self) -> str:
        return f"{self.host}:{self.port}"

    def leader(self, topic: str) -> int:
        """The node that leads the first partition of a topic; -1 while none does."""
        return AdminClient(self.client()).list_topics(topic, timeout=10).topics[topic].partitions[0].leader

    def create_topic(self, name: str, **config: str) -> None:
        """A topic of one partition with settings such as ``retention_ms="1000"``."""
        settings = {setting.replace("_", "."): value for setting, value in config.items()}
        admin = AdminClient(self.client())  # a future does not keep its client alive
        admin.create_topics([NewTopic(name, 1, 1, config=settings)])[name].result()

    def add_partitions(self, topic: str, count: int) -> None:
        """Lets a topic have `count` partitions, and waits until that is known."""
        admin = AdminClient(self.client())
        admin.create_partitions([NewPartitions(topic, count)])[topic].result()
        while len(admin.list_topics(topic, timeout=10).topics[topic].partitions) < count:
            time.sleep(0.02)

    def delete_topic(self, *names: str) -> None:
        admin = AdminClient(self.client())
        for deleted in admin.delete_topics(list(names)).values():
            deleted.result()

    def topics(self) -> list[str]:
        return sorted(AdminClient(self.client()).list_topics(timeout=10).topics)

    @property
    def certificate(self) -> Path:
        """The PEM file that clients check the broker by."""
        return self.directory / "certificate.pem"

    @property
    def _protocol(self) -> str:
        return ("SASL_" if self.users is not None else "") + ("SSL" if self.tls else "PLAINTEXT")

    @contextmanager
    def prefix(self) -> Iterator[str]:
        """The beginning of topic names that are this test's own; the topics are deleted at the end."""
        prefix = f"test-{os.getpid()}-{next(_counter)}-"
        yield prefix
        if topics := [name for name in self.topics() if name.startswith(prefix)]:
            self.delete_topic(*topics)

    def client(self, user: str = ADMIN) -> dict[str, str]:
        """The properties with which a plain client connects."""
        properties = {"bootstrap.servers": self.brokers, "log_level": "0", "security.protocol": self._protocol}
        if self.tls:
            properties["ssl.ca.location"] = str(self.certificate)
        if self.users is not None:
            login = {"sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": self.users[user]}
            properties |= login
        return properties

    def install(self) -> None:
        listeners = {"OUTSIDE": self.port, "INSIDE": free_port(self.port)}
        if self._joins is None:
            self.cluster_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
            controller = listeners["CONTROLLER"] = free_port(*listeners.values())
            self.voters = f"1@{self.host}:{controller}"
        else:
            self.cluster_id, self.voters = self._joins.cluster_id, self._joins.voters
        addresses = {name: f"{name}://{self.host}:{port}" for name, port in listeners.items()}
        properties = {
            **_OPTIONS,
            "node.id": str(self._node),
            "process.roles": "broker,controller" if self._joins is None else "broker",
            "controller.quorum.voters": self.voters,
            "listeners": ",".join(addresses.values()),
            "advertised.listeners": f"{addresses['OUTSIDE']},{addresses['INSIDE']}",
            "listener.security.protocol.map": f"OUTSIDE:{self._protocol},INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data_path),
            **(self._security(self.users) if self.users is not None else {}),
            **(self._encryption() if self.tls else {}),
            **self.options,
        }
        lines = [f"{name}={value}" for name, value in properties.items()]
        (self.directory / "server.properties").write_text("\n".join([*lines, ""]))
        # In one word: an id may begin with a dash.
        tool = ["kafka.tools.StorageTool", "format", f"--cluster-id={self.cluster_id}", "--config", "server.properties"]
        self.run([*self._java(), *tool])

    def command(self) -> list[str]:
        return [*self._java(), "kafka.Kafka", "server.properties"]

    def answers(self) -> bool:
        try:
            return bool(AdminClient(self.client()).list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _security(self, users: dict[str, str]) -> dict[str, str]:
        """Users of the outer listener, and an authorizer to whom only `ADMIN` and the broker itself may do all."""
        known = " ".join(f'user_{name}="{password}"' for name, password in users.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.outside.plain.sasl.jaas.config": f"{module} required {known};",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:ANONYMOUS",
        }

    def _encryption(self) -> dict[str, str]:
        """A key and a certificate that vouches for itself."""
        key, both = self.directory / "key.pem", self.directory / "both.pem"
        new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=broker", "-days", "2"]
        files = ["-keyout", str(key), "-out", str(self.certificate)]
        self.run([find_program("openssl"), *new, "-addext", f"subjectAltName=IP:{self.host}", *files])
        both.write_text(key.read_text() + self.certificate.read_text())
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(both)}

    def _java(self) -> list[str]:
        java = shutil.which("java")
        assert java is not None, "Java 17 or newer must be on the PATH"
        return [java, *self._jvm, "-cp", jars.class_path("kafka")]
