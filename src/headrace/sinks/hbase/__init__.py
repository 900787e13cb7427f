"""The HBase sink: what it writes and why that is right is told at the head of sink.py."""

from headrace.sinks.hbase.sink import HBaseSink

__all__ = ["HBaseSink"]
