"""The Cassandra sink: what it writes and why that is right is told at the head of sink.py."""

from headrace.sinks.cassandra.sink import CassandraSink

__all__ = ["CassandraSink"]
