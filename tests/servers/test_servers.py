"""The servers that other tests rely on: they keep committed data over a crash and say why they do not start."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.servers import install, jars
from tests.servers.binlog_server import BinlogServer
from tests.servers.install import PACKAGES, MissingPackageError, find_mysql_program, find_program
from tests.servers.kafka import Kafka
from tests.servers.mariadb import MariaDb
from tests.servers.mysql import MySql
from tests.servers.postgresql import PostgreSql
from tests.servers.process import ServerError


@pytest.mark.parametrize("kind", [MariaDb, MySql])
def test_committed_rows_outlive_a_crash_and_the_binlog_is_row_based(kind: type[MariaDb | MySql]) -> None:
    with kind() as server, server.database() as name:
        server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (7)", database=name)
        server.kill9()
        server.restart()
        assert server.execute("SELECT id FROM t", database=name) == [(7,)]
        assert server.execute("SELECT @@binlog_format, @@binlog_row_image, @@binlog_row_metadata") == [
            ("ROW", "FULL", "FULL")
        ]
        assert server.position()[0] == server.binlogs()[-1].name
    assert not server.directory.exists()


def test_mysql_is_version_9_with_its_own_way_to_log_in_and_gtids(mysql: MySql) -> None:
    assert mysql.execute("SELECT @@version LIKE '9.%', @@gtid_mode") == [(1, "ON")]
    assert mysql.execute(f"SELECT plugin FROM mysql.user WHERE user = '{mysql.user}'") == [("caching_sha2_password",)]
    assert mysql.execute("SELECT @@server_id") == [(1,)]
    assert mysql.execute("SHOW STATUS LIKE 'Ssl_cipher'")[0][1]
    with MySql("--server-id=2", "--binlog-row-value-options=PARTIAL_JSON") as other:
        assert other.execute("SELECT @@server_id, @@binlog_row_value_options") == [(2, "PARTIAL_JSON")]
        assert other.execute("SELECT @@server_uuid") != mysql.execute("SELECT @@server_uuid")


def test_postgresql_keeps_committed_rows_over_a_crash() -> None:
    with PostgreSql() as server, server.database() as name:
        server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (7)", database=name)
        server.kill9()
        server.restart()
        assert server.execute("SELECT id FROM t", database=name) == [(7,)]
    assert not server.directory.exists()


def test_kafka_keeps_acknowledged_records_over_a_crash() -> None:
    with Kafka() as broker:
        broker.create_topic("t")
        producer = Producer(broker.client() | {"acks": "all"})
        producer.produce("t", b"seven")
        assert producer.flush(10) == 0
        broker.kill9()
        broker.restart()
        consumer = Consumer(broker.client() | {"group.id": "test"})
        consumer.assign([TopicPartition("t", 0, 0)])
        [record] = consumer.consume(1, timeout=10)
        assert (record.error(), record.value()) == (None, b"seven")
        consumer.close()
    assert not broker.directory.exists()


def test_a_jar_that_is_not_what_the_list_says_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jar = tmp_path / "org" / "thing" / "1.0" / "thing-1.0.jar"
    jar.parent.mkdir(parents=True)
    jar.write_bytes(b"something else")
    (tmp_path / "thing.jars").write_text(f"org:thing:1.0 {'0' * 64}\n")
    monkeypatch.setattr(jars, "__file__", str(tmp_path / "jars.py"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADRACE_MAVEN", tmp_path.as_uri())
    with pytest.raises(jars.JarError, match=r"thing-1\.0\.jar: its sha256 is not"):
        jars.class_path("thing")


@pytest.mark.parametrize("kind", [MariaDb, MySql])
def test_a_server_that_does_not_start_shows_its_log(kind: type[MariaDb | MySql]) -> None:
    with pytest.raises(ServerError, match="no-such-option"), kind("--no-such-option"):
        pass


def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PACKAGES, "mongod", "mongodb-server")
    with pytest.raises(MissingPackageError, match="apt-get install mongodb-server"):
        find_program("mongod")


def test_a_missing_mysql_names_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "MYSQL_FOLDER", tmp_path / "mysql")
    with pytest.raises(MissingPackageError, match=r"python -m tests\.servers\.install as root"):
        find_mysql_program("mysqld")


def test_a_test_may_ask_for_every_kind_of_binlog_server(binlog_server: BinlogServer) -> None:
    assert binlog_server.execute("SELECT @@log_bin") == [(1,)]
