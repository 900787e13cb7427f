"""DuckDB reads a Parquet file whole into Arrow: ``python duckdb_scan.py FILE ROUNDS``; prints the best wall and processor seconds, and rows."""

from __future__ import annotations

import json
import sys
import time

import duckdb

connection = duckdb.connect()
wall_s: list[float] = []
processor_s: list[float] = []
rows = 0
for _ in range(int(sys.argv[2])):
    wall, processor = time.perf_counter(), time.process_time()
    rows = connection.execute("SELECT * FROM read_parquet(?)", [sys.argv[1]]).to_arrow_table().num_rows
    wall_s.append(time.perf_counter() - wall)
    processor_s.append(time.process_time() - processor)
print(json.dumps({"wall_s": min(wall_s), "processor_s": min(processor_s), "rows": rows}))
