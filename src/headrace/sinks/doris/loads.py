"""Loads of JSON lines for tables that take repeats: each under a label of its own, of this life of a sink.

Such tables have a unique key and a sequence column, so a load that is done twice is done once, and labels need not outlive the process: they
settle what became of a load whose answer was lost. (Labels that name offsets for ever: headrace.doris, for tables that take no repeats.)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import count
from uuid import uuid4

from headrace.sinks.doris.cluster import Cluster, Load
from headrace.sinks.doris.delivery import Delivered, Delivery
from headrace.sinks.doris.sequence import HEADER
from headrace.sinks.doris.sql import quoted

_LABEL_PART = re.compile(r"[^-_A-Za-z0-9:]")


class Loads:
    """The loads of one sink."""

    def __init__(self, cluster: Cluster, database: str, flow: str, give_up_after_s: float) -> None:
        self._cluster = cluster
        self._delivery = Delivery(cluster, give_up_after_s=give_up_after_s)
        self._database = database
        self._life = f"hr-{_LABEL_PART.sub('_', flow)[:24]}-{uuid4().hex}"
        self._numbers = count(1)

    def send(self, table: str, headers: Mapping[str, str], body: bytes) -> Delivered:
        """Returns when queries see the rows."""
        label = f"{self._life}-{_LABEL_PART.sub('_', table)[:32]}-{next(self._numbers)}"
        return self.send_as(Load(self._database, table, label, headers, body))

    def send_as(self, load: Load) -> Delivered:
        """As `send`, under a label that somebody else may have used."""
        delivered = self._delivery.deliver(load)
        if not delivered.is_visible:
            self._delivery.wait_visible(load)
        return delivered

    def check(self) -> None:
        self._cluster.check()


def json_headers(columns: Sequence[str], sequence: str | None = None) -> dict[str, str]:
    """Of a load of lines whose values are text. A value that its column does not take refuses the load. `sequence`: what a hidden
    sequence column gets."""
    return {
        **({} if sequence is None else {HEADER: sequence}),
        "format": "json",
        "read_json_by_line": "true",
        "columns": ",".join(map(quoted, columns)),
        "strict_mode": "true",
        "max_filter_ratio": "0",
        "timezone": "+00:00",
    }


def json_line(row: Mapping[str, str | None]) -> bytes:
    """A row as a line."""
    return (json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n").encode()
