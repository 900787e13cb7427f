"""What the lakes of a pipeline hold, as of any moment; their windows; and how far its event time is complete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from headrace.control.api.access import Operator, ThePlane, Viewer
from headrace.control.api.answers import LakeVersionAnswer, WatermarkAnswer
from headrace.control.api.bodies import FlowName, Limit
from headrace.control.api.data import asked
from headrace.control.api.pipelines import Name

router = APIRouter(prefix="/pipelines/{name}", tags=["lakes"])
_Table = Annotated[str, Field(pattern=r"^[^\x00-\x1f-][^\x00-\x1f]{0,500}$", description="type.source.schema.table")]
_Id = Annotated[int, Field(ge=-(10**11), le=2**63 - 1)]


class Lake(Limit):
    """Which lake; a flow need only be named when the pipeline fills several."""

    flow: FlowName | None = None


class Windows(Lake):
    """Which windows."""

    table: _Table | None = None


class AsOf(Lake):
    """Which rows: as of a time, or of an id; the newest state without either."""

    table: _Table
    time: datetime | None = None
    id: _Id | None = None
    skip: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class History(AsOf):
    """Which changes, the oldest first."""

    after_id: _Id | None = None
    key: list[Annotated[str, Field(pattern=r"^[^\x00-\x1f=]+=[^\x00]*$", max_length=1000)]] = Field(
        default_factory=list
    )
    """`column=value`."""


@router.get("/lake")
def list_lake(name: Name, lake: Annotated[Lake, Query()], plane: ThePlane, _: Viewer) -> list[LakeVersionAnswer]:
    """The tables of its lake, version by version."""
    options = [*_of_lake(lake), "--json"]
    return [LakeVersionAnswer.model_validate(line) for line in asked(plane, name, ["lake", "ls"], options)]


@router.get("/lake/asof")
def read_lake(name: Name, rows: Annotated[AsOf, Query()], plane: ThePlane, _: Operator) -> list[dict[str, Any]]:
    """Some rows of a table of its lake as it was at a moment."""
    return asked(plane, name, ["lake", "asof"], [*_of_rows(rows), rows.table], skip=rows.skip, limit=rows.limit)


@router.get("/lake/history")
def read_history(name: Name, rows: Annotated[History, Query()], plane: ThePlane, _: Operator) -> list[dict[str, Any]]:
    """Some changes of a table, or of one row of it."""
    options = _of_rows(rows) + [f"--key={each}" for each in rows.key]
    options += [f"--after-id={rows.after_id}"] if rows.after_id is not None else []
    return asked(plane, name, ["lake", "history"], [*options, rows.table], skip=rows.skip, limit=rows.limit)


@router.get("/windows")
def list_windows(name: Name, windows: Annotated[Windows, Query()], plane: ThePlane, _: Viewer) -> list[dict[str, Any]]:
    """Windows of event time in its lake: open, closed with a certificate, or amended by rows that came later."""
    options = [*_of_lake(windows), "--json", *([windows.table] if windows.table else [])]
    return asked(plane, name, ["lake", "windows"], options, limit=windows.limit)


@router.get("/watermarks")
def list_watermarks(name: Name, plane: ThePlane, _: Viewer) -> list[WatermarkAnswer]:
    """How far event time is complete, stage by stage, and which hosts hold it."""
    return [WatermarkAnswer.model_validate(line) for line in asked(plane, name, ["watermark", "show"], ["--json"])]


def _of_lake(lake: Lake) -> list[str]:
    return [f"--flow={lake.flow}"] if lake.flow is not None else []


def _of_rows(rows: AsOf) -> list[str]:
    options = [*_of_lake(rows), "--format=jsonl"]
    options += [f"--time={rows.time.isoformat()}"] if rows.time is not None else []
    options += [f"--id={rows.id}"] if rows.id is not None else []
    return options
