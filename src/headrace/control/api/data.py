"""What a pipeline's log, ledgers and targets hold, and operations on them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from headrace.control.api.access import Caller, Operator, ThePlane, Viewer
from headrace.control.api.answers import LoadAnswer, OperationAnswer, PartitionAnswer
from headrace.control.api.bodies import Backfill, Body, CancelLoad, FlowName, Limit, Load, Replay
from headrace.control.api.pipelines import Name, RunId
from headrace.control.api.plane import Plane
from headrace.control.commands import ask
from headrace.control.operations import Kind
from headrace.control.pipelines import ConflictError
from headrace.errors import FatalError

router = APIRouter(prefix="/pipelines/{name}", tags=["data"])
_LONGEST_LIST = 5_000
_WRONG_USE = 2


class Rows(Limit):
    """Which rows of the ledgers."""

    skip: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    flow: FlowName | None = None


class Kinds(Limit):
    """Which operations."""

    kind: Kind | None = None


@router.get("/offsets")
def list_offsets(name: Name, plane: ThePlane, _: Viewer) -> list[PartitionAnswer]:
    """The partitions of its log: offsets that can be read, and who has read how far."""
    return [PartitionAnswer.model_validate(line) for line in asked(plane, name, ["log", "ls"], ["--json"])]


@router.get("/tables")
def list_tables(name: Name, plane: ThePlane, _: Viewer) -> list[dict[str, Any]]:
    """The captured tables with their versions: from which position on, and with which columns."""
    return asked(plane, name, ["tables"], ["--json"])


@router.get("/errors")
def list_errors(name: Name, plane: ThePlane, _: Viewer) -> list[dict[str, Any]]:
    """Rows in its error ledgers, counted by table, flow and reason."""
    return asked(plane, name, ["errors", "ls"], ["--json"])


@router.get("/errors/rows")
def list_error_rows(name: Name, rows: Annotated[Rows, Query()], plane: ThePlane, _: Operator) -> list[dict[str, Any]]:
    """The rows themselves, with their values."""
    options = [f"--flow={rows.flow}"] if rows.flow is not None else []
    return asked(plane, name, ["errors", "show"], options, skip=rows.skip, limit=rows.limit)


@router.post("/errors/replay", status_code=202)
def replay(name: Name, body: Replay, plane: ThePlane, caller: Operator) -> OperationAnswer:
    """Delivers the rows again that targets had refused."""
    return begun(plane, name, "replay", body, caller)


@router.post("/check", status_code=202)
def check(name: Name, plane: ThePlane, caller: Operator) -> OperationAnswer:
    """Tests its connections, the settings of its sources, and whether its targets can hold the tables."""
    return begun(plane, name, "check", Body(), caller)


@router.post("/load", status_code=202)
def load(name: Name, body: Load, plane: ThePlane, caller: Operator) -> OperationAnswer:
    """Loads tables again, and repairs what the targets have of them, while the pipeline runs."""
    run = plane.newest(name)[1]
    if run is None or run.state != "running":
        raise ConflictError(f"pipeline {name} does not run, and its process does the loading", fix="start it first")
    return begun(plane, name, "load", body, caller)


@router.get("/loads")
def list_loads(name: Name, plane: ThePlane, _: Viewer) -> list[LoadAnswer]:
    """Tables that are being loaded, or were since the plan on the log began; known while the pipeline runs."""
    return [LoadAnswer.model_validate(load) for load in plane.figures(plane.newest(name)[1]).get("loads", [])]


@router.post("/load/pause", status_code=202)
def pause_load(name: Name, plane: ThePlane, caller: Operator) -> OperationAnswer:
    """Full loads read nothing more, also after a restart, until they are resumed. Capture and delivery go on."""
    return begun(plane, name, "load_pause", Body(), caller)


@router.post("/load/resume", status_code=202)
def resume_load(name: Name, plane: ThePlane, caller: Operator) -> OperationAnswer:
    """Full loads go on where they were."""
    return begun(plane, name, "load_resume", Body(), caller)


@router.post("/load/cancel", status_code=202)
def cancel_load(name: Name, body: CancelLoad, plane: ThePlane, caller: Operator) -> OperationAnswer:
    """Ends loads that go on. What they have read stays in the targets."""
    return begun(plane, name, "load_cancel", body, caller)


@router.post("/backfill", status_code=202)
def backfill(name: Name, body: Backfill, plane: ThePlane, caller: Operator) -> OperationAnswer:
    """Delivers a range of a lake once more, into the target of a flow."""
    return begun(plane, name, "backfill", body, caller)


@router.get("/operations")
def list_operations(name: Name, kinds: Annotated[Kinds, Query()], plane: ThePlane, _: Viewer) -> list[OperationAnswer]:
    """What was asked for, and what came of it, the newest first."""
    plane.pipelines.get(name)
    found = plane.operations.of(name, kind=kinds.kind, limit=kinds.limit)
    return [OperationAnswer.of(operation, plane.operations.now_us()) for operation in found]


@router.get("/operations/{operation}")
def get_operation(name: Name, operation: RunId, plane: ThePlane, _: Viewer) -> OperationAnswer:
    return OperationAnswer.of(plane.operations.get(name, operation), plane.operations.now_us())


def begun(plane: Plane, name: str, kind: Kind, body: Body, caller: Caller) -> OperationAnswer:
    """An operation on the newest revision, begun."""
    operation = plane.operations.begin(
        plane.pipelines.revision(name), kind, body.model_dump(by_alias=True), caller.actor
    )
    return OperationAnswer.of(operation, plane.operations.now_us())


def asked(
    plane: Plane, name: str, verb: list[str], options: list[str], *, skip: int = 0, limit: int = _LONGEST_LIST
) -> list[dict[str, Any]]:
    """What a command prints of a pipeline's newest revision, as JSON lines. ConflictError when it cannot be had as things are."""
    file = plane.places.file(plane.pipelines.revision(name))
    secrets = plane.places.secrets.values()
    answer = ask([*verb, str(file), *options], cwd=file.parent, secrets=secrets, skip=skip, limit=limit)
    if answer.code == _WRONG_USE:
        raise ConflictError(answer.why, fix=answer.fix)
    if answer.code:
        raise FatalError(answer.why, fix=answer.fix)
    return answer.lines
