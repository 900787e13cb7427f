"""What the real connector is told to do, under pyspark 3.5: ``python connector_job.py JAR FRONTEND SQL_PORT PASSWORD``; see connector.py."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(jar: str, frontend: str, sql_port: str, password: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jar)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    frame = spark.range(0, 1000, 1, 2).selectExpr(
        "id", "concat('note ', id) as note", "cast(id / 4 as decimal(12, 2)) as amount", "id + 5000 as _ums_id_"
    )
    for form in ("csv", "json"):
        for two_phase in ("false", "true"):
            writer = frame.write.format("doris").mode("append")
            for name, value in {
                "doris.fenodes": frontend,
                "doris.query.port": sql_port,
                "doris.table.identifier": f"db.{form}_{two_phase}",
                "user": "root",
                "password": password,
                "doris.sink.enable-2pc": two_phase,
                "doris.sink.properties.format": form,
                "doris.sink.batch.size": "300",
                "doris.sink.max-retries": "0",
                "doris.sink.properties.function_column.sequence_col": "_ums_id_",
            }.items():
                writer = writer.option(name, value)
            writer.save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
