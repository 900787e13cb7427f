"""Values of a column that the source has given another type, for a target that keeps its own (`on_change: {retyped: ignore}`)."""

from __future__ import annotations

import pyarrow as pa

from headrace.sinks.database.dialect import StoredType
from headrace.ums.values import Array, cast_or_null, to_text


def fitting(column: Array, stored: StoredType) -> Array:
    """The values that the stored type can hold, the others as null."""
    if pa.types.is_string(stored.type):
        texts = to_text(column).to_pylist()
        limit = stored.length
        return pa.array(
            [text if text is None or limit is None or len(text) <= limit else None for text in texts], pa.utf8()
        )
    return cast_or_null(column, stored.type)
