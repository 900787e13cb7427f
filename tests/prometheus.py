"""Metrics as Prometheus sees them: scraped over HTTP, parsed by its own client library."""

from __future__ import annotations

from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, ...], float]
"""(sample name, source, stage, flow, and where there is one: table, upper bound of a bucket) -> value."""


def scraped(address: object) -> Samples:
    """All samples that are served at HOST:PORT; none comes twice."""
    with urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [
                sample.labels[name]
                for name in ("source", "stage", "flow", "table", "host", "le")
                if name in sample.labels
            ]
            assert (sample.name, *labels) not in samples
            samples[sample.name, *labels] = sample.value
    return samples
