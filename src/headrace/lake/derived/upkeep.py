"""Derived tables kept up: what is new in the lake since a table's own commit is merged into it, in one commit.

Again and again. A table says itself up to which commit of the lake it is (table.py). Everything behind that is taken in, and taking something in
twice changes nothing: so it does not matter when this dies, how often it runs, or who runs it. Two at once at the same table: the second
is refused. When changes were taken out of the lake (a purge), or the table has another key, it is made anew, in one commit as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial

import pyarrow as pa

from headrace.errors import ConfigError, DataError, FencedError, HeadraceError
from headrace.lake.certificate import Round, Rounds
from headrace.lake.commit import Manifest
from headrace.lake.derived.columns import Columns, conform, must_have_key
from headrace.lake.derived.current import CurrentRows
from headrace.lake.derived.directory import ParquetDirectory
from headrace.lake.derived.pieces import CLOSED, OPEN, Piece, PieceWriter, Range, ranges, sorted_by
from headrace.lake.derived.place import directory_for
from headrace.lake.derived.source import Journal, News, Source
from headrace.lake.derived.spec import Derive, Format, Kind
from headrace.lake.derived.table import DerivedTable, Json, Present, Progress
from headrace.lake.derived.zipper import FROM_ID, ZipperRows, as_events, late_keys, take_out
from headrace.lake.layout import LakeFile
from headrace.lake.records import LakeClear, shard_of
from headrace.lake.replay import portions_of
from headrace.on_change import OnChange
from headrace.storage.base import FileTree
from headrace.storage.location import are_apart, tree_at
from headrace.ums.schema import Namespace

IDLE_COMMITS = 1000
"""A table to which nothing happens says this often, in commits of its lake, up to where it is current."""
_PORTION_ROWS = 4_000_000
"""Changes that are merged at once, so that a backlog of any size takes bounded memory."""
_SMALL_CLOSED, _MANY_CLOSED = 8 << 20, 8
_NO_ID = -(1 << 40)
_WORKERS = min(4, os.cpu_count() or 1)


@dataclass(slots=True)
class Derived:
    """What was done."""

    changes: int = 0
    """Changes that were read; of a current table the newest per key."""
    tables: int = 0
    """Tables that were changed."""
    pieces: int = 0
    """Files written."""
    problems: list[str] = field(default_factory=list)
    """What kept a table from being derived; the others were."""


def derive(
    manifest: Manifest,
    wanted: Derive,
    on_change: OnChange | None = None,
    tables: Sequence[str] = (),
    *,
    over: Callable[[], bool] = lambda: False,
    into: FileTree | None = None,
) -> Derived:
    """Brings the derived tables that are wanted up to what the manifest knows, those of `tables` or all, unless `over()`.

    `into`: the files at `wanted.path`, when the environment does not say how they are reached.
    """
    into = into or tree_at(wanted.path)
    _must_be_apart(into, manifest.lake)
    journal, done = Journal(manifest), Derived()
    for table in tables or [name for name in manifest.tables if any(fnmatchcase(name, each) for each in wanted.tables)]:
        for shard in sorted({shard_of(file.table) for file in manifest.tables.get(table, [])}):
            if over():
                return done
            try:
                Upkeep(Source(journal, table, shard), wanted, into, on_change or OnChange(), done).run()
            except (ConfigError, DataError, FencedError) as error:
                done.problems.append(f"{table}: {error.message}; {error.fix}")
    return done


def _must_be_apart(into: FileTree, lake: FileTree) -> None:
    if not are_apart(into.root, lake.root):
        raise ConfigError(
            f"the derived tables in {into.root} and the lake {lake.root} must not be in one another",
            fix="give the derived tables a directory of their own, for instance beside the lake",
        )


def opened(tree: FileTree, format_: Format, namespace: Namespace) -> DerivedTable:
    """A derived table in its format."""
    directory = directory_for(namespace)
    if format_ is Format.PARQUET:
        return ParquetDirectory(tree, directory)
    from headrace.lake.derived.delta import DeltaDirectory  # only here, as its library is an extra  # noqa: PLC0415

    return DeltaDirectory(tree, directory)


class Upkeep:
    """One derived table, once."""

    def __init__(self, source: Source, wanted: Derive, into: FileTree, on_change: OnChange, done: Derived) -> None:
        self._source = source
        self._tree = into
        self._wanted = wanted
        self._on_change = on_change
        self._done = done
        self._rows = ZipperRows() if wanted.kind is Kind.ZIPPER else CurrentRows(soft=wanted.soft)
        self._table = opened(into, wanted.format, source.files[0].table)
        manifest = source.journal.manifest
        self._certified = Rounds(manifest.lake, source.table).known_at(manifest.number)

    def run(self) -> None:
        """Takes in what is new; does nothing when nothing is."""
        before = self._table.present()
        number = self._source.journal.manifest.number
        if before is not None and before.progress.commit > number:
            raise ConfigError(
                f"the table in {self._tree.root}/{self._table.pieces_directory} has come to commit {before.progress.commit}, but its lake ends at {number}",
                fix="if this is the right lake, restored from a copy, remove the table's directory: it is made anew",
            )
        if before is not None:
            self._must_be_of_this_kind(before.schema)
        news = self._source.news(before.progress.commit) if before else News(self._source.files)
        is_idle = before is not None and not (news.files or news.clears or news.rewritten)
        if not is_idle:
            self._take_in(before, news)
        elif before is not None and (
            number - before.progress.commit >= IDLE_COMMITS or self._round > before.progress.round
        ):
            self._commit(before, before.schema, [], [], replace(before.progress, commit=number, round=self._round))
        self._table.tidy(self._wanted.grace, thoroughly=is_idle)

    @property
    def _round(self) -> int:
        return self._certified.number if self._certified else 0

    def _take_in(self, before: Present | None, news: News) -> None:
        columns = self._columns(before)
        stale = before is None or news.rewritten or columns.key_identities != self._key()
        if stale:
            columns, news = self._first_columns(), News(list(self._source.files))
        schema = self._schema(columns, None if stale else before)
        writer = PieceWriter(self._tree, self._table.pieces_directory, schema, columns.key, self._rows.id_column)
        known = [Piece.at(self._tree, file, self._rows.id_column) for file in before.files] if before else []
        staged = Staged([] if stale else known, writer)
        newest_id = _NO_ID if before is None or stale else before.progress.newest_id
        try:
            if before is not None and not stale:
                self._reshape(before, columns, staged)
            newest_id = self._merge(staged, news, columns, newest_id)
            staged.gather_closed()
        except BaseException:
            staged.abandon(known)
            raise
        progress = Progress(self._source.journal.manifest.number, newest_id, columns.version, self._round)
        gone = [piece for piece in known if piece not in staged.pieces]
        # A commit that fails in an unknown way may be visible: its pieces are left to `tidy`.
        self._commit(before, schema, [piece for piece in staged.pieces if piece not in known], gone, progress)
        staged.forget(known)
        self._done.tables += 1

    def _merge(self, staged: Staged, news: News, columns: Columns, newest_id: int) -> int:
        clears = news.clears
        portions = list(portions_of(news.files, _PORTION_ROWS)) or [[]]
        for files in portions:
            self._portion(staged, files, columns, clears, newest_id)
            newest_id = max([newest_id, *(file.id[1] for file in files), *(clear.id for clear in self._source.clears)])
            clears = []
        return newest_id

    def _portion(
        self, staged: Staged, files: Sequence[LakeFile], columns: Columns, clears: Sequence[LakeClear], newest_id: int
    ) -> None:
        changes = self._rows.changes(self._source, files, columns, newest_id)
        self._done.changes += changes.num_rows
        if isinstance(self._rows, ZipperRows):
            changes = staged.with_late(changes, late_keys(changes, columns.key, newest_id))
        sweep = sorted(clears, key=lambda clear: clear.id)
        swept = (lambda piece: piece.lowest <= sweep[-1].id) if sweep else (lambda _: False)
        some = list(ranges(staged.open, changes, columns.key, swept))
        known = self._source.clears if isinstance(self._rows, ZipperRows) else sweep
        merge = partial(self._rows.merge, clears=known, writer=staged.writer)
        with ThreadPoolExecutor(_WORKERS, "derive") as pool:
            for each, merged in zip(some, pool.map(merge, some), strict=True):
                if merged is not None:
                    staged.exchange(each, *merged)
        staged.write_closed()

    def _key(self) -> tuple[str, ...]:
        newest = self._source.versions[max(self._source.versions)]
        must_have_key(newest)
        return newest.key_identities

    def _columns(self, before: Present | None) -> Columns:
        """The columns behind the newest version."""
        if before is None:
            return self._first_columns()
        return self._followed(Columns.from_arrow(before.schema, before.progress.version))

    def _first_columns(self) -> Columns:
        versions = self._source.versions
        self._key()
        first = Columns.first(versions[min(versions)])
        names = set(versions[max(versions)].key_identities)
        # The key is that of the newest version, by whatever names it has had.
        followed = self._followed(first)
        key = {c.identity: c.name for c in followed.columns if c.identity in names and c.is_filled_by(followed.version)}
        return replace(followed, key=tuple(key[identity] for identity in versions[max(versions)].key_identities))

    def _followed(self, columns: Columns) -> Columns:
        for version, table in sorted(self._source.versions.items()):
            if version > columns.version:
                columns = columns.followed(table, self._on_change)
        return columns

    def _schema(self, columns: Columns, before: Present | None) -> pa.Schema:
        """The columns, those of the system behind them; what is added to a table that is there comes last."""
        system = self._rows.system_fields()
        own = {each.name for each in columns.columns}
        if taken := sorted(own & {each.name for each in system}):
            raise ConfigError(
                f"{self._source.table} has a column '{taken[0]}', as a {self._wanted.kind} table has of its own",
                fix=f"rename it in the flow: `columns: {{rename: {{{taken[0]}: {taken[0]}_}}}}`, or leave the table out (`tables`)",
            )
        fields = {each.name: each for each in [*columns.to_arrow(), *system]}
        order = list(fields)
        if before is not None:
            order = [name for name in before.schema.names if name in fields]
            order += [name for name in fields if name not in order]
        return pa.schema([fields[name] for name in order])

    def _must_be_of_this_kind(self, schema: pa.Schema) -> None:
        own = {name for name in schema.names if b"headrace.identity" not in (schema.field(name).metadata or {})}
        told = own ^ {each.name for each in self._rows.system_fields()}
        if told:
            raise ConfigError(
                f"the table in {self._tree.root}/{self._table.pieces_directory} was derived in another way (its column '{min(told)}' tells)",
                fix="give each way of deriving a `path` of its own, or remove the table's directory: it is made anew",
            )

    def _reshape(self, before: Present, columns: Columns, staged: Staged) -> None:
        """Writes all rows anew when the columns of the table have changed, but not for columns that are null in them."""
        older = Columns.from_arrow(before.schema, before.progress.version)
        if columns.columns == older.columns and columns.key == older.key:
            return
        known = set(older.columns)
        new = [column for column in columns.columns if column not in known]
        only_added = columns.columns[: len(older.columns)] == older.columns
        if only_added and all(self._source.newest[column.identity][0].initial_default is None for column in new):
            return
        staged.rewrite(lambda rows: columns.of_older(rows, older, self._source.newest))

    def _commit(
        self, before: Present | None, schema: pa.Schema, added: list[Piece], gone: list[Piece], progress: Progress
    ) -> None:
        self._table.commit(
            before,
            schema,
            added=added,
            removed=gone,
            progress=progress,
            told=self._told(progress),
        )
        self._done.pieces += len(added)

    def _told(self, progress: Progress) -> Json:
        """What a table says of itself: up to which positions it is current, and what is certified of the windows that it has whole."""
        manifest = self._source.journal.manifest
        source = self._source.files[0].table.source
        reached = [(stream, at) for stream, at in manifest.reached.items() if stream.topic.split(".")[0] == source]
        return {
            "table": self._source.table,
            "kind": self._wanted.kind,
            "lake_commit": progress.commit,
            "newest_id": progress.newest_id,
            "watermark_us": min((at.commit_ts_us for stream, at in reached if stream.topic == source), default=None),
            "reached": [{**stream._asdict(), **asdict(at)} for stream, at in reached],
            "certificate": _certificate(self._certified) if self._certified else None,
        }


def _certificate(round_: Round) -> Json:
    """What a round says, of its windows only the newest, and not their files: a commit's metadata is read by everyone, again and again."""
    told = {name: value for name, value in round_.to_json().items() if name not in ("number", "certificates")}
    newest = max(round_.certificates, key=lambda each: each.start_us, default=None)
    window = {name: value for name, value in newest.to_json().items() if name != "files"} if newest else None
    return {"round": round_.number, **told, "window": window}


class Staged:
    """Pieces of a table that is being kept up: those it has, and those that are to be."""

    def __init__(self, pieces: Sequence[Piece], writer: PieceWriter) -> None:
        self.pieces = list(pieces)
        self.writer = writer
        self._closed: list[pa.Table] = []
        self._made: list[Piece] = []

    @property
    def open(self) -> list[Piece]:
        return [piece for piece in self.pieces if piece.kind == OPEN]

    def exchange(self, some: Range, made: list[Piece], over: pa.Table | None) -> None:
        """Takes a range's new pieces; keeps states that are over until they are written."""
        self._replace(some.pieces, made)
        if over is not None:
            self._closed.append(over)

    def write_closed(self) -> None:
        """Writes the states that are over, which come sorted by key, range by range."""
        if self._closed:
            self._replace((), self.writer.write(pa.concat_tables(self._closed).combine_chunks(), CLOSED))
            self._closed.clear()

    def with_late(self, events: pa.Table, late: pa.Table) -> pa.Table:
        """Events, with those of closed rows of late keys, which leave their pieces."""
        found = [events]
        for piece in [piece for piece in self.pieces if piece.kind == CLOSED] if late.num_rows else []:
            taken = take_out(piece, late, self.writer)
            if taken is not None:
                self._replace((piece,), taken[0])
                found += as_events(taken[1])
        return pa.concat_tables(found, promote_options="default")

    def rewrite(self, reshaped: Callable[[pa.Table], pa.Table]) -> None:
        """Writes every piece in new columns."""
        for piece in list(self.pieces):
            rows = reshaped(piece.read())
            self._replace((piece,), self.writer.write(rows.take(sorted_by(rows, self.writer.key)), piece.kind))

    def gather_closed(self) -> None:
        """Makes one of many small closed pieces."""
        small = [piece for piece in self.pieces if piece.kind == CLOSED and piece.bytes < _SMALL_CLOSED]
        if len(small) > _MANY_CLOSED:
            rows = pa.concat_tables([conform(piece.read(), self.writer.schema) for piece in small]).combine_chunks()
            self._replace(small, self.writer.write(rows.take(sorted_by(rows, [*self.writer.key, FROM_ID])), CLOSED))

    def abandon(self, known: Sequence[Piece]) -> None:
        """Deletes what was written; never fails, as it runs when something has failed already."""
        self._delete(piece for piece in self._made if piece not in known)

    def forget(self, known: Sequence[Piece]) -> None:
        """Deletes what was written and is no part of the table after all."""
        self._delete(piece for piece in self._made if piece not in known and piece not in self.pieces)

    def _replace(self, old: Sequence[Piece], new: Sequence[Piece]) -> None:
        gone = {piece.path for piece in old}
        self.pieces = [piece for piece in self.pieces if piece.path not in gone] + list(new)
        self._made += new

    def _delete(self, pieces: Iterator[Piece]) -> None:
        for piece in pieces:
            with suppress(HeadraceError):
                piece.tree.delete(piece.path)
