"""Types of the native core (rust/src)."""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar, final

import pyarrow as pa
from typing_extensions import Buffer

from headrace.codec.ums_schema import RowsSchema

_Record = TypeVar("_Record", bound=tuple[int, object])
_Message = TypeVar("_Message")
__version__: str

def digest_rows(batch: pa.RecordBatch, /) -> int:
    """The order-free 128-bit digest of a batch's rows (rust/src/digest.rs)."""

class ParquetJoin:
    """Row groups of several Parquet files one behind the other, copied as they are (rust/src/parquet_join.rs)."""

    def __init__(self) -> None: ...
    def append(self, content: bytes, /) -> bytes:
        """The next bytes of the new file, given a whole Parquet file; ValueError when it is damaged or has other columns."""

    def finish(self) -> bytes:
        """The last bytes of the new file; ValueError when nothing was appended."""

def parts_of_rows(batch: pa.RecordBatch, parts: int, /) -> bytes:
    """Of each row a number below `parts` as u16, little-endian, the same for rows with the same values; TypeError as `digest_rows`."""

class PartSums:
    """Digests of rows by the part that `parts_of_rows` gives their keys (rust/src/digest.rs)."""

    def __init__(self, parts: int) -> None: ...
    def add(self, batch: pa.RecordBatch, parts: bytes, /) -> None:
        """Takes in rows, each with its part as u16; ValueError when there is not one for each, TypeError as `digest_rows`."""

    def total(self) -> tuple[int, int]:
        """How many rows there are in all, and their digest."""

    def rows_of(self, part: int, /) -> int: ...
    def differing(self, others: PartSums, /) -> list[int]:
        """The parts in which `others` differ."""

def hashes_of_rows(batch: pa.RecordBatch, /) -> bytes:
    """Of each row its hash, 16 bytes: the two halves of which `digest_rows` is the sum; TypeError as `digest_rows`."""

def checksum(data: bytes, start: int = 0, stop: int | None = None, before: int = 0) -> int:
    """The crc32 of the bytes in [start, stop), going on from that of the bytes before (rust/src/log.rs)."""

def records_of_chunk(
    chunk: bytes,
    at: int,
    next_offset: int,
    start: int,
    stop: int,
    record: type[_Record],
    entry: type[tuple[bytes, bytes, int]],
    /,
) -> tuple[list[_Record], int, int, int, int]:
    """The records with offsets in [start, stop) of the batches from `at` on, where `next_offset` is due (rust/src/log.rs).

    Then where the next batch begins and its offset, and both of the last batch.
    """

def records_of_messages(
    messages: list[_Message],
    first: int,
    class_: type[_Message],
    record: type[_Record],
    entry: type[tuple[bytes, bytes, int]],
    /,
) -> list[_Record]:
    """The records of Kafka's messages from the one numbered `first` on, up to the first that has headers (rust/src/log.rs)."""

_Body = tuple[bytes, int, list[tuple[int, str]]]
"""The body, its rows, and of what was left out the number of the message and the reason."""

@final
class Separated:
    """How fields of a record are separated (rust/src/body/separated.rs). `null`: what is NULL where nothing encloses it."""

    def __init__(self, separator: str, end: str, by: str | None, escape: str | None, null: str, width: int) -> None: ...

@final
class BodyLines:
    """Rows as the lines of a load (rust/src/body). Each method makes a body; it ends with the `constants` in each row."""

    @staticmethod
    def json(names: Sequence[str]) -> BodyLines: ...
    @staticmethod
    def csv(separator: str, end: str, enclosed: tuple[int, int] | None) -> BodyLines:
        """`enclosed`: the bytes that enclose and escape values that need it."""

    def of_json(
        self, texts: Sequence[bytes | None], places: Sequence[Sequence[str | int]], constants: Sequence[str]
    ) -> _Body: ...
    def of_separated(
        self, texts: Sequence[bytes | None], form: Separated, places: Sequence[int], constants: Sequence[str]
    ) -> _Body: ...
    def of_columns(self, columns: pa.RecordBatch, constants: Sequence[str]) -> _Body: ...

def json_members(texts: pa.RecordBatch, places: Sequence[Sequence[str | int]], /) -> Batch:
    """Of a column of text: which ones are a JSON object or array, and a column of what stands at each place (rust/src/json.rs)."""

def json_elements(texts: pa.RecordBatch, place: Sequence[str | int], /) -> Batch:
    """Of a column of text: the elements of the JSON array at a place, with the numbers of their rows."""

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
    beside: Sequence[tuple[str, tuple[int, str, int]]],
    *,
    max_rows: int,
    max_bytes: int,
) -> UmsMessages:
    """UMS messages of a batch, each put together when it is asked for.

    `head` goes up to the payload's bracket. `fields`: for each value of a tuple the column of the batch, its form ("bare", "quoted",
    or "dbus_id" for `_ums_id_` with 13 digits of offset), and the digits of a second. `beside`: the same for members that rows have
    besides their tuple, by name, left out where they are null. TypeError: UMS has no form for a column's type.
    """

@final
class Batch:
    """A record batch for `pyarrow.record_batch`."""

    def __len__(self) -> int: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

@final
class NewestRows:
    """The newest change of each key, in whatever order changes come (rust/src/newest.rs)."""

    def __init__(self) -> None: ...
    def add(self, changes: pa.RecordBatch, /) -> None:
        """Takes in changes: their ids (int64), the numbers of their rows (int64, not negative), whether they delete (bool), then the
        columns of their keys; TypeError when it is something else, or keys of other types than before."""

    def forget_deleted(self) -> None:
        """Forgets the keys whose last change deletes. Right when all changes to come are younger."""

    def rows(self, *, with_deletes: bool) -> Batch:
        """The numbers of the rows of last changes, sorted: one column, int64."""

    def others(self, keys: pa.RecordBatch, /) -> Batch:
        """The places of those keys of which there is no change: one column, int64; TypeError as `add`."""

    def __len__(self) -> int:
        """How many keys there are."""

@final
class UmsMessages:
    """What `encode_ums` gives."""

    @property
    def first_rows(self) -> bytes:
        """The number of each message's first row, 64 bits each in the machine's order."""

    def __iter__(self) -> UmsMessages: ...
    def __next__(self) -> bytes: ...

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

class StoredLike(Protocol):
    """codec/rows.py has the class."""

    @property
    def arguments(self) -> Sequence[int]: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def compressed(self) -> bool: ...

def describe_table(
    schema: str, table: str, definition: DefinitionLike, stored: Sequence[StoredLike]
) -> tuple[str, Batch]:
    """The JSON of `BinlogDecoder.table` for a table that is defined so, and a batch of its columns without rows."""

@final
class HBaseWalReader:
    """The bytes of one file of HBase's write-ahead log in, Arrow batches of entries and of cells out (rust/src/hbase).

    `include`: patterns ``namespace.table``. Entries that begin before the offset `start` are not given again.
    """

    def __init__(self, name: str, *, include: Sequence[str], start: int) -> None: ...
    def feed(self, data: Buffer, *, stop_after_cells: int, stop_after_bytes: int) -> tuple[int, bool]:
        """Takes whole entries from `position` on, up to a batch of that many cells or bytes; returns the bytes they had, and whether it is full.

        Damage behind entries that were not given is told by the next call. The buffer must not be written to meanwhile (other threads run).
        """
    def take(self) -> tuple[Batch, Batch]:
        """The entries taken and not given before, and their cells."""
    @property
    def position(self) -> int:
        """The offset in the file of the byte that is wanted next."""
    @property
    def entries(self) -> int: ...
    @property
    def ended(self) -> bool:
        """Its writer closed the file, and it was read to that end."""
    @property
    def compressed(self) -> bool | None:
        """None before the header was read."""

@final
class RowsReader:
    """The packets that answer one prepared SELECT in, Arrow batches out.

    `schema`: the columns asked for, all nullable, then one for the side text.
    """

    def __init__(self, schema: pa.Schema) -> None: ...
    def feed(self, data: Buffer, *, stop_after_rows: int, stop_after_bytes: int) -> tuple[int, bool]:
        """Takes whole packets up to a batch with that many rows or bytes; returns the bytes they had, and whether it is full.

        The rest is to be fed again with what follows it. The buffer must not be written to meanwhile (other threads run).
        """
    def take(self) -> Batch:
        """The rows taken and not given before."""
    @property
    def rows(self) -> int: ...
    @property
    def at_end(self) -> bool:
        """The answer is over, with its last row, with `error` or with `unfit`."""
    @property
    def error(self) -> tuple[int, str] | None:
        """The server's error code and text."""
    @property
    def unfit(self) -> str | None:
        """What is wrong with the columns that came."""

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

def hbase_cells_json(cells: pa.RecordBatch, firsts: pa.RecordBatch, /) -> Batch:
    """Of each change, whose first cell the one column of `firsts` names, all its cells as a JSON text."""

def hbase_values(values: pa.RecordBatch, kind: str, /) -> Batch:
    """One column of bytes as values of a type (capture/hbase/mapping.py), and in base64 those that are none."""
