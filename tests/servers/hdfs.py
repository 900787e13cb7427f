"""A real HDFS: a NameNode and one DataNode, each a process of its own. Made of the shaded jars of Hadoop's client and mini cluster."""

from __future__ import annotations

import itertools
import os
import shutil
from functools import cache
from uuid import uuid4

from hdfs_native import Client

from tests.servers import jars
from tests.servers.process import Server, free_port

_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_OPTIONS = {
    "dfs.replication": "1",
    "dfs.permissions.enabled": "false",
    "dfs.namenode.safemode.extension": "0",
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",
    "dfs.datanode.hostname": "127.0.0.1",
    "dfs.client.use.datanode.hostname": "true",
    # The end of a writer that died is settled with a heartbeat; three seconds by default.
    "dfs.heartbeat.interval": "1",
}
_IMPATIENT = {"dfs.client.failover.max.attempts": "0", "dfs.client.socket-timeout": "5000"}
"""For clients that ask whether a server is there."""
_counter = itertools.count(1)


class Hdfs(Server):
    """``with Hdfs() as hdfs: Client(hdfs.url)``; `datanode` can be killed and restarted by itself."""

    def __init__(self) -> None:
        super().__init__("hdfs-namenode")
        self.datanode = _DataNode(self)
        self.rpc_port = 0

    @property
    def url(self) -> str:
        return f"hdfs://{self.host}:{self.rpc_port}"

    @property
    def web(self) -> str:
        return f"http://{self.host}:{self.port}"

    def place(self) -> str:
        """A directory that is a test's own."""
        return f"{self.url}/tests/{os.getpid()}-{next(_counter)}"

    def install(self) -> None:
        self.rpc_port = free_port(self.port)
        data, transfer, ipc = self._ports()
        properties = _OPTIONS | {
            "fs.defaultFS": self.url,
            "dfs.namenode.rpc-address": f"{self.host}:{self.rpc_port}",
            "dfs.namenode.http-address": f"{self.host}:{self.port}",
            "dfs.namenode.name.dir": str(self.data_path / "name"),
            "dfs.datanode.data.dir": str(self.data_path / "blocks"),
            "dfs.datanode.http.address": f"{self.host}:{data}",
            "dfs.datanode.address": f"{self.host}:{transfer}",
            "dfs.datanode.ipc.address": f"{self.host}:{ipc}",
        }
        lines = [
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()
        ]
        for file in ("core-site.xml", "hdfs-site.xml"):
            (self.directory / file).write_text("\n".join(["<configuration>", *lines, "</configuration>"]))
        self.run([*self.java("server.namenode.NameNode"), "-format", "-nonInteractive"])

    def start(self) -> None:
        """The NameNode; and the DataNode the first time, which is waited for at any time: it finds a NameNode that comes back."""
        super().start()
        if self.datanode.port == 0:
            self.datanode.__enter__()
        self.datanode.wait()

    def __exit__(self, *_: object) -> None:
        if self.datanode.port != 0:
            self.datanode.__exit__()
        super().__exit__()

    def command(self) -> list[str]:
        return self.java("server.namenode.NameNode")

    def answers(self) -> bool:
        try:
            list(Client(self.url, _IMPATIENT).list_status("/"))
        except (RuntimeError, OSError):
            return False
        return True

    def java(self, name: str) -> list[str]:
        """How a program of Hadoop is started, with this cluster's settings."""
        java = shutil.which("java")
        assert java is not None, "Java 17 or newer must be on the PATH"
        return [java, *_JVM, "-cp", f"{self.directory}{os.pathsep}{_class_path()}", f"org.apache.hadoop.hdfs.{name}"]

    def _ports(self) -> list[int]:
        taken = [self.port, self.rpc_port]
        for _ in range(3):
            taken.append(free_port(*taken))
        return taken[2:]


class _DataNode(Server):
    def __init__(self, hdfs: Hdfs) -> None:
        super().__init__("hdfs-datanode")
        self._hdfs = hdfs

    def install(self) -> None:
        """Its settings are the cluster's."""

    def command(self) -> list[str]:
        return self._hdfs.java("server.datanode.DataNode")

    def answers(self) -> bool:
        """Whether it takes a block: the NameNode believes in a dead one for minutes."""
        client, path = Client(self._hdfs.url, _IMPATIENT), f"/tests/{uuid4().hex}"
        try:
            writer = client.create(path)
            writer.write(b"answers")
            writer.close()
        except (RuntimeError, OSError):
            return False
        return True


@cache
def _class_path() -> str:
    return jars.class_path("hdfs")
