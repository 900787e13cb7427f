"""Names in flow files -> classes, imported only when used. A new store or source is one line here; plug-ins use entry points.

Entry point groups for plug-ins: ``headrace.sinks``, ``headrace.sources``, ``headrace.logs``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from headrace.errors import ConfigError

LOGS = {
    "directory": "headrace.log.directory:DirectoryLog",
    "kafka": "headrace.log.kafka:KafkaLog",
}
SINKS = {
    "database": "headrace.sinks.database:DatabaseSink",
    "lake": "headrace.sinks.lake:LakeSink",
    "memory": "headrace.sinks.memory:MemorySink",
}
SOURCES = {
    "mysql": "headrace.capture.mysql:MySqlSource",
}
_TABLES = {"logs": LOGS, "sinks": SINKS, "sources": SOURCES}
_EXTRAS = {"confluent_kafka": "kafka", "psycopg": "postgresql"}


def names(kind: str) -> list[str]:
    """All names of a kind (``logs``, ``sinks``, ``sources``), plug-ins included."""
    return sorted({*_TABLES[kind], *(entry.name for entry in entry_points(group=f"headrace.{kind}"))})


def load(kind: str, name: str) -> type:
    """The class behind a name; ConfigError when there is none or its driver is not installed."""
    target = _TABLES[kind].get(name)
    if target is None:
        for entry in entry_points(group=f"headrace.{kind}", name=name):
            target = entry.value
    if target is None:
        raise ConfigError(f"there is no {kind[:-1]} of type '{name}'", fix=f"use one of: {', '.join(names(kind))}")
    module, _, attribute = target.partition(":")
    try:
        loaded: type = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("headrace"):
            raise
        raise missing_driver(error) from error
    return loaded


def missing_driver(error: ModuleNotFoundError) -> ConfigError:
    """The message for a store whose driver is not installed."""
    driver = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(driver)
    fix = f"pip install 'headrace[{extra}]'" if extra else f"pip install {driver}"
    return ConfigError(f"the driver '{driver}' is not installed", fix=fix)
