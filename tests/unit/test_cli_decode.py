"""`headrace decode binlog`: which files, in which order, from where, and what it says of patterns that fit nothing."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.codec.binlog import BinlogReader
from tests.flows.command import Result, headrace

SHOP = sorted((Path(__file__).parents[2] / "examples" / "shop" / "binlog").glob("binlog.0*"))


def ids(result: Result) -> list[int]:
    assert result.code == 0, result.err
    return [json.loads(line)["ums_id"] for line in result.out.splitlines()]


def source(directory: Path, start: str) -> Path:
    """A flow file with a source of recorded files."""
    for path in SHOP:
        shutil.copy(path, directory / path.name)
    flow = directory / "flow.yaml"
    flow.write_text(
        f'source: {{type: mysql, name: db1, files: "./binlog.0*", tables: ["shop.*"], start: "{start}"}}\n'
        "log: {type: directory, path: ./log}\nstate: ./state\n"
    )
    return flow


def test_files_of_one_log_come_in_the_order_of_their_numbers() -> None:
    found = ids(headrace("decode", "binlog", *reversed(SHOP)))
    assert found == sorted(found)
    assert len({id_ // 10**12 for id_ in found}) > 1


def test_files_of_several_logs_are_told(tmp_path: Path) -> None:
    other = tmp_path / "foo.000001"
    shutil.copy(SHOP[0], other)
    result = headrace("decode", "binlog", SHOP[-1], other)
    assert ids(result)
    assert "not files of one log (binlog, foo): decoded in the order given" in result.err


def test_a_file_of_another_log_among_those_of_a_source_is_refused(tmp_path: Path) -> None:
    flow = source(tmp_path, "earliest")
    flow.write_text(flow.read_text().replace("binlog.0*", "*.0*"))
    shutil.copy(SHOP[0], tmp_path / "foo.000099")
    for verb in (("check",), ("capture", "--until-idle"), ("decode", "binlog", "--source")):
        refused = headrace(*verb, flow)
        assert refused.code == 2
        assert "files of several logs match" in refused.err
        assert "binlog, foo" in refused.err


def test_a_source_of_recorded_files_is_decoded_from_its_start(tmp_path: Path) -> None:
    flow = source(tmp_path, "earliest")
    everything = [json.loads(line) for line in headrace("decode", "binlog", "--source", flow).out.splitlines()]
    middle = [change for change in everything if change["file"] == SHOP[1].name]
    # Between two transactions: those of the shop are begun where a commit time changes.
    later = next(new for old, new in pairwise(middle[len(middle) // 2 :]) if new["ums_ts"] != old["ums_ts"])
    moment = later["ums_ts"].replace(" ", "T") + "Z"
    expected = [change["ums_id"] for change in everything if change["ums_ts"] >= later["ums_ts"]]
    assert ids(headrace("decode", "binlog", "--source", source(tmp_path, moment))) == expected
    between = _boundary(SHOP[1])
    behind = [
        change["ums_id"] for change in everything if (change["file"], change["offset"]) >= (SHOP[1].name, between)
    ]
    assert 0 < len(behind) < len(everything)
    assert ids(headrace("decode", "binlog", "--source", source(tmp_path, f"{SHOP[1].name}:{between}"))) == behind
    within = headrace("decode", "binlog", "--source", source(tmp_path, f"{SHOP[1].name}:{between + 1}"))
    assert within.code == 2
    assert "is within an event" in within.err
    second_on = [change["ums_id"] for change in everything if change["file"] >= SHOP[1].name]
    assert ids(headrace("decode", "binlog", "--source", source(tmp_path, f"{SHOP[1].name}:4"))) == second_on
    assert ids(headrace("decode", "binlog", "--source", source(tmp_path, "latest"))) == []


def _boundary(path: Path) -> int:
    """A place between two transactions somewhere in a file."""
    reader, data = BinlogReader(["shop.*"]), path.read_bytes()
    reader.start(path.name)
    fed = 0
    while fed < len(data) // 2:
        fed += reader.feed(memoryview(data)[fed:], rows=1)
    boundary = reader.take().boundary
    assert boundary is not None
    return boundary.offset


@pytest.mark.parametrize("option", [("--columns", "shop.ordres=status"), ("--tables", "shop.ordres")])
def test_a_pattern_that_fits_no_table_is_told(option: tuple[str, str]) -> None:
    result = headrace("decode", "binlog", *option, *SHOP)
    assert result.code == 0
    assert f"no changes of a table like {option[0]} shop.ordres were found" in result.err
    assert "notice" not in headrace("decode", "binlog", "--columns", "shop.orders=status", *SHOP).err


def test_nothing_and_too_much_to_decode(tmp_path: Path) -> None:
    nothing = headrace("decode", "binlog")
    assert nothing.code == 2
    assert "there is nothing to decode\n" in nothing.err
    both = headrace("decode", "binlog", "--source", tmp_path / "flow.yaml", SHOP[0])
    assert both.code == 2
    assert "leave one of them out" in both.err
