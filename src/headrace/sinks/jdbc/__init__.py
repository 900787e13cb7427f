"""Into any database that has a JDBC driver. `sink.py` is the sink, `dialect.py` what it tells the database sink of the database."""

from headrace.sinks.jdbc.sink import JdbcSink

__all__ = ["JdbcSink"]
