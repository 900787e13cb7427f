"""Random logs of rows and ALTERs: versions as a model says, and the same answers whatever is read again from wherever."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.capture.ddl import Ddl
from headrace.capture.history import History
from headrace.ums.schema import Column, Namespace, TableSchema

NAMES = ["a", "b", "c", "d"]
SMALL, LARGE = (pa.int32(), "int"), (pa.int64(), "bigint")


@dataclass(frozen=True)
class Rows:
    """Rows as the log describes their table."""

    id: int
    table: TableSchema
    defaults: dict[str, str | None]
    """Per column, what the server gave to old rows when it was added."""
    births: dict[str, int]
    """Per column, when it was added, under whatever name."""


class Server:
    """The server's table, and the log that it writes."""

    def __init__(self) -> None:
        self.columns = [Column("id", pa.int64(), "bigint"), Column("a", *SMALL)]
        self.defaults: dict[str, str | None] = {"id": None, "a": None}
        self.births = {"id": 0, "a": 0}
        self.log: list[Rows | Ddl] = [Ddl("shop", "CREATE TABLE t (id BIGINT PRIMARY KEY, a INT)", 1, 0)]
        self.id = 1

    def write(self) -> None:
        self.id += 1
        if not any(isinstance(entry, Rows) for entry in self.log):
            self.defaults = dict.fromkeys(self.defaults)  # no row is older than these columns
        table = TableSchema(Namespace("mysql", "db1", "shop", "t"), tuple(self.columns), ("id",))
        self.log.append(Rows(self.id, table, dict(self.defaults), dict(self.births)))

    def run(self, *clauses: str) -> None:
        self.id += 1
        self.log.append(Ddl("shop", f"ALTER TABLE t {', '.join(clauses)}", self.id, 0))

    def alter(self, data: st.DataObject) -> None:
        """One ALTER of one or two columns."""
        clauses = []
        dropped = data.draw(st.sampled_from([None, *self.free_to_change()]))
        if dropped is not None:
            clauses.append(f"DROP COLUMN `{dropped}`")
            self.columns = [column for column in self.columns if column.name != dropped]
            del self.defaults[dropped], self.births[dropped]
        absent = [name for name in NAMES if name not in self.defaults]
        added = data.draw(st.sampled_from([None, *absent]))
        if added is not None:
            clauses.insert(data.draw(st.integers(0, len(clauses))), self.added(added, data))
        if clauses:
            self.run(*clauses)

    def added(self, name: str, data: st.DataObject) -> str:
        default = data.draw(st.sampled_from([None, "0", "5"]))
        kind = data.draw(st.sampled_from([SMALL, LARGE]))
        at = data.draw(st.integers(1, len(self.columns)))
        after = self.columns[at - 1].name
        self.columns.insert(at, Column(name, *kind))
        self.defaults[name] = default
        self.births[name] = self.id + 1
        form = "NOT NULL" if default == "0" else f"DEFAULT {default or 'NULL'}"
        return f"ADD COLUMN {name} {kind[1]} {form} AFTER {after}"

    def rename(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from([None, *self.free_to_change()]))
        absent = [name for name in NAMES if name not in self.defaults]
        if old is None or not absent:
            return
        new = data.draw(st.sampled_from(absent))
        self.columns = [replace(column, name=new) if column.name == old else column for column in self.columns]
        self.defaults[new] = self.defaults.pop(old)
        self.births[new] = self.births.pop(old)
        self.run(data.draw(st.sampled_from([f"RENAME COLUMN {old} TO {new}", f"CHANGE {old} {new} int"])))

    def relax(self, data: st.DataObject) -> None:
        """A change that leaves the shape alone."""
        at = data.draw(st.integers(0, len(self.columns) - 1))
        self.columns[at] = replace(self.columns[at], nullable=not self.columns[at].nullable)
        self.run(f"MODIFY {self.columns[at].name} int")

    def free_to_change(self) -> list[str]:
        return [column.name for column in self.columns if column.name != "id"]


@st.composite
def logs(draw: st.DrawFn) -> list[Rows | Ddl]:
    data = draw(st.data())
    server = Server()
    for step in draw(st.lists(st.sampled_from(["write", "write", "alter", "alter", "rename", "relax"]), max_size=25)):
        if step == "write":
            server.write()
        else:
            getattr(server, step)(data)
    return server.log


def feed(history: History, log: list[Rows | Ddl]) -> dict[int, TableSchema]:
    """Per position of rows, the history's answer."""
    answers = {}
    for entry in log:
        if isinstance(entry, Rows):
            answers[entry.id] = history.table(entry.table, entry.id)
            definition = history.definitions.at(("shop", "t"), entry.id)
            assert definition is not None
            assert [column.name for column in definition.columns] == [column.name for column in entry.table.columns]
            assert [key.columns for key in definition.keys] == [entry.table.key]
        else:
            history.statement(entry)
    return answers


def empty(directory: str) -> History:
    return History(Path(directory) / "schemas.json", lambda schema, table: True)


def reloaded(directory: str) -> History:
    return History.load(Path(directory) / "schemas.json", lambda schema, table: True)


@pytest.mark.demand(1)
@given(log=logs())
def test_versions_and_initial_defaults_are_as_the_model_says(log: list[Rows | Ddl]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        answers = feed(empty(directory), log)
    version, before = -1, None
    defaults: dict[str, str | None] = {}
    identities: dict[tuple[str, int], str] = {}
    for entry in log:
        if isinstance(entry, Ddl):
            continue
        if before is None or not before.table.same_shape(entry.table) or before.births != entry.births:
            version, defaults = version + 1, entry.defaults
        before = entry
        columns = tuple(replace(column, initial_default=defaults[column.name]) for column in entry.table.columns)
        answer = answers[entry.id]
        nameless = tuple(replace(column, born_as="") for column in answer.columns)
        assert replace(answer, columns=nameless) == replace(entry.table.with_version(version), columns=columns)
        for column in answer.columns:
            first_name = "id" if column.name == "id" else ""
            born = (first_name, entry.births[column.name])
            assert identities.setdefault(born, column.identity) == column.identity
    assert len(set(identities.values())) == len(identities), "two columns are taken for one"


@pytest.mark.demand(1)
@given(log=logs(), data=st.data())
def test_reading_again_from_anywhere_gives_the_same_answers(log: list[Rows | Ddl], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as directory:
        once = feed(empty(directory), log)
    with tempfile.TemporaryDirectory() as directory:
        read = 0
        history = empty(directory)
        for stop in sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=4))):
            # Reads on to `stop`, saves as capture does before it appends, dies, and goes back as far as it likes.
            start = data.draw(st.integers(0, read))
            again = feed(history, log[start : max(stop, start)])
            assert again == {id_: once[id_] for id_ in again}
            read = max(read, stop)
            history.save()
            history = reloaded(directory)
        start = data.draw(st.integers(0, read))
        again = feed(history, log[start:])
        assert again == {id_: once[id_] for id_ in again}
        history.save()
        final = reloaded(directory)
        assert feed(final, log) == once
        assert final.tables() == history.tables()
        for entry in log:
            if isinstance(entry, Rows):
                found = final.before("shop", "t", entry.id)
                assert found is not None
                assert found.namespace == once[entry.id].namespace


_PIECES = st.sampled_from(
    [
        "ALTER",
        "TABLE",
        "t",
        "ADD",
        "COLUMN",
        "(",
        ")",
        ",",
        "DROP",
        "CHANGE",
        "RENAME",
        "TO",
        "IF",
        "NOT",
        "EXISTS",
        "NULL",
        "DEFAULT",
        "CURRENT_TIMESTAMP",
        "INT",
        "ENUM",
        "BIT",
        "DECIMAL",
        "DATE",
        "TIME",
        "DATETIME",
        "YEAR",
        "UUID",
        "INET6",
        "BINARY",
        "SET",
        "VARCHAR",
        "TRUNCATE",
        "PARTITION",
        "--",
        "/*",
        "*/",
        "/*!",
        "#",
        "'",
        '"',
        "`",
        "x'4'",
        "x'41'",
        "b'1'",
        "0x",
        "1",
        "-1",
        "1.5e9",
        "9999999999",
        ".",
        "\\",
        "''",
        "'a'",
        "'2024-13-45'",
        "'99:99'",
        "`t`",
        "shop",
        "FIRST",
        "AFTER",
        "COMMENT",
        "STATEMENT",
        "FOR",
        "AS",
        "AUTO_INCREMENT",
        ";",
        "=",
        "@",
        "é",
        "\x00",
    ]
)


@pytest.mark.demand(9)
@given(pieces=st.lists(_PIECES, max_size=25) | st.lists(st.text(max_size=5), max_size=10), prefix=st.booleans())
def test_no_statement_whatever_its_text_stops_the_capture(pieces: list[str], prefix: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        history = empty(directory)
        table = TableSchema(Namespace("mysql", "db1", "shop", "t"), (Column("id", pa.int64(), "bigint"),), ("id",))
        history.table(table, 1)
        history.statement(Ddl("shop", "CREATE TABLE t (id BIGINT)", 1, 0))
        sql = ("ALTER TABLE t ADD c " if prefix else "") + " ".join(pieces)
        history.statement(Ddl("shop", sql, 2, 0, 0, "UTC"))
