"""A real S3 server: SeaweedFS in one process, with its data on disk and conditional writes that are atomic."""

from __future__ import annotations

import itertools
import json
import os
import sys
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.servers.process import Server, free_port

BUCKET, ACCESS_KEY, SECRET_KEY = "tests", "headrace", "headrace's secret"
_ACTIONS = ["Admin", "Read", "Write", "List", "Tagging"]
_counter = itertools.count(1)


class S3(Server):
    """``with S3() as s3: S3FileStore(s3.place(), S3Options(**s3.options()))``. The bucket is made with its first object."""

    def __init__(self) -> None:
        super().__init__("s3")

    @property
    def endpoint(self) -> str:
        return f"http://{self.host}:{self.port}"

    def options(self) -> dict[str, str]:
        return {"endpoint": self.endpoint, "access_key": ACCESS_KEY, "secret_key": SECRET_KEY}

    def environment(self) -> dict[str, str]:
        """The same as `options`, for programs that are given a URL only."""
        return {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}

    def place(self) -> str:
        """A prefix that is a test's own."""
        return f"s3://{BUCKET}/{os.getpid()}-{next(_counter)}"

    def store(self) -> S3Store:
        """A plain client of the bucket."""
        return S3Store(
            BUCKET,
            endpoint=self.endpoint,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            client_options={"allow_http": True},
            retry_config={"max_retries": 0},
        )

    def install(self) -> None:
        self.data_path.mkdir()
        login = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        identity = {"name": "headrace", "credentials": [login], "actions": _ACTIONS}
        (self.directory / "s3.json").write_text(json.dumps({"identities": [identity]}))
        names = [
            "master.port",
            "master.port.grpc",
            "volume.port",
            "volume.port.grpc",
            "filer.port",
            "filer.port.grpc",
            "s3.port.grpc",
        ]
        taken = [self.port]
        for _ in names:
            taken.append(free_port(*taken))
        self._ports = [f"-{name}={port}" for name, port in zip(["s3.port", *names], taken, strict=True)]

    def command(self) -> list[str]:
        weed = Path(sys.executable).with_name("weed")
        here = [
            f"-ip={self.host}",
            f"-ip.bind={self.host}",
            "-dir=data",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=20",
        ]
        return [
            str(weed),
            "server",
            "-filer",
            "-s3",
            "-s3.config=s3.json",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            *here,
            *self._ports,
        ]

    def answers(self) -> bool:
        try:
            obstore.put(self.store(), "answers", b"yes")
        except (BaseError, OSError):
            return False
        return True
