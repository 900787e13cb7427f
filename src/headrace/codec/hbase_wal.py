"""Files of HBase's write-ahead log as entries and cells: the thin Python face of the native reader (rust/src/hbase).

::

    bytes of a file, from `position` on -> WalReader.feed -> WalReader.take -> WalBatch(entries, cells)

    entries   start, end (offsets in the file) | region (encoded name) | table | sequence | write_time (ms) | nonce_group, nonce
              | cells (how many)
    cells     entry (its number in the batch) | row | family | qualifier | timestamp | kind | value | tags

What HBase notes of regions (opened, closed, flushed, …) are entries too: their cells are of the family `METAFAMILY`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace._native import HBaseWalReader
from headrace.errors import CorruptError

MAGIC = b"PWAL"
MARKERS = b"METAFAMILY"
KINDS = {4: "put", 8: "delete version", 10: "delete family version", 12: "delete column", 14: "delete family"}
"""What a cell does, by HBase's numbers: sets a value, or removes one version of a column, all of a family of one timestamp, or
all of a column or a family up to a timestamp."""

_EVENT = "HBASE::REGION_EVENT"
_OPENED = f"{_EVENT}::REGION_OPEN"
_BULK_LOADED = "HBASE::BULK_LOAD"

CHUNK_BYTES = 1 << 20
LONGEST_ENTRY_BYTES = 512 << 20
"""More than HBase lets a client send at once; what says to be longer is damage."""
_BATCH_CELLS = 65_536
_BATCH_BYTES = 16 << 20


@dataclass(frozen=True)
class WalBatch:
    """Entries in the order of their file, and their cells."""

    entries: pa.RecordBatch
    cells: pa.RecordBatch

    def __len__(self) -> int:
        return self.entries.num_rows

    def split(self, entry: int) -> tuple[WalBatch, WalBatch]:
        """The entries before one, and the others."""
        cells = pc.sum(self.entries["cells"].slice(0, entry)).as_py() or 0
        others = self.cells.slice(cells)
        others = others.set_column(0, "entry", pc.subtract(others["entry"], pa.scalar(entry, pa.uint32())))
        before = WalBatch(self.entries.slice(0, entry), self.cells.slice(0, cells))
        return before, WalBatch(self.entries.slice(entry), others)

    def where(self, wanted: Sequence[bool]) -> WalBatch:
        """Only some of the entries."""
        mask = pa.array(wanted, pa.bool_())
        numbers = pc.subtract(pc.cumulative_sum(mask.cast(pa.uint32())), pa.scalar(1, pa.uint32()))
        cells = self.cells.filter(mask.take(self.cells["entry"]))
        cells = cells.set_column(0, "entry", numbers.take(cells["entry"]))
        return WalBatch(self.entries.filter(mask), cells)

    def openings(self) -> list[int]:
        """The numbers of entries that note that a region was opened."""
        return [note.entry for note in self.notes() if note.is_opening]

    def notes(self) -> list[Note]:
        """What HBase notes of regions."""
        notes = self.cells.filter(pc.equal(self.cells["family"], pa.scalar(MARKERS)))
        found = notes.select(["entry", "qualifier", "value"]).to_pylist()
        return [Note(note["entry"], note["qualifier"].decode(), note["value"]) for note in found]


@dataclass(frozen=True, slots=True)
class Note:
    """What HBase notes of a region: in which entry, what (``HBASE::FLUSH``), and a message of protobuf that says more."""

    entry: int
    what: str
    message: bytes

    @property
    def is_opening(self) -> bool:
        # Before HBase 2.3 the name did not say which event it was, but the message's first field does.
        return self.what == _OPENED or (self.what == _EVENT and self.message.startswith(b"\x08\x00"))

    @property
    def is_bulk_load(self) -> bool:
        return self.what == _BULK_LOADED


class WalReader:
    """Takes one file's bytes as they come. `tables` holds patterns ``namespace:table`` with ``*`` and ``?``; ``default`` is the namespace
    of tables that are written without one.

    A reader is begun anew with `start`, the `position` of an earlier one: entries before it are not given again. `name` is for messages.
    """

    def __init__(self, name: str, tables: Sequence[str] = ("*:*",), start: int = 0) -> None:
        self.name = name
        self._native = HBaseWalReader(name, include=[dotted(pattern) for pattern in tables], start=start)

    def feed(self, data: bytes | memoryview) -> bool:
        """Takes whole entries from `position` on; returns whether there is a batch to take before more is fed.

        What lies behind the new `position` is fed again with what follows. Damage behind entries that were not taken is told by the next
        call: CorruptError, or SourceError when the file is written in a way that is not read.
        """
        _, is_full = self._native.feed(data, stop_after_cells=_BATCH_CELLS, stop_after_bytes=_BATCH_BYTES)
        return is_full

    def take(self) -> WalBatch:
        """What was read since the last time."""
        entries, cells = self._native.take()
        return WalBatch(pa.record_batch(entries), pa.record_batch(cells))

    @property
    def position(self) -> int:
        """The offset in the file of the byte that is wanted next. In a file that is not compressed it jumps to `start` behind the header."""
        return self._native.position

    @property
    def has_entries(self) -> bool:
        """Whether `take` would give any."""
        return self._native.entries > 0

    @property
    def ended(self) -> bool:
        """Its writer closed the file, and it was read to that end."""
        return self._native.ended


def dotted(pattern: str) -> str:
    """``namespace:table``, or a table of the default namespace, as ``namespace.table``."""
    namespace, colon, table = pattern.partition(":")
    return f"{namespace}.{table}" if colon else f"default.{namespace}"


def read_on(reader: WalReader, read: Callable[[int, int], bytes]) -> Iterator[WalBatch]:
    """The entries from where the reader is, as far as they are whole. `read` gives the bytes from one offset to another, or as many as there are.

    What is not whole at the end is not written yet; or never was acknowledged, in a file that nobody writes any more.
    """
    wanted = CHUNK_BYTES
    while not reader.ended:
        at = reader.position
        data = memoryview(read(at, at + wanted))
        yield from _entries_in(reader, data, at)
        if reader.position == at:
            if len(data) < wanted:
                return
            wanted *= 2
            if wanted > LONGEST_ENTRY_BYTES:
                raise CorruptError(
                    f"{reader.name}: byte {at}: an entry of more than {LONGEST_ENTRY_BYTES >> 20} MB",
                    fix="check the file with `hbase wal` and the file system: HBase does not write such entries",
                )
        else:
            wanted = CHUNK_BYTES


def _entries_in(reader: WalReader, data: memoryview, at: int) -> Iterator[WalBatch]:
    may_have_more = True
    while may_have_more and reader.position <= at + len(data):
        may_have_more = reader.feed(data[reader.position - at :])
        if reader.has_entries:
            yield reader.take()
            may_have_more = True
