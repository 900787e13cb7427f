"""Peer of bench/full_load.py: Spark's own JDBC source in four partitions into Parquet. The session's start is not counted."""

import sys

from pyspark.sql import SparkSession

driver, url, user, password, table, rows, target = sys.argv[1:]
session = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", driver)
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
session.sparkContext.setLogLevel("ERROR")
session.range(1000).count()
options = {
    "url": url,
    "user": user,
    "password": password,
    "dbtable": table,
    "driver": "com.mysql.cj.jdbc.Driver",
    "partitionColumn": "id",
    "lowerBound": "1",
    "upperBound": rows,
    "numPartitions": "4",
    "fetchsize": "10000",
}
print("begin", flush=True)
session.read.format("jdbc").options(**options).load().write.option("compression", "zstd").parquet(target)
print(session.read.parquet(target).count(), flush=True)
session.stop()
