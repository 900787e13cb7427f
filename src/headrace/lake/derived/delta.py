"""A derived table as a Delta table, committed through delta-rs (PyPI: deltalake).

::

    TABLE/
    ├── _delta_log/00000000000000000017.json     one commit: add and remove of pieces, and
    │       {"txn":{"appId":"headrace.commit","version":…}}       progress (table.py), which survives Delta's checkpoints
    │       {"txn":{"appId":"headrace.newest_id","version":…}}    counted from LOWEST_ID, as Delta's versions are not negative
    │       {"txn":{"appId":"headrace.version","version":…}}
    │       {"txn":{"appId":"headrace.round","version":…}}
    │       {"commitInfo":{…,"userMetadata":"{\"lake_commit\":…,\"watermark_us\":…,\"reached\":[…],\"certificate\":{…}|null}"}}
    └── 4f0c…e1-000001.parquet                   a piece

No deletion vectors, no column mapping, no partitions: every reader of Delta can read it. Another schema than before is CREATE OR REPLACE TABLE
in one commit, unless columns were only added at the end: then they are added first, in a commit of their own, and are null until the next.

The crash story; each point is one of crash.py. Rows of a change that was taken in lose nothing and double nothing when they are taken in again, as
the larger id wins, so all that counts is that pieces and progress are one commit.

=======================  =============================================  ====================================================
point                    killed after …, before …                       what is found
=======================  =============================================  ====================================================
derived.pieces_written   all pieces durable, before Delta's commit      the old version; pieces that no version lists, which
                                                                        `tidy` deletes after the grace
derived.columns_added    new columns are in the schema, before their    the old rows, null in the new columns; the next upkeep
                         rows                                           goes on
derived.committed        Delta's commit, before anything else           the new version; the next upkeep finds nothing to do
=======================  =============================================  ====================================================
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from headrace.crash import crash_point
from headrace.errors import ConfigError, CorruptError, FencedError, StorageError
from headrace.lake.derived.pieces import Piece
from headrace.lake.derived.table import Json, Present, Progress
from headrace.storage.base import UNFINISHED, FileTree, Found

LOG = "_delta_log"
LOWEST_ID = -(1 << 40)
_COMMIT, _NEWEST_ID, _VERSION, _ROUND = "headrace.commit", "headrace.newest_id", "headrace.version", "headrace.round"
_CHECKPOINT_VERSIONS = 20
_DESCRIPTION = "made by headrace"


class DeltaDirectory:
    """A Delta table in a directory of a tree."""

    def __init__(self, tree: FileTree, directory: str) -> None:
        self.pieces_directory = directory
        self._tree = tree
        self._place = f"{tree.root}/{directory}"

    def present(self) -> Present | None:
        names = self._tree.names(self.pieces_directory)
        if LOG not in names:
            if any(not name.endswith((".parquet", UNFINISHED)) for name in names):
                raise _not_ours(self._place, "it is no Delta table")
            return None
        try:
            table = self._table()
            found = [table.transaction_version(name) for name in (_COMMIT, _NEWEST_ID, _VERSION, _ROUND)]
        except DeltaError as error:
            raise CorruptError(
                f"the Delta table {self._place} cannot be read: {error}",
                fix="remove its directory: it is made anew from the lake",
            ) from error
        if None in found:
            raise _not_ours(self._place, "no commit says how far it has come in a lake")
        commit, newest_id, version, round_ = (number or 0 for number in found)
        schema = pa.schema(table.schema().to_arrow())  # type: ignore[arg-type]  # it speaks Arrow's C interface
        files = tuple(Found(f"{self.pieces_directory}/{unquote(path)}", size) for path, size in _files(table))
        return Present(Progress(commit, newest_id + LOWEST_ID, version, round_), schema, files, table)

    def commit(
        self,
        before: Present | None,
        schema: pa.Schema,
        *,
        added: Sequence[Piece],
        removed: Sequence[Piece],
        progress: Progress,
        told: Json,
    ) -> None:
        crash_point("derived.pieces_written")
        properties = _properties(progress, told)
        adds = [_add(piece) for piece in added]
        try:
            if before is None or not _begins_with(schema, before.schema):
                create_table_with_add_actions(
                    self._place,
                    Schema.from_arrow(schema),
                    adds,
                    mode="error" if before is None else "overwrite",
                    description=_DESCRIPTION,
                    storage_options=self._tree.settings,
                    commit_properties=properties,
                )
            else:
                table = self._with_columns(before, schema)
                now_ms = int(time.time() * 1000)
                removes = [RemoveAction(_name(piece), True, now_ms, piece.bytes, {}) for piece in removed]
                table.create_write_transaction(
                    [*adds, *removes], "append", Schema.from_arrow(schema), commit_properties=properties
                )
        except CommitFailedError as error:
            raise _fenced(self._place) from error
        except DeltaError as error:
            if before is None and LOG in self._tree.names(self.pieces_directory):
                raise _fenced(self._place) from error
            raise _refused(self._place, error) from error
        except OSError as error:
            raise _refused(self._place, error) from error
        crash_point("derived.committed")
        self._make_durable()

    def tidy(self, grace_s: float, *, thoroughly: bool) -> None:
        table = self._table()
        hours = int(grace_s // 3600)
        try:
            due = table.version() - self._last_checkpoint() >= _CHECKPOINT_VERSIONS
            if due:
                table.create_checkpoint()
                table.cleanup_metadata()
                self._delete_unfinished(grace_s)
            # Each time that something is deleted is two more versions of the table: so not behind every upkeep.
            if due or (thoroughly and table.vacuum(hours, enforce_retention_duration=False, full=True)):
                table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        except (DeltaError, OSError) as error:
            raise _refused(self._place, error) from error

    def _delete_unfinished(self, grace_s: float) -> None:
        """What writers that died were about to name, which Delta's vacuum does not look at."""
        for path, modified_s in self._tree.tree(self.pieces_directory):
            if path.endswith(UNFINISHED) and modified_s < time.time() - grace_s:
                self._tree.delete(path)

    def _with_columns(self, before: Present, schema: pa.Schema) -> DeltaTable:
        table = before.state
        assert isinstance(table, DeltaTable)
        new = schema.names[len(before.schema.names) :]
        if new:
            table.alter.add_columns([field for field in Schema.from_arrow(schema).fields if field.name in new])
            crash_point("derived.columns_added")
        return table

    def _make_durable(self) -> None:
        """delta-rs leaves the log to the operating system: a power cut could keep the name of a commit without its bytes."""
        log = f"{self.pieces_directory}/{LOG}"
        newest = max(name for name in self._tree.names(log) if name.endswith(".json"))
        self._tree.sync([f"{log}/{newest}", log, self.pieces_directory])

    def _last_checkpoint(self) -> int:
        """The version of the newest checkpoint."""
        try:
            told = self._tree.content(f"{self.pieces_directory}/{LOG}/_last_checkpoint")
        except FileNotFoundError:
            return 0
        version: int = json.loads(told)["version"]
        return version

    def _table(self) -> DeltaTable:
        return DeltaTable(self._place, storage_options=self._tree.settings)


def _files(table: DeltaTable) -> Iterator[tuple[str, int]]:
    """The paths and sizes of the table's pieces."""
    actions = pa.table(table.get_add_actions(flatten=True))
    yield from zip(*(actions.column(name).to_pylist() for name in ("path", "size_bytes")), strict=True)


def _add(piece: Piece) -> AddAction:
    statistics = json.dumps(piece.statistics(), ensure_ascii=False)
    return AddAction(_name(piece), piece.bytes, {}, int(time.time() * 1000), True, statistics)


def _name(piece: Piece) -> str:
    return piece.path.rpartition("/")[2]


def _properties(progress: Progress, told: Json) -> CommitProperties:
    transactions = [
        Transaction(_COMMIT, progress.commit),
        Transaction(_NEWEST_ID, progress.newest_id - LOWEST_ID),
        Transaction(_VERSION, progress.version),
        Transaction(_ROUND, progress.round),
    ]
    return CommitProperties({"userMetadata": json.dumps(told)}, max_commit_retries=0, app_transactions=transactions)


def _begins_with(schema: pa.Schema, before: pa.Schema) -> bool:
    """Whether it is the same schema, or has only more columns at its end."""
    start = pa.schema(list(schema)[: len(before.names)])
    return start.equals(pa.schema(list(before)), check_metadata=True)


def _fenced(place: str) -> FencedError:
    return FencedError(
        f"the Delta table {place} was changed by another process meanwhile; nothing was done",
        fix="start it again: it goes on from what the other has made; nobody but headrace may write to this table",
    )


def _refused(place: str, error: Exception) -> StorageError:
    return StorageError(
        f"could not write the Delta table {place}: {error}", fix="check the disk and the path, then start again"
    )


def _not_ours(place: str, why: str) -> ConfigError:
    return ConfigError(
        f"{place} is not a table that headrace has derived: {why}", fix="give another path, or remove the directory"
    )
