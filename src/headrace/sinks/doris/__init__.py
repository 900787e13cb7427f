"""Apache Doris: loads under labels (http.py, answers.py, cluster.py, delivery.py), and the sink of flows (sink.py)."""

from headrace.sinks.doris.sink import DorisSink

__all__ = ["DorisSink"]
