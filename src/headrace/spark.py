"""headrace in a Spark session of one's own: ``headrace.spark.register(spark)``, once per session, and its formats can be used.

::

    headrace-mysql     changes in a MySQL or MariaDB binlog      stream and batch    docs/how-to/spark-sources.md
    headrace-hbase     changes in HBase's write-ahead log        stream and batch    docs/how-to/spark-sources.md
    headrace-log       entries of a log of headrace              stream and batch    stream/source.py
    headrace-lake      a table of a lake as of a moment          batch               stream/lake_source.py
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from headrace.stream.lake_source import LakeDataSource
from headrace.stream.source import LogDataSource
from headrace.stream.sources.hbase import HBaseDataSource
from headrace.stream.sources.mysql import MySqlDataSource


def register(spark: SparkSession) -> None:
    """Makes headrace's formats known to a session."""
    for source in (MySqlDataSource, HBaseDataSource, LogDataSource, LakeDataSource):
        spark.dataSource.register(source)
