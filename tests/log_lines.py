"""Small things that tests of lines share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa


def texts(values: Sequence[str | None]) -> pa.Array[Any]:
    return pa.array(values, pa.utf8())


def micros(text: str) -> int:
    """A time in UTC as µs since 1970."""
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(
        microseconds=1
    )
