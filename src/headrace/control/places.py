"""Where on disk pipelines have their files, and how their processes are begun."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from headrace.control.launch import Launch
from headrace.control.pipelines import Pipeline, Revision
from headrace.control.runs import Run
from headrace.control.secrets import Secrets, read_pipeline
from headrace.errors import ConfigError, storage_error
from headrace.files import make_directories, replace_file
from headrace.flow.spec import PipelineSpec

_SCRIPT = """\
from headrace.cli.main import main

main()
"""


class Places:
    """The directory of a control plane. Servers on several machines share it."""

    def __init__(self, directory: Path, secrets: Path) -> None:
        self.directory = directory.resolve()
        self.secrets_directory = secrets.resolve()
        self.secrets = Secrets(secrets)

    def create(self) -> None:
        """What every server needs."""
        make_directories(self.directory / "pipelines")
        replace_file(self._script, _SCRIPT.encode())

    def file(self, revision: Revision) -> Path:
        """The flow file of a revision, written when it is not there, or is that of a removed pipeline of the same name."""
        path, text = self.path(revision.pipeline, revision.number), revision.text.encode()
        try:
            is_there = path.exists() and path.read_bytes() == text
        except OSError as error:
            raise storage_error("read", path, error) from error
        if not is_there:
            replace_file(path, text)
        return path

    def path(self, pipeline: str, number: int) -> Path:
        """Where the flow file of a revision is, or would be."""
        return self.directory / "pipelines" / pipeline / f"r{number}.yaml"

    def read(self, revision: Revision) -> PipelineSpec:
        """What a revision says. ConfigError when it is wrong by now: a secret has gone."""
        return read_pipeline(revision.text, self.path(revision.pipeline, revision.number), self.secrets)

    def launch(self, run: Run) -> Launch:
        return self.launch_of(run.pipeline, run.id)

    def launch_of(self, pipeline: str, run: str) -> Launch:
        return Launch(self.directory / "pipelines" / pipeline / "launches" / run)

    def told(self, run: Run | None) -> dict[str, Any]:
        """The summary that a run has told last; empty for one that has ended."""
        return self.launch(run).summary() if run is not None and run.state != "ended" else {}

    def begin(self, run: str, of: Pipeline, revision: Revision) -> subprocess.Popen[bytes]:
        """Begins the process of a launch, apart from this one: what ends the server does not end it. ConfigError when that cannot be."""
        launch, file = self.launch_of(of.name, run), self.file(revision)
        launch.create()
        arguments = ["launched", str(file), str(launch.directory), "--secrets", str(self.secrets_directory)]
        command = of.placement.command(f"headrace-{of.name}-{run}", self._script, arguments, self.read(revision))
        try:
            with launch.log.open("ab") as log:
                return subprocess.Popen(  # noqa: S603 - our own command
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=file.parent, start_new_session=True
                )
        except OSError as error:
            raise ConfigError(
                f"{command[0]} cannot be run: {error.strerror}", fix="install it where headrace is"
            ) from error

    @property
    def _script(self) -> Path:
        return self.directory / "launch.py"
