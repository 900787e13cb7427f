"""Names in flow files -> classes, imported only when used. A new store or source is one line here; plug-ins use entry points.

Entry point groups for plug-ins: ``headrace.sinks``, ``headrace.sources``, ``headrace.logs``, ``headrace.lookups``,
``headrace.masks``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from headrace.errors import ConfigError

LOGS = {
    "directory": "headrace.log.directory:DirectoryLog",
    "hdfs": "headrace.log.shared.hdfs:HdfsLog",
    "kafka": "headrace.log.kafka:KafkaLog",
    "s3": "headrace.log.shared.s3:S3Log",
}
LOOKUPS = {
    "cassandra": "headrace.compute.lookups.cassandra:CassandraLookup",
    "csv": "headrace.compute.lookups.csv:CsvLookup",
    "database": "headrace.compute.lookups.database:DatabaseLookup",
    "hbase": "headrace.compute.lookups.hbase:HBaseLookup",
    "lake": "headrace.compute.lookups.lake:LakeLookup",
    "opensearch": "headrace.compute.lookups.opensearch:OpenSearchLookup",
    "redis": "headrace.compute.lookups.redis:RedisLookup",
}
MASKS = {
    "constant": "headrace.capture.mask_kinds:ConstantMask",
    "default": "headrace.capture.mask_kinds:DefaultMask",
    "hash": "headrace.capture.mask_kinds:HashMask",
    "keep": "headrace.capture.mask_kinds:KeepMask",
    "regex": "headrace.capture.mask_kinds:RegexMask",
    "truncate": "headrace.capture.mask_kinds:TruncateMask",
}
SINKS = {
    "callable": "headrace.sinks.callable:CallableSink",
    "cassandra": "headrace.sinks.cassandra:CassandraSink",
    "clickhouse": "headrace.sinks.clickhouse:ClickHouseSink",
    "database": "headrace.sinks.database:DatabaseSink",
    "doris": "headrace.sinks.doris:DorisSink",
    "hbase": "headrace.sinks.hbase:HBaseSink",
    "hbase-replica": "headrace.sinks.hbase.replica:HBaseReplicaSink",
    "jdbc": "headrace.sinks.jdbc:JdbcSink",
    "kafka": "headrace.sinks.kafka:KafkaSink",
    "lake": "headrace.sinks.lake:LakeSink",
    "memory": "headrace.sinks.memory:MemorySink",
    "opensearch": "headrace.sinks.opensearch:OpenSearchSink",
    "redis": "headrace.sinks.redis:RedisSink",
    "webhook": "headrace.sinks.webhook:WebhookSink",
}
SOURCES = {
    "applog": "headrace.capture.applog.source:AppLogSource",
    "hbase": "headrace.capture.hbase.source:HBaseSource",
    "kafka": "headrace.capture.topics:KafkaSource",
    "mysql": "headrace.capture.mysql:MySqlSource",
    "sql": "headrace.compute.changing.source:SqlSource",
    "statistics": "headrace.capture.statistics:StatisticsSource",
}
WATERMARKS = {
    "client": "headrace.watermark.client:WatermarkClient",
    "server": "headrace.watermark.embedded:EmbeddedServer",
}
"""Both sides of the Watermark Server, which a flow file names by `watermark`."""
_TABLES = {
    "logs": LOGS,
    "lookups": LOOKUPS,
    "masks": MASKS,
    "sinks": SINKS,
    "sources": SOURCES,
    "watermarks": WATERMARKS,
}
_EXTRAS = {
    "adbc_driver_manager": "postgresql",
    "adbc_driver_postgresql": "postgresql",
    "cassandra": "cassandra",
    "clickhouse_connect": "clickhouse",
    "confluent_kafka": "kafka",
    "duckdb": "duckdb",
    "fastavro": "kafka",
    "h11": "doris",
    "hdfs_native": "hdfs",
    "jpype": "jdbc",
    "obstore": "s3",
    "openlineage": "lineage",
    "opentelemetry": "traces",
    "opensearchpy": "opensearch",
    "pgpq": "postgresql",
    "psycopg": "postgresql",
    "redis": "redis",
    "sqlalchemy": "lookup",
    "thriftpy2": "hbase",
    "urllib3": "webhook",
}


def names(kind: str) -> list[str]:
    """All names of a kind (``logs``, ``lookups``, ``masks``, ``sinks``, ``sources``), plug-ins included."""
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
        raise missing_driver(error, "watermark" if kind == "watermarks" else None) from error
    return loaded


def missing_driver(error: ModuleNotFoundError, extra: str | None = None) -> ConfigError:
    """The message for a store whose driver is not installed. `extra`: what it comes with, where not the driver says it."""
    driver = (error.name or "").partition(".")[0]
    extra = extra or _EXTRAS.get(driver)
    fix = f"pip install 'headrace[{extra}]'" if extra else f"pip install {driver}"
    return ConfigError(f"the driver '{driver}' is not installed", fix=fix)
