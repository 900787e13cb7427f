"""All parts of the control plane, as the API's functions find them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import Request

from headrace.control.alerts.book import AlertBook
from headrace.control.alerts.courier import Courier
from headrace.control.alerts.noted import NotedAlerts
from headrace.control.alerts.watch import AlertWatch, Seeing
from headrace.control.journal import Journal
from headrace.control.operations import Operations
from headrace.control.overview import Overview
from headrace.control.people import People
from headrace.control.pipelines import Pipeline, Pipelines
from headrace.control.places import Places
from headrace.control.reconciler import Reconciler
from headrace.control.runs import Run, Runs
from headrace.control.schedules import Schedules
from headrace.control.states import State, state_of
from headrace.control.tables import ControlDatabase
from headrace.control.verifications import Verifications


@dataclass(frozen=True, slots=True)
class Plane:
    """One server's."""

    places: Places
    pipelines: Pipelines
    runs: Runs
    journal: Journal
    people: People
    operations: Operations
    reconciler: Reconciler
    overview: Overview
    verifications: Verifications
    schedules: Schedules
    book: AlertBook
    alerts: NotedAlerts
    watch: AlertWatch
    courier: Courier

    @classmethod
    def of(cls, database: ControlDatabase, directory: Path, secrets: Path, address: str) -> Plane:
        places = Places(directory, secrets)
        pipelines, runs, verifications = Pipelines(database), Runs(database), Verifications(database)
        operations, reconciler = Operations(database, places), Reconciler(pipelines, runs, places, address)
        book, alerts = AlertBook(database), NotedAlerts(database, runs)
        return cls(
            places,
            pipelines,
            runs,
            Journal(database),
            People(database),
            operations,
            reconciler,
            Overview(runs, places),
            verifications,
            Schedules(verifications, pipelines, operations, reconciler),
            book,
            alerts,
            AlertWatch(book, alerts, Seeing(runs, places, verifications), lambda: reconciler.lease),
            Courier(book, alerts, places.secrets, lambda: reconciler.lease),
        )

    @property
    def troubles(self) -> list[str]:
        """Why something that this server does by itself comes to nothing at the moment; empty when all is well."""
        working = (self.reconciler, self.schedules, self.watch, self.courier)
        return [part.trouble for part in working if part.trouble]

    def newest(self, name: str) -> tuple[Pipeline, Run | None]:
        """A pipeline with its newest run; UnknownError when there is none of that name."""
        pipeline = self.pipelines.get(name)
        return pipeline, self.runs.get(name, pipeline.run) if pipeline.run is not None else None

    def figures(self, run: Run | None) -> dict[str, Any]:
        """What a run has told last, with all tables; empty for one that has ended."""
        return self.places.launch(run).figures() if run is not None and run.state != "ended" else {}

    def state(self, pipeline: Pipeline, run: Run | None, told: dict[str, Any]) -> State:
        return state_of(pipeline, run, lambda: told, time.time_ns() // 1000)


def plane_of(request: Request) -> Plane:
    """The plane of the server that was asked."""
    found: Plane = request.app.state.plane
    return found
