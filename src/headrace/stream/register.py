"""A table registered in the catalog of Spark: with Hive's metastore, the one that Spark is set up for or one of its own in a directory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import ConfigError
from headrace.flow.spec import SparkSpec
from headrace.lake.derived.place import Place
from headrace.stream.session import start_session


def register(place: Place, name: str, metastore: Path | None, *, replace: bool) -> None:
    """Makes the place known as table `name` (``db.table``); no file is touched.

    `metastore`: a directory in which Spark keeps one of its own (Derby); Spark's configuration says which when it is left out.
    """
    with TemporaryDirectory(prefix="headrace-register-") as logs:
        session = start_session(1, Path(logs), catalog_settings(metastore))
        try:
            _register(session, place, name, replace=replace)
        finally:
            session.stop()


def catalog_settings(metastore: Path | None) -> SparkSpec:
    """What Spark needs to use a metastore."""
    settings = {"spark.sql.catalogImplementation": "hive"}
    if metastore is None:
        return SparkSpec(config=settings)
    database = (metastore / "metastore_db").resolve()
    database.parent.mkdir(parents=True, exist_ok=True)
    own = {
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={database};create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
        "spark.sql.warehouse.dir": str((metastore / "warehouse").resolve()),
    }
    return SparkSpec(config=settings | own)


def _register(session: SparkSession, place: Place, name: str, *, replace: bool) -> None:
    try:
        if session.catalog.tableExists(name):
            if not replace:
                raise ConfigError(
                    f"the catalog has a table {name} already",
                    fix="give another --name, or --replace, which forgets that table (files of external tables stay)",
                )
            session.sql(f"DROP TABLE {name}")
        database, _, table = name.rpartition(".")
        assert table, "the command line has checked the name"
        if database:
            session.sql(f"CREATE DATABASE IF NOT EXISTS {database}")
        session.sql(place.statement(name))
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"Spark could not register {place.url} as {name}: {reason}",
            fix="correct what it says; for a Delta table run the statement of --ddl in a Spark that has delta-spark",
        ) from error
