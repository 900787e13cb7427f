"""Every column type, inserted, updated, deleted and altered at a live server: the log replayed is what SELECT answers."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.oracle.answers import differences
from tests.oracle.every_type import statements, tables_of
from tests.oracle.replay import Replay
from tests.servers.binlog_server import BinlogServer


@pytest.mark.parametrize(
    "table", ["integers", "numbers", "dates", "texts", "binaries", "labels", "geometries", "own", "mixed"]
)
def test_replay_equals_select(binlog_server: BinlogServer, table: str) -> None:
    with binlog_server.database() as database, closing(binlog_server.connect(database)) as connection:
        with connection.cursor() as cursor:
            cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+02:00'")
            for statement in statements(table, tables_of(binlog_server)[table]):
                cursor.execute(statement)
        replay = Replay().apply(binlog_server.binlogs(), database)
        assert not differences(connection, database, replay.tables)
        assert replay.changes > 10
