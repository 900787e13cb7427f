"""Derived tables of a lake: who reads them, how columns follow, what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import duckdb_ext
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.lake import lake as command
from headrace.errors import ConfigError, FencedError
from headrace.lake.asof import as_of
from headrace.lake.commit import Manifest
from headrace.lake.derived import pieces
from headrace.lake.derived.delta import DeltaDirectory
from headrace.lake.derived.directory import ParquetDirectory
from headrace.lake.derived.place import find
from headrace.lake.derived.spec import Derive
from headrace.lake.derived.table import DerivedTable, Progress
from headrace.lake.derived.upkeep import derive
from headrace.lake.policy import Policy
from headrace.lake.tend import Caretaker
from headrace.on_change import OnChange
from headrace.storage.base import FileTree
from headrace.storage.location import tree_at
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import COMMIT_TS, ID, Column, TableSchema
from tests.lake_tables import ID_NAME, ORDERS, START, at, changes, land, open_sink, rows, table

PLACE = "mysql/db1/shop/orders"


def wanted(path: Path, **said: Any) -> Derive:
    return Derive.model_validate({"path": path / "derived", **(said or {"current": "parquet", "delete": "hard"})})


def keep_up(path: Path, said: Derive, on_change: str | dict[str, str] = "evolve") -> list[str]:
    done = derive(Manifest.open(path / "lake"), said, OnChange.model_validate(on_change))
    return done.problems


def seen(said: Derive, place: str = PLACE) -> pa.Table:
    if said.format == "delta":
        return pa.table(DeltaTable(said.path / place).to_pyarrow_table())
    return pq.read_table(said.path / place / "latest")


def plain(found: pa.Table, *names: str) -> list[tuple[Any, ...]]:
    return rows(found.select(names or [name for name in found.column_names if not name.startswith("_")]))


ODD = table(
    ("id", pa.uint64()), ("wide", pa.decimal256(60, 2)), ("took", pa.duration("us")), ("local", pa.timestamp("us")),
    ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("raw", pa.binary()), ("ok", pa.bool_()), ("few", pa.uint8()),
    ("price", pa.decimal128(12, 2)), ("part", pa.float32()),
)  # fmt: skip
ODD_ROW = (
    2**64 - 1, Decimal("1.25"), timedelta(hours=-800), datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC),  # noqa: DTZ001
    datetime(2026, 1, 1, tzinfo=UTC).date(), b"\xff", True, 255, Decimal("9.99"), 0.5,
)  # fmt: skip


def test_delta_rs_duckdb_and_polars_read_the_same(tmp_path: Path) -> None:
    land(tmp_path / "lake", changes(ODD, (1, "i", *ODD_ROW), (2, "i", 7, *ODD_ROW[1:]), (3, "d", 7, *ODD_ROW[1:])))
    for said in (wanted(tmp_path, current="delta"), wanted(tmp_path / "z", zipper="delta")):
        assert not keep_up(tmp_path, said)
        place = str(said.path / PLACE)
        expected = [tuple(row.values()) for row in seen(said).sort_by(ODD.columns[0].name).to_pylist()]
        assert len(expected) == 2
        assert expected[1][:2] == (Decimal(2**64 - 1), "1.25")
        assert pl.read_delta(place).sort("id").rows() == expected
        duck = duckdb.connect()
        [extension] = Path(next(iter(duckdb_ext.__path__))).rglob("delta.duckdb_extension")
        duck.execute(f"LOAD '{extension}'")
        duck.execute("SET TimeZone = 'UTC'")
        columns = ", ".join(f"{name}::VARCHAR" for name in ("id", "wide", "took", "price", "raw"))
        found = duck.execute(f"SELECT {columns} FROM delta_scan('{place}') ORDER BY id").fetchall()
        assert found[1] == (str(2**64 - 1), "1.25", str(-800 * 3600 * 10**6), "9.99", "\\xFF")


A, B = ("a", pa.int32()), Column("b", pa.utf8(), "text", initial_default="none")
FIRST = table(("id", pa.int32()), A, ("gone", pa.utf8()))
SECOND = table(
    ("id", pa.int64()),
    Column("a", pa.int64(), "bigint"),
    Column("renamed", pa.utf8(), "text", born_as="gone"),
    B,
    version=1,
)
THIRD = table(("id", pa.int64()), B, ("c", pa.int8()), version=2)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("evolve", [{"id": 1, "b": "none", "c": None}, {"id": 2, "b": "n", "c": None}, {"id": 3, "b": "m", "c": 5}]),
        (
            "lenient",
            [
                {"id": 1, "a": 10, "gone": "g", "renamed": None, "b": "none", "c": None},
                {"id": 2, "a": 2**40, "gone": None, "renamed": "r", "b": "n", "c": None},
                {"id": 3, "a": None, "gone": None, "renamed": None, "b": "m", "c": 5},
            ],
        ),
        (
            "ignore",
            [
                {"id": 1, "a": 10, "gone": "g"},
                {"id": 2, "a": None, "gone": "r"},
                {"id": 3, "a": None, "gone": None},
            ],
        ),
    ],
)
@pytest.mark.parametrize("form", ["delta", "parquet"])
@pytest.mark.parametrize("at_once", [True, False])
def test_columns_follow_by_policy(
    policy: str, expected: list[dict[str, Any]], form: str, at_once: bool, tmp_path: Path
) -> None:
    said = wanted(tmp_path, current=form)
    for offset, batch in enumerate(
        (
            changes(FIRST, (1, "i", 1, 10, "g")),
            changes(SECOND, (2, "i", 2, 2**40, "r", "n")),
            changes(THIRD, (3, "i", 3, "m", 5)),
        ),
        start=1,
    ):
        land(tmp_path / "lake", batch, offset=offset)
        if not at_once:
            assert not keep_up(tmp_path, said, policy)
    assert not keep_up(tmp_path, said, policy)
    found = seen(said)
    names = [name for name in found.column_names if not name.startswith("_")]
    assert set(names) == set(expected[0])
    assert found.select(names).sort_by("id").to_pylist() == [{name: row[name] for name in names} for row in expected]


def test_only_pieces_that_changes_meet_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 500)
    monkeypatch.setattr(pieces, "SMALL_BYTES", 0)
    said = wanted(tmp_path, current="delta")
    land(tmp_path / "lake", changes(ID_NAME, *((n, "i", n, f"{n}") for n in range(1, 101))))
    keep_up(tmp_path, said)
    before = set(DeltaTable(said.path / PLACE).file_uris())
    land(tmp_path / "lake", changes(ID_NAME, (101, "u", 100, "x"), (102, "i", 101, "y")), offset=2)
    keep_up(tmp_path, said)
    after = set(DeltaTable(said.path / PLACE).file_uris())
    assert len(before) > 4
    assert len(before - after) == 1
    assert plain(seen(said).filter(pa.compute.greater_equal(seen(said).column("id"), 100)), "id", "name") == [
        (100, "x"),
        (101, "y"),
    ]


def test_a_checkpoint_keeps_how_far_a_table_has_come_and_old_files_go(tmp_path: Path) -> None:
    said = wanted(tmp_path, current="delta", grace=0)
    for number in range(1, 24):
        land(tmp_path / "lake", changes(ID_NAME, (number, "u", 1, f"{number}")), offset=number)
        assert not keep_up(tmp_path, said)
    place = said.path / PLACE
    assert list((place / "_delta_log").glob("*.checkpoint*.parquet"))
    assert DeltaTable(place).transaction_version("headrace.commit") == 23
    assert len(list(place.glob("*.parquet"))) < 10
    keep_up(tmp_path, said)
    assert len(list(place.glob("*.parquet"))) == 1
    assert plain(seen(said), "id", "name") == [(1, "23")]


def timed(*given_rows: tuple[int, str, int, str, int]) -> ChangeBatch:
    """Changes with commit times of their own, in seconds."""
    batch = changes(ID_NAME, *(row[:4] for row in given_rows))
    times = pa.array([START + timedelta(seconds=row[4]) for row in given_rows], pa.timestamp("us", "UTC"))
    place = batch.data.schema.get_field_index(COMMIT_TS)
    return ChangeBatch(batch.table, batch.data.set_column(place, batch.data.schema.field(place), times))


def test_a_zipper_is_right_by_time_where_loaded_rows_are_younger_than_changes(tmp_path: Path) -> None:
    said = wanted(tmp_path, zipper="parquet")
    land(tmp_path / "lake", timed((10, "u", 1, "b", 5), (20, "u", 2, "y", 30), (21, "u", 2, "z", 12)))
    keep_up(tmp_path, said)
    land(tmp_path / "lake", timed((-9, "i", 1, "a", 20), (-8, "i", 2, "x", 20), (-7, "i", 3, "q", 20)), offset=2)
    keep_up(tmp_path, said)
    zipper = seen(said)
    for second in range(0, 40, 3):
        now = START + timedelta(seconds=second)
        held = [(row["id"], row["name"]) for row in zipper.to_pylist() if row["valid_from"] <= now < row["valid_to"]]
        assert sorted(held) == rows(as_of(tmp_path / "lake", ORDERS, time=now)), second
    assert [row["to_id"] for row in zipper.to_pylist() if row["from_id"] == -9] == [10]


def test_purged_rows_leave_derived_tables(tmp_path: Path) -> None:
    tables = [wanted(tmp_path / f"{n}", **kind) for n, kind in enumerate(({"current": "delta"}, {"zipper": "parquet"}))]
    land(tmp_path / "lake", changes(ID_NAME, (1, "i", 1, "secret"), (2, "i", 2, "b"), (3, "u", 1, "secret too")))
    for said in tables:
        keep_up(tmp_path, said)
    Caretaker(tmp_path / "lake", Policy()).purge(ORDERS, {"id": "1"}, "asked for")
    for said in tables:
        keep_up(tmp_path, said)
        assert plain(seen(said), "id", "name") == [(2, "b")]


def test_shards_are_tables_of_their_own(tmp_path: Path) -> None:
    said = wanted(tmp_path)
    shard = TableSchema(
        ID_NAME.namespace.__class__("mysql", "db1", "shop", "orders", 0, "2", "7"), ID_NAME.columns, ("id",)
    )
    land(tmp_path / "lake", changes(ID_NAME, (1, "i", 1, "a")), changes(shard, (2, "i", 1, "b")))
    assert not keep_up(tmp_path, said)
    assert plain(seen(said)) == [(1, "a")]
    assert plain(seen(said, f"{PLACE}-2-7")) == [(1, "b")]


@pytest.mark.parametrize("opened", [DeltaDirectory, ParquetDirectory])
def test_of_two_upkeeps_at_once_the_second_is_refused(opened: type[DerivedTable], tmp_path: Path) -> None:
    the_second_is_refused(opened, tree_at(tmp_path))


def test_of_two_upkeeps_on_a_shared_store_the_second_is_refused(shared_place: str) -> None:
    the_second_is_refused(DeltaDirectory, tree_at(shared_place))


def the_second_is_refused(opened: type[DerivedTable], tree: FileTree) -> None:
    here = opened(tree, "t")  # type: ignore[call-arg]
    writer = pieces.PieceWriter(tree, here.pieces_directory, pa.schema([("id", pa.int64())]), ["id"], "id")

    def add(number: int, before: Any) -> None:
        [piece] = writer.write(pa.table({"id": [number]}), pieces.OPEN)
        progress = Progress(number, number, 0, 0)
        here.commit(before, writer.schema, added=[piece], removed=[], progress=progress, told={})

    add(1, None)
    with pytest.raises(FencedError, match="another process"):
        add(2, None)
    before = here.present()
    add(3, before)
    with pytest.raises(FencedError, match="another process"):
        add(4, before)
    now = here.present()
    assert now is not None
    assert (now.progress.commit, len(now.files)) == (3, 2)


def test_what_is_refused_says_what_to_do(tmp_path: Path) -> None:
    said = wanted(tmp_path)
    land(tmp_path / "lake", changes(ID_NAME, (1, "i", 1, "a")))
    keep_up(tmp_path, said)
    assert "derived in another way" in keep_up(tmp_path, wanted(tmp_path, current="parquet"))[0]
    assert "derived in another way" in keep_up(tmp_path, wanted(tmp_path, zipper="parquet"))[0]
    assert "not a table that headrace has derived" in keep_up(tmp_path, wanted(tmp_path, current="delta"))[0]
    land(tmp_path / "lake", changes(ID_NAME, (2, "i", 2, "b")), offset=2)
    keep_up(tmp_path, said)
    (tmp_path / "lake/_headrace/commits/00000000000000000002.json").unlink()
    assert "its lake ends at 1" in keep_up(tmp_path, said)[0]
    with pytest.raises(ConfigError, match="must not be in one another"):
        derive(Manifest.open(tmp_path / "lake"), Derive.model_validate({"current": "parquet", "path": tmp_path}))


def test_tables_that_cannot_be_derived_are_told_and_the_others_are_made(tmp_path: Path) -> None:
    keyless = table(("id", pa.int64()), key=(), name="visits")
    taken = table(("id", pa.int64()), ("valid_to", pa.date32()), name="prices")
    land(
        tmp_path / "lake",
        changes(keyless, (1, "i", 1)),
        changes(taken, (2, "i", 1, None)),
        changes(ID_NAME, (3, "i", 1, "a")),
    )
    said = wanted(tmp_path, zipper="parquet")
    problems = keep_up(tmp_path, said)
    assert len(problems) == 2
    assert "has no key" in problems[0]
    assert "has a column 'valid_to'" in problems[1]
    assert seen(said).num_rows == 1
    assert not keep_up(tmp_path, wanted(tmp_path / "few", zipper="parquet", tables=["*.orders"]))


def test_the_command_line(tmp_path: Path) -> None:
    land(tmp_path / "lake", changes(ID_NAME, (1, "i", 1, "a"), (2, "d", 1, "a")))

    def run(*arguments: object) -> str:
        done = CliRunner().invoke(command, [str(each) for each in arguments], catch_exceptions=False)
        return done.output

    assert "1 tables changed" in run("current", tmp_path / "lake", "--into", tmp_path / "c", "--delete", "hard")
    assert "0 tables changed" in run("current", tmp_path / "lake", ORDERS, "--into", tmp_path / "c", "--delete", "hard")
    assert DeltaTable(tmp_path / "c" / PLACE).count() == 0
    told = json.loads(run("zipper", tmp_path / "lake", "--into", tmp_path / "z", "--format", "parquet", "--json"))
    assert (told["tables"], told["problems"]) == (1, [])
    assert f"USING parquet LOCATION '{tmp_path}/z/{PLACE}/latest';" in run(
        "register", tmp_path / "z", ORDERS, "--name", "a.b", "--ddl"
    )
    assert "USING delta" in run("register", tmp_path / "c", ORDERS, "--name", "a.b", "--ddl")
    assert find(tmp_path / "lake", ORDERS).url == str(tmp_path / "lake" / PLACE / "v0")
    with pytest.raises(ConfigError, match="no table mysql"):
        run("register", tmp_path, ORDERS, "--name", "a.b", "--ddl")
    with pytest.raises(ConfigError, match="is not a name"):
        run("register", tmp_path / "c", ORDERS, "--name", "a.b; drop", "--ddl")


KEYS = st.tuples(st.none() | st.sampled_from(["", "a", "b", "ä"]), st.integers(-3, 3))


@given(st.sets(KEYS, max_size=20), st.sets(KEYS, max_size=12))
def test_rows_meet_their_piece_and_their_row(known: set[Any], asked: set[Any]) -> None:
    """`match` and `ranges` against plain Python, for keys of two columns with nulls."""

    def of(keys: list[Any]) -> pa.Table:
        columns = list(zip(*keys, strict=True)) or [(), ()]
        return pa.table({"k": pa.array(columns[0], pa.utf8()), "n": pa.array(columns[1], pa.int64())})

    order = sorted(known, key=lambda key: (key[0] is None, (key[0] or "").encode(), key[1]))
    mine, theirs = sorted(asked, key=repr), list(known)
    places = pieces.match(of(mine), of(theirs), ["k", "n"]).to_pylist()
    assert places == [theirs.index(key) if key in known else None for key in mine]
    some = [
        pieces.Piece(str(start), pieces.OPEN, 3, 0, 0, of(order[start : start + 1]), tree_at("."))
        for start in range(0, len(order), 3)
    ]
    found = {}
    for each in pieces.ranges(some, of(mine), ["k", "n"], lambda _: False):
        for row in each.rows.to_pylist():
            found[(row["k"], row["n"])] = [int(str(piece.path)) for piece in each.pieces]
    assert set(found) == asked
    for key, starts in found.items():
        below = [start for start in range(0, len(order), 3) if _order(order[start]) <= _order(key)]
        assert not some or (max(below) if below else 0) in starts


def _order(key: Any) -> tuple[Any, ...]:
    return key[0] is None, (key[0] or "").encode(), key[1]


def test_ids_of_soft_deleted_rows_stay(tmp_path: Path) -> None:
    said = wanted(tmp_path, current="parquet")
    land(tmp_path / "lake", changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "b"), (3, "d", 2, "b")))
    keep_up(tmp_path, said)
    sink = open_sink(tmp_path / "lake")
    sink.clear(Clear(ID_NAME, 4, 4_000_000))
    sink.commit(at(2))
    sink.close()
    keep_up(tmp_path, said)
    land(tmp_path / "lake", changes(ID_NAME, (-1, "i", 2, "late"), (5, "i", 3, "c")), offset=3)
    keep_up(tmp_path, said)
    assert plain(seen(said), "id", ID, "_is_active_") == [(1, 1, 0), (2, 3, 0), (3, 5, 1)]


def test_another_key_makes_the_table_anew(tmp_path: Path) -> None:
    """Also where the flow takes no new columns: without its key there is no table."""
    rekeyed = TableSchema(
        FIRST.with_version(1).namespace,
        (*FIRST.columns, Column("n", pa.int32(), "int", initial_default="0")),
        ("id", "n"),
    )
    said = wanted(tmp_path, current="delta", delete="hard")
    land(tmp_path / "lake", changes(FIRST, (1, "i", 1, 10, "x"), (2, "i", 2, 20, "y")))
    keep_up(tmp_path, said, "ignore")
    land(tmp_path / "lake", changes(rekeyed, (3, "i", 1, 11, "z", 5), (4, "u", 2, 21, "y", 0)), offset=2)
    assert not keep_up(tmp_path, said, "ignore")
    assert plain(seen(said), "id", "n", "a") == [(1, 0, 10), (1, 5, 11), (2, 0, 21)]
