"""Options of Spark sources that are wrong, each told by one message, and what a stream cannot begin with."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigError, HeadraceError
from headrace.stream.sources.hbase import HBaseDataSource
from headrace.stream.sources.mysql import MySqlDataSource

Source = MySqlDataSource | HBaseDataSource
SERVER = {"host": "h", "user": "u", "tables": "a.b"}
WRONG: list[tuple[type[Source], dict[str, str], str]] = [
    (MySqlDataSource, {"tables": "a.b"}, "either `host`"),
    (MySqlDataSource, SERVER | {"hots": "x"}, "option 'hots' .*: there is no such option"),
    (MySqlDataSource, SERVER | {"mask.x": "y"}, "option 'mask"),
    (MySqlDataSource, SERVER | {"mask": "hash"}, "option 'mask' .* is no JSON object"),
    (MySqlDataSource, SERVER | {"mask": '{"a.b.c": {"type": "hsh"}}'}, "option 'mask"),
    (MySqlDataSource, SERVER | {"path": "s3://b/q", "path.web": "http://n:9870"}, "begin with hdfs://"),
    (MySqlDataSource, SERVER | {"path": "file:///q"}, "is no place for files"),
    (MySqlDataSource, SERVER | {"tables": "a.*", "form": "columns"}, "is of one table"),
    (MySqlDataSource, SERVER | {"startingoffsets": "soon"}, "option 'startingOffsets'"),
    (HBaseDataSource, {"root": "/r", "tables": "a:b", "columns": "total d:total"}, "'total d:total' is no column"),
    (HBaseDataSource, {"root": "/r", "tables": "a:b", "startingoffsets": "soon"}, "option 'startingOffsets'"),
    (HBaseDataSource, {"root": "/r", "tables": "a:b", "columns": "x int d:x, x int d:y"}, "has 'x' twice"),
    (HBaseDataSource, {"tables": "a:b"}, "option 'root' .* is missing"),
    (HBaseDataSource, {"root": "/r"}, "option 'tables' .* is missing"),
    (HBaseDataSource, {"root": "/r", "tables": ""}, "write namespace:table"),
    (HBaseDataSource, {"root": "/r", "tables": "a:b:c"}, "write namespace:table.* not 'a:b:c'"),
    (HBaseDataSource, {"root": "/r", "tables": "a:b", "mask": '{"a.b.x": {"type": "default"}}'}, "matches no column"),
]


@pytest.mark.parametrize(("source", "options", "message"), WRONG)
def test_wrong_options_are_told(source: type[Source], options: dict[str, str], message: str) -> None:
    with pytest.raises(HeadraceError, match=message) as raised:
        source(options).schema()
    assert raised.value.fix


@pytest.mark.parametrize("more", [{}, {"path": "p", "endingoffsets": "latest"}, {"path": "p", "startingoffsets": "7"}])
def test_what_a_stream_cannot_begin_with_is_told(more: dict[str, str]) -> None:
    options = {"root": "/r", "tables": "a:b"}
    schema = HBaseDataSource(options).schema()
    with pytest.raises(ConfigError, match="a stream of format") as raised:
        HBaseDataSource(options | more).streamReader(schema)
    assert raised.value.fix


def test_a_source_that_is_not_there_is_told_in_the_driver() -> None:
    source = HBaseDataSource({"root": "/nowhere", "tables": "a:b"})
    with pytest.raises(ConfigError, match="there is no write-ahead log of HBase in /nowhere") as raised:
        source.reader(source.schema()).partitions()
    assert raised.value.fix
