"""Begins verifications when they are due, on the server that leads; one that cannot be begun now is due again after its period."""

from __future__ import annotations

import threading

from headrace.control.journal import Actor
from headrace.control.operations import Operations
from headrace.control.pipelines import Pipelines
from headrace.control.reconciler import Reconciler
from headrace.control.verifications import Verifications
from headrace.errors import HeadraceError

_LOOK_EVERY_S = 2.0


class Schedules:
    """One server's."""

    def __init__(
        self, verifications: Verifications, pipelines: Pipelines, operations: Operations, reconciler: Reconciler
    ) -> None:
        self.trouble = ""
        """Why the last look came to nothing; empty when all is well."""
        self._verifications = verifications
        self._pipelines = pipelines
        self._operations = operations
        self._reconciler = reconciler

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(_LOOK_EVERY_S):
            try:
                self.look()
                self.trouble = ""
            except HeadraceError as error:  # the next look tries again
                self.trouble = str(error)

    def look(self) -> None:
        """Of pipelines that are to run, begins what is due."""
        if self._reconciler.lease is None:
            return
        for due in self._verifications.take_due():
            if self._pipelines.get(due.pipeline).wanted == "running":
                actor = Actor(f"{due.author} (schedule)")
                self._operations.begin(self._pipelines.revision(due.pipeline), "verify", due.options, actor)
