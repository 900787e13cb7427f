"""Peer of bench/full_load.py: ConnectorX reads the table over two connections into Arrow, pyarrow writes Parquet as the lake does."""

import sys

import connectorx
import pyarrow.parquet as pq

url, table, target = sys.argv[1:]
print("begin", flush=True)
rows = connectorx.read_sql(url, f"SELECT * FROM {table}", partition_on="id", partition_num=2, return_type="arrow")
pq.write_table(rows, target, compression="zstd", compression_level=1)
print(rows.num_rows, flush=True)
