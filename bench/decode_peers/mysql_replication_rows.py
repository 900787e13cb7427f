"""Counts the row changes that mysql-replication reads from a running server, to the end of its log.

``python mysql_replication_rows.py HOST PORT USER PASSWORD``, with the packages of mysql_replication.txt.
"""

import sys

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, PartialUpdateRowsEvent, UpdateRowsEvent, WriteRowsEvent

host, port, user, password = sys.argv[1:]
stream = BinLogStreamReader(
    connection_settings={"host": host, "port": int(port), "user": user, "passwd": password},
    server_id=4712,
    log_file="binlog.000001",
    log_pos=4,
    resume_stream=True,
    only_events=[WriteRowsEvent, UpdateRowsEvent, PartialUpdateRowsEvent, DeleteRowsEvent],
)
rows = 0
print("begin", flush=True)
for event in stream:
    rows += len(event.rows)
stream.close()
print(rows)
