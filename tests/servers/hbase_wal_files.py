"""Files of HBase's log, made and read by HBase's own classes, without a server."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.servers.hbase import HBase
from tests.servers.process import ServerError

_PROGRAM = Path(__file__).with_name("HBaseWalFiles.java")


_AIR = "org.apache.hadoop.hbase.io.compress.aircompressor"
"""Codecs without native libraries."""


def _settings() -> str:
    codecs = {"lz4": "Lz4Codec", "snappy": "SnappyCodec", "zstd": "ZstdCodec"}
    properties = [
        f"<property><name>hbase.io.compress.{name}.codec</name><value>{_AIR}.{codec}</value></property>"
        for name, codec in codecs.items()
    ]
    return "\n".join(["<configuration>", *properties, "</configuration>"])


def run(commands: Sequence[str], memory: str = "-Xmx512m") -> list[str]:
    """What the program (its head says which commands there are) prints; ServerError when it ends otherwise than well."""
    hbase = HBase()
    with tempfile.TemporaryDirectory() as directory:
        hbase.directory = Path(directory)
        (hbase.directory / "core-site.xml").write_text(_settings())
        done = subprocess.run(
            hbase.program(memory, str(_PROGRAM)),
            input="\n".join(commands),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    if done.returncode:
        raise ServerError(f"HBase's classes failed:\n{done.stderr[-2000:]}")
    return [line for line in done.stdout.splitlines() if line != "done"]
