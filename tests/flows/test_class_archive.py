"""What `headrace prepare` makes is what Spark's JVM starts with."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.stream.class_archive import archive_path, make_archive
from headrace.stream.session import start_session
from tests.flows.command import headrace


@pytest.mark.filterwarnings("ignore")  # Spark's own
def test_spark_maps_the_archive(tmp_path: Path) -> None:
    if not archive_path().exists():
        make_archive()
    session = start_session(1, tmp_path)
    try:
        process = session._jvm.java.lang.ProcessHandle.current().pid()
        assert str(archive_path()) in Path(f"/proc/{process}/maps").read_text()
    finally:
        session.stop()


def test_without_java_it_says_so(tmp_path: Path) -> None:
    before = archive_path().stat().st_mtime_ns if archive_path().exists() else None
    done = headrace("prepare", env={"JAVA_HOME": str(tmp_path)})
    assert done.code == 2
    assert "Java made no archive" in done.err
    assert "Spark did not start" in done.err
    assert before == (archive_path().stat().st_mtime_ns if archive_path().exists() else None)
    assert not [*archive_path().parent.glob("making-*")]
