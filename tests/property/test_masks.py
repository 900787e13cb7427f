"""Whatever a table holds: masked, it says the same each time, null where it was null, and nothing of it is in the bytes for the log."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.capture.mask import Masker
from headrace.capture.mysql_config import MySqlConfig
from headrace.ums.change import ChangeBatch, read_block
from headrace.ums.schema import RAW, TableSchema
from tests.ums_tables import TABLE as EVERY_TYPE
from tests.ums_tables import batches

# No source gives nanoseconds.
TABLE = replace(EVERY_TYPE, columns=tuple(c for c in EVERY_TYPE.columns if c.name != "nano"))
KINDS: dict[str, dict[str, Any]] = {
    "default": {"type": "default"},
    "null": {"type": "default", "as_null": True},
    "md5": {"type": "hash", "algorithm": "md5", "salt": "pepper"},
    "murmur3": {"type": "hash", "algorithm": "murmur3"},
    "sha256": {"type": "hash", "algorithm": "sha256", "salt_column": "name"},
    "hmac": {"type": "hash", "algorithm": "hmac_sha256", "key": "0123456789abcdef"},
    "regex": {"type": "regex", "pattern": "(.).*(.)", "replacement": r"\1–\2"},
    "characters": {"type": "truncate", "characters": 1},
    "bytes": {"type": "truncate", "bytes": 1},
}
TEXT_ONLY = {"regex", "characters"}


def masks_of(kind: str, table: TableSchema) -> MySqlConfig:
    columns = [c.name for c in table.columns if c.name != "id" and not (kind in TEXT_ONLY and "binary" in str(c.type))]
    # The table has a dot in its name: a pattern is cut at its first two.
    mask = {f"shop.every?type.{name}": KINDS[kind] for name in columns}
    return MySqlConfig.model_validate({"type": "mysql", "name": "d", "files": "x", "tables": ["*.*"], "mask": mask})


def masked(config: MySqlConfig, batch: ChangeBatch) -> ChangeBatch:
    result = Masker(config, None).mask(batch)
    assert not result.failed
    assert isinstance(result.change, ChangeBatch)
    return result.change


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_every_kind_on_every_type(kind: str, data: st.DataObject) -> None:
    clear = data.draw(batches(TABLE))
    config = masks_of(kind, TABLE)
    change = masked(config, clear)
    change.data.validate(full=True)
    assert change.data.schema.equals(change.table.arrow_schema(), check_metadata=True)
    assert change.data.equals(masked(config, clear).data)
    raws = [json.loads(text) if text else {} for text in clear.data.column(RAW).to_pylist()]
    for column in change.table.columns:
        before, after = clear.data.column(column.name), change.data.column(column.name)
        unheld = pa.array([column.name in raw for raw in raws])
        for row, (was, now) in enumerate(zip(before.is_null(), after.is_null(), strict=True)):
            there = not was.as_py() or unheld[row].as_py()
            assert now.as_py() == (not there or (kind == "null" and column.name != "id")), column.name
    assert change.data.column(RAW).null_count == len(change)
    if len(change):
        assert read_block(change.to_block()) == change


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"characters", "bytes", "regex"}))
@given(secrets=st.lists(st.text(st.characters(categories=("L", "N")), min_size=4), min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
def test_no_value_is_in_the_bytes(kind: str, secrets: list[str]) -> None:
    marked = [f"§{secret}§" for secret in secrets]
    columns = tuple(replace(c, initial_default=marked[0]) if c.name == "name" else c for c in TABLE.columns)
    table = replace(TABLE, columns=columns)
    rows = [
        {"_ums_id_": 1, "_ums_ts_": 0, "_ums_op_": "u", "_ums_commit_ts_": 0, "id": 1, "name": text, "doc": f'"{text}"',
         "token": text.encode(), "photo": text.encode(), "long_name": text, RAW: json.dumps({"born": text}, ensure_ascii=False)}
        for text in marked
    ]  # fmt: skip
    batch = ChangeBatch(table, pa.RecordBatch.from_pylist(rows, schema=table.arrow_schema()))
    block = masked(masks_of(kind, table), batch).to_block()
    assert all(text.encode() in batch.to_block() for text in marked)
    assert not any(text.encode() in block for text in marked)


def test_distinct_keys_stay_distinct() -> None:
    config = MySqlConfig.model_validate(
        {"type": "mysql", "name": "d", "files": "x", "tables": ["*.*"], "mask": {"*.*.id": KINDS["hmac"]}}
    )
    rows = [
        {"_ums_id_": id_, "_ums_ts_": 0, "_ums_op_": "u", "_ums_commit_ts_": 0, "id": id_ % 50_000}
        for id_ in range(60_000)
    ]
    batch = ChangeBatch(TABLE, pa.RecordBatch.from_pylist(rows, schema=TABLE.arrow_schema()))
    assert len(set(masked(config, batch).data.column("id").to_pylist())) == 50_000
