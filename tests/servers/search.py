"""Real OpenSearch and Elasticsearch servers of one node, started by the runner that codelibs publishes for such tests."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from uuid import uuid4

from opensearchpy import OpenSearch as Client
from opensearchpy.exceptions import OpenSearchException

from tests.servers import jars
from tests.servers.process import Server, free_port

_JVM = ("-Xms400m", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_FIRST_PORT, _PORTS = 9201, 99
"""The runner takes no other ports for HTTP."""
_counter = itertools.count(1)


class Search(Server):
    """``with OpenSearch() as server: server.connect()``; `options` are settings of the node, with ``__`` for a dot, and win."""

    jars: str
    runner: str
    yaml: str

    def __init__(self, **options: str) -> None:
        super().__init__(self.jars)
        self.options = {name.replace("__", "."): value for name, value in options.items()}
        self.cluster = f"headrace-{uuid4().hex}"

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self) -> Client:
        return Client([{"host": self.host, "port": self.port}], timeout=20, max_retries=0)

    @contextmanager
    def prefix(self) -> Iterator[str]:
        """The beginning of index names that are this test's own; the indices are deleted at the end."""
        prefix = f"t{os.getpid()}-{next(_counter)}-"
        yield prefix
        with self.connect() as client:
            client.indices.delete(index=f"{prefix}*")

    def install(self) -> None:
        self.port = self._free_http_port()
        settings = {
            "cluster.name": self.cluster,
            "http.port": str(self.port),
            "transport.port": str(free_port()),
            "network.host": self.host,
            "discovery.type": "single-node",
            "http.type": "netty4",
            "transport.type": "netty4",
            "cluster.routing.allocation.disk.threshold_enabled": "false",
            **self.options,
        }
        config = self.data_path / "node_1" / "config"
        config.mkdir(parents=True)
        (config / self.yaml).write_text("\n".join(f"{name}: {value}" for name, value in settings.items()))

    def command(self) -> list[str]:
        java = shutil.which("java")
        assert java is not None, "Java 17 or newer must be on the PATH"
        node = ["-basePath", str(self.data_path), "-numOfNode", "1", "-clusterName", self.cluster]
        # It takes the first free port behind that one.
        return [java, *_JVM, "-cp", _class_path(self.jars), self.runner, *node, "-baseHttpPort", str(self.port - 1)]

    def answers(self) -> bool:
        try:
            with self.connect() as client:
                health = client.cluster.health(timeout=1)
        except (OpenSearchException, OSError):
            return False
        return health["cluster_name"] == self.cluster and health["status"] != "red"

    def _free_http_port(self) -> int:
        """From a place that two sessions of tests do not share, so that they do not both find the same port free."""
        first = os.getpid() * 7 % _PORTS
        return free_port(among=[_FIRST_PORT + (first + n) % _PORTS for n in range(_PORTS)])


class OpenSearch(Search):
    """OpenSearch 2."""

    jars = "opensearch"
    runner = "org.codelibs.opensearch.runner.OpenSearchRunner"
    yaml = "opensearch.yml"


class Elasticsearch(Search):
    """Elasticsearch 7.10, the last one under an open licence."""

    jars = "elasticsearch"
    runner = "org.codelibs.elasticsearch.runner.ElasticsearchClusterRunner"
    yaml = "elasticsearch.yml"


@cache
def _class_path(server: str) -> str:
    return jars.class_path(server)
