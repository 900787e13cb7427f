"""Sees to it that what runs is what is wanted: looks at every pipeline again and again, and takes the next step of each (steps.py).

It keeps nothing in memory that it needs: what was begun is in the store and in the files of launches. So it may be killed at any moment, and
another goes on, here or on another machine. Only the server that has the lease takes steps.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from uuid import uuid4

from headrace.control.launch import End, Seen
from headrace.control.pipelines import Pipeline, Pipelines
from headrace.control.places import Places
from headrace.control.runs import Lease, Run, Runs
from headrace.control.steps import Step, kind_of_end, next_attempt, next_step
from headrace.crash import crash_point
from headrace.errors import FatalError, FencedError, HeadraceError

TICK_S = 0.5
LEASE_S = 10.0


class Reconciler:
    """One server's. `tick` takes a step for each pipeline; `run` does so until it is told to stop."""

    def __init__(
        self,
        pipelines: Pipelines,
        runs: Runs,
        places: Places,
        address: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`address`: where this server is found."""
        self.holder = uuid4().hex
        self.trouble = ""
        """Why nothing is done at the moment; empty when all is well."""
        self.in_trouble: dict[str, str] = {}
        """Pipelines whose files are not as they should be, and why."""
        self._pipelines = pipelines
        self._runs = runs
        self._places = places
        self._address = address
        self._clock = clock
        self._submitted: dict[str, subprocess.Popen[bytes]] = {}
        self._lease: Lease | None = None
        self._printed: set[str] = set()

    @property
    def lease(self) -> Lease | None:
        """By which this server led when it looked last; whoever uses it is fenced by the store."""
        return self._lease

    def run(self, stop: threading.Event) -> None:
        """Processes go on when this ends."""
        while not stop.wait(TICK_S):
            try:
                self.tick()
                self.trouble = ""
            except FencedError:
                self._lease = None
            except HeadraceError as error:  # what runs goes on; the next tick tries again, and /healthz tells
                self.trouble = str(error)
            except Exception as error:  # a fault of ours in one place must not leave all pipelines to themselves
                self.trouble = f"{type(error).__name__}: {error}"
                traceback.print_exc()
            self._print_news()
        if self._lease is not None:
            try:
                self._runs.resign(self._lease)
            except HeadraceError as error:
                self.trouble = str(error)  # the lease runs out

    def tick(self) -> bool:
        """One look at everything; False when another server leads. RetryableError when the store cannot be reached. What is wrong with the files of
        one pipeline keeps no other one from being tended.
        """
        self._lease = self._runs.lead(self.holder, self._address, LEASE_S)
        if self._lease is None:
            self._submitted = {run: command for run, command in self._submitted.items() if command.poll() is None}
            self.in_trouble = {}
            return False
        renew_at = self._clock() + LEASE_S / 3
        in_trouble = {}
        for pipeline, run in self._runs.newest():
            if self._clock() > renew_at:
                self._lease = self._runs.lead(self.holder, self._address, LEASE_S)
                renew_at = self._clock() + LEASE_S / 3
                if self._lease is None:
                    return False
            try:
                self._tend(self._lease, pipeline, run)
            except FatalError as error:
                in_trouble[pipeline.name] = str(error)
        self.in_trouble = in_trouble
        return True

    def _print_news(self) -> None:
        """What stands in the way is printed once, when it comes."""
        now = {f"pipeline {name}: {why}" for name, why in self.in_trouble.items()} | ({self.trouble} - {""})
        for text in sorted(now - self._printed):
            sys.stderr.write(f"headrace: {text}\n")
        self._printed = now

    def _tend(self, lease: Lease, pipeline: Pipeline, run: Run | None) -> None:
        active = run is not None and run.state != "ended"
        seen = self._places.launch(run).look() if run is not None and active else Seen()
        step = next_step(pipeline, run, seen, is_submitted=self._is_submitted(run), now_us=round(self._clock() * 1e6))
        if step is Step.LAUNCH:
            self._launch(lease, pipeline, run)
        elif run is not None and step is not Step.NOTHING:
            self._take(step, lease, run, seen, pipeline)

    def _launch(self, lease: Lease, pipeline: Pipeline, before: Run | None) -> None:
        run = uuid4().hex
        if not self._runs.launching(lease, run, pipeline, socket.gethostname(), next_attempt(pipeline, before)):
            return
        crash_point("control.noted")
        try:
            revision = self._pipelines.revision(pipeline.name, pipeline.revision)
            self._submitted[run] = self._places.begin(run, pipeline, revision)
        except HeadraceError as error:
            if self._places.launch_of(pipeline.name, run).call_off():
                noted = self._runs.get(pipeline.name, run)
                self._runs.ended(lease, noted, End(error.exit_code, error.message, error.fix), "failed")
        crash_point("control.begun")

    def _take(self, step: Step, lease: Lease, run: Run, seen: Seen, pipeline: Pipeline) -> None:
        launch = self._places.launch(run)
        if step is Step.BEGUN:
            assert seen.pid is not None
            self._runs.running(lease, run, seen.host, seen.pid)
        elif step is Step.STOP:
            if run.state != "stopping":
                self._runs.stopping(lease, run, _why_stopped(run, pipeline))
                crash_point("control.stopping")
            launch.request_stop()
        elif step is Step.KILL:
            if launch.kill():
                self._runs.tell(lease, run, "killed", "it did not stop in time")
        elif step is Step.CALL_OFF:
            if launch.call_off():
                self._end(lease, run, *self._why_not_begun(run, pipeline))
        elif seen.end is not None:
            self._end(lease, run, seen.end, kind_of_end(run, seen))

    def _end(self, lease: Lease, run: Run, end: End, kind: str) -> None:
        self._runs.ended(lease, run, end, kind)
        if (command := self._submitted.pop(run.id, None)) is not None:
            command.poll()

    def _is_submitted(self, run: Run | None) -> bool:
        """Whether the command of a launch may still begin it: it runs, or has handed it over to a cluster."""
        command = self._submitted.get(run.id) if run is not None else None
        return command is not None and command.poll() in {None, 0}

    def _why_not_begun(self, run: Run, pipeline: Pipeline) -> tuple[End, str]:
        if pipeline.wanted == "stopped" or run.generation != pipeline.generation:
            return End(0, "it was not wanted any more before it began"), "stopped"
        command = self._submitted.get(run.id)
        if command is None:
            return End(None, "the server that started it ended before it had begun"), "lost"
        code = command.poll()
        if code in {None, 0}:
            return End(
                1, f"it did not begin within {run.placement.patience_s:g} s", "look at the machine or the cluster"
            ), "failed"
        return End(1, f"it ended with {code} before it had begun", f"see {self._places.launch(run).log}"), "failed"


def _why_stopped(run: Run, pipeline: Pipeline) -> str:
    if pipeline.wanted == "stopped":
        return "it is told to stop"
    if run.placement != pipeline.placement:
        return f"it is told to stop here, and goes on at {pipeline.placement.type}"
    return f"it is told to stop, and goes on with revision {pipeline.revision}"
