"""A real Cassandra of one node, as small as it gets."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.policies import WhiteListRoundRobinPolicy

from tests.servers import jars
from tests.servers.process import Server, free_port

_JVM = ("-Xms300m", "-Xmx500m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_PROPERTIES = (
    "-Djdk.attach.allowAttachSelf=true",
    "-Dcassandra-foreground=yes",
    "-Dcassandra.skip_wait_for_gossip_to_settle=0",
    "-Dcassandra.ring_delay_ms=0",
    "-Dcassandra.superuser_setup_delay_ms=0",
    "-Dio.netty.tryReflectionSetAccessible=true",
)
_EXPORTS = (
    *(f"java.base/{name}" for name in ("jdk.internal.misc", "jdk.internal.ref", "jdk.internal.util", "sun.nio.ch")),
    "java.base/java.lang.ref",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.unsupported/sun.misc",
)
_OPENS = (
    *(f"java.base/java.{name}" for name in ("io", "lang", "lang.module", "lang.reflect", "net", "nio", "util")),
    *(f"java.base/java.util.concurrent{name}" for name in ("", ".atomic")),
    *(f"java.base/jdk.internal.{name}" for name in ("loader", "math", "module", "ref", "reflect", "util.jar")),
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
)
_counter = itertools.count(1)


class Cassandra(Server):
    """``with Cassandra() as server: server.connect()``; `options` are settings of its file and win over the defaults."""

    def __init__(self, **options: object) -> None:
        super().__init__("cassandra")
        self.options = options

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def prefix(self) -> str:
        """The beginning of table names that are a test's own; a keyspace of its own would take a second to make."""
        return f"t{next(_counter)}_"

    @contextmanager
    def connect(self) -> Iterator[Session]:
        profile = ExecutionProfile(WhiteListRoundRobinPolicy([self.host]), request_timeout=20)
        cluster = Cluster(
            [self.host], port=self.port, execution_profiles={EXEC_PROFILE_DEFAULT: profile}, connect_timeout=2
        )
        try:
            yield cluster.connect()
        finally:
            cluster.shutdown()

    def install(self) -> None:
        storage = free_port(self.port)
        folders = {name: str(self.data_path / name) for name in ("commitlog", "saved_caches", "hints", "cdc_raw")}
        seeds = {"class_name": "org.apache.cassandra.locator.SimpleSeedProvider"}
        settings = {
            "cluster_name": "headrace",
            "num_tokens": 1,
            "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
            # As by default: what is acknowledged outlives the process, in a file that is mapped into memory.
            "commitlog_sync": "periodic",
            "commitlog_sync_period": "10s",
            **{f"{name}_directory": folder for name, folder in folders.items()},
            "data_file_directories": [str(self.data_path / "data")],
            "listen_address": self.host,
            "rpc_address": self.host,
            "storage_port": storage,
            "native_transport_port": self.port,
            "endpoint_snitch": "SimpleSnitch",
            "seed_provider": [{**seeds, "parameters": [{"seeds": f"{self.host}:{storage}"}]}],
            "disk_access_mode": "standard",
            "auto_snapshot": False,
            "memtable_heap_space": "64MiB",
            "key_cache_size": "8MiB",
            # As long as clients wait: machines that test have much to do.
            **{
                f"{name}_timeout": "20s"
                for name in ("read_request", "range_request", "write_request", "cas_contention")
            },
            "concurrent_writes": 32,
            "concurrent_reads": 8,
            **self.options,
        }
        self.data_path.mkdir()
        (self.directory / "cassandra.yaml").write_text(json.dumps(settings))  # JSON is YAML
        (self.directory / "logback.xml").write_text(
            '<configuration><appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>'
            '%-5level %d %msg%n</pattern></encoder></appender><root level="WARN"><appender-ref ref="out"/></root></configuration>'
        )

    def command(self) -> list[str]:
        java = shutil.which("java")
        assert java is not None, "Java 17 or newer must be on the PATH"
        path = _class_path()
        agent = next(jar for jar in path.split(os.pathsep) if Path(jar).name.partition("-")[2].startswith("jamm-"))
        opened = [
            part for kind, names in (("exports", _EXPORTS), ("opens", _OPENS)) for name in names
            for part in (f"--add-{kind}", f"{name}=ALL-UNNAMED")
        ]  # fmt: skip
        places = [
            f"-Dcassandra.config=file://{self.directory}/cassandra.yaml",
            f"-Dcassandra.storagedir={self.data_path}",
            f"-Dlogback.configurationFile={self.directory}/logback.xml",
        ]
        daemon = ["-cp", path, "org.apache.cassandra.service.CassandraDaemon"]
        return [java, *_JVM, *opened, f"-javaagent:{agent}", *_PROPERTIES, *places, *daemon]

    def answers(self) -> bool:
        try:
            with self.connect():
                return True
        except (NoHostAvailable, OSError):
            return False


@cache
def _class_path() -> str:
    return jars.class_path("cassandra")
