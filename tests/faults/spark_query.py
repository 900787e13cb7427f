"""A driver program with streaming queries, for tests that kill it: ``python -m tests.faults.spark_query JSON``.

The JSON: `work` (a directory: Spark's log; by query its checkpoint and its sink), `queries`: by name `format` and `options` of a source. The sink is
Spark's own, of Parquet files, which has each row of a batch once. When a query ends, so does the program.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.spark import register
from headrace.stream.session import start_session
from tests.spark_queries import started


def start(spark: SparkSession, work: Path, query: dict[str, Any]) -> None:
    changes = spark.readStream.format(query["format"]).options(**query["options"]).load()
    writer = changes.writeStream.format("parquet").option("path", str(work / "sink"))
    writer = writer.option("checkpointLocation", str(work / "checkpoint"))
    started(writer.trigger(processingTime="50 milliseconds"))


def main() -> None:
    told = json.loads(sys.argv[1])
    work = Path(told["work"])
    spark = start_session(2, work / "spark")
    register(spark)
    for name, query in told["queries"].items():
        start(spark, work / name, query)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
