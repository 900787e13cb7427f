"""The newest row of each key: the native table against a dictionary of Python."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace._native import Batch, NewestRows

KEYS: dict[str, tuple[list[pa.DataType], st.SearchStrategy[tuple[object, ...]]]] = {
    "small": ([pa.int8()], st.tuples(st.none() | st.integers(-4, 4))),
    "half": ([pa.uint16()], st.tuples(st.sampled_from([0, 1, 255, 256, 65535]))),
    "word": ([pa.int32()], st.tuples(st.sampled_from([None, -1, 0, 2**31 - 1]))),
    "long": ([pa.int64()], st.tuples(st.none() | st.sampled_from([-1, 0, 1, 2**32, 2**63 - 1]))),
    "text": ([pa.utf8()], st.tuples(st.none() | st.sampled_from(["", "a", "a\0", "A", "x" * 40]))),
    "boolean": ([pa.bool_()], st.tuples(st.none() | st.booleans())),
    "pair": ([pa.int64(), pa.utf8()], st.tuples(st.integers(0, 1), st.none() | st.sampled_from(["", "1", "b" * 30]))),
    "decimal": ([pa.decimal128(30, 0)], st.tuples(st.integers(-2, 2))),
}
Change = tuple[int, bool, tuple[object, ...]]


def batch_of(changes: list[Change], first: int, types: list[pa.DataType]) -> pa.RecordBatch:
    columns = [
        pa.array([id_ for id_, _, _ in changes], pa.int64()),
        pa.array(range(first, first + len(changes)), pa.int64()),
        pa.array([deletes for _, deletes, _ in changes], pa.bool_()),
        *keys_of([key for _, _, key in changes], types).columns,
    ]
    return pa.RecordBatch.from_arrays(columns, [str(at) for at in range(len(columns))]).slice(1)


def keys_of(keys: list[tuple[object, ...]], types: list[pa.DataType]) -> pa.RecordBatch:
    columns = [pa.array([key[at] for key in keys], type_) for at, type_ in enumerate(types)]
    return pa.RecordBatch.from_arrays(columns, [str(at) for at in range(len(columns))])


def numbers(found: Batch) -> list[int]:
    read: list[int] = pa.record_batch(found).column(0).to_pylist()
    return read


@pytest.mark.parametrize("kind", KEYS)
@settings(deadline=None)
@given(data=st.data())
def test_it_keeps_what_a_dictionary_keeps(kind: str, data: st.DataObject) -> None:
    types, keys = KEYS[kind]
    newest, wanted, first = NewestRows(), dict[tuple[object, ...], tuple[int, int, bool]](), 0
    for changes in data.draw(st.lists(st.lists(st.tuples(st.integers(-3, 20), st.booleans(), keys), max_size=9))):
        # A slice, whose first row does not count: its columns begin inside their buffers.
        newest.add(batch_of([(99, False, data.draw(keys)), *changes], first - 1, types))
        for number, (id_, deletes, key) in enumerate(changes, first):
            if key not in wanted or id_ >= wanted[key][0]:
                wanted[key] = (id_, number, deletes)
        first += len(changes)
        if data.draw(st.booleans()):
            newest.forget_deleted()
            wanted = {key: last for key, last in wanted.items() if not last[2]}
    assert len(newest) == len(wanted)
    assert numbers(newest.rows(with_deletes=True)) == sorted(number for _, number, _ in wanted.values())
    assert numbers(newest.rows(with_deletes=False)) == sorted(n for _, n, deletes in wanted.values() if not deletes)
    asked = data.draw(st.lists(keys, max_size=9))
    assert numbers(newest.others(keys_of(asked, types))) == [n for n, key in enumerate(asked) if key not in wanted]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda good: good.select(["0", "1", "2"]).rename_columns(["a", "b", "c"]).select([]),
        lambda good: good.set_column(0, "0", good.column(0).cast(pa.int32())),
        lambda good: good.set_column(2, "2", good.column(1)),
        lambda good: good.set_column(3, "3", good.column(3).cast(pa.int32())),
        lambda good: good.set_column(3, "3", good.column(3).cast(pa.utf8())),
        lambda good: good.append_column("4", good.column(3)),
    ],
)
def test_other_columns_are_refused(wrong: Callable[[pa.RecordBatch], pa.RecordBatch]) -> None:
    newest = NewestRows()
    good = batch_of([(1, False, (0,)), (1, False, (7,))], 0, [pa.int64()])
    newest.add(good)
    with pytest.raises(TypeError):
        newest.add(wrong(good))
    assert numbers(newest.rows(with_deletes=True)) == [1]
