"""The Spark session of `headrace run`: settings that following epochs need, and nothing printed that is not ours."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.errors import ConfigError

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{yyyy-MM-dd HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


def start_session(slots: int, log_directory: Path) -> SparkSession:
    """Starts Spark with `slots` task slots: one for each following task, since such a task holds its slot for a whole epoch.

    Spark's own log goes to ``LOG_DIRECTORY/spark.log``. When a master is configured from outside (spark-submit), it is kept.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    log_directory.mkdir(parents=True, exist_ok=True)
    log4j = log_directory / "log4j2.properties"
    log4j.write_text(_LOG4J.format(file=(log_directory / "spark.log").resolve()))
    builder = (
        SparkSession.builder.appName("headrace")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "localhost")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log4j.resolve().as_uri()}")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.streaming.checkpointFileManagerClass", _CHECKPOINTS)
        .config("spark.sql.streaming.numRecentProgressUpdates", "10")
        .config("spark.python.worker.reuse", "true")
        .config("spark.speculation", "false")
    )
    if "spark.master" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        builder = builder.master(f"local[{slots}]")
    try:
        with _stderr_to(log_directory / "jvm.log"):
            return builder.getOrCreate()
    except Exception as error:
        raise ConfigError(
            f"Spark did not start: {error}",
            fix="Java 17 or newer must be on the PATH or in JAVA_HOME; see spark.log and jvm.log under the state directory",
        ) from error


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
