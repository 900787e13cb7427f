"""``headrace lake windows`` and ``headrace verify FLOW --windows``: certificates against files that are whole, bent, thinned and gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from headrace.cli.lake import lake as lake_group
from headrace.cli.verify import verify
from headrace.errors import ConfigError
from headrace.lake.certificate import Rounds
from headrace.lake.checked import checked, read_checked
from headrace.lake.commit import Manifest
from headrace.storage.location import tree_at
from headrace.verify.windows import check_windows
from tests.lake_tables import ID_NAME, ORDERS, changes
from tests.lake_windows import caretaker, land_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Three closed windows, one of them amended, and an open one."""
    lake = tmp_path / "lake"
    for offset in (1, 2, 3):
        ids = range(offset * 10 - 8, offset * 10)
        land_until(lake, offset * 10, changes(ID_NAME, *((id_, "i", id_, "a") for id_ in ids)), offset=offset)
        caretaker(lake).certify()
    land_until(lake, 31, changes(ID_NAME, (10_000, "i", 10_000, "open"), (1, "u", 2, "late")), offset=4)
    caretaker(lake).certify()
    flow = """
source: {type: mysql, name: db1, files: "./none.*", tables: ["shop.*"]}
log: {type: directory, path: ./log}
state: ./state
flows: [{name: orders_lake, from: mysql.db1, to: {type: lake, path: ./lake, windows: 10s}}]
"""
    (tmp_path / "flow.yaml").write_text(flow)
    return lake


def listed(*arguments: object) -> Result:
    return CliRunner().invoke(lake_group, ["windows", *map(str, arguments)], catch_exceptions=False)


def verified(path: Path, *options: str) -> Result:
    arguments = [str(path.parent / "flow.yaml"), *options]
    return CliRunner().invoke(verify, arguments, catch_exceptions=False)


def problems(path: Path) -> list[str]:
    [result] = check_windows(Manifest.open(path))
    assert result.ok == (not result.problems and not any(window.wrong for window in result.windows))
    return [*result.problems, *(window.wrong for window in result.windows if window.wrong)]


def test_windows_for_people_and_for_programs(path: Path) -> None:
    out = listed(path).output
    assert "2026-01-01 00:00:00" in out
    assert "amended 1" in out
    assert "commit time 2026-01-01 00:00:20" in out
    lines = [json.loads(line) for line in listed(path, ORDERS, "--json").output.splitlines()]
    assert [(line["state"], line["rows"]) for line in lines] == [
        ("amended", 9), ("closed", 8), ("closed", 8), ("open", 1),
    ]  # fmt: skip
    certificate = lines[1]["certificate"]
    assert certificate["id"] == [12, 19]
    assert certificate["operations"] == {"i": 8}
    [member] = certificate["round"]["members"]
    assert (member["flow"], member["from"]["offset"], member["to"]["offset"]) == ("orders_lake", 1, 2)
    assert "certificate" not in lines[3]


def test_a_lake_without_windows_says_how_to_get_some(tmp_path: Path) -> None:
    land_until(tmp_path, 10, changes(ID_NAME, (1, "i", 1, "a")), offset=1)
    with pytest.raises(ConfigError, match="has no windows") as refused:
        listed(tmp_path)
    assert "windows: 1h" in refused.value.fix
    with pytest.raises(ConfigError, match="has no table"):
        listed(tmp_path, "mysql.db1.shop.order")


def test_what_is_whole_is_green(path: Path) -> None:
    result = verified(path, "--windows")
    assert (result.exit_code, "same" in result.output) == (0, True)
    lines = [json.loads(line) for line in verified(path, "--windows", "--json").output.splitlines()]
    assert [(line["ok"], line["amendment"]) for line in lines] == [(True, 1), (True, 0), (True, 0)]


def test_rows_of_a_source_that_cannot_be_read_are_not_verified_and_that_is_told(path: Path) -> None:
    with pytest.raises(ConfigError, match="tables of source db1 cannot be read as they are now") as refused:
        verified(path)
    assert "--against FLOW" in refused.value.fix


def test_care_keeps_it_green(path: Path) -> None:
    caretaker(path).purge(ORDERS, {"id": "14"}, "asked for")
    land_until(path, 31, changes(ID_NAME, (10_001, "i", 1, "newest")), offset=5)
    done = caretaker(path, keep="1s", grace=0).tend(all_periods=True)
    assert done.given_up_rows == 1
    result = verified(path, "--windows", "--json")
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert (result.exit_code, all(line["ok"] for line in lines)) == (0, True)
    assert [sum(line["taken"]["operations"].values()) for line in lines] == [1, 1, 0]


def test_rows_that_wait_for_their_amendment_are_no_fault(path: Path) -> None:
    land_until(path, 31, changes(ID_NAME, (1, "u", 3, "late again")), offset=5)
    [result] = check_windows(Manifest.open(path))
    assert (result.ok, [window.late.rows for window in result.windows]) == (True, [1, 0, 0])
    caretaker(path).certify()
    [result] = check_windows(Manifest.open(path))
    assert (result.ok, [window.late.rows for window in result.windows]) == (True, [0, 0, 0])


def _first(path: Path) -> Path:
    return path / Manifest.open(path).tables[ORDERS][0].path


def _rewritten(path: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """A file of the lake with other rows, whole as a Parquet file."""
    file = _first(path)
    rows = pq.read_table(file)
    pq.write_table(change(rows), file)


def _bent(rows: pa.Table) -> pa.Table:
    names = ["bent" if at == 1 else name for at, name in enumerate(rows.column("name").to_pylist())]
    return rows.set_column(rows.schema.get_field_index("name"), "name", pa.array(names))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda path: _rewritten(path, lambda rows: rows[1:]), "7 rows with digest"),
        (lambda path: _rewritten(path, _bent), "rows with digest"),
        (lambda path: _first(path).unlink(), "it is missing"),
        (
            lambda path: _first(path).write_bytes(_first(path).read_bytes()[:-30]),
            "not what was written",
        ),
    ],
)
def test_files_that_are_not_what_was_written_are_red(path: Path, damage: Callable[[Path], None], told: str) -> None:
    before = _first(path).relative_to(path).as_posix()
    damage(path)
    found = problems(path)
    assert any(told in problem and before in problem for problem in found), found
    assert any("its files do not have what was certified" in problem for problem in found), found
    result = verified(path, "--windows")
    assert result.exit_code == 1
    assert "WRONG" in result.output
    assert told in result.output
    assert "what to do: bring what is named back" in result.output


def _manifest_without_a_file(path: Path) -> None:
    """A commit log that agrees with itself, without one of the files."""
    commit = path / "_headrace" / "commits" / f"{2:020d}.json"
    content = read_checked(tree_at(commit.parent), commit.name)
    content["landing"]["added"] = []
    commit.write_bytes(checked(content))


def _a_lost_commit(path: Path) -> None:
    """The commits from the second on, each under the number before: one is missing, and none of the numbers."""
    commits = path / "_headrace" / "commits"
    for number in (2, 3):
        content = read_checked(tree_at(commits), f"{number + 1:020d}.json")
        (commits / f"{number:020d}.json").write_bytes(checked({**content, "number": number}))
    (commits / f"{4:020d}.json").unlink()


def _a_round_gone(path: Path) -> None:
    directory = path / Rounds(tree_at(path), ORDERS).directory
    for number in (2, 3):
        content = read_checked(tree_at(directory), f"{number + 1:020d}.json")
        (directory / f"{number:020d}.json").write_bytes(checked({**content, "number": number}))
    (directory / f"{4:020d}.json").unlink()


def _a_certificate_that_lies(path: Path) -> None:
    round_ = path / Rounds(tree_at(path), ORDERS).directory / f"{2:020d}.json"
    content = read_checked(tree_at(round_.parent), round_.name)
    content["certificates"][0]["operations"]["i"] += 1
    round_.write_bytes(checked(content))


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_manifest_without_a_file, "what was certified: -8 i"),
        (
            _a_lost_commit,
            "commit 2 begins at offset 2 (id 20) of db1/0 in flow orders_lake, and the one before ended at offset 1 (id 10)",
        ),
        (_a_round_gone, "round 2 begins at offset 2 (id 20)"),
        (_a_round_gone, "it is closed and has 8 rows, but no certificate"),
        (_a_certificate_that_lies, "what was certified: -1 i"),
    ],
)
def test_what_agrees_with_itself_and_not_with_the_rest_is_red(
    path: Path, damage: Callable[[Path], None], told: str
) -> None:
    damage(path)
    found = problems(path)
    assert any(told in problem for problem in found), found
    assert verified(path, "--windows").exit_code == 1


def test_a_damaged_certificate_is_red(path: Path) -> None:
    round_ = path / Rounds(tree_at(path), ORDERS).directory / f"{1:020d}.json"
    round_.write_bytes(round_.read_bytes().replace(b'"i":8', b'"i":9'))
    assert any("its checksum differs" in problem for problem in problems(path))
    assert verified(path, "--windows").exit_code == 1
