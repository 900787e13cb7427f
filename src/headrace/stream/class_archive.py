"""The Java classes that Spark loads, archived: a JVM maps them at its start instead of reading, checking and linking each of them.

The archive belongs to the Python environment whose jars it is of, and lies in it. The JVM looks by itself whether it is of this Java and of
these very jars, and does without it when it is not (JEP 350).
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.errors import ConfigError, storage_error
from headrace.files import make_directories

_FLOW = """\
source:
  type: applog
  name: web
  files: ./logs/{host}/app.log
  rules:
    - {table: said, steps: [{do: split, field: line, by: " ", to: [at, what]}], time: at, columns: {what: text}, sample: "2026-01-01T00:00:00Z hello"}
log: {type: directory, path: ./log}
state: ./state
flows: [{name: mart, from: "applog.web.logs.*", to: {type: database, url: "sqlite:///./mart.db"}}]
"""
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_MAKE = "HEADRACE_CLASS_ARCHIVE"
"""Where the session of a run that is told of it writes an archive. It uses none: a JVM with an archive makes no other."""


def archive_path() -> Path:
    """Where the archive of this environment is, or would be."""
    return Path(sys.prefix) / "share" / "headrace" / f"spark-{version('pyspark')}.jsa"


def java_options() -> str:
    """What a JVM of Spark is told on its command line; empty when there is no archive."""
    if made := os.environ.get(_MAKE):
        return f"-XX:ArchiveClassesAtExit={shlex.quote(made)}"
    path = archive_path()
    return f"-XX:SharedArchiveFile={shlex.quote(str(path))} {_SILENT}" if path.exists() else ""


def make_archive() -> Path:
    """Runs a small flow from end to end and archives what its JVM has loaded. ConfigError when there is no archive then."""
    path = archive_path()
    make_directories(path.parent)
    try:
        with TemporaryDirectory(dir=path.parent, prefix="making-") as work:
            made = Path(work) / path.name
            said = _run(Path(work), made)
            if not made.exists():
                raise ConfigError(
                    f"Java made no archive: {said.strip()[-500:] or 'it said nothing'}",
                    fix="headrace runs without one, and starts more slowly; an OpenJDK of 17 or newer makes one",
                )
            made.replace(path)
    except OSError as error:
        raise storage_error("write", path, error) from error
    return path


def _run(work: Path, made: Path) -> str:
    """What the run and its JVM said; both have ended then, since both hold the pipe."""
    logs = work / "logs" / "here"
    logs.mkdir(parents=True)
    (logs / "app.log").write_text("2026-01-01T00:00:00Z hello\n")
    (work / "flow.yaml").write_text(_FLOW)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "run", "flow.yaml", "--until-idle"],
        cwd=work,
        env={**os.environ, _MAKE: str(made)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout
