"""A real HBase 2.6: master, region server and ZooKeeper in one process on the local file system, and a Thrift2 server beside it."""

from __future__ import annotations

import itertools
import os
import shutil
import socket
from contextlib import closing
from functools import cache

from thriftpy2.protocol import TCompactProtocolFactory, TCyBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TClient, TException
from thriftpy2.transport import TCyBufferedTransportFactory, TCyFramedTransportFactory

from headrace.sinks.hbase.protocol import IDL
from tests.servers import jars
from tests.servers.process import Server, free_port

_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
_OPENED = (
    "java.lang",
    "java.lang.reflect",
    "java.io",
    "java.nio",
    "sun.nio.ch",
    "java.util",
    "java.util.concurrent",
    "java.net",
)
_OPTIONS = {
    "hbase.cluster.distributed": "false",
    "hbase.wal.provider": "filesystem",
    # The one with checksums leaves the end of a log in the process, where a crash takes it.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "hbase.master.info.port": "-1",
    "hbase.regionserver.info.port": "-1",
    "hbase.thrift.info.port": "-1",
    "hbase.regionserver.handler.count": "10",
    "hbase.master.hostname": "localhost",
    "hbase.regionserver.hostname": "localhost",
    "hbase.unsafe.regionserver.hostname": "localhost",
    "hfile.block.cache.size": "0.1",
    # Two megabytes per region that was ever written to, and tests make hundreds of them.
    "hbase.hregion.memstore.mslab.enabled": "false",
    # Making a table is mostly waiting: for more regions that could go the same way, and until it is asked about again.
    "hbase.assignment.dispatch.wait.msec": "1",
    "hbase.procedure.remote.dispatcher.delay.msec": "1",
    "hbase.client.pause": "20",
    # What a test must see of a request that cannot succeed is its error, not a minute of attempts.
    "hbase.client.retries.number": "6",
}
_counter = itertools.count(1)


class HBase(Server):
    """``with HBase() as server: server.connect()``; `options` are settings and win, for instance ``hbase.rootdir`` on an HDFS or
    ``hbase.wal.provider`` of several groups. The Thrift2 server (`thrift`) can be killed and restarted by itself.
    """

    def __init__(self, options: dict[str, str] | None = None) -> None:
        super().__init__("hbase")
        self.options = options or {}
        self.thrift = Thrift2(self)

    @property
    def url(self) -> str:
        return self.thrift.url

    def namespace(self) -> str:
        """The name of a namespace that nobody else uses; it is not made."""
        return f"test_{os.getpid()}_{next(_counter)}"

    def connect(self) -> TClient:
        """A bare client of the Thrift2 server."""
        return self.thrift.connect(60)

    def install(self) -> None:
        ports = self.ports = [self.port]
        for _ in range(2):
            ports.append(free_port(*ports))
        properties = {
            **_OPTIONS,
            "hbase.rootdir": f"file://{self.data_path}/root",
            "hbase.wal.dir": f"file://{self.data_path}/wal",
            "hbase.tmp.dir": str(self.data_path / "tmp"),
            "hbase.zookeeper.quorum": self.host,
            "hbase.zookeeper.property.clientPort": str(self.port),
            "hbase.zookeeper.property.clientPortAddress": self.host,
            "hbase.master.port": str(ports[1]),
            "hbase.master.ipc.address": self.host,
            "hbase.regionserver.port": str(ports[2]),
            "hbase.regionserver.ipc.address": self.host,
            "hbase.regionserver.thrift.ipaddress": self.host,
            **self.options,
        }
        lines = [
            f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()
        ]
        (self.directory / "hbase-site.xml").write_text("\n".join(["<configuration>", *lines, "</configuration>"]))
        self.data_path.mkdir()

    def start(self) -> None:
        """HBase; and the Thrift2 server the first time, which finds an HBase that comes back."""
        self._process = self.spawn(self.command())
        if self.thrift.port == 0:
            self.thrift.__enter__()
        self.wait()

    def __exit__(self, *_: object) -> None:
        if self.thrift.port != 0:
            self.thrift.__exit__()
        super().__exit__()

    def command(self) -> list[str]:
        return self.java("-Xmx512m", "master.HMaster", "start")

    def answers(self) -> bool:
        return self.thrift.answers()

    def java(self, memory: str, name: str, *arguments: str) -> list[str]:
        """How a program of HBase is started, with this server's settings."""
        return self.program(memory, f"org.apache.hadoop.hbase.{name}", *arguments)

    def program(self, memory: str, name: str, *arguments: str) -> list[str]:
        """How a class, or a program in one file, is started with HBase's classes and this server's settings."""
        java = shutil.which("java")
        assert java is not None, "Java 17 or newer must be on the PATH"
        opens = [part for package in _OPENED for part in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
        paths = f"{self.directory}{os.pathsep}{_class_path()}"
        return [java, memory, *_JVM, *opens, "-cp", paths, name, *arguments]


class RegionServer(Server):
    """One more region server of an HBase, a process of its own that can be killed."""

    def __init__(self, hbase: HBase) -> None:
        super().__init__("hbase-regions")
        self._hbase = hbase

    def install(self) -> None:
        self.port = free_port(*self._hbase.ports, self._hbase.thrift.port)

    def command(self) -> list[str]:
        options = {"hbase.cluster.distributed": "true", "hbase.regionserver.port": self.port}
        arguments = [part for name, value in options.items() for part in ("-D", f"{name}={value}")]
        return self._hbase.java("-Xmx384m", "regionserver.HRegionServer", *arguments, "start")

    def answers(self) -> bool:
        """Whether it listens; which regions it has is the master's choice."""
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0


class Thrift2(Server):
    """A Thrift2 server of an HBase; ``-f`` among its arguments: framed, ``-c``: in the compact protocol."""

    def __init__(self, hbase: HBase, *arguments: str) -> None:
        super().__init__("hbase-thrift")
        self._hbase = hbase
        self._arguments = arguments

    @property
    def url(self) -> str:
        return f"thrift://{self.host}:{self.port}"

    def connect(self, timeout_s: float) -> TClient:
        """A bare client."""
        framed, compact = "-f" in self._arguments, "-c" in self._arguments
        return make_client(
            IDL.THBaseService,
            self.host,
            self.port,
            trans_factory=TCyFramedTransportFactory() if framed else TCyBufferedTransportFactory(),
            proto_factory=TCompactProtocolFactory() if compact else TCyBinaryProtocolFactory(),
            timeout=round(timeout_s * 1000),
        )

    def install(self) -> None:
        self.port = free_port(*self._hbase.ports)  # which may not be taken yet

    def command(self) -> list[str]:
        arguments = (*self._arguments, "-b", self.host, "-p", str(self.port), "start")
        return self._hbase.java("-Xmx256m", "thrift2.ThriftServer", *arguments)

    def answers(self) -> bool:
        """Whether the master behind it tells its namespaces."""
        try:
            with closing(self.connect(5)) as client:
                return "default" in client.listNamespaces()
        except (TException, OSError):
            return False


@cache
def _class_path() -> str:
    return jars.class_path("hbase")
