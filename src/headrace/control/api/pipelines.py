"""Pipelines: their flow files, what is wanted of them, and their processes."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from headrace.control.api.access import Admin, Operator, ThePlane, Viewer
from headrace.control.api.answers import (
    EventAnswer,
    FiguresAnswer,
    OverviewAnswer,
    PipelineAnswer,
    RevisionAnswer,
    RunAnswer,
)
from headrace.control.api.bodies import ChangedPipeline, CheckedText, Drift, Limit, NewPipeline, Page, PipelineName
from headrace.control.api.plane import Plane
from headrace.control.api.ways import WaysAnswer, ways_of
from headrace.control.pipelines import Pipeline
from headrace.control.secrets import read_pipeline
from headrace.flow.spec import PipelineSpec

router = APIRouter(prefix="/pipelines", tags=["pipelines"])
overview = APIRouter(tags=["pipelines"])
Name = Annotated[PipelineName, Path()]
RunId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
_LOG_BYTES = 256 << 10


@overview.get("/overview", response_model=list[OverviewAnswer])
def get_overview(plane: ThePlane, _: Viewer) -> Response:
    """Each pipeline with its state, and how much passes through its sources and flows, a second old at most."""
    return Response(plane.overview.json(), media_type="application/json")


@router.get("")
def list_pipelines(plane: ThePlane, _: Viewer) -> list[PipelineAnswer]:
    """All pipelines, each with its state and, when it runs, its newest figures."""
    found = []
    for pipeline, run in plane.runs.newest():
        told = plane.places.told(run)
        found.append(PipelineAnswer.of(pipeline, run, plane.state(pipeline, run, told), told))
    return found


@router.post("", status_code=201)
def create_pipeline(body: NewPipeline, plane: ThePlane, caller: Admin) -> PipelineAnswer:
    """Keeps a new pipeline, stopped. Its flow file must be right as far as that can be said without its servers."""
    _read(plane, body.name, body.text)
    return _answer(plane, plane.pipelines.create(body.name, body.text, body.placement, caller.actor))


@router.post("/validate")
def validate_text(body: CheckedText, plane: ThePlane, _: Admin) -> list[str]:
    """Says what is wrong with a flow file (422), or names its flows. Nothing is kept."""
    return [flow.name for flow in _read(plane, body.name, body.text).flows]


@router.get("/{name}")
def get_pipeline(name: Name, plane: ThePlane, _: Viewer) -> PipelineAnswer:
    return _answer(plane, plane.pipelines.get(name))


@router.put("/{name}")
def change_pipeline(name: Name, body: ChangedPipeline, plane: ThePlane, caller: Admin) -> PipelineAnswer:
    """Keeps a new revision. A process goes on with the one that it has, until it is restarted."""
    _read(plane, name, body.text)
    return _answer(plane, plane.pipelines.change(name, body.text, body.base, caller.actor))


@router.delete("/{name}", status_code=204)
def remove_pipeline(name: Name, plane: ThePlane, caller: Admin) -> None:
    """Forgets a pipeline that is stopped. Its data and its state stay where they are."""
    plane.pipelines.remove(name, caller.actor)


@router.get("/{name}/revisions")
def list_revisions(name: Name, plane: ThePlane, _: Viewer) -> list[RevisionAnswer]:
    """The newest first."""
    return [RevisionAnswer.model_validate(revision) for revision in plane.pipelines.revisions(name)]


@router.get("/{name}/ways")
def get_ways(name: Name, plane: ThePlane, _: Viewer) -> WaysAnswer:
    """From where to where its newest flow file brings changes; what ${NAMES} stand for is not told."""
    revision = plane.pipelines.revision(name)
    return ways_of(revision.text, plane.places.path(name, revision.number))


@router.post("/{name}/start")
def start_pipeline(name: Name, plane: ThePlane, caller: Operator) -> PipelineAnswer:
    """Wants it running. One that runs stays as it is; one that has failed is tried anew at once."""
    return _answer(plane, plane.pipelines.start(name, caller.actor))


@router.post("/{name}/stop")
def stop_pipeline(name: Name, plane: ThePlane, caller: Operator) -> PipelineAnswer:
    """Wants it stopped, at a whole transaction."""
    return _answer(plane, plane.pipelines.stop(name, caller.actor))


@router.post("/{name}/restart")
def restart_pipeline(name: Name, plane: ThePlane, caller: Operator) -> PipelineAnswer:
    """Wants a new process, of the newest revision, in place of the one that runs."""
    return _answer(plane, plane.pipelines.restart(name, caller.actor))


@router.post("/{name}/drift")
def drift_pipeline(name: Name, body: Drift, plane: ThePlane, caller: Operator) -> PipelineAnswer:
    """Wants it at another place: when it runs, it stops where it is and goes on there, from the same positions."""
    pipeline = plane.pipelines.get(name)
    revision = plane.pipelines.revision(name, pipeline.revision)
    body.placement.command(name, plane.places.path(name, revision.number), [], plane.places.read(revision))
    return _answer(plane, plane.pipelines.drift(name, body.placement, caller.actor))


@router.get("/{name}/runs")
def list_runs(name: Name, page: Annotated[Limit, Query()], plane: ThePlane, _: Viewer) -> list[RunAnswer]:
    """The newest first."""
    plane.pipelines.get(name)
    return [RunAnswer.model_validate(run) for run in plane.runs.of(name, page.limit)]


@router.get("/{name}/runs/{run}/log")
def get_log(name: Name, run: RunId, plane: ThePlane, _: Operator) -> list[str]:
    """The last lines that a process has printed; of old ones there are none any more."""
    return plane.places.launch(plane.runs.get(name, run)).last_lines(_LOG_BYTES)


@router.get("/{name}/figures")
def get_figures(name: Name, plane: ThePlane, _: Viewer) -> FiguresAnswer:
    """What has passed each stage and table since the process began, about a second ago."""
    told = plane.figures(plane.newest(name)[1])
    return FiguresAnswer.model_validate(told or {"at_us": None, "stages": [], "problems": []})


@router.get("/{name}/events")
def list_events(name: Name, page: Annotated[Page, Query()], plane: ThePlane, _: Viewer) -> list[EventAnswer]:
    """What its processes did, the newest first."""
    plane.pipelines.get(name)
    found = plane.journal.events(pipeline=name, before=page.before, limit=page.limit)
    return [EventAnswer.model_validate(event) for event in found]


def _answer(plane: Plane, pipeline: Pipeline) -> PipelineAnswer:
    run = plane.runs.get(pipeline.name, pipeline.run) if pipeline.run is not None else None
    told = plane.places.told(run)
    return PipelineAnswer.of(pipeline, run, plane.state(pipeline, run, told), told)


def _read(plane: Plane, name: str, text: str) -> PipelineSpec:
    return read_pipeline(text, plane.places.path(name, 0), plane.places.secrets)
