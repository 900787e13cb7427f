"""Tables without a primary key among those of a whole database: refused, left out, or keyed by the flow; never no data and no error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError
from tests.flows import compare
from tests.pipeline import Pipeline
from tests.servers.binlog_server import BinlogServer

pytestmark = pytest.mark.demand(7)

FILL = (
    "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20))",
    "INSERT INTO t VALUES (1, 'one'), (2, 'two')",
    "CREATE TABLE visits (day DATE NOT NULL, page INT NOT NULL, hits INT)",
    "INSERT INTO visits VALUES ('2026-11-21', 1, 10), ('2026-11-21', 2, 20), ('2026-11-22', 1, 30)",
)


@pytest.fixture
def database(binlog_server: BinlogServer) -> Iterator[str]:
    with binlog_server.database() as name:
        binlog_server.execute(*FILL, database=name)
        yield name


def pipeline(directory: Path, server: BinlogServer, database: str, load: object, **flow: Any) -> Pipeline:
    raw = {"name": "raw", "from": "mysql.db1", "to": {"type": "lake", "path": str(directory / "lake")}}
    to = {"type": "database", "url": f"sqlite:///{directory}/mart.db"}
    flows = [raw, {"name": "mart", "from": "mysql.db1", "to": to, **flow}]
    # Without a load, what was written before is read from the log.
    start: dict[str, Any] = {"start": "earliest"} if load is None else {"load": load}
    return Pipeline(directory, server, [f"{database}.*"], flows, **start)


def rows(server: BinlogServer, database: str, table: str) -> compare.Rows:
    with server.connect(database) as connection:
        return compare.source_rows(connection, table)


def test_without_a_word_of_the_author_it_is_refused_with_both_remedies(
    binlog_server: BinlogServer, database: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"mysql\.db1\.{database}\.visits has no key") as refused:
        pipeline(tmp_path, binlog_server, database, None).run_until_idle()
    assert "`key: {schema.table: [column, …]}`" in refused.value.fix
    assert "`exclude`" in refused.value.fix
    with pytest.raises(ConfigError, match=rf"{database}\.visits has no key") as refused:
        pipeline(tmp_path, binlog_server, database, {"workers": 1}).run_until_idle()
    assert "load: {key:" in refused.value.fix


def test_a_lake_takes_it_as_it_is(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    taken = pipeline(tmp_path, binlog_server, database, None, exclude="mysql.db1.*.visits")
    taken.run_until_idle()
    visits = f"mysql.db1.{database}.visits"
    assert compare.lake_rows(tmp_path / "lake", visits) == rows(binlog_server, database, "visits")
    # What is left out is left out there alone.
    assert compare.sqlite_target_rows(tmp_path / "mart.db", "t", ["id", "v"]) == rows(binlog_server, database, "t")


@pytest.mark.parametrize("loads", [True, False], ids=["loaded", "captured"])
def test_with_columns_that_tell_its_rows_apart(
    binlog_server: BinlogServer, database: str, tmp_path: Path, *, loads: bool
) -> None:
    key = {f"{database}.visits": ["day", "page"]}
    whole = pipeline(tmp_path, binlog_server, database, {"workers": 1, "key": key} if loads else None, key=key)
    whole.run_until_idle()
    columns = ["day", "page", "hits"]
    assert compare.sqlite_target_rows(tmp_path / "mart.db", "visits", columns) == rows(
        binlog_server, database, "visits"
    )
    binlog_server.execute(
        "UPDATE visits SET hits = hits + 1 WHERE page = 1",
        "DELETE FROM visits WHERE page = 2",
        "INSERT INTO visits VALUES ('2026-11-23', 1, 1)",
        database=database,
    )
    whole.run_until_idle()
    assert compare.sqlite_target_rows(tmp_path / "mart.db", "visits", columns) == rows(
        binlog_server, database, "visits"
    )


def test_the_whole_row_may_be_the_key(binlog_server: BinlogServer, database: str, tmp_path: Path) -> None:
    """For rows that are added and removed, as in a journal."""
    columns = ["day", "page", "hits"]
    whole = pipeline(tmp_path, binlog_server, database, None, key={f"{database}.visits": columns})
    whole.run_until_idle()
    binlog_server.execute(
        "DELETE FROM visits WHERE page = 2", "INSERT INTO visits VALUES ('2026-11-22', 1, 31)", database=database
    )
    whole.run_until_idle()
    assert compare.sqlite_target_rows(tmp_path / "mart.db", "visits", columns) == rows(
        binlog_server, database, "visits"
    )
