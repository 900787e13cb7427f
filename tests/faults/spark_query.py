"""A driver program with streaming queries, for tests that kill it: ``python -m tests.faults.spark_query JSON``.

The JSON: `work` (a directory: Spark's log; by query its checkpoint and its sink), `queries`: by name `format` and `options` of a source. The sink is
Spark's own, of Parquet files, which has each row of a batch once. When a query ends, so does the program.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from headrace.spark import register
from headrace.stream.session import start_session
from tests.spark_queries import started


def start(spark: SparkSession, work: Path, query: dict[str, Any]) -> StreamingQuery:
    changes = spark.readStream.format(query["format"]).options(**query["options"]).load()
    writer = changes.writeStream.format("parquet").option("path", str(work / "sink"))
    writer = writer.option("checkpointLocation", str(work / "checkpoint"))
    return started(writer.trigger(processingTime="50 milliseconds"))


def main() -> None:
    told = json.loads(sys.argv[1])
    work = Path(told["work"])
    spark = start_session(2, work / "spark")
    register(spark)
    queries = [start(spark, work / name, query) for name, query in told["queries"].items()]
    while all(query.isActive for query in queries):  # Spark's own wait would end for those, too, that began anew
        time.sleep(0.2)
    for query in queries:
        query.awaitTermination(0)


if __name__ == "__main__":
    main()
