"""The decoders side by side: how each is built from locked versions (in the cache, nothing in the repository) and started."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from tests.servers.install import find_mysql_program
from tests.servers.mysql import MySql

import headrace
from bench.decode_log.record import CACHE, END_TABLE
from bench.decode_peers.measure import PeerError, Run, measure

HERE = Path(__file__).parent
BUILT = CACHE / "decode-peers"


class Peer(ABC):
    """`files` is how many logs it decodes at once, `part` the part of the workload that its log holds."""

    label: str
    files = 1
    part = 1.0

    def prepare(self) -> None:  # noqa: B027 - most have nothing to do
        """Fetches and builds it. PeerError when that fails."""

    def version(self) -> str:
        """Of what was prepared; empty when it has none."""
        return ""


class FilePeer(Peer):
    """Reads a log file."""

    def run(self, path: Path) -> Run:
        return measure(self.command(path))

    @abstractmethod
    def command(self, path: Path) -> Sequence[str]: ...


class ServerPeer(Peer):
    """Reads the log of a running server."""

    def run(self, server: MySql) -> Run:
        return measure(self.command(server))

    @abstractmethod
    def command(self, server: MySql) -> Sequence[str]: ...


class RawRead(FilePeer):
    label = "raw read"

    def command(self, path: Path) -> Sequence[str]:
        return [sys.executable, str(HERE / "raw_read.py"), str(path)]


class Headrace(FilePeer):
    def __init__(self, files: int = 1, *, before_images: bool = False) -> None:
        self.files = files
        self.before_images = before_images
        self.label = (
            f"headrace{' with before images' if before_images else ''}{f' in {files} threads' if files > 1 else ''}"
        )

    def version(self) -> str:
        return headrace.__version__

    def command(self, path: Path) -> Sequence[str]:
        images = ["--before-images"] if self.before_images else []
        return [sys.executable, str(HERE / "headrace_rows.py"), *images, *[str(path)] * self.files]


class MySqlBinlog(FilePeer):
    """Prints rows only: without the events in base64 that -v alone prints too. It reads the log from its standard input."""

    label = "mysqlbinlog -v"

    def version(self) -> str:
        done = subprocess.run(
            [*find_mysql_program("mysqlbinlog"), "--version"], capture_output=True, text=True, check=True
        )
        return _found(r"Ver ([0-9.]+)", done.stdout)

    def run(self, path: Path) -> Run:
        return replace(measure(self.command(path), stdin=path, counts=False), rows=self._count(path))

    def command(self, path: Path) -> Sequence[str]:
        return [*find_mysql_program("mysqlbinlog"), "--no-defaults", "-v", "--base64-output=DECODE-ROWS", "-"]

    @cache  # noqa: B019 - there is one
    def _count(self, path: Path) -> int:
        """The rows that it prints."""
        with path.open("rb") as log:
            printing = subprocess.Popen(self.command(path), stdin=log, stdout=subprocess.PIPE)
            counted = subprocess.run(
                ["grep", "--text", "--count", "-E", "^### (INSERT INTO|UPDATE|DELETE FROM) "],
                stdin=printing.stdout,
                stdout=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C"},
                check=True,
            )
        printing.wait()
        return int(counted.stdout)


class GoMySql(FilePeer):
    label = "go-mysql"
    _program = BUILT / "go-mysql-rows"

    def prepare(self) -> None:
        _build("go-mysql", [_tool("go", "Go 1.25 or newer"), "build", "-o", str(self._program), "."], HERE / "go_mysql")

    def version(self) -> str:
        return _found(r"go-mysql v(\S+)", (HERE / "go_mysql" / "go.mod").read_text())

    def command(self, path: Path) -> Sequence[str]:
        return [str(self._program), str(path)]


class JavaConnector(FilePeer):
    label = "mysql-binlog-connector-java"

    def prepare(self) -> None:
        build_java()

    def version(self) -> str:
        return _jar_version("mysql-binlog-connector-java")

    def command(self, path: Path) -> Sequence[str]:
        return [*java(), "ConnectorRows", str(path)]


class Debezium(ServerPeer):
    label = "Debezium embedded"

    def prepare(self) -> None:
        build_java()

    def version(self) -> str:
        return _jar_version("debezium-embedded")

    def command(self, server: MySql) -> Sequence[str]:
        return [*java(), "DebeziumRows", server.host, str(server.port), server.user, server.password, END_TABLE]


class MySqlReplication(ServerPeer):
    label = "mysql-replication"
    part = 0.1  # so slow that more would only take time; nothing in it gets warm
    _environment = BUILT / "mysql-replication"
    _requirements = HERE / "mysql_replication.txt"

    def prepare(self) -> None:
        python = self._environment / "bin" / "python"
        if not python.exists():
            _build("mysql-replication", [sys.executable, "-m", "venv", str(self._environment)], HERE)
        install = [str(python), "-m", "pip", "install", "--quiet", "--require-hashes", "-r", str(self._requirements)]
        _build("mysql-replication", install, HERE)

    def version(self) -> str:
        return _found(r"mysql-replication==(\S+)", self._requirements.read_text())

    def command(self, server: MySql) -> Sequence[str]:
        python = str(self._environment / "bin" / "python")
        return [
            python,
            str(HERE / "mysql_replication_rows.py"),
            server.host,
            str(server.port),
            server.user,
            server.password,
        ]


def build_java() -> None:
    """Fetches the jars of pom.xml and compiles the programs beside them."""
    jars, classes = BUILT / "java" / "jars", BUILT / "java" / "classes"
    shutil.rmtree(BUILT / "java", ignore_errors=True)  # jars of another version must not stay
    maven = [_tool("mvn", "apt-get install maven"), "--quiet", "--batch-mode", "dependency:copy-dependencies"]
    _build("the Java peers", [*maven, f"-DoutputDirectory={jars}"], HERE / "java")
    compiler = _tool("javac", "apt-get install openjdk-17-jdk-headless")
    sources = [path.name for path in sorted((HERE / "java").glob("*.java"))]
    _build("the Java peers", [compiler, "-cp", f"{jars}/*", "-d", str(classes), *sources], HERE / "java")


def java() -> list[str]:
    """The command that runs one of them."""
    folder = BUILT / "java"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return [
        _tool("java", "apt-get install openjdk-17-jdk-headless"),
        "-Xmx1g",
        quiet,
        "-cp",
        f"{folder}/classes:{folder}/jars/*",
    ]


def _jar_version(artifact: str) -> str:
    [jar] = (BUILT / "java" / "jars").glob(f"{artifact}-[0-9]*.jar")
    return jar.stem.removeprefix(f"{artifact}-")


def _tool(name: str, fix: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise PeerError(f"the program '{name}' is not installed: {fix}")
    return path


def _build(what: str, command: Sequence[str], folder: Path) -> None:
    BUILT.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise PeerError(f"building {what} failed in {Path(command[0]).name}: {said[-1]}")


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, f"nothing like {pattern} in {text!r}"
    return match[1]
