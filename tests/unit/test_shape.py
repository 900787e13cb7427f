"""What a flow makes of changes of its tables: columns that are renamed at the source, and the policies that are the same for all stores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError
from headrace.flow.shape import Shaper, column_changes
from headrace.flow.spec import FlowSpec
from headrace.on_change import OnChange, Policy
from headrace.ums.change import Cause, Clear, End, Statement, empty_batch
from headrace.ums.schema import Column, Namespace, TableSchema

ID, NAME, PHONE = Column("id", pa.int32(), "int"), Column("name", pa.utf8(), "text"), Column("phone", pa.utf8(), "text")
TABLE = TableSchema(Namespace("mysql", "db1", "shop", "t"), (ID, NAME, PHONE), ("id",))


def flow(**options: Any) -> FlowSpec:
    return FlowSpec.model_validate({"name": "f", "from": "mysql.db1", "to": {"type": "memory"}, **options})


def shaped(table: TableSchema, **options: Any) -> TableSchema:
    change = Shaper(flow(**options)).shape(empty_batch(table))
    assert change is not None
    return change.table


def renamed(column: Column, name: str) -> Column:
    return replace(column, name=name, born_as=column.identity)


def newer(*columns: Column) -> TableSchema:
    return replace(TABLE.with_version(1), columns=columns)


def test_a_column_that_is_left_out_stays_so_when_the_source_renames_it() -> None:
    table = newer(ID, NAME, renamed(PHONE, "mobile"))
    assert [column.name for column in shaped(table, columns={"drop": ["phone"]}).columns] == ["id", "name"]


def test_only_the_columns_that_are_kept_and_the_key_arrive_whatever_comes_later() -> None:
    keep = {"columns": {"keep": ["phone"]}}
    assert [column.name for column in shaped(TABLE, **keep).columns] == ["id", "phone"]
    later = newer(ID, NAME, renamed(PHONE, "mobile"), Column("more", pa.int8(), "tinyint"))
    assert [column.name for column in shaped(later, **keep).columns] == ["id", "mobile"]
    with pytest.raises(ValidationError, match="`keep` or which to `drop`"):
        flow(columns={"keep": ["id"], "drop": ["phone"]})


def test_a_column_keeps_its_name_in_the_target_when_the_source_renames_it() -> None:
    rename = {"columns": {"rename": {"name": "title"}}}
    before, after = shaped(TABLE, **rename), shaped(newer(ID, renamed(NAME, "label"), PHONE), **rename)
    assert (
        [column.name for column in before.columns]
        == [column.name for column in after.columns]
        == ["id", "title", "phone"]
    )
    assert [column.identity for column in before.columns] == [column.identity for column in after.columns]
    again = shaped(newer(ID, renamed(NAME, "label"), replace(NAME, born_as="name@9"), PHONE), **rename)
    assert [column.name for column in again.columns] == ["id", "label", "title", "phone"]


def test_a_key_column_that_is_renamed() -> None:
    table = replace(newer(renamed(ID, "nr"), NAME), key=("nr",))
    assert shaped(table, columns={"rename": {"id": "number"}}).key == ("number",)
    with pytest.raises(ConfigError, match="needs its key column nr"):
        shaped(table, columns={"drop": ["id"]})


def test_changes_between_versions() -> None:
    other = newer(renamed(ID, "nr"), replace(NAME, type=pa.binary()), Column("more", pa.int8(), "tinyint"))
    assert column_changes(TABLE, other) == {
        "added": ["more"], "dropped": ["phone"], "retyped": ["name"], "renamed": ["id"],
    }  # fmt: skip


def test_one_word_for_all_and_words_for_some() -> None:
    assert OnChange.model_validate("ignore").table_dropped is Policy.IGNORE
    mixed = OnChange.model_validate({"all": "lenient", "truncated": "fail"})
    assert (mixed.truncated, mixed.added) == (Policy.FAIL, Policy.LENIENT)
    assert OnChange.model_validate({"added": "ignore"}).renamed is Policy.EVOLVE
    with pytest.raises(ValidationError):
        OnChange.model_validate({"dropt": "ignore"})
    with pytest.raises(ValidationError):
        OnChange.model_validate("exception")


@pytest.mark.parametrize(
    ("cause", "kind", "passing"),
    [
        (Cause.TRUNCATED, "truncated", {"evolve"}),
        (Cause.DROPPED, "table_dropped", {"evolve"}),
        (Cause.RENAMED, "table_renamed", {"evolve"}),
        (Cause.CREATED, "table_dropped", {"evolve", "lenient"}),
    ],
)
def test_who_sees_that_rows_are_gone(cause: Cause, kind: str, passing: set[str]) -> None:
    clear = Clear(TABLE, 5, 5, cause)
    for policy in ("evolve", "lenient", "ignore"):
        seen = Shaper(flow(on_change={kind: policy})).shape(clear)
        assert (seen == clear) is (policy in passing)


def test_what_is_refused_is_said_with_its_statement() -> None:
    end = End(TABLE, newer(ID, NAME), 5, 5, Statement("ALTER TABLE t DROP phone", "binlog.000002:99"))
    assert Shaper(flow()).shape(end) == end
    without = Shaper(flow(on_change={"dropped": "fail"}, columns={"drop": ["phone"]})).shape(end)
    assert isinstance(without, End)
    assert without.table.columns == without.successor.columns == (ID, NAME)
    with pytest.raises(DataError) as failed:
        Shaper(flow(on_change="fail")).shape(end)
    assert failed.value.message == (
        "flow f: mysql.db1.shop.t has column(s) dropped: phone, and the flow is to stop then"
        " (binlog.000002:99: ALTER TABLE t DROP phone)"
    )
    assert "on_change: {dropped: evolve}" in failed.value.fix
    rekeyed = End(TABLE, replace(newer(*TABLE.columns), key=("phone",)), 5, 5)
    assert Shaper(flow(on_change={"all": "fail", "rekeyed": "evolve"})).shape(rekeyed) == rekeyed
    with pytest.raises(DataError, match=r"has the key \(phone\) now, and the flow is to stop then"):
        Shaper(flow(on_change={"rekeyed": "fail"})).shape(rekeyed)


@pytest.mark.parametrize("rename", [{"name": "id"}, {"name": "_ums_id_"}, {"id": "x", "name": "x"}])
def test_no_two_columns_get_one_name(rename: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="two columns"):
        Shaper(flow(columns={"rename": rename})).table(TABLE)


def test_a_target_takes_its_system_columns_from_its_flow() -> None:
    names = {"id": "ums_id", "active": "is_active"}
    target: Any = flow(to={"type": "redis", "url": "redis://h"}, system_columns=names).target()
    assert target.system_columns.of_rows == ("ums_id", "_ums_ts_", "is_active")
    with pytest.raises(ValidationError, match="leave `system_columns` out"):
        flow(system_columns=names)
    for wrong in ({"id": "a b"}, {"id": ""}, {"id": "x", "ts": "X"}, {"id": "_is_active_"}):
        with pytest.raises(ValidationError):
            flow(to={"type": "redis", "url": "redis://h"}, system_columns=wrong)
    for to in ({"type": "kafka", "brokers": "h:1"}, {"type": "webhook", "url": "http://h", "format": "ums"}):
        with pytest.raises(ValidationError, match="only `format: json`"):
            flow(to={**to, "system_columns": names})
