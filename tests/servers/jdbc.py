"""Real databases that are written in Java and reached by their JDBC drivers: H2 and Derby, each a server of its own."""

from __future__ import annotations

import itertools
import os
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import jpype

from headrace.sinks.jdbc.connection import Connection
from tests.servers import jars
from tests.servers.process import Server

_JVM = ("-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_counter = itertools.count(1)


class JdbcServer(Server):
    """``with H2() as server, server.schema() as settings:`` gives what a sink of type jdbc needs, with a schema of its own."""

    user = "APP"
    password = "secret"

    @property
    @abstractmethod
    def url(self) -> str: ...

    @property
    def jars(self) -> list[str]:
        return jars.class_path(self.name).split(os.pathsep)

    @property
    def settings(self) -> dict[str, object]:
        return {"type": "jdbc", "url": self.url, "driver": self.jars, "user": self.user, "password": self.password}

    @contextmanager
    def schema(self) -> Iterator[dict[str, object]]:
        name = f"t{next(_counter)}"
        self.execute(f'CREATE SCHEMA "{name}"')
        yield {**self.settings, "schema": name}

    def connect(self) -> Connection:
        login = {"user": self.user, "password": self.password}
        return Connection(self.url, [Path(jar) for jar in self.jars], login)

    def execute(self, *statements: str, schema: str = "") -> list[tuple[Any, ...]]:
        """Runs statements in a transaction; returns what the last one has found."""
        found: list[tuple[Any, ...]] = []
        with closing(self.connect()) as connection:
            if schema:
                connection.run(f'SET SCHEMA "{schema}"')
            for statement in statements:
                found = connection.run(statement)
            connection.java.commit()
        return found

    def install(self) -> None:
        self.data_path.mkdir()

    def java(self, *arguments: str) -> list[str]:
        return ["java", *_JVM, *arguments]

    def answers(self) -> bool:
        try:
            self.connect().close()
        except jpype.JException:
            return False
        return True


class H2(JdbcServer):
    def __init__(self) -> None:
        super().__init__("h2")

    @property
    def url(self) -> str:
        # What is committed outlives a crash, and the database stays open between two connections.
        return f"jdbc:h2:tcp://{self.host}:{self.port}/./mart;WRITE_DELAY=0;DB_CLOSE_DELAY=-1"

    def command(self) -> list[str]:
        place = ("-tcpPort", str(self.port), "-baseDir", str(self.data_path))
        return self.java("-cp", jars.class_path("h2"), "org.h2.tools.Server", "-tcp", *place, "-ifNotExists")


class Derby(JdbcServer):
    def __init__(self) -> None:
        super().__init__("derby")

    @property
    def url(self) -> str:
        return f"jdbc:derby://{self.host}:{self.port}/mart;create=true"

    def command(self) -> list[str]:
        settings = {
            "derby.system.home": str(self.data_path),
            "derby.connection.requireAuthentication": "true",
            "derby.authentication.provider": "BUILTIN",
            f"derby.user.{self.user}": self.password,
            "derby.locks.deadlockTimeout": "1",
        }
        options = (f"-D{name}={value}" for name, value in settings.items())
        start = ("org.apache.derby.drda.NetworkServerControl", "start", "-noSecurityManager")
        return self.java(*options, "-cp", jars.class_path("derby"), *start, "-h", self.host, "-p", str(self.port))
