"""Types of the native core (rust/src)."""

from collections.abc import Sequence
from typing import final

import pyarrow as pa
from typing_extensions import Buffer

__version__: str

def digest_rows(batch: pa.RecordBatch, /) -> int:
    """The order-free 128-bit digest of a batch's rows (rust/src/digest.rs)."""

@final
class BinlogDecoder:
    """Bytes of a MySQL or MariaDB binary log in, Arrow batches and transaction boundaries out."""

    def __init__(
        self,
        *,
        include: Sequence[str],
        columns: Sequence[tuple[str, Sequence[str]]] = (),
        before_images: bool = False,
        network: bool = False,
    ) -> None:
        """`include`: patterns ``schema.table`` with ``*`` and ``?``; no pattern, no table.

        `columns`: such patterns with the columns to decode of tables like them, beside those of the key; others have all.
        """
    def start(self, file: str, offset: int, commit_ts_us: int) -> None:
        """Begins at byte `offset` of the log file named `file` (0: the magic is fed too, 4: right behind it).

        A larger offset in file mode needs `prime`. `commit_ts_us` is that of the boundary resumed from: commit times never go
        below it. What has not been taken, and a transaction under way, are forgotten (they come again, with the same ids, from
        the boundary before); table indexes stay.
        """
    def prime(self, head: Buffer) -> None:
        """Reads the format of a file out of its first bytes (from the magic to the end of the format description, or more)."""
    def feed(self, data: Buffer, *, stop_after_rows: int, stop_after_bytes: int) -> int:
        """Takes whole events and returns how many bytes they had; the rest is to be fed again with what follows it.

        Returns early at the first end of a transaction with that many rows or bytes pending. Network mode takes the packets of
        COM_BINLOG_DUMP as they come. The buffer must not be written to meanwhile (other threads run). After an error, what was
        decoded before it can still be taken, and `feed` fails again until `start`.
        """
    def take(self) -> Batches:
        """Everything decoded and not taken before."""
    def finish(self) -> None:
        """At the end of a file that is not written any more: an error when it ends within an event or transaction."""
    def table(self, index: int) -> str:
        """A table version as JSON: schema, table, columns (name, source_type, nullable), key (names), named."""
    @property
    def pending_rows(self) -> int: ...
    @property
    def pending_bytes(self) -> int: ...
    @property
    def at_boundary(self) -> bool:
        """No transaction is under way."""
    @property
    def incomplete_event_at(self) -> int | None:
        """Where the event begins that the last `feed` found cut; None when it found none."""

@final
class Batches:
    @property
    def items(self) -> list[RowBatch | Ddl]:
        """In log order, as far as batches of several tables between two DDL statements can be."""
    @property
    def boundary(self) -> Boundary | None:
        """The position behind the newest whole transaction; None when rows of an unfinished one were taken, or nothing is new."""

@final
class RowBatch:
    """Rows of one table version, in log order."""

    @property
    def table(self) -> int: ...
    @property
    def batch(self) -> pa.RecordBatch: ...
    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class Ddl:
    @property
    def schema(self) -> str: ...
    @property
    def sql(self) -> str: ...
    @property
    def file(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def id(self) -> int: ...
    @property
    def ts_us(self) -> int: ...
    @property
    def started_us(self) -> int: ...
    @property
    def time_zone(self) -> str | None: ...

@final
class Boundary:
    @property
    def file(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def gtid(self) -> str: ...
    @property
    def id(self) -> int: ...
    @property
    def commit_ts_us(self) -> int: ...
