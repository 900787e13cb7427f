"""Streaming queries of the tests, on machines of any speed."""

from __future__ import annotations

from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from tests.patience import wait_until

_TOO_SLOW = "failed to connect back"
"""What Spark says when the process of a Python source has not begun within ten seconds, which cannot be changed."""


_AT_WORK = ("Waiting", "Processing", "Writing")


def started(writer: DataStreamWriter) -> StreamingQuery:
    """A query that has begun: it has asked its source what there is, or has ended by itself."""
    found: list[StreamingQuery] = []

    def begun() -> bool:
        if not found:
            found.append(writer.start())
        [query] = found
        if query.status["message"].startswith(_AT_WORK) or query.lastProgress is not None or not query.isActive:
            if _TOO_SLOW in str(query.exception()):
                found.clear()
            return bool(found)
        return False

    wait_until(begun)
    [query] = found
    return query
