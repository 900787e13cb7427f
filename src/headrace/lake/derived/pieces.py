"""The Parquet files of a derived table, *pieces*, clustered by key, so that a change touches few of them.

::

    open pieces      a key at most once in all of them; their key ranges do not overlap      rewritten where a change falls
        [a … f] [g … m] [n … z]       a row belongs to the last piece whose first key is not larger, or to the first piece
    closed pieces    states that are over (zipper tables only), each piece sorted by key      only added, unless a change comes late

    in a piece's footer:   headrace.kind   "open" or "closed"
                           headrace.first  the key columns of its first row, an Arrow stream in base64

Why ranges and not hash buckets. Real changes are near each other: new keys are at the end, busy rows are the young ones. In ranges they
meet few pieces, in buckets all of them; where changes are spread evenly both rewrite the whole table. Ranges also let readers of a
table skip files by key, and they need no column that is not the table's.

Proof that ranges stay apart. Let the first keys be f1 < f2 < …. All rows that are placed in [fi, fi+1) are written together with the rows
of piece i, which were there, sorted and cut; so every new piece between lies in [fi, fi+1) again (piece 1: below f2).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.errors import CorruptError
from headrace.lake.parquet import LEVEL, open_writer
from headrace.lake.replay import numbers_from
from headrace.storage.base import FileTree, Found

PIECE_BYTES = 16 << 20
"""Rows in Arrow that a piece is meant to have; one that grows beyond one and a half of it is cut."""
SMALL_BYTES = 1 << 20
"""Neighbours on disk below this are written as one when one of them is written anyway."""
_ROW_GROUP_ROWS = 128 * 1024
_KIND, _FIRST = b"headrace.kind", b"headrace.first"
_PLACE = "_ums_place_"
OPEN, CLOSED = "open", "closed"
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """One file of a derived table."""

    path: str
    """Where it lies in its tree."""
    kind: str
    rows: int
    bytes: int
    lowest: int
    """The smallest value of the id column, by which clears find what they end."""
    first: pa.Table = field(compare=False)
    """The key of its first row."""
    tree: FileTree = field(compare=False)

    @classmethod
    def at(cls, tree: FileTree, file: Found, id_column: str) -> Piece:
        """A piece of a table that is there; CorruptError when it is none."""
        return _piece_at(tree, file, id_column)

    def read(self) -> pa.Table:
        """All of its rows."""
        return self._read(None)

    def keys(self) -> pa.Table:
        return self._read(self.first.column_names)

    def statistics(self) -> Json:
        """What a reader may skip it by, in Delta's form: of columns whose values JSON holds exactly."""
        with self._opened() as opened:
            return _statistics(opened)

    def _read(self, columns: Sequence[str] | None) -> pa.Table:
        try:
            with self._opened() as opened:
                found = opened.read(None if columns is None else list(columns))
        except (pa.ArrowException, OSError) as error:
            raise _corrupt(self.tree, self.path, error) from error
        return found.replace_schema_metadata(None)

    def _opened(self) -> pq.ParquetFile:
        return _opened(self.tree, Found(self.path, self.bytes))


def _opened(tree: FileTree, file: Found) -> pq.ParquetFile:
    return pq.ParquetFile(tree.source(file.name, file.size_bytes, file.name), pre_buffer=True)


@lru_cache(maxsize=65536)
def _piece_at(tree: FileTree, file: Found, id_column: str) -> Piece:
    try:
        with _opened(tree, file) as opened:
            told, footer = opened.schema_arrow.metadata or {}, opened.metadata
            place = opened.schema_arrow.names.index(id_column)
            lows = [footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)]
            lowest = min(_number(low.min_raw) for low in lows if low is not None)
            first = pa.ipc.open_stream(base64.b64decode(told[_FIRST])).read_all()
            return Piece(file.name, told[_KIND].decode(), footer.num_rows, file.size_bytes, lowest, first, tree)
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise _corrupt(tree, file.name, error) from error


def _number(value: Any) -> int:
    return int(value)


def _corrupt(tree: FileTree, path: str, error: Exception) -> CorruptError:
    return CorruptError(
        f"{tree.root}/{path} is not what was written: {error}",
        fix="remove the derived table's directory: it is made anew from the lake",
    )


class PieceWriter:
    """Writes pieces of one derived table; what is written is durable, and invisible until the table lists it."""

    def __init__(self, tree: FileTree, directory: str, schema: pa.Schema, key: Sequence[str], id_column: str) -> None:
        self._tree = tree
        self.schema = schema
        self.key = list(key)
        self._directory = directory
        self._id_column = id_column
        self._attempt = uuid4().hex
        self._numbers = count(1)

    def write(self, rows: pa.Table, kind: str) -> list[Piece]:
        """Rows sorted by key, as pieces of about PIECE_BYTES."""
        if not rows.num_rows:
            return []
        rows = rows.select(self.schema.names).cast(self.schema)
        parts = max(1, round(rows.nbytes / PIECE_BYTES))
        each = -(-rows.num_rows // parts)
        return [self._write_one(rows.slice(start, each), kind) for start in range(0, rows.num_rows, each)]

    def _write_one(self, rows: pa.Table, kind: str) -> Piece:
        path = f"{self._directory}/{self._attempt}-{next(self._numbers):06d}.parquet"
        told = {
            **(self.schema.metadata or {}),
            _KIND: kind.encode(),
            _FIRST: _stream(rows.select(self.key).slice(0, 1)),
        }
        schema = self.schema.with_metadata(told)
        file = self._tree.new_file(path)
        try:
            with open_writer(file.target, schema, LEVEL, rows.num_rows) as writer:
                writer.write_table(rows.cast(schema), row_group_size=_ROW_GROUP_ROWS)
            size_bytes = file.finish()
        except BaseException:
            file.abandon()
            raise
        return Piece.at(self._tree, Found(path, size_bytes), self._id_column)


def _stream(row: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, row.schema) as writer:
        writer.write_table(row.combine_chunks())
    return base64.b64encode(out.getvalue().to_pybytes())


def _statistics(opened: pq.ParquetFile) -> Json:
    footer, schema = opened.metadata, opened.schema_arrow
    low, high, nulls = Json(), Json(), Json()
    for place, described in enumerate(schema):
        found = [footer.row_group(group).column(place).statistics for group in range(footer.num_row_groups)]
        if any(each is None for each in found):
            continue
        nulls[described.name] = sum(each.null_count or 0 for each in found if each)
        ends: list[tuple[Any, Any]] = [(each.min, each.max) for each in found if each and each.has_min_max]
        told = _told(described.type)
        if told is not None and ends:
            least, most = (told(pick(end[at] for end in ends)) for at, pick in enumerate((min, max)))
            if least is not None and most is not None:
                low[described.name], high[described.name] = least, most
    return {"numRecords": footer.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def _told(type_: pa.DataType) -> Callable[[Any], Any] | None:
    if pa.types.is_integer(type_):
        return int
    if pa.types.is_date(type_):
        return lambda value: value.isoformat()
    if pa.types.is_timestamp(type_):
        zone = "Z" if type_.tz else ""
        return lambda value: value.strftime("%Y-%m-%dT%H:%M:%S.%f") + zone if value.year >= 1000 else None
    if pa.types.is_string(type_):
        return lambda value: value if len(value) <= 32 else None
    return None


@dataclass(frozen=True, slots=True)
class Range:
    """Open pieces that are written together, and the rows that fall among them."""

    pieces: tuple[Piece, ...]
    rows: pa.Table


def ranges(
    pieces: Sequence[Piece], rows: pa.Table, key: Sequence[str], swept: Callable[[Piece], bool]
) -> Iterator[Range]:
    """Open pieces with those of the rows that belong to each, the untouched ones left out unless `swept`."""
    pieces = in_key_order(pieces, key)
    if not pieces:
        if rows.num_rows:
            yield Range((), rows.take(sorted_by(rows, key)))
        return
    sorted_rows, ends = _placed(pieces, rows, key)
    some: list[Piece] = []
    start = end = 0
    touched = False
    for piece, until in zip(pieces, ends, strict=True):
        if some and not (_is_small(some[-1]) and _is_small(piece)):
            if touched:
                yield Range(tuple(some), sorted_rows.slice(start, end - start))
            some, start, touched = [], end, False
        some.append(piece)
        touched = touched or until > end or swept(piece)
        end = until
    if touched:
        yield Range(tuple(some), sorted_rows.slice(start, end - start))


def _is_small(piece: Piece) -> bool:
    return piece.bytes < SMALL_BYTES


def in_key_order(pieces: Sequence[Piece], key: Sequence[str]) -> list[Piece]:
    """Pieces by their first keys."""
    if len(pieces) < 2:
        return list(pieces)
    order = sorted_by(pa.concat_tables([piece.first.select(list(key)) for piece in pieces]), key)
    return [pieces[_number(place)] for place in order.to_pylist()]


def _placed(pieces: Sequence[Piece], rows: pa.Table, key: Sequence[str]) -> tuple[pa.Table, list[int]]:
    """The rows sorted by key, and where those of each piece end."""
    key = list(key)
    fences = pa.concat_tables([piece.first.select(key) for piece in pieces])
    both = pa.concat_tables([fences, rows.select(key).cast(fences.schema)])
    # Before equal keys stands their fence.
    both = both.append_column(
        _PLACE, pc.greater_equal(numbers_from(0, both.num_rows), pa.scalar(len(pieces), pa.int64()))
    )
    order = sorted_by(both, [*key, _PLACE])
    is_row = pc.greater_equal(order, pa.scalar(len(pieces), order.type))
    in_order = pc.subtract(order.filter(is_row), pa.scalar(len(pieces), order.type))
    fence_places = pc.indices_nonzero(pc.invert(is_row)).to_pylist()
    # Before the fence number n, counted from 0, stand n fences and else rows; the rows before the first fence go to the first piece.
    ends = [*[_number(place) - number for number, place in enumerate(fence_places)][1:], rows.num_rows]
    return rows.take(in_order), ends


def sorted_by(rows: pa.Table, key: Sequence[str]) -> pa.Array[Any]:
    """The order of rows by some columns, nulls last."""
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in key])


def match(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> pa.Array[Any]:
    """For each of `rows` the place of the row of `others` with the same key, or null; keys of `others` are unique."""
    if len(key) == 1:
        mine, theirs = (side.column(key[0]).combine_chunks() for side in (rows, others))
        return pc.index_in(mine, value_set=theirs.cast(mine.type))
    codes = key_codes(
        pa.concat_tables([rows.select(list(key)), others.select(list(key)).cast(rows.select(list(key)).schema)])
    )
    return pc.index_in(codes.slice(0, rows.num_rows), value_set=codes.slice(rows.num_rows))


def key_codes(keys: pa.Table) -> pa.Array[Any]:
    """One number per key, equal for equal keys: the numbers of its columns' distinct values, paired one column after the other."""
    codes: pa.Array[Any] | None = None
    for column in keys.columns:
        found = column.combine_chunks().dictionary_encode(null_encoding="encode")
        each = found.indices.cast(pa.int64())
        if codes is not None:
            # Both factors are numbers of rows, below 2^31: the product fits.
            paired = pc.add(pc.multiply(codes, pa.scalar(len(found.dictionary), pa.int64())), each)
            each = paired.dictionary_encode().indices.cast(pa.int64())
        codes = each
    assert codes is not None, "a key has a column"
    return codes
