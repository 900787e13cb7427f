"""What the control plane asks of headrace's own command line: in a process of its own, so that drivers, their crashes and what they keep in
memory stay out of the server, and so that a person can do the same by hand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from headrace.errors import FatalError

Json = dict[str, Any]
_OURS = re.compile(r"^headrace: (?P<message>.+?)\n +what to do: (?P<fix>.+?)$", re.MULTILINE | re.DOTALL)
_LAST_LINES = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command printed as JSON lines, and how it ended: 0 fine, 1 a difference or a failure, 2 wrong use or configuration."""

    code: int
    lines: list[Json]
    why: str
    """The error that it told of; empty when there was none."""
    fix: str


def ask(
    arguments: Sequence[str], *, cwd: Path, secrets: Mapping[str, str], skip: int = 0, limit: int = 10_000
) -> Answer:
    """Runs `headrace ARGUMENTS` until it has printed so many lines; those before `skip` are left out."""
    command = [sys.executable, "-m", "headrace", *arguments]
    with TemporaryFile() as errors:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own command, no shell
                command,
                cwd=cwd,
                env={**os.environ, **secrets},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as error:
            raise FatalError(
                f"a command cannot be run: {error.strerror}", fix="look at the server's machine"
            ) from error
        with process:
            assert process.stdout is not None
            lines = [json.loads(line) for line in islice(process.stdout, skip, skip + limit)]
            process.stdout.close()  # what is more than that it need not print: it ends by itself
        errors.seek(0)
        return _answer(process.returncode, lines, errors.read().decode("utf-8", "replace"))


def _answer(code: int, lines: list[Json], told: str) -> Answer:
    if code == 0:
        return Answer(0, lines, "", "")
    if found := _OURS.search(told):
        return Answer(code, lines, found["message"], found["fix"])
    return Answer(code, lines, "\n".join(told.splitlines()[-_LAST_LINES:]), "")
