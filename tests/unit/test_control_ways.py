"""The way of changes as a flow file's text says it: for pictures, and so without anything that is a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.control.api.ways import Way, ways_of
from headrace.errors import ConfigError

FILE = Path("r1.yaml")


def test_sources_log_and_flows_are_told_with_their_places() -> None:
    found = ways_of(
        """
        source:
          - {type: mysql, name: db1, host: db1.internal, tables: ["shop.*", "crm.*"]}
          - {type: kafka, name: events, brokers: "k1:9092,k2:9092", topics: [one, two]}
        log: {type: directory, path: ./log}
        state: ./state
        flows:
          - {name: raw, from: ["mysql.db1.*", "kafka.events.*"], to: {type: lake, path: ./lake, windows: {length: 1h}}}
          - {name: mart, from: "mysql.db1.*", sql: "SELECT 1", to: {type: callable, function: "a:b"}}
          - {name: other, from: "mysql.db1.*", steps: [{do: filter, where: "id > 1"}], to: {type: hbase, hosts: [h1, h2]}}
        """,
        FILE,
    )
    assert found.sources == [
        Way(name="db1", type="mysql", place="db1.internal"),
        Way(name="events", type="kafka", place="k1:9092,k2:9092"),
    ]
    assert found.log == Way(name="", type="directory", place="./log")
    assert found.flows == [
        Way(name="raw", type="lake", place="./lake", takes="mysql.db1.*, kafka.events.*"),
        Way(name="mart", type="callable", place="a:b", takes="mysql.db1.*", computed=True),
        Way(name="other", type="hbase", place="h1, h2", takes="mysql.db1.*", computed=True),
    ]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("postgresql://me:${PASSWORD}@warehouse/mart", "postgresql://warehouse/mart"),
        ("postgresql://me:in-clear@warehouse/mart?sslmode=require&password=in-clear", "postgresql://warehouse/mart"),
        ("jdbc:sqlserver://warehouse;user=me;password=in-clear", "jdbc:sqlserver://warehouse"),
        ("sqlite:///./mart.db", "sqlite:///./mart.db"),
        ("${URL}", "${URL}"),
    ],
)
def test_credentials_are_left_out_of_places(written: str, told: str) -> None:
    found = ways_of(f'flows: [{{name: mart, from: "*", to: {{type: database, url: "{written}"}}}}]', FILE)
    assert found.flows[0].place == told


def test_a_file_that_is_wrong_by_now_has_a_picture_too() -> None:
    found = ways_of("source: {type: no-such, colour: red}\nlog: 5", FILE)
    assert (found.sources, found.log, found.flows) == ([Way(name="", type="no-such", place="")], None, [])
    with pytest.raises(ConfigError, match="not valid YAML"):
        ways_of("a: [", FILE)
