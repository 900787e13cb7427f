"""A running server whose binary log is a recorded one, for decoders that read from a server only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from tests.servers.mysql import MySql

from bench.decode_log.record import RecordedLog


@contextmanager
def serving(log: RecordedLog) -> Iterator[MySql]:
    """A fresh server without the tables of the log: a decoder learns them from the log, and nothing else can be read."""
    with MySql() as server:
        server.stop()
        *_, own = server.binlogs()
        for path in server.binlogs():
            path.unlink()
        recorded = own.with_name(log.path.name)
        shutil.copyfile(log.path, recorded)
        own.with_name("binlog.index").write_text(f"./{recorded.name}\n")
        server.start()
        yield server
