"""Flow files: what they may say, and where every mistake is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.errors import ConfigError
from headrace.flow.load import load
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec, PipelineSpec

GOOD = """\
source:
  type: mysql
  name: db1
  host: db1.internal
  user: repl
  password: ${SECRET}
  tables: ["shop.*"]
log: {type: directory, path: ./log}
state: ./state
epoch: 5s
flows:
  - name: raw
    from: "mysql.db1.shop.*"
    to: {type: lake, path: ./lake}
  - name: mart
    from: [mysql.db1.shop.orders, mysql.db1.shop.customers]
    to: {type: database, url: "sqlite:///./mart.db"}
    delete: hard
"""


def loaded(tmp_path: Path, text: str) -> PipelineSpec:
    path = tmp_path / "flow.yaml"
    path.write_text(text)
    return load(path, {"SECRET": "se${cret"})


def test_a_good_file(tmp_path: Path) -> None:
    pipeline = loaded(tmp_path, GOOD)
    assert pipeline.epoch == 5
    assert pipeline.state == tmp_path / "state"
    assert pipeline.source[0].name == "db1"
    assert pipeline.source[0].password.get_secret_value() == "se${cret"
    assert "se${cret" not in repr(pipeline)
    assert pipeline.flows[0].to.path == tmp_path / "lake"
    assert pipeline.flows[1].to.url == f"sqlite:///{tmp_path}/mart.db"
    assert pipeline.flows[1].sources == ["mysql.db1.shop.orders", "mysql.db1.shop.customers"]


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("tables:", "tabels:", 7, "`source.tabels` is not a known key"),
        ("type: mysql", "type: oracle", 1, "no source of type 'oracle'"),
        ("  host: db1.internal\n", "", 1, "give either `host`"),
        ("${SECRET}", "${NOT_SET}", 6, "environment variable NOT_SET is not set"),
        ("epoch: 5s", "epoch: 5 parsecs", 10, "write a duration such as"),
        ("epoch: 5s", "epoch: 5s\nepoch: 6s", 11, "'epoch' stands here twice"),
        ("state: ./state\n", "", 1, "`state` is missing"),
        ("path: ./lake", "pth: ./lake", 14, "`flows[0].to.pth` is not a known key"),
        ("name: mart", "name: raw", 1, "flow names must be unique; used twice: raw"),
        ("delete: hard", "delete: maybe", 18, "`flows[1].delete`"),
        ('["shop.*"]', '["shop"]', 7, "write schema.table"),
        ('["shop.*"]', '["shop.*"', 8, "not valid YAML"),
        ("url: ", "uri: ", 17, "`flows[1].to.uri` is not a known key"),
        ('"sqlite:///./mart.db"', '"nosuch://x"', 17, "nosuch"),
    ],
)
def test_a_mistake_has_a_place(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, GOOD.replace(old, new, 1))
    text = str(caught.value)
    assert message in text
    assert caught.value.exit_code == 2
    lines = [int(number) for number in re.findall(r"flow\.yaml:(\d+)", text)]
    assert line in lines, text


@pytest.mark.parametrize("text", ["", "- a\n", "just text", "\x00"])
def test_what_is_no_flow_file_at_all(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        loaded(tmp_path, text)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        load(tmp_path / "nothing.yaml")


def test_a_flow_can_leave_out_tables() -> None:
    target = {"type": "memory", "name": "x"}
    flow = FlowSpec.model_validate({"name": "a", "from": "mysql.db1.*", "exclude": "mysql.db1.shop.log*", "to": target})
    shaper = Shaper(flow)
    assert shaper.wants(b"mysql.db1.shop.orders.0.0.0")
    assert not shaper.wants(b"mysql.db1.shop.logins.0.0.0")


def test_patterns_leave_out_trailing_parts() -> None:
    shaper = Shaper(
        FlowSpec.model_validate({"name": "a", "from": "mysql.db1.shop.o*", "to": {"type": "memory", "name": "x"}})
    )
    assert shaper.wants(b"mysql.db1.shop.orders.3.0.0")
    assert not shaper.wants(b"mysql.db1.shop.customers.0.0.0")
    assert not shaper.wants(b"mysql.db2.shop.orders.0.0.0")
