"""The sink of OpenSearch and Elasticsearch: what it writes and why that is right is told at the head of sink.py."""

from headrace.sinks.opensearch.sink import OpenSearchSink

__all__ = ["OpenSearchSink"]
