"""A peer keeps a current table: ``python current_merge.py ENGINE DIRECTORY JARS``; prints a JSON list, wall and processor seconds per merge.

DIRECTORY has base.parquet, the rows to begin with, and changes-N.parquet: one newest change per key, its operation in `_ums_op_`. ENGINE is
delta-rs, delta-spark or pyiceberg; the last has no merge with deletes, so it is given inserts and updates alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

HERE = Path(sys.argv[2])
Merge = Callable[[Path], None]


def delta_rs() -> tuple[Merge, Callable[[], int]]:
    from deltalake import DeltaTable, write_deltalake  # noqa: PLC0415  # each peer loads its own library alone

    place = str(HERE / "delta-rs")
    write_deltalake(place, pq.read_table(HERE / "base.parquet").drop_columns("_ums_op_"))

    def merge(changes: Path) -> None:
        rows = pq.read_table(changes)
        columns = {name: f"s.{name}" for name in rows.column_names if name != "_ums_op_"}
        (
            DeltaTable(place)
            .merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_delete("s._ums_op_ = 'd' AND s._ums_id_ > t._ums_id_")
            .when_matched_update(columns, "s._ums_id_ > t._ums_id_")
            .when_not_matched_insert(columns, "s._ums_op_ <> 'd'")
            .execute()
        )

    return merge, lambda: DeltaTable(place).count()


def delta_spark() -> tuple[Merge, Callable[[], int]]:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.jars", sys.argv[3].replace(os.pathsep, ","))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    place = str(HERE / "delta-spark")
    spark.read.parquet(str(HERE / "base.parquet")).drop("_ums_op_").write.format("delta").save(place)
    names = [name for name in pq.read_schema(HERE / "base.parquet").names if name != "_ums_op_"]

    def merge(changes: Path) -> None:
        spark.read.parquet(str(changes)).createOrReplaceTempView("s")
        spark.sql(
            f"MERGE INTO delta.`{place}` t USING s ON t.id = s.id "
            "WHEN MATCHED AND s._ums_op_ = 'd' AND s._ums_id_ > t._ums_id_ THEN DELETE "
            f"WHEN MATCHED AND s._ums_id_ > t._ums_id_ THEN UPDATE SET {', '.join(f't.{n} = s.{n}' for n in names)} "
            f"WHEN NOT MATCHED AND s._ums_op_ <> 'd' THEN INSERT ({', '.join(names)}) VALUES ({', '.join(f's.{n}' for n in names)})"
        )

    return merge, lambda: spark.read.format("delta").load(place).count()


def pyiceberg() -> tuple[Merge, Callable[[], int]]:
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415

    place = HERE / "pyiceberg"
    place.mkdir()
    catalog = SqlCatalog("bench", uri=f"sqlite:///{place}/catalog.db", warehouse=place.as_uri())
    catalog.create_namespace("shop")
    base = pq.read_table(HERE / "base.parquet").drop_columns("_ums_op_")
    table = catalog.create_table("shop.orders", schema=base.schema)
    table.append(base)

    def merge(changes: Path) -> None:
        rows = pq.read_table(changes)
        rows = rows.filter(pc.not_equal(rows.column("_ums_op_"), "d")).drop_columns("_ums_op_")
        table.upsert(rows, join_cols=["id"])

    return merge, lambda: table.scan().count()


def processor_s() -> float:
    """Of this process and those below it."""
    ticks, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
        for task in Path(f"/proc/{pid}/task").iterdir():
            waiting += map(int, (task / "children").read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    pa.set_io_thread_count(2)
    merge, count = {"delta-rs": delta_rs, "delta-spark": delta_spark, "pyiceberg": pyiceberg}[sys.argv[1]]()
    costs = []
    for changes in sorted(HERE.glob("changes-*.parquet")):
        wall, processor = time.perf_counter(), processor_s()
        merge(changes)
        costs.append({"wall_s": time.perf_counter() - wall, "processor_s": processor_s() - processor})
    print(json.dumps({"costs": costs, "rows": count()}))


if __name__ == "__main__":
    main()
