"""Types of the native core (rust/src)."""

from collections.abc import Callable, Sequence
from typing import Protocol, final

import pyarrow as pa
from typing_extensions import Buffer

from headrace.codec.ums_schema import RowsSchema

__version__: str

def digest_rows(batch: pa.RecordBatch, /) -> int:
    """The order-free 128-bit digest of a batch's rows (rust/src/digest.rs)."""

class DefinedColumnLike(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def unsigned(self) -> bool: ...
    @property
    def charset(self) -> str | None: ...
    @property
    def labels(self) -> Sequence[str]: ...

class DefinitionLike(Protocol):
    """codec/binlog.py has the classes."""

    @property
    def columns(self) -> Sequence[DefinedColumnLike]: ...
    @property
    def keys(self) -> Sequence[Sequence[str]]: ...

def encode_ums(
    batch: pa.RecordBatch,
    head: bytes,
    fields: Sequence[tuple[int, str, int]],
    *,
    max_rows: int,
    max_bytes: int,
) -> list[tuple[bytes, int]]:
    """UMS messages of a batch, and the number of each one's first row.

    `head` goes up to the payload's bracket. `fields`: for each value of a tuple the column of the batch, its form ("bare", "quoted",
    or "dbus_id" for `_ums_id_` with 13 digits of offset), and the digits of a second. TypeError: UMS has no form for a column's type.
    """

@final
class Batch:
    """A record batch for `pyarrow.record_batch`."""

    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class UmsParser:
    """UMS messages in, batches out. `kinds`: names on the wire and whether they carry rows.

    `plan` says what a schema (its JSON) means: a token to be given back, the Arrow schema of the rows, the column of each field (-1:
    none), the fields' names, and whether ids have 13 digits of offset.
    """

    def __init__(
        self,
        kinds: Sequence[tuple[str, bool]],
        plan: Callable[[bytes], tuple[RowsSchema, pa.Schema, Sequence[int], Sequence[str], bool]],
        commit_ts_us: int,
    ) -> None: ...
    def parse(self, messages: list[bytes]) -> list[tuple[str, int | tuple[RowsSchema, Batch]]]:
        """By kind: the index of a message without rows, or rows under their schema's token. ValueError: `failed_at` says where."""
    @property
    def failed_at(self) -> tuple[int, int] | None:
        """Message and byte at which the last `parse` failed."""
    @property
    def commit_ts_us(self) -> int: ...

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
        names_required: bool = False,
    ) -> None:
        """`include`: patterns ``schema.table`` with ``*`` and ``?``; no pattern, no table.

        `columns`: such patterns with the columns to decode of tables like them, beside those of the key; others have all.
        `names_required`: columns without names, which are ``@1``, ``@2``, … else, are an error.
        """
    def start(
        self,
        file: str,
        offset: int,
        *,
        expanded: int,
        gtids: str,
        renumbered: int,
        commit_ts_us: int,
        skip_until_us: int,
    ) -> None:
        """Begins at byte `offset` of the log file named `file` (0: the magic is fed too, 4: right behind it).

        A larger offset in file mode needs `prime`. `expanded` is how many bytes decompression has added before that offset (of a
        boundary, or by `BinlogSkim`). `gtids`, `renumbered` and `commit_ts_us` are those of the boundary resumed from: the
        transactions before it ("" when not known), what is added to file numbers in ids, and a time that commit times never go
        below. Rows are passed over up to the first transaction committed at `skip_until_us` or later (microseconds since 1970
        UTC). What has not been taken, and a transaction under way, are forgotten (they come again, with the same ids, from the
        boundary before); table indexes stay.
        """
    def prime(self, head: Buffer) -> None:
        """Reads the format of a file out of its first bytes (from the magic to the end of the format description, or more)."""
    def feed(self, data: Buffer, *, stop_after_rows: int, stop_after_bytes: int, stop_at_ddl: bool = False) -> int:
        """Takes whole events and returns how many bytes they had; the rest is to be fed again with what follows it.

        Returns early at the first end of a transaction with that many rows or bytes pending; within a transaction when that is
        many for memory too (65,536 rows or 16 MiB), with `stop_at_ddl` also behind each statement that changes what tables are.
        With an open compressed transaction (`in_payload`) it goes on with that before it takes bytes, and may be called without
        any. Network mode takes the packets of
        COM_BINLOG_DUMP as they come. The buffer must not be written to meanwhile (other threads run). After an error, what was
        decoded before it can still be taken, and `feed` fails again until `start`.
        """
    def take(self) -> Batches:
        """Everything decoded and not taken before."""
    def define(self, schema: str, table: str, definition: DefinitionLike | None) -> None:
        """What a table is in the events that come now, where the log does not say it."""
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
    def in_payload(self) -> bool:
        """The bytes of a compressed transaction have been taken, and not all of its rows."""
    @property
    def behind_ddl(self) -> bool:
        """The newest that is pending is a statement."""
    @property
    def incomplete_event_at(self) -> int | None:
        """Where the event begins that the last `feed` found cut; None when it found none."""

@final
class BinlogSkim:
    """Says how many bytes decompression adds up to a place in a recorded file, reading headers only."""

    def __init__(self, file: str) -> None: ...
    def feed(self, data: Buffer) -> int:
        """Takes whole events, from the file's beginning on, and returns how many bytes they had."""
    @property
    def expanded(self) -> int: ...

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
    def file(self) -> str: ...
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
    @property
    def server_charset(self) -> str | None: ...

@final
class Boundary:
    @property
    def file(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def expanded(self) -> int: ...
    @property
    def gtids(self) -> str: ...
    @property
    def id(self) -> int: ...
    @property
    def commit_ts_us(self) -> int: ...

@final
class GtidSet:
    def __init__(self, text: str) -> None: ...
    def __bool__(self) -> bool: ...
    def __or__(self, other: GtidSet) -> GtidSet: ...
    def __sub__(self, other: GtidSet) -> GtidSet: ...
    def __le__(self, other: GtidSet) -> bool: ...
    def to_wire(self) -> bytes: ...
