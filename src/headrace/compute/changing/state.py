"""What a computed table keeps: the newest rows of its inputs, what it has told, and how far both are. One DuckDB file.

::

    STATE/sources/<name>/state.duckdb
        rows <type.source.schema.table>   the newest rows of an input                                   (rows.py)
        versions (family, version, schema)  every version of it that was met, as an Arrow schema
        clears (family, id)               its clears
        told                              the rows that were told                                       (told.py)
        place (json)                      how far that is, below

    place = {"offsets": {"db1/0": …, "db1.load.1/0": …}, "own": {"0": …}, "over": µs, "table": Arrow schema of what is told, base64}

`over`: what ends at that time or before is over (windows.py); it is also in the mark. `offsets`: the next of each partition of the inputs. `own`: the next of each partition of the table's own topic, where what was told stands.

Crash story. The truth is the log: the mark of the table's own topic has the offsets of the inputs, in one unit with what was told of them. The
state is committed behind that, when the unit is durable (source.py). So a state that survives is as old as the newest mark or older, never newer:
it takes the inputs up to the offsets of the mark, without computing, and what was told from its own topic. A state that is lost is made again in the
same way from the begin of the log. A state that is ahead of the log belongs to another log (one that was brought back from a copy, say), and
is thrown away. DuckDB commits all tables of the file together.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.compute.changing.config import WindowSpec
from headrace.compute.changing.late import Late
from headrace.compute.changing.rows import InputRows, Wants
from headrace.compute.changing.told import Told
from headrace.compute.changing.windows import END, windowed
from headrace.compute.engine import Engine
from headrace.errors import storage_error
from headrace.files import make_directories
from headrace.ums.change import ChangeBatch, Clear, End
from headrace.ums.schema import TableSchema

_TABLES = (
    "CREATE TABLE IF NOT EXISTS versions (family VARCHAR, version INTEGER, schema BLOB)",
    "CREATE TABLE IF NOT EXISTS clears (family VARCHAR, id BIGINT)",
    "CREATE TABLE IF NOT EXISTS place (json VARCHAR)",
)


@dataclass(slots=True)
class Place:
    """How far a state is; see above."""

    offsets: dict[str, int] = field(default_factory=dict)
    own: dict[str, int] = field(default_factory=dict)
    over_us: int | None = None


class State:
    """Opened by the first use of its engine; serves one thread. What was not committed when it is closed is gone."""

    def __init__(self, directory: Path | None, memory: str, wants: Wants) -> None:
        """`directory`: None for a state that is only in memory."""
        self._path = None if directory is None else directory / "state.duckdb"
        self._wants = wants
        self.engine = Engine(self._path, memory)
        self.late = Late(self.engine)
        self.inputs: dict[str, InputRows] = {}
        """By family."""
        self.over_us: int | None = None
        """What ends at that time or before is over."""
        self.told = Told(self.engine, None)
        self.place = Place()

    def open(self) -> None:
        """Reads what is there; nothing is made again that could be read."""
        if self._path is not None:
            make_directories(self._path.parent)
        for statement in _TABLES:
            self.engine.run(statement)
        found = self.engine.run("SELECT json FROM place")
        kept: dict[str, Any] = json.loads(str(found[0][0])) if found else {}
        self.place = Place(kept.get("offsets", {}), kept.get("own", {}), kept.get("over"))
        self.over_us = self.place.over_us
        self.told = Told(self.engine, _schema(base64.b64decode(kept["table"])) if kept.get("table") else None)
        versions: dict[str, list[TableSchema]] = {}
        for family, schema in self.engine.run("SELECT family, schema FROM versions"):
            assert isinstance(schema, bytes)
            versions.setdefault(str(family), []).append(_schema(schema))
        self.inputs = {
            family: InputRows(self.engine, family, tables, self._wants, self.late)
            for family, tables in versions.items()
        }
        self.begin()

    def reset(self) -> None:
        """Throws everything away."""
        self.close()
        for path in () if self._path is None else (self._path, self._path.with_name(f"{self._path.name}.wal")):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise storage_error("remove", path, error) from error
        self.open()

    def is_kept(self) -> bool:
        """Whether there is a file."""
        return self._path is not None and self._path.exists()

    def rows(self) -> int:
        """How many rows of inputs it has."""
        return sum(rows.count() for rows in self.inputs.values())

    def begin(self) -> None:
        """A round begins."""
        self.engine.run("BEGIN")
        self.late.begin()
        for rows in self.inputs.values():
            rows.begin()

    def commit(self, place: Place) -> None:
        """All that was done since `begin` is durable, and belongs to that place."""
        self.place = place
        table = None if self.told.table is None else self.told.table.arrow_schema().serialize().to_pybytes()
        kept = {
            "offsets": place.offsets,
            "own": place.own,
            "over": place.over_us,
            "table": None if table is None else base64.b64encode(table).decode(),
        }
        self.engine.run("DELETE FROM place")
        self.engine.run("INSERT INTO place VALUES (?)", json.dumps(kept))
        self.engine.run("COMMIT")
        self.begin()

    def take(self, changes: Sequence[ChangeBatch | Clear | End], met: Callable[[], None]) -> bool:
        """Takes changes in the order of the log; whether any is news. `met` is called when the columns of an input have changed."""
        news = False
        by_family: dict[str, list[ChangeBatch | Clear | End]] = {}
        for change in changes:
            by_family.setdefault(change.table.namespace.all_versions, []).append(change)
        for family, of_family in by_family.items():
            rows = self._rows(family)
            for table in _tables(of_family):
                if rows.meet(table):
                    met()
            batches = [change for change in of_family if isinstance(change, ChangeBatch)]
            news |= bool(batches) and rows.take(batches, self.over_us)
            for change in of_family:
                news |= isinstance(change, Clear) and rows.clear(change)
        return news

    def forget(self, before_us: int) -> None:
        """Gives up keys of rows that were deleted before a time."""
        for rows in self.inputs.values():
            rows.forget(before_us)

    def pass_by(self, bound_us: int | None) -> None:
        """What ends at a time or before is over: its rows are forgotten, those of inputs and those that were told."""
        if bound_us is None or bound_us == self.over_us:
            return
        self.over_us = bound_us
        for rows in self.inputs.values():
            rows.over(bound_us)
        sessions: dict[str, tuple[WindowSpec, list[InputRows]]] = {}
        for rows in self.inputs.values():
            if rows.belonging is not None and rows.belonging.spec.gap is not None:
                sessions.setdefault(rows.belonging.input, (rows.belonging.spec, []))[1].append(rows)
        for spec, tables in sessions.values():
            self._sessions_are_over(spec, tables, bound_us)
        self.told.pass_by(bound_us)

    def _sessions_are_over(self, spec: WindowSpec, tables: Sequence[InputRows], bound_us: int) -> None:
        found = windowed(spec, f"({' UNION ALL '.join(rows.tagged() for rows in tables)})")
        where = f"epoch_us({END}) <= {bound_us}"
        self.engine.run(f"CREATE OR REPLACE TEMP TABLE over AS SELECT family, row_id FROM {found} WHERE {where}")
        for rows in tables:
            rows.lose(f"SELECT row_id FROM over WHERE family = '{rows.family}'")

    def first_end_us(self) -> int | None:
        """No answer that is open ends before; None when no row of a stream is kept."""
        ends = [rows.first_end_us() for rows in self.inputs.values() if rows.belonging is not None]
        return min((end for end in ends if end is not None), default=None)

    def close(self) -> None:
        """Gives up the file. Idempotent."""
        self.engine.close()

    def meet(self, table: TableSchema) -> bool:
        """Makes ready for rows of a table; whether the columns of an input are others now."""
        return self._rows(table.namespace.all_versions).meet(table)

    def _rows(self, family: str) -> InputRows:
        if family not in self.inputs:
            self.inputs[family] = InputRows(self.engine, family, [], self._wants, self.late)
        return self.inputs[family]


def _tables(changes: Sequence[ChangeBatch | Clear | End]) -> list[TableSchema]:
    """The versions that changes are of, and lead to, in their order."""
    found: dict[TableSchema, None] = {}
    for change in changes:
        found[change.table] = None
        if isinstance(change, End):
            found[change.successor] = None
    return list(found)


def _schema(kept: bytes) -> TableSchema:
    return TableSchema.from_arrow(pa.ipc.read_schema(pa.py_buffer(kept)))
