"""ClickHouse as a target (head of sink.py)."""

from headrace.sinks.clickhouse.sink import ClickHouseSink

__all__ = ["ClickHouseSink"]
