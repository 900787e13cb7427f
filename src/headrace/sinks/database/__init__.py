"""Into relational databases. One dialect is one file; `sink.py` is the sink, `dialect.py` what it asks of a dialect."""

from headrace.sinks.database.sink import DatabaseSink

__all__ = ["DatabaseSink"]
