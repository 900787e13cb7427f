"""What users get wrong and what machines do to them: one clear message, the right exit code, nothing lost, no traceback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.lake.asof import as_of
from tests.flows.command import Result, headrace, run_until_idle
from tests.servers.binlog_server import BinlogServer
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.process import free_port

SHOP = Path(__file__).parents[2] / "examples" / "shop"


def flow_file(directory: Path, source: str, *, target: str = "{type: lake, path: ./lake}", more: str = "") -> Path:
    path = directory / "flow.yaml"
    path.write_text(
        f"source: {{type: mysql, name: db1, {source}}}\nlog: {{type: directory, path: ./log}}\nstate: ./state\n"
        f'{more}flows:\n  - {{name: raw, from: "mysql.db1.*", to: {target}}}\n'
    )
    return path


def live(server: BinlogServer, **changes: object) -> str:
    settings = {"host": server.host, "port": server.port, "user": server.user, "password": server.password, **changes}
    return ", ".join(
        f'{name}: "{value}"' if isinstance(value, str) else f"{name}: {value}" for name, value in settings.items()
    )


def assert_clear(result: Result, code: int, *parts: str) -> None:
    assert result.code == code, result.err
    assert "Traceback" not in result.err + result.out
    assert "what to do:" in result.err
    for part in parts:
        assert part in result.err, result.err


def test_wrong_yaml_names_file_and_line(tmp_path: Path) -> None:
    flow = flow_file(tmp_path, 'files: "./b.0*", tables: ["*.*"], colour: red')
    assert_clear(headrace("run", flow), 2, f"{flow}:1", "colour")


def test_no_files_match(tmp_path: Path) -> None:
    flow = flow_file(tmp_path, 'files: "./nothing.0*", tables: ["*.*"]')
    assert_clear(headrace("capture", flow), 2, "no binlog files match")


@pytest.mark.parametrize("verb", ["check", "capture", "run"])
def test_wrong_password(binlog_server: BinlogServer, tmp_path: Path, verb: str) -> None:
    flow = flow_file(tmp_path, live(binlog_server, password="wrong") + ', tables: ["*.*"]')
    assert_clear(headrace(verb, flow), 2, "Access denied", "password")


def test_missing_grants(binlog_server: BinlogServer, tmp_path: Path) -> None:
    binlog_server.execute("CREATE USER IF NOT EXISTS poor IDENTIFIED BY 'poor'")
    flow = flow_file(tmp_path, live(binlog_server, user="poor", password="poor") + ', tables: ["*.*"]')
    assert_clear(headrace("capture", flow), 1, "GRANT REPLICATION SLAVE")


@pytest.mark.parametrize(
    ("tls", "told"),
    [
        ("{verify: ca}", "certificate verify failed"),
        ("{ca: ./none.pem}", "there is no file"),
        ("{ca: ./flow.yaml}", "could not be loaded out of"),
    ],
)
def test_a_certificate_that_is_not_trusted_is_no_outage(mysql: MySql, tmp_path: Path, tls: str, told: str) -> None:
    flow = flow_file(tmp_path, live(mysql) + f', tls: {tls}, tables: ["*.*"]', more="give_up_after: 600s\n")
    for verb in ("check", "capture"):
        assert_clear(headrace(verb, flow), 2, told, "`tls`")


def test_a_certificate_of_a_known_authority(mysql: MySql, tmp_path: Path) -> None:
    tls = f'{{ca: "{mysql.data_path / "ca.pem"}", verify: ca}}'
    flow = flow_file(tmp_path, live(mysql) + f', tls: {tls}, tables: ["*.*"]')
    assert headrace("check", flow).code == 0


@pytest.mark.demand(17)
def test_server_away(tmp_path: Path) -> None:
    source = f'host: 127.0.0.1, port: {free_port()}, user: a, tables: ["*.*"]'
    flow = flow_file(tmp_path, source, more="give_up_after: 1s\n")
    for verb in ("check", "capture", "run"):
        assert_clear(headrace(verb, flow), 1, "is away", "capture then goes on where it stopped")


@pytest.mark.parametrize("kind", [MariaDb, MySql])
def test_statement_format_server_is_refused(tmp_path: Path, kind: type[MariaDb | MySql]) -> None:
    with kind("--binlog-format=STATEMENT", "--binlog-row-metadata=MINIMAL") as server:
        flow = flow_file(tmp_path, live(server) + ', tables: ["*.*"]')
        refused = headrace("capture", flow)
        assert_clear(refused, 1, "binlog_format is STATEMENT", "SET GLOBAL binlog_format = 'ROW'")


@pytest.mark.parametrize("kind", [MariaDb, MySql])
def test_statement_format_in_a_recorded_file(tmp_path: Path, kind: type[MariaDb | MySql]) -> None:
    with kind("--binlog-format=STATEMENT") as server:
        server.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.t (id INT PRIMARY KEY)",
            "INSERT INTO shop.t VALUES (1)",
            "FLUSH BINARY LOGS",
        )
        path = server.binlogs()[0]
        (tmp_path / path.name).write_bytes(path.read_bytes())
    flow = flow_file(tmp_path, 'files: "./binlog.0*", tables: ["*.*"]')
    assert_clear(headrace("capture", flow, "--until-idle"), 1, "INSERT", path.name, "binlog_format")


def shop_copy(directory: Path) -> Path:
    for path in (SHOP / "binlog").glob("binlog.0*"):
        (directory / path.name).write_bytes(path.read_bytes())
    return flow_file(directory, 'files: "./binlog.0*", tables: ["shop.*"]')


def test_truncated_binlog(tmp_path: Path) -> None:
    flow = shop_copy(tmp_path)
    first = min(tmp_path.glob("binlog.0*"))
    whole = first.read_bytes()
    first.write_bytes(whole[: len(whole) * 2 // 3])
    assert_clear(headrace("run", flow, "--until-idle"), 1, first.name, "ends in the middle of", "from the server again")
    first.write_bytes(whole)
    run_until_idle(flow)
    assert as_of(tmp_path / "lake", "mysql.db1.shop.orders").num_rows == len(
        (SHOP / "expected" / "orders.jsonl").read_text().splitlines()
    )


def test_the_newest_file_cut_off_at_every_third(tmp_path: Path) -> None:
    """What is whole arrives, what is cut is told and arrives when its rest does."""
    flow = shop_copy(tmp_path)
    last = max(tmp_path.glob("binlog.0*"))
    whole = last.read_bytes()
    for third in (1, 2):
        last.write_bytes(whole[: len(whole) * third // 3])
        result = headrace("capture", flow, "--until-idle")
        assert result.code == 0, result.err
        assert f"{last.name} ends in the middle of a transaction" in result.err
    last.write_bytes(whole)
    run_until_idle(flow)
    assert as_of(tmp_path / "lake", "mysql.db1.shop.orders").num_rows == len(
        (SHOP / "expected" / "orders.jsonl").read_text().splitlines()
    )


def test_a_missing_file_in_between(tmp_path: Path) -> None:
    flow = shop_copy(tmp_path)
    sorted(tmp_path.glob("binlog.0*"))[1].unlink()
    assert_clear(headrace("capture", flow, "--until-idle"), 1, "binlog files are missing", "copy the missing files")


def test_damaged_binlog(tmp_path: Path) -> None:
    flow = shop_copy(tmp_path)
    first = min(tmp_path.glob("binlog.0*"))
    content = bytearray(first.read_bytes())
    content[len(content) // 2] ^= 0xFF
    first.write_bytes(content)
    assert_clear(headrace("capture", flow, "--until-idle"), 1, first.name, "checksum")


def test_a_file_that_is_no_binlog(tmp_path: Path) -> None:
    (tmp_path / "binlog.000001").write_bytes(b"hello, world " * 100)
    flow = flow_file(tmp_path, 'files: "./binlog.0*", tables: ["*.*"]')
    assert_clear(headrace("capture", flow, "--until-idle"), 1, "binlog.000001", "magic")


@contextmanager
def small_disk(path: Path, size: str) -> Iterator[Path]:
    """A file system of its own that can really be full."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


@pytest.mark.parametrize(("where", "size"), [("log", "400k"), ("lake", "100k")])
def test_full_disk_and_on_after_it_has_space(tmp_path: Path, where: str, size: str) -> None:
    flow = shop_copy(tmp_path)
    with small_disk(tmp_path / where, size) as disk:
        assert_clear(headrace("run", flow, "--until-idle"), 1, "No space left on device", "free space")
        subprocess.run(["mount", "-o", "remount,size=500m", disk], check=True)
        run_until_idle(flow)
        assert as_of(tmp_path / "lake", "mysql.db1.shop.orders").num_rows == len(
            (SHOP / "expected" / "orders.jsonl").read_text().splitlines()
        )


def test_read_only_disk(tmp_path: Path) -> None:
    flow = shop_copy(tmp_path)
    with small_disk(tmp_path / "lake", "10m") as disk:
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert_clear(headrace("run", flow, "--until-idle"), 1, "read-only", "remount it writable")


def test_corrupt_log_segment(tmp_path: Path) -> None:
    flow = shop_copy(tmp_path)
    assert headrace("capture", flow, "--until-idle").code == 0
    segment = min((tmp_path / "log").rglob("*.log"))
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 0xFF
    segment.write_bytes(content)
    assert_clear(headrace("run", flow, "--until-idle"), 1, segment.name)
