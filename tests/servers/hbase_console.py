"""Commands to an HBase that its Thrift server does not have: split, merge, move, flush, roll, writes of all kinds, scans of all versions."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.hbase import HBase
from tests.servers.process import ServerError

_PROGRAM = Path(__file__).with_name("HBaseConsole.java")


class HBaseConsole:
    """``with HBaseConsole(server) as console: console.ask("flush", table)``: Java's own client, one command after the other."""

    def __init__(self, server: HBase) -> None:
        self._server = server

    def __enter__(self) -> Self:
        command = self._server.program("-Xmx192m", str(_PROGRAM))
        log = (self._server.directory / "console.log").open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=self._server.directory
        )
        log.close()
        self._expect("ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, *words: object) -> None:
        """Runs a command; ServerError when it fails."""
        self.send(*words)
        self._expect("done")

    def try_to(self, *words: object) -> bool:
        """Runs a command that HBase may refuse as things stand; whether it did not."""
        self.send(*words)
        return self._answer() == "done"

    def send(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def _expect(self, answer: str) -> None:
        if (said := self._answer()) != answer:
            log = (self._server.directory / "console.log").read_text(errors="replace")
            raise ServerError(f"HBase's console said {said!r}; the end of its log:\n{log[-2000:]}")

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")
