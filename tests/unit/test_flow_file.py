"""Flow files: what they may say, and where every mistake is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.capture.mysql_config import MySqlConfig
from headrace.errors import ConfigError
from headrace.flow.load import load
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec, PipelineSpec, SparkSpec
from headrace.stream.query import run

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


def test_tasks_work_here_or_on_a_cluster(tmp_path: Path) -> None:
    here = loaded(tmp_path, GOOD)
    assert here.spark.master is None
    there = loaded(tmp_path, GOOD + "spark: {master: 'spark://s1:7077', config: {spark.executor.cores: 2}}\n")
    assert there.spark == SparkSpec(master="spark://s1:7077", config={"spark.executor.cores": "2"})
    with pytest.raises(ConfigError, match=r"flow\.yaml:19: `spark`: name the cluster by `master`, not in `config`"):
        loaded(tmp_path, GOOD + "spark: {config: {spark.master: yarn}}\n")
    with pytest.raises(ConfigError, match="one run has one session"):
        run([here, there], until_idle=True, progress=lambda figures: None)


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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("failover: ['db2:65536']", "a port is a number from 1 to 65535"),
        ("failover: ['db2:0']", "a port is a number from 1 to 65535"),
        ("failover: ['::1']", "for IPv6, [::1]:3306"),
        ("failover: ['db 2']", "write host, host:port"),
        ("tls: {key: ./k.pem}", "add `certificate`"),
        ("files: './b.0*'", "give either `host`"),
    ],
)
def test_what_a_server_cannot_have(tmp_path: Path, more: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, GOOD.replace("  user: repl\n", f"  user: repl\n  {more}\n"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "more", ["port: 3307", "failover: [db2]", "user: repl", "password: x", "tls: {verify: none}", "server_id: 7"]
)
def test_recorded_files_take_nothing_of_a_server(tmp_path: Path, more: str) -> None:
    text = f"source: {{type: mysql, name: db1, files: './b.0*', tables: ['*.*'], {more}}}\n"
    text += "log: {type: directory, path: ./log}\nstate: ./state\n"
    with pytest.raises(ConfigError, match=f"`{more.partition(':')[0]}` would not be used"):
        loaded(tmp_path, text)


def test_addresses_of_servers(tmp_path: Path) -> None:
    more = "failover: [db2, 'db3:3307', '[::1]', '[fe80::1%eth0]:3308', 10.0.0.7]"
    source = loaded(tmp_path, GOOD.replace("  user: repl\n", f"  user: repl\n  {more}\n")).source[0]
    assert isinstance(source, MySqlConfig)
    others = [("db2", 3306), ("db3", 3307), ("::1", 3306), ("fe80::1%eth0", 3308), ("10.0.0.7", 3306)]
    assert source.servers == [("db1.internal", 3306), *others]


@pytest.mark.parametrize(
    ("written", "every_s", "table"),
    [
        ("", 60, None),
        ("  heartbeat: 5m\n", 300, None),
        ("  heartbeat: 2\n", 2, None),
        ("  heartbeat: off\n", None, None),
        ("  heartbeat: {every: 10s, table: ops.beat, host: primary}\n", 10, "ops.beat"),
    ],
)
def test_heartbeats(tmp_path: Path, written: str, every_s: float | None, table: str | None) -> None:
    source = loaded(tmp_path, GOOD.replace("log:", f"{written}log:", 1)).source[0]
    assert source.heartbeat_every_s == every_s
    assert source.heartbeat_table == table


def test_the_heartbeat_table_is_read_and_is_no_data(tmp_path: Path) -> None:
    text = GOOD.replace("log:", '  heartbeat: {table: shop.beat, host: "primary:3307"}\nlog:', 1)
    source = loaded(tmp_path, text).source[0]
    assert (source.captures("shop", "beat"), source.reads("shop", "beat")) == (False, True)
    assert (source.captures("shop", "orders"), source.reads("shop", "orders")) == (True, True)
    assert (source.captures("ops", "beat"), source.reads("ops", "beat")) == (False, False)
    assert source.read_patterns == ["shop.*", "shop.beat"]
    assert source.heartbeat_server == ("primary", 3307)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("heartbeat: soon", "write a duration such as"),
        ("heartbeat: 0s", "greater than 0"),
        ("heartbeat: true", "`source.heartbeat`"),
        ("heartbeat: {every: 1s, host: primary}", "name the `table` too"),
        ("heartbeat: {table: ops.beat, host: 'a b'}", "is no server"),
        ("heartbeat: {table: beat}", "`source.heartbeat.table`"),
    ],
)
def test_heartbeats_that_cannot_be(tmp_path: Path, written: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, GOOD.replace("log:", f"  {written}\nlog:", 1))
    assert message in str(caught.value)


def test_recorded_files_send_no_heartbeat(tmp_path: Path) -> None:
    text = GOOD.replace("  host: db1.internal\n  user: repl\n  password: ${SECRET}\n", "  files: ./binlog.0*\n")
    assert loaded(tmp_path, text).source[0].heartbeat_every_s is None
    with pytest.raises(ConfigError, match="`heartbeat` would not be used"):
        loaded(tmp_path, text.replace("log:", "  heartbeat: 5s\nlog:", 1))


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("9108", "127.0.0.1:9108"),
        ('"0.0.0.0:9108"', "0.0.0.0:9108"),
        ("{port: 9108}", "127.0.0.1:9108"),
        ('{host: "::1", port: 9108}', "::1:9108"),
        ('"[::1]:9108"', "::1:9108"),
    ],
)
def test_where_metrics_are_served(tmp_path: Path, written: str, address: str) -> None:
    assert str(loaded(tmp_path, f"metrics: {written}\n{GOOD}").metrics) == address


@pytest.mark.parametrize("written", ["0", "65536", '"host:"', '":9108"', "here", "{host: here}"])
def test_where_metrics_cannot_be_served(tmp_path: Path, written: str) -> None:
    with pytest.raises(ConfigError, match=r"flow\.yaml:1: .*`metrics"):
        loaded(tmp_path, f"metrics: {written}\n{GOOD}")


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


MASKED = GOOD.replace(
    'tables: ["shop.*"]\n',
    """tables: ["shop.*"]
  mask:
    shop.customers.phone: {type: regex, pattern: '(..).*', replacement: '\\1*'}
    shop.customers.email:
      type: hash
      algorithm: hmac_sha256
      key: ${SECRET}0123456789
""",
)


def test_masks_of_a_source(tmp_path: Path) -> None:
    pipeline = loaded(tmp_path, MASKED)
    assert [mask.type for mask in pipeline.source[0].mask.values()] == ["regex", "hash"]
    assert "0123456789" not in repr(pipeline)
    assert pipeline.source[0].mask_pattern("SHOP", "customers", "Phone") == "shop.customers.phone"
    assert pipeline.source[0].mask_pattern("shop", "customers", "phones") is None


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("shop.customers.phone:", "customers.phone:", 9, "write schema.table.column, not 'customers.phone'"),
        ("type: regex", "type: rot13", 9, "no mask of type 'rot13'"),
        ("(..).*", "(..", 9, "not a regular expression of RE2"),
        ("(..).*", "a)|(?:b", 9, "not a regular expression of RE2"),
        ("\\1*", "\\2*", 9, "not a regular expression of RE2"),
        ("      algorithm: hmac_sha256\n", "", 10, "algorithm` is missing"),
        ("hmac_sha256", "sha257", 12, "algorithm"),
        ("hmac_sha256", "sha256", 10, "the others have none"),
        ("${SECRET}0123456789", "short", 10, "can be guessed"),
        ("algorithm: hmac_sha256", "algoritm: hmac_sha256", 12, "is not a known key"),
        (
            "type: hash\n      algorithm: hmac_sha256\n      key: ${SECRET}0123456789",
            "type: truncate",
            10,
            "either `characters`",
        ),
    ],
)
def test_a_mistake_in_a_mask_has_a_place(tmp_path: Path, old: str, new: str, line: int, message: str) -> None:
    assert old in MASKED
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, MASKED.replace(old, new, 1))
    text = str(caught.value)
    assert message in text
    assert f"flow.yaml:{line}:" in text


def test_a_flows_key_is_masked_only_so_that_rows_stay_apart(tmp_path: Path) -> None:
    keyed = MASKED.replace("    delete: hard", "    key: {shop.customers: [email, phone]}")
    with pytest.raises(ConfigError, match=r"flow mart: mask `shop\.customers\.phone` would make different rows one"):
        loaded(tmp_path, keyed)
    loaded(tmp_path, keyed.replace("[email, phone]", "[email]"))
