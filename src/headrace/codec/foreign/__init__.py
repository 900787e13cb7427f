"""Formats of others, out of changes and into them: Debezium's, canal's and Maxwell's JSON. docs/formats/foreign.md describes them."""

from __future__ import annotations

from headrace.codec.foreign.canal import CanalWriter
from headrace.codec.foreign.changes import ForeignWriter
from headrace.codec.foreign.debezium import DebeziumWriter
from headrace.codec.foreign.maxwell import MaxwellWriter

WRITERS: dict[str, ForeignWriter] = {
    "debezium": DebeziumWriter(envelope=False),
    "debezium-schema": DebeziumWriter(envelope=True),
    "canal": CanalWriter(),
    "maxwell": MaxwellWriter(),
}
"""By the names of `--format`."""
