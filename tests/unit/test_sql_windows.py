"""Windows of computed tables: whose time is waited for, what becomes of rows that are late, that a batch says the same, and that what cannot be is said."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.compute.changing.batch import Compared, Whole, compared
from headrace.errors import ConfigError, DataError
from headrace.flow.spec import PipelineSpec
from headrace.ums.change import ChangeBatch
from headrace.ums.schema import ID, TableSchema
from tests.sql_tables import Computed, OnLog, Row, Writer, batch, table

VISITS = table("visits", ("id", pa.int64()), ("page", pa.utf8()), ("placed", pa.timestamp("us")))
KEYLESS = replace(VISITS, key=())
MINUTE = 60_000_000
RULE = {"table": "said", "steps": [{"do": "extract", "regex": "^(?P<at>.*)$"}], "time": "at", "columns": {"at": "text"}}
COUNTS = "SELECT window_end, page, count(*) AS n FROM visits GROUP BY ALL"


def visit(id_: int, minute: float | None, page: str = "a") -> tuple[int, str, Row]:
    return id_, "i", {"id": id_, "page": page, "placed": None if minute is None else round(minute * MINUTE)}


def counting(
    directory: Path, sql: str = COUNTS, key: tuple[str, ...] = ("window_end", "page"), **windows: Any
) -> Computed:
    said = {"of": {"visits": {"time": "placed", "length": 60}}, **windows}
    upstream = OnLog(directory, tables=(VISITS,))
    return Computed(directory, sql, key, {"visits": "mysql.db1.shop.visits"}, {"windows": said}, upstream)


def put(directory: Path, minute: float, *rows: tuple[int, str, Row], of: TableSchema = VISITS) -> None:
    """Rows of a transaction that was committed at a minute."""
    writer = Writer(directory, id=max([id_ for id_, _, _ in rows], default=0))
    writer.transact(*([batch(of, rows)] if rows else []), commit_us=round(minute * MINUTE))


def told(computed: Computed, name: str) -> list[Row]:
    changes = [change for change in computed.told() if isinstance(change, ChangeBatch)]
    return [row for change in changes if change.table.namespace.table == name for row in change.data.to_pylist()]


def counts(computed: Computed) -> list[tuple[int, str, int]]:
    """Minute at which a window ended, page, rows; in the order in which they were told."""
    return [(row["window_end"].minute, row["page"], row["n"]) for row in told(computed, "made")]


def test_a_window_is_told_when_all_of_it_is_there(tmp_path: Path) -> None:
    computed = counting(tmp_path)
    put(tmp_path, 0.9, visit(1, 0.5), visit(2, 0.8))
    computed.run()
    assert not computed.told()
    put(tmp_path, 1.2, visit(1003, 1.1), visit(1004, 0.7))
    computed.run()
    assert counts(computed) == [(1, "a", 3)]
    put(tmp_path, 5)
    computed.run()
    assert counts(computed) == [(1, "a", 3), (2, "a", 1)], "a quiet source's mark is enough"
    assert not told(computed, "made_late")


def test_late_rows_are_told_apart(tmp_path: Path) -> None:
    windows = {"of": {"visits": {"time": "placed", "length": 120, "every": 60}}}
    computed = counting(tmp_path, **windows)
    put(tmp_path, 3, visit(1, 2.5))
    computed.run()
    put(
        tmp_path,
        3.1,
        visit(1002, 2.9),
        visit(1003, 1.9),
        visit(1004, None),
        (1005, "u", {"id": 77, "placed": 5}),
        (1006, "d", {"id": 1}),
    )
    put(tmp_path, 9)
    computed.run()
    assert counts(computed) == [(3, "a", 1), (4, "a", 1)], (
        "the row that was deleted is in the window that was over, and not in the other one"
    )
    late = told(computed, "made_late")
    assert [(row["source_id"], row["over_at"].minute, row["is_deleted"]) for row in late] == [
        (1002, 3, False), (1003, 2, False), (1003, 3, False), (1004, 0, False), (1005, 1, False), (1005, 2, False), (1006, 3, True),
    ]  # fmt: skip
    assert json.loads(late[0]["contents"])["page"] == "a"
    assert {row["source_table"] for row in late} == {"mysql.db1.shop.visits"}
    assert late[3]["event_time"] is None
    assert [row[ID] for row in late] == sorted({row[ID] for row in late}), "ids grow"


def test_windows_are_corrected_for_a_time(tmp_path: Path) -> None:
    computed = counting(tmp_path, amend=120)
    put(tmp_path, 1.5, visit(1, 0.5))
    computed.run()
    put(tmp_path, 2.5, visit(1002, 0.6))
    computed.run()
    put(tmp_path, 3.5, visit(2003, 0.7))
    computed.run()
    put(tmp_path, 3.6, visit(3004, 0.8))
    computed.run()
    assert counts(computed) == [(1, "a", 1), (1, "a", 2), (1, "a", 3)]
    assert [row["source_id"] for row in told(computed, "made_late")] == [3004]


def test_what_a_watermark_server_says_holds_for_what_was_there_when_it_was_asked(tmp_path: Path) -> None:
    says: list[int | None] = [None]
    upstream = OnLog(tmp_path, tables=(VISITS,), low_us=lambda: says[0])
    computed = replace(counting(tmp_path), upstream=upstream)
    put(tmp_path, 9, visit(1, 0.5))
    computed.run()
    assert not computed.told(), "the commit times of marks say nothing then"
    says[0] = MINUTE
    computed.run()
    assert counts(computed) == [(1, "a", 1)]
    says[0] = MINUTE // 2
    put(tmp_path, 9, visit(1002, 1.5))
    computed.run()
    assert len(counts(computed)) == 1, "it does not go back"


@pytest.mark.parametrize("of", [VISITS, KEYLESS], ids=["a key", "no key"])
def test_a_batch_leaves_out_what_was_late(tmp_path: Path, of: TableSchema) -> None:
    computed = counting(tmp_path)
    put(tmp_path, 1.5, visit(1, 0.5), of=of)
    computed.run()
    put(tmp_path, 2.5, visit(1002, 0.6), visit(1003, 1.6, "b"), of=of)
    computed.run()
    put(tmp_path, 2.6, visit(2004, 2.1), of=of)
    computed.run()
    rows = pa.Table.from_pylist(
        [row for _, _, row in (visit(1, 0.5), visit(1002, 0.6), visit(1003, 1.6, "b"), visit(2004, 2.1))],
        pa.schema([(column.name, column.type) for column in of.columns]),
    )
    whole = {"visits": [Whole(of, rows)]}
    assert compared(computed.config, whole, computed.told(), round(2.6 * MINUTE)) == Compared(2, 0, 0, 0, ())
    less = {"visits": [Whole(of, rows.slice(1))]}
    assert compared(computed.config, less, computed.told(), round(2.6 * MINUTE)).extra == 1


@pytest.mark.parametrize(
    ("windows", "sql", "message"),
    [
        ({}, "SELECT page, count(*) AS n FROM visits GROUP BY page", "no column window_end"),
        ({}, "SELECT page, 1 AS window_end FROM visits", "window_end of type int"),
        ({"of": {"visits": {"time": "page", "length": 60}}}, COUNTS, "by page, which is string, no time"),
        ({"of": {"visits": {"time": "when", "length": 60}}}, COUNTS, r"name the column when, which .*visits does not have"),
        ({"of": {"visits": {"time": "placed", "gap": 60, "by": ["who"]}}}, COUNTS, "the column who"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_by_check(tmp_path: Path, windows: Row, sql: str, message: str) -> None:
    source = counting(tmp_path, sql, ("page",), **windows).source()
    found = [each for each in (*source.check(None), *source.tables_now()) if not isinstance(each, TableSchema)]
    assert found
    assert all(each.stops and each.fix for each in found)
    assert re.search(message, found[0].message)


def test_one_table_in_two_inputs(tmp_path: Path) -> None:
    inputs = {"visits": "mysql.db1.shop.visits", "others": "mysql.db1.shop.*"}
    [found] = replace(counting(tmp_path), inputs=inputs).source().tables_now()
    assert not isinstance(found, TableSchema)
    assert "in the inputs visits and others" in found.message


def test_a_row_that_could_never_be_final_stops_the_source(tmp_path: Path) -> None:
    sql = (
        "SELECT max(window_end) FILTER (WHERE page = 'b') AS window_end, page, count(*) AS n FROM visits GROUP BY page"
    )
    computed = counting(tmp_path, sql, ("page",))
    put(tmp_path, 3, visit(1, 0.5))
    with pytest.raises(DataError, match="a row without a window_end"):
        computed.run()


def test_check_says_what_is_forgotten(tmp_path: Path) -> None:
    said = counting(tmp_path).source().explained()
    assert "windows are told when they are final" in said
    assert (
        "forgotten when the watermark has passed: visits; rows that come later go to sql.made.headrace.made_late"
        in said
    )
    assert "early, and corrected" in counting(tmp_path, early=True).source().explained()


def test_flow_files_with_windows(tmp_path: Path) -> None:
    def file(window: Row, of: str = "visits", source: str = "mysql", **more: Any) -> PipelineSpec:
        windows = {"of": {of: {"time": "placed", **window}}}
        made = {"type": "sql", "name": "made", "from": {"visits": f"{source}.in"}, "sql": COUNTS, "key": ["page"]}
        others = {
            "mysql": {"type": "mysql", "name": "in", "files": "x", "tables": ["*.*"]},
            "applog": {
                "type": "applog",
                "name": "in",
                "files": "./{host}/x.log",
                "rules": [RULE],
            },
        }
        log = {"type": "directory", "path": tmp_path / "log"}
        sources = [others[source], {**made, "windows": windows}]
        return PipelineSpec.model_validate({"source": sources, "log": log, "state": tmp_path / "state", **more})

    assert file({"length": "1m", "every": "10s"})
    with pytest.raises(ValidationError, match="say one of `length`"):
        file({"length": "1m", "gap": "10s"})
    with pytest.raises(ValidationError, match="`every` is of windows"):
        file({"length": "1m", "every": "2m"})
    with pytest.raises(ValidationError, match="`by` is of sessions"):
        file({"length": "1m", "by": ["page"]})
    with pytest.raises(ValidationError, match="`windows` are of clicks, which is no input"):
        file({"length": "1m"}, "clicks")
    with pytest.raises(ValidationError, match=r"write `watermark: \{\}` into the file"):
        file({"length": "1m"}, source="applog")
    assert file({"length": "1m"}, source="applog", watermark={})


def test_what_a_lake_cannot_say_is_not_compared(tmp_path: Path) -> None:
    computed = counting(tmp_path, of={"visits": {"time": "_ums_commit_ts_", "length": 60}})
    with pytest.raises(ConfigError, match="computed from _ums_commit_ts_, which tables as of a moment do not have"):
        compared(computed.config, {}, [])
