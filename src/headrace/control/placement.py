"""Where a pipeline's process is put, and the command that puts it there.

A launcher is a command line and no more: the process that it begins tells through the files of its launch (launch.py) that it lives and
how it ended, and is stopped through them, wherever it is. So a place is a model with `command`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from headrace.control.secrets import names_secret
from headrace.errors import ConfigError
from headrace.flow.spec import PipelineSpec
from headrace.model import Model


class Local(Model):
    """A process on the server's machine. Its tasks work there too, or on the cluster that `spark` of the flow file names."""

    type: Literal["local"] = "local"

    def command(self, name: str, script: Path, arguments: Sequence[str], pipeline: PipelineSpec) -> list[str]:
        return [sys.executable, str(script), *arguments]

    @property
    def patience_s(self) -> float:
        """How long it may take from the command to the first sign of life."""
        return 120.0


class SparkSubmit(Model):
    """A driver that spark-submit puts into the cluster that `spark` of the flow file names (YARN, Kubernetes), or keeps beside itself."""

    type: Literal["spark-submit"] = "spark-submit"
    deploy_mode: Literal["client", "cluster"] = "cluster"
    """Whether the driver is on the cluster, or on the server's machine."""
    queue: Annotated[str, Field(pattern=r"^[\w.-]+$")] | None = None
    """YARN's queue."""

    def command(self, name: str, script: Path, arguments: Sequence[str], pipeline: PipelineSpec) -> list[str]:
        if pipeline.spark.master is None:
            raise ConfigError(
                "spark-submit needs to know the cluster, and the flow file does not name one",
                fix="write `spark: {master: yarn}` (or k8s://…) into it, or place the pipeline at `local`",
            )
        command = [str(_spark_submit()), "--master", pipeline.spark.master, "--deploy-mode", self.deploy_mode]
        command += ["--name", name]
        if self.queue is not None:
            command += ["--queue", self.queue]
        # Without it spark-submit takes any `python3` of the PATH.
        config = {"spark.pyspark.python": sys.executable, **pipeline.spark.config}
        for setting, value in sorted(config.items()):
            if not names_secret(setting):  # all users of a machine see its command lines; the driver sets these itself
                command += ["--conf", f"{setting}={value}"]
        if self.deploy_mode == "cluster":  # the server looks at the launch's files, not at a client that waits
            command += ["--conf", "spark.yarn.submit.waitAppCompletion=false"]
            command += ["--conf", "spark.kubernetes.submission.waitAppCompletion=false"]
        return [*command, str(script), *arguments]

    @property
    def patience_s(self) -> float:
        """Clusters have queues."""
        return 3600.0


Placement = Annotated[Local | SparkSubmit, Field(discriminator="type")]
_PLACEMENT: TypeAdapter[Local | SparkSubmit] = TypeAdapter(Placement)


def read_placement(text: str) -> Placement:
    """One that was written as JSON."""
    return _PLACEMENT.validate_json(text)


def _spark_submit() -> Path:
    """The one of the pyspark that headrace uses."""
    from importlib.util import find_spec  # noqa: PLC0415 - only here, and pyspark itself is not imported

    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "bin" / "spark-submit"
