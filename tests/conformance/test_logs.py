"""Every log in the registry passes the conformance kit. A new log fails here until it has a factory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from headrace import registry
from headrace.log.base import Log
from headrace.log.directory import DirectoryLog
from headrace.testing.log import LogConformance, OpenLog

FACTORIES: dict[str, Callable[[Path], Log]] = {
    "directory": lambda path: DirectoryLog(
        DirectoryLog.Config(path=path / "log", segment_bytes=10_000, writer_wait_s=0.05)
    ),
}


@pytest.mark.parametrize("open_log", registry.names("logs"), indirect=True)
class TestLogs(LogConformance):
    @pytest.fixture
    def open_log(self, request: pytest.FixtureRequest, tmp_path: Path) -> OpenLog:
        name: str = request.param
        if name not in FACTORIES:
            pytest.fail(f"the log '{name}' is registered but not tested: add its factory to FACTORIES")
        assert isinstance(FACTORIES[name](tmp_path), registry.load("logs", name))
        return lambda: FACTORIES[name](tmp_path)
