"""How shared file systems are reached: options in flow files, the same for logs and lakes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from headrace.model import Duration, Model


class HdfsOptions(Model):
    """How a cluster is reached. Kerberos and high availability are taken from Hadoop's own files (``HADOOP_CONF_DIR``)."""

    web: str | None = Field(default=None, pattern=r"^https?://[^/\s]+$")
    """The NameNode's web address, ``http://namenode:9870`` when left out: files that are being written are read there."""
    config: dict[str, str] = Field(default_factory=dict)
    """More settings of Hadoop's client, such as ``dfs.ha.namenodes.…``."""
    timeout: Annotated[Duration, Field(gt=0)] = 30.0
    """How long the end of a writer that died may take, and an answer over the web, before that counts as an outage."""


class S3Options(Model):
    """How a bucket is reached. What is left out comes from the environment (``AWS_…``) or from the machine's role."""

    endpoint: str | None = Field(default=None, pattern=r"^https?://\S+$")
    """Address of a store that is not Amazon's: ``http://minio:9000``."""
    region: str | None = None
    """The bucket's region; us-east-1 when it is said nowhere."""
    access_key: str | None = None
    """Login, best from the environment: ``${S3_ACCESS_KEY}``."""
    secret_key: str | None = None
    """Its secret, best from the environment: ``${S3_SECRET_KEY}``."""
    timeout: Annotated[Duration, Field(gt=0)] = 30.0
    """How long one request may take before that counts as an outage."""


class StoreOptions(S3Options, HdfsOptions):
    """Options of whatever store a path names; those of another one are refused where the path is known."""

    def must_fit(self, schemes: Collection[str]) -> None:
        """ValueError for an option that is of none of these stores."""
        for scheme, options in (("s3", S3Options), ("hdfs", HdfsOptions)):
            others = [each.model_fields for other, each in _OPTIONS.items() if other in schemes]
            for name in options.model_fields:
                if name in self.model_fields_set and not any(name in fields for fields in others):
                    raise ValueError(f"`{name}` is for paths that begin with {scheme}://")

    def store_options(self) -> StoreOptions:
        """These options alone."""
        names = StoreOptions.model_fields.keys() & self.model_fields_set
        return StoreOptions.model_validate({name: getattr(self, name) for name in names})


_OPTIONS: dict[str, type[Model]] = {"s3": S3Options, "hdfs": HdfsOptions}
