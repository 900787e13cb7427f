"""The JVM of this process, and the JDBC drivers in it.

It is started by the first sink that connects and never before: Spark forks its Python workers, and in a forked process none of a JVM's own
threads lives on. There is one for all flows of a process; each set of jars has a class loader of its own under the platform's, so
drivers of different flows and versions do not see each other.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeAlias

import jpype

from headrace.errors import ConfigError, FatalError

Java: TypeAlias = Any
"""An object or a class of Java, which JPype makes at run time."""

_OPTIONS = (
    "-Xrs",  # signals stay Python's
    "-XX:+UseSerialGC",  # few threads and little memory: a machine may have many workers
    "-Duser.timezone=UTC",  # drivers read dates and times in the JVM's zone, and in other zones some do not exist
)
_starting = Lock()
_started_in: set[int] = set()
"""The process that has started the JVM, which a fork remembers."""


def start() -> None:
    """Starts the JVM of this process when it has none."""
    with _starting:
        if not _started_in:
            try:
                if not jpype.isJVMStarted():  # by a function of the user
                    jpype.startJVM(*_OPTIONS, convertStrings=False, minimum_version="17")
            except (RuntimeError, ValueError, OSError) as error:  # no JVM, another architecture, too old a version
                raise ConfigError(
                    f"the Java for JDBC cannot be started: {error}",
                    fix="install Java 17 or newer on every machine that writes to the target, or set JAVA_HOME",
                ) from error
            _started_in.add(os.getpid())
        elif os.getpid() not in _started_in:
            raise FatalError(
                "a process that already ran Java for JDBC was forked into this one, where Java cannot run",
                fix="open sinks of type jdbc only in the forked process; report it with the flow file",
            )


def java(name: str) -> Java:
    """A class of Java by its name."""
    return jpype.JClass(name)


def connect(url: str, jars: Sequence[Path], properties: Mapping[str, str]) -> Java:
    """A connection by that of the drivers in the jars which takes the URL. Errors of the driver come out as they are."""
    start()
    given = java("java.util.Properties")()
    for name, value in properties.items():
        given.setProperty(name, value)
    for driver in _drivers(tuple(jars)):
        connection = driver.connect(url, given)  # null when the URL is another driver's
        if connection is not None:
            return connection
    raise ConfigError(
        f"no driver in {_listed(jars)} takes URLs that begin with {':'.join(url.split(':')[:2])}:",
        fix="correct the sink's `url`, or name the jar of the database's own driver in `driver`",
    )


@lru_cache(maxsize=64)
def _drivers(jars: tuple[Path, ...]) -> tuple[Java, ...]:
    for jar in jars:
        if not zipfile.is_zipfile(jar):
            raise ConfigError(f"{jar} is no jar that can be read", fix="correct `driver` of the sink")
    urls = [java("java.io.File")(str(jar)).toURI().toURL() for jar in jars]
    loader = java("java.net.URLClassLoader")(
        jpype.JArray(java("java.net.URL"))(urls), java("java.lang.ClassLoader").getPlatformClassLoader()
    )
    try:
        found = tuple(java("java.util.ServiceLoader").load(java("java.sql.Driver").class_, loader))
    except jpype.JException as error:
        raise ConfigError(
            f"the driver in {_listed(jars)} cannot be loaded: {error.getMessage()}",
            fix="name all jars that it needs in `driver`, in a version for this Java",
        ) from error
    if not found:
        raise ConfigError(
            f"there is no JDBC driver in {_listed(jars)}", fix="name the jar with the database's driver in `driver`"
        )
    return found


def _listed(jars: Sequence[Path]) -> str:
    return ", ".join(jar.name for jar in jars)
