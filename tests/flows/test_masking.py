"""Masks on the whole way: what they are for is in clear nowhere behind the source, not on the log, not in a target, not on the screen."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from headrace.capture.load.base import Loadable, LoadConfig
from headrace.capture.load.loading import Loading
from headrace.capture.runner import resume_point
from headrace.flow.load import load
from headrace.log.base import Span
from headrace.log.directory import DirectoryLog
from headrace.stream.alone import capture_all
from headrace.stream.parts import open_log, open_masker, open_source, state_of
from headrace.ums.change import ChangeBatch, read_block
from tests.flows.command import headrace, run_until_idle
from tests.servers.mariadb import MariaDb

SHOP = Path(__file__).parents[2] / "examples" / "shop"
KEY = "nobody knows this key"
RECORDED = f"""\
source:
  type: mysql
  name: db1
  files: "{SHOP}/binlog/binlog.0000*"
  tables: ["shop.*"]
  mask:
    shop.customers.id: &key {{type: hash, algorithm: hmac_sha256, key: "{KEY}"}}
    shop.orders.customer_id: *key
    shop.customers.email: {{type: hash, algorithm: sha256, salt: pepper}}
    shop.customers.name: {{type: regex, pattern: '(.).*', replacement: '\\1…'}}
    shop.customers.note: {{type: default}}
    shop.customers.preferences: {{type: constant, value: '{{}}'}}
    shop.orders.comment: {{type: default, as_null: true}}
    shop.payments.reference: {{type: hash, algorithm: murmur3}}
    shop.payments.bank: {{type: default}}
    "*.products.checksum": {{type: truncate, bytes: 1}}
    shop.customers.fone: {{type: default}}
log: {{type: directory, path: ./log}}
state: ./state
flows:
  - {{name: raw, from: "mysql.db1.shop.*", to: {{type: lake, path: ./lake}}}}
  - {{name: mart, from: "mysql.db1.shop.*", to: {{type: database, url: "sqlite:///./mart.db"}}}}
"""


def expected(table: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (SHOP / "expected" / f"{table}.jsonl").read_text().splitlines()]


def everything_in(directory: Path) -> bytes:
    """The bytes of all files, and what is packed in Parquet files."""
    found = []
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            found.append(path.read_bytes())
        if path.suffix == ".parquet":
            table = pq.read_table(path)
            found.append(f"{table.to_pylist()} {table.schema.to_string(show_field_metadata=True)}".encode())
            found += [text for key, text in (table.schema.metadata or {}).items()]
    return b"\n".join(found)


def test_a_recorded_shop_is_in_clear_nowhere(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(RECORDED)
    done = run_until_idle(flow)
    assert "mask `shop.customers.fone` matches no column" in done.err
    customers, orders, payments = (expected(table) for table in ("customers", "orders", "payments"))
    secrets = {str(customer[name]) for customer in customers for name in ("email", "name", "note") if customer[name]}
    secrets |= {str(order["comment"]) for order in orders if order["comment"]} | {
        str(payment["bank"]) for payment in payments
    }
    sought = {secret.encode() for secret in secrets if len(secret) > 6}
    recorded = b"".join(path.read_bytes() for path in (SHOP / "binlog").iterdir())
    assert len(sought) > 500
    assert all(secret in recorded for secret in sought)
    references = [int(str(payment["reference"])) for payment in payments if payment["reference"]]
    sought |= {form for number in references for form in (str(number).encode(), number.to_bytes(8, "little"))}
    for place in ("log", "lake", "mart.db"):
        path = tmp_path / place
        held = everything_in(path) if path.is_dir() else path.read_bytes()
        assert [secret for secret in sought if secret in held] == []
    with sqlite3.connect(tmp_path / "mart.db") as mart:
        (joined,) = mart.execute("SELECT count(*) FROM orders o JOIN customers c ON o.customer_id = c.id").fetchone()
        rows = mart.execute("SELECT id, email, name, preferences FROM customers WHERE _is_active_ = 1").fetchall()
    assert joined >= len(orders)
    assert sorted(rows) == sorted(
        (
            hmac.new(KEY.encode(), str(customer["id"]).encode(), "sha256").hexdigest(),
            hashlib.sha256(f"{customer['email']}pepper".encode()).hexdigest(),
            f"{str(customer['name'])[0]}…",
            None if customer["preferences"] is None else "{}",
        )
        for customer in customers
    )


def test_recorded_files_are_decoded_as_they_are_masked(tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(RECORDED)
    for form in ("jsonl", "ums"):
        done = headrace("decode", "binlog", "--source", flow, "--tables", "shop.customers", "--format", form)
        assert done.code == 0, done.err
        assert hmac.new(KEY.encode(), b"1001", "sha256").hexdigest() in done.out
        found = [row["email"] for row in expected("customers") if str(row["email"]) in done.out]
        assert not found
    jsonl = headrace("decode", "binlog", "--source", flow, "--tables", "shop.customers").out.splitlines()
    updates = [line for line in map(json.loads, jsonl) if line["op"] == "u"]
    assert updates
    assert all(len(str(image["id"])) == 64 for line in updates for image in (line["before"], line["after"]))
    assert all(image["preferences"] in (None, "{}") for line in updates for image in (line["before"], line["after"]))


# --- a live server

LIVE = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}", password: "{server.password}",
          tables: ["{database}.*"], mask: {{{masks}}}}}
log: {{type: directory, path: ./log}}
state: ./state
"""
PLUGIN = """
from typing import Literal
from headrace.capture.mask import Mask
from headrace.model import MaskConfig

class Config(MaskConfig):
    type: Literal["picky"]

class Picky(Mask):
    Config = Config
    def __init__(self, config): ...
    def column(self, column):
        return column
    def apply(self, values, column, others):
        if "s3cret-b" in values.to_pylist():
            raise ValueError("s3cret-b is not for me")
        return values.take([0] * len(values))
"""


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[str]:
    with mariadb.database() as name:
        yield name


def live(directory: Path, server: MariaDb, database: str, **masks: str) -> Path:
    path = directory / "flow.yaml"
    text = ", ".join(f'"{database}.t.{column}": {options}' for column, options in masks.items())
    path.write_text(LIVE.format(server=server, database=database, masks=text))
    return path


def logged(directory: Path) -> list[ChangeBatch]:
    log = DirectoryLog(DirectoryLog.Config(type="directory", path=directory / "log"))
    blocks = [read_block(record.entry.value) for record in log.read("db1", 0, log.spans("db1").get(0, Span(0, 0)))]
    log.close()
    return [block for block in blocks if isinstance(block, ChangeBatch)]


HASH = "{type: hash, algorithm: md5}"


def test_a_live_server(mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    mariadb.execute(
        "SET sql_mode = ''",
        "CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20), born DATE)",
        "INSERT INTO t VALUES (1, 's3cret-1', '0000-00-00'), (2, NULL, '1990-00-00')",
        "UPDATE t SET phone = 's3cret-2' WHERE id = 1",
        database=database,
    )
    for masks, problem in (
        ({"fone": HASH}, f"mask `{database}.t.fone` of source db1 matches no column"),
        ({"id": "{type: default}"}, "would make different rows one"),
    ):
        refused = headrace("check", live(tmp_path, mariadb, database, **masks))
        assert (refused.code, problem in refused.out) == (2, True), refused.out
    flow = live(tmp_path, mariadb, database, phone=HASH, born=HASH)
    assert headrace("check", flow).code == 0
    assert headrace("capture", flow, "--until-idle").code == 0
    rows = [
        row for batch in logged(tmp_path) for row in batch.data.select(["_ums_raw_", "id", "phone", "born"]).to_pylist()
    ]
    md5 = {
        text: hashlib.md5(text.encode()).hexdigest() for text in ("s3cret-1", "s3cret-2", "0000-00-00", "1990-00-00")
    }
    assert rows == [
        {"_ums_raw_": None, "id": 1, "phone": md5["s3cret-1"], "born": md5["0000-00-00"]},
        {"_ums_raw_": None, "id": 2, "phone": None, "born": md5["1990-00-00"]},
        {"_ums_raw_": None, "id": 1, "phone": md5["s3cret-2"], "born": md5["0000-00-00"]},
    ]
    decoded = headrace("decode", "binlog", "--source", flow)
    assert md5["s3cret-1"] in decoded.out
    for clear in ("s3cret", "1990"):
        assert clear not in decoded.out
        assert clear.encode() not in everything_in(tmp_path)


def test_a_renamed_column_and_a_new_default(mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    mariadb.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20))",
        "INSERT INTO t VALUES (1, 's3cret-1')",
        database=database,
    )
    assert headrace("capture", live(tmp_path, mariadb, database, phone=HASH), "--until-idle").code == 0
    mariadb.execute(
        "ALTER TABLE t RENAME COLUMN phone TO mobile",
        "ALTER TABLE t ADD mail VARCHAR(20) DEFAULT 's3cret-0'",
        "INSERT INTO t VALUES (2, 's3cret-2', 's3cret-3')",
        database=database,
    )
    for _ in range(2):
        refused = headrace("capture", live(tmp_path, mariadb, database, phone=HASH), "--until-idle")
        assert (refused.code, f"column {database}.t.phone is gone" in refused.err) == (2, True), refused.err
        assert "s3cret" not in refused.err
    done = headrace(
        "capture", live(tmp_path, mariadb, database, phone=HASH, mobile=HASH, mail="{type: default}"), "--until-idle"
    )
    assert (done.code, "s3cret" in done.err) == (0, False), done.err
    newest = logged(tmp_path)[-1]
    assert newest.table.column("mail").initial_default == "*"
    assert newest.data.column("mobile").to_pylist() == [hashlib.md5(b"s3cret-2").hexdigest()]
    assert b"s3cret" not in everything_in(tmp_path / "log")


def test_rows_that_a_mask_fails_on(mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    info = plugin / "picky-1.0.dist-info"
    info.mkdir(parents=True)
    (plugin / "picky.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: picky\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[headrace.masks]\npicky = picky:Picky\n")
    env = {"PYTHONPATH": f"{plugin}:{Path(__file__).parents[2] / 'src'}"}
    mariadb.execute(
        "CREATE TABLE t (id INT PRIMARY KEY, phone VARCHAR(20))",
        "INSERT INTO t VALUES (1, 'a'), (2, 's3cret-b'), (3, 'c')",
        database=database,
    )
    flow = live(tmp_path, mariadb, database, phone="{type: picky}")
    done = headrace("capture", flow, "--until-idle", env=env)
    assert done.code == 0, done.err
    assert "notice: mask" in done.err
    assert [id_ for batch in logged(tmp_path) for id_ in batch.data.column("id").to_pylist()] == [1, 3]
    assert headrace("errors", "ls", tmp_path / "log").out == (
        f"mysql.db1.{database}.t.0.0.0  phone  mask {database}.t.phone  ValueError  1 rows\n"
    )
    (entry,) = map(json.loads, headrace("errors", "show", flow, "db1", env=env).out.splitlines())
    assert entry["row"]["payload"][0]["tuple"][-2:] == [2, None]
    failed = headrace("decode", "binlog", "--source", flow, env=env)
    assert (failed.code, "failed (ValueError)" in failed.err) == (1, True)
    assert "s3cret" not in done.err + failed.err + failed.out
    assert b"s3cret" not in everything_in(tmp_path / "log") + everything_in(tmp_path / "state")


def test_a_full_load(mariadb: MariaDb, database: str, tmp_path: Path) -> None:
    """With a masked key too, though a load keeps keys on the log."""
    mariadb.execute(
        "CREATE TABLE t (code VARCHAR(20) PRIMARY KEY, phone VARCHAR(20))",
        "INSERT INTO t SELECT CONCAT('s3cret-', seq), CONCAT('s3cret-', seq) FROM seq_1_to_500",
        database=database,
    )
    pipeline = load(live(tmp_path, mariadb, database, code=HASH, phone=HASH))
    config = pipeline.source[0].model_copy(update={"load": LoadConfig(workers=1, chunk_rows=100)})
    capture_all(pipeline, over=lambda: False, until_idle=True, progress=lambda _: None)
    log, source = open_log(pipeline), open_source(config, pipeline)
    assert isinstance(source, Loadable)
    loading = Loading(
        lambda: source.loader(lambda: resume_point(log, "db1")),
        log,
        "db1",
        config.load,
        state_of(config, pipeline),
        source_type=config.type,
        masker=open_masker(config, pipeline),
        number=1,
    )
    while not loading.complete:
        loading.step(lambda: False)
    loading.close()
    source.close()
    blocks = [read_block(record.entry.value) for record in log.read("db1.load.1", 0, log.spans("db1.load.1")[0])]
    log.close()
    loaded = [
        row
        for block in blocks
        if isinstance(block, ChangeBatch)
        for row in block.data.select(["code", "phone"]).to_pylist()
    ]
    hashes = {hashlib.md5(f"s3cret-{number}".encode()).hexdigest() for number in range(1, 501)}
    assert {row["code"] for row in loaded} == hashes
    assert all(row["code"] == row["phone"] for row in loaded)
    assert b"s3cret" not in everything_in(tmp_path / "log") + everything_in(tmp_path / "state")
