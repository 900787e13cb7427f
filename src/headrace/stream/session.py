"""The Spark session of `headrace run`: settings that following epochs need, and nothing printed that is not ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.errors import ConfigError
from headrace.flow.spec import SparkSpec
from headrace.stream import class_archive

ON_THIS_MACHINE = SparkSpec()
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
ATTEMPTS = 4
"""How often a task whose worker process died is begun in an epoch, as on a cluster (spark.task.maxFailures)."""
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


def start_session(slots: int, log_directory: Path, spark: SparkSpec = ON_THIS_MACHINE) -> SparkSession:
    """Starts Spark. On this machine it gets `slots` task slots: one for each following task, since such a task holds its slot for a
    whole epoch; a cluster has those of its executors.

    Spark's own log goes to ``LOG_DIRECTORY/spark.log``, that of executors to where the cluster keeps it.
    """
    os.environ["PYSPARK_PYTHON"] = spark.config.get("spark.pyspark.python", sys.executable)
    log_directory.mkdir(parents=True, exist_ok=True)
    log4j = log_directory / "log4j2.properties"
    log4j.write_text(_LOG4J.format(file=(log_directory / "spark.log").resolve()))
    builder = (
        SparkSession.builder.appName("headrace")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.extraJavaOptions", _java_options(log4j, log_directory))
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.streaming.checkpointFileManagerClass", _CHECKPOINTS)
        .config("spark.sql.streaming.numRecentProgressUpdates", "10")
        .config("spark.python.worker.reuse", "true")
        .config("spark.python.daemon.module", "headrace.stream.daemon")
        .config("spark.speculation", "false")
    )
    if spark.master is None:
        builder = builder.master(f"local[{slots},{ATTEMPTS}]").config("spark.driver.host", "localhost")
    else:
        builder = builder.master(spark.master)
    for name, value in spark.config.items():
        builder = builder.config(name, value)
    try:
        with _stderr_to(log_directory / "jvm.log"):
            return builder.getOrCreate()
    except Exception as error:
        raise ConfigError(
            f"Spark did not start: {error}",
            fix="Java 17 or newer must be on the PATH or in JAVA_HOME, and the `master` of `spark`, when there is one, must answer;"
            " see spark.log and jvm.log under the state directory",
        ) from error


def _java_options(log4j: Path, log_directory: Path) -> str:
    derby_log = (log_directory / "derby.log").resolve()
    told = f"-Dlog4j2.configurationFile={log4j.resolve().as_uri()} -Dderby.stream.error.file={derby_log}"
    return f"{told} {class_archive.java_options()}".strip()


@contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Processes started meanwhile (the JVM, and through it Python workers) write their standard error to a file."""
    ours = os.dup(2)
    with path.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
