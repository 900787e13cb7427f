"""What the tables of a source are before anything was captured, for `headrace check`: asked of the server, or read in recorded files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headrace.capture.binlog_files import BinlogFiles
from headrace.capture.history import History
from headrace.capture.mysql_config import MySqlConfig
from headrace.capture.replica import Replica
from headrace.capture.select import described
from headrace.errors import Finding, SourceError
from headrace.ums.schema import TableSchema

_READ_THROUGH_BYTES = 1 << 30


def at_server(replica: Replica, config: MySqlConfig, history: History) -> Iterator[TableSchema | Finding]:
    """The tables that the user may read, in the version that capture knows or will give them."""
    for schema, table in sorted(replica.tables()):
        if not config.delivers(schema, table):
            continue
        try:
            found = described(replica.connection, config.name, schema, table)
        except SourceError as error:
            yield Finding(error.message, error.fix, stops=False)
        else:
            if found is not None:
                yield history.expected(found)


def worth_reading(config: MySqlConfig, pattern: Path) -> MySqlConfig:
    """The files in which tables are looked for: all of them, or the newest when they are large."""
    files = BinlogFiles(pattern)
    paths = files.paths_from(files.first_position().file)
    if sum(path.stat().st_size for path in paths) <= _READ_THROUGH_BYTES:
        return config
    return config.model_copy(update={"start": f"{paths[-1].name}:4"})
