"""Care of a lake while flows write to it and others read it: windows, compaction, states, retention, purge,
replacement, and the sweep behind them.

Everything is one pattern. New files are written beside the old ones; one edit in the commit log exchanges them (commit.py); the old files
are *retired*: hidden at once from those who read directories, kept for the grace for headrace's own readers, who find them under
the hidden name, then deleted by a *sweep*, which an edit records. Writers are never waited for, and never wait. Several caretakers may be
at work: of two edits of one table the second is refused, and its new files are thrown away.

The crash story; each point is one of crash.py, and tests/faults kills a caretaker at each. Those of files (lake.rows_written,
lake.file_closed, file.synced) and of commits (create.written, create.named, lake.commit_durable, lake.checkpoint) are those of
commit.py's story and mean the same here.

=====================  ===============================================  ====================================================
point                  killed after …, before …                         what is found
=====================  ===============================================  ====================================================
tend.files_named       all new files named and directories synced,      the old files are the lake's; orphans, which a later writer
                       before the edit                                  removes
tend.edited            the edit is durable, before an old file is       the new files are the lake's; old ones lie unhidden until the
                       hidden                                           next caretaker hides them
tend.hidden            the first old file is hidden, before the rest    the same; on S3 hiding is a copy and a delete, so for a moment a
                                                                        file may lie under both names
tend.swept             retired files deleted, before the edit that      the new files are the lake's; the next sweep deletes what is
                       says so                                          there no more, and says so
=====================  ===============================================  ====================================================
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from headrace.crash import crash_point
from headrace.errors import ConfigError, DataError, FencedError
from headrace.lake.asof import files_named
from headrace.lake.backfill import Range
from headrace.lake.commit import Manifest
from headrace.lake.compact import merge, merges
from headrace.lake.layout import retired_name
from headrace.lake.policy import Policy
from headrace.lake.purge import purge_edit
from headrace.lake.records import Cause, Edit, Purge, shard_of
from headrace.lake.replace import replacement
from headrace.lake.retain import retention
from headrace.lake.rewrite import Namer
from headrace.lake.states import due_at, make_state, sound_states
from headrace.lake.windows import Closing, certify, takings
from headrace.storage.base import FileTree
from headrace.ums.change import ChangeBatch, Clear

_US = 1_000_000


@dataclass(slots=True)
class Tended:
    """What was done."""

    merged_files: int = 0
    into_files: int = 0
    merged_bytes: int = 0
    states: int = 0
    given_up_rows: int = 0
    """Overwritten rows that retention left out."""
    swept_files: int = 0
    certified_windows: int = 0
    """Windows that were closed or amended."""
    problems: list[str] = field(default_factory=list)
    """What kept a table from being tended; the others were."""


class Caretaker:
    """Takes care of one lake by a policy. ConfigError when there is no lake."""

    def __init__(
        self,
        lake: Path | str | FileTree,
        policy: Policy,
        closing: Closing | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`closing`: windows are closed as well as amended."""
        self._policy = policy
        self._closing = closing
        self._clock = clock
        self._manifest = Manifest.open_to_write(Manifest.open(lake).lake)
        self._new_file = Namer(self._manifest.lake)
        self._hide(self._manifest.retired)

    def tend(
        self, tables: Sequence[str] = (), *, all_periods: bool = False, over: Callable[[], bool] = lambda: False
    ) -> Tended:
        """All that the policy says is due, in these tables or in all, unless `over()`.

        `all_periods` also merges files of periods that go on.
        """
        done = self._each(tables, lambda table, done: self._steps(table, done, all_periods=all_periods), over)
        if not over():
            self._sweep(done)
        return done

    def certify(self) -> Tended:
        """Closes the windows that are due in all tables, and amends closed ones that have got rows."""
        return self._each((), self._certify, lambda: False)

    def _each(
        self, tables: Sequence[str], steps: Callable[[str, Tended], Iterator[None]], over: Callable[[], bool]
    ) -> Tended:
        """Takes these steps in each of the tables, or of all, unless `over()`."""
        self._manifest.refresh()
        for table in tables:
            self._whole(table)
        done = Tended()
        for table in tables or list(self._manifest.tables):
            try:
                for _ in steps(table, done):
                    if over():
                        return done
            except (FencedError, DataError, ConfigError) as error:
                done.problems.append(f"{table}: {error.message}")
        return done

    def purge(self, table: str, key: Mapping[str, str], reason: str) -> Purge:
        """Deletes all changes of the keys with these values (purge.py)."""
        self._manifest.refresh()
        table = self._whole(table)
        certify(self._manifest, table, self._now())
        edit = purge_edit(self._manifest, table, key, reason=reason, time=self._now(), new_file=self._new_file)
        assert edit.purge is not None
        self._commit(edit)
        return edit.purge

    def replace(self, table: str, range_: Range, brought: Iterable[ChangeBatch | Clear]) -> bool:
        """Puts other rows in the place of a table's range (replace.py), and amends its windows; False when they are the same."""
        self._manifest.refresh()
        certify(self._manifest, table, self._now())
        edit = replacement(self._manifest, table, range_, brought, self._new_file)
        if edit is not None:
            self._commit(edit)
        certify(self._manifest, table, self._now())
        return edit is not None

    def sweep(self) -> int:
        """Deletes retired files whose grace is over; returns how many."""
        self._manifest.refresh()
        done = Tended()
        self._sweep(done)
        return done.swept_files

    def _steps(self, table: str, done: Tended, *, all_periods: bool) -> Iterator[None]:
        """Does one piece of work after the other; first what is said of rows as they came."""
        yield from self._certify(table, done)
        self._retain(table, done)
        yield
        yield from self._compact(table, done, all_periods=all_periods)
        yield from self._write_states(table, done)

    def _certify(self, table: str, done: Tended) -> Iterator[None]:
        done.certified_windows += len(certify(self._manifest, table, self._now(), self._closing))
        yield

    def _compact(self, table: str, done: Tended, *, all_periods: bool) -> Iterator[None]:
        now_us = int(self._clock() * _US)
        for files in merges(self._manifest, table, self._policy, now_us, all_periods=all_periods):
            made = merge(self._manifest, files, self._policy, self._new_file)
            removed = tuple(file.path for file in files)
            self._commit(Edit(Cause.COMPACT, table, added=made, removed=removed))
            done.merged_files += len(files)
            done.into_files += len(made)
            done.merged_bytes += sum(file.bytes for file in files)
            yield

    def _write_states(self, table: str, done: Tended) -> Iterator[None]:
        files = self._manifest.tables.get(table, [])
        for shard in sorted({shard_of(file.table) for file in files}):
            while (id_ := due_at(self._manifest, table, shard, self._policy.state_changes)) is not None:
                state = make_state(self._manifest, table, shard, id_, self._new_file)
                sound = {each.name for each in sound_states(self._manifest, table, shard)}
                known = [each.name for each in self._manifest.states.get(table, []) if each.shard == shard]
                ended = tuple(name for name in known if name not in sound)
                self._commit(Edit(Cause.STATE, table, state=state, ended=ended))
                done.states += 1
                yield

    def _retain(self, table: str, done: Tended) -> None:
        if self._policy.keep is None:
            return
        cut_us = int((self._clock() - self._policy.keep) * _US)
        before = sum(file.rows for file in self._manifest.tables.get(table, []))
        edit = retention(self._manifest, table, cut_us, self._new_file)
        if edit is not None:
            self._commit(edit)
            done.given_up_rows += before - sum(file.rows for file in self._manifest.tables[table])

    def _commit(self, edit: Edit) -> None:
        """Makes the edit visible and its old files invisible; when it is refused its new files are thrown away."""
        lake = self._manifest.lake
        if edit.removed and edit.cause is not Cause.COMPACT:
            edit = self._with_takings(edit)
        made = [file.path for file in (*edit.added, *(edit.state.files if edit.state else ()))]
        lake.sync({path.rpartition("/")[0] for path in made})
        crash_point("tend.files_named")
        try:
            self._manifest.edit(edit, self._now())
        except FencedError:
            self._delete(made)
            raise
        crash_point("tend.edited")
        self._hide(edit.removed)

    def _with_takings(self, edit: Edit) -> Edit:
        """With what it takes from windows: the rows of its old files that are in none of the new ones. What it brings is none of that."""
        removed = [file for file in self._manifest.tables[edit.table] if file.path in edit.removed]
        kept = [file for file in edit.added if file.since]
        return replace(edit, taken=takings(self._manifest, edit.table, removed, kept))

    def _hide(self, retired: Iterable[str]) -> None:
        """Takes files out of the sight of those who read a version's directory; does nothing where that has been done."""
        for path in retired:
            try:
                self._manifest.lake.move(path, retired_name(path))
            except FileNotFoundError:
                continue
            crash_point("tend.hidden")

    def _sweep(self, done: Tended) -> None:
        until = _iso(self._clock() - self._policy.grace)
        over = tuple(path for path, retired_at in self._manifest.retired.items() if retired_at <= until)
        if not over:
            return
        self._delete(name for path in over for name in (path, retired_name(path)))
        crash_point("tend.swept")
        try:
            self._manifest.edit(Edit(Cause.SWEEP, "", swept=over), self._now())
        except FencedError:
            return  # another caretaker has swept; what it left is due the next time
        done.swept_files += len(over)

    def _delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._manifest.lake.delete(path)

    def _whole(self, name: str) -> str:
        """The name of a table with all its versions; ConfigError when it is none."""
        table = files_named(self._manifest, name)[0].table.all_versions
        if table != name:
            raise ConfigError(f"'{name}' is one version of a table", fix=f"name the table, {table}")
        return table

    def _now(self) -> str:
        return _iso(self._clock())


def _iso(time_s: float) -> str:
    """Always in the same form, so that texts compare as times do."""
    return datetime.fromtimestamp(time_s, UTC).isoformat(timespec="microseconds")
