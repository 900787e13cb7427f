"""Types of the native core (rust/src)."""

import pyarrow as pa

__version__: str

def digest_rows(batch: pa.RecordBatch, /) -> int: ...
