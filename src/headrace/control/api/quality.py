"""Whether targets hold what they should: verifications, on demand and on a schedule, and what they have found."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from headrace.control.api.access import Operator, ThePlane, Viewer
from headrace.control.api.answers import OperationAnswer, ScheduleAnswer, VerificationAnswer
from headrace.control.api.bodies import FlowName, NewSchedule, Page, TableName, Verify
from headrace.control.api.data import begun
from headrace.control.api.pipelines import Name

router = APIRouter(tags=["data quality"])


class Found(Page):
    """Which results."""

    flow: FlowName | None = None
    table: TableName | None = None


@router.get("/verifications")
def list_newest(plane: ThePlane, _: Viewer) -> list[VerificationAnswer]:
    """The newest result of each table of each flow of all pipelines."""
    return [VerificationAnswer.model_validate(found) for found in plane.verifications.newest()]


@router.post("/pipelines/{name}/verify", status_code=202)
def verify(name: Name, body: Verify, plane: ThePlane, caller: Operator) -> OperationAnswer:
    """Holds its targets against their sources (or against another target) while both keep changing, and repairs what differs if that is
    wanted."""
    return begun(plane, name, "verify", body, caller)


@router.get("/pipelines/{name}/verifications")
def list_verifications(
    name: Name, page: Annotated[Found, Query()], plane: ThePlane, _: Viewer
) -> list[VerificationAnswer]:
    """What was found, the newest first."""
    plane.pipelines.get(name)
    found = plane.verifications.of(name, flow=page.flow, table=page.table, before=page.before, limit=page.limit)
    return [VerificationAnswer.model_validate(each) for each in found]


@router.get("/pipelines/{name}/verification-schedule")
def get_schedule(name: Name, plane: ThePlane, _: Viewer) -> ScheduleAnswer | None:
    """Null when nothing is verified by itself."""
    plane.pipelines.get(name)
    found = plane.verifications.schedule(name)
    return None if found is None else ScheduleAnswer.model_validate(found)


@router.put("/pipelines/{name}/verification-schedule")
def put_schedule(name: Name, body: NewSchedule, plane: ThePlane, caller: Operator) -> ScheduleAnswer:
    """Verifies now and then again and again, while the pipeline is wanted running."""
    options = body.model_dump(exclude={"every"}, exclude_defaults=True)
    return ScheduleAnswer.model_validate(plane.verifications.put_schedule(name, body.every, options, caller.actor))


@router.delete("/pipelines/{name}/verification-schedule", status_code=204)
def remove_schedule(name: Name, plane: ThePlane, caller: Operator) -> None:
    plane.verifications.remove_schedule(name, caller.actor)
