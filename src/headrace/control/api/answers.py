"""What answers hold: the control plane's own objects, field by field, with times as times."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headrace.control.operations import Kind, Operation
from headrace.control.operations import State as OperationState
from headrace.control.people import Role, Token
from headrace.control.pipelines import Pipeline, Wanted
from headrace.control.placement import Placement
from headrace.control.runs import Run
from headrace.control.runs import State as RunState
from headrace.control.states import Name as StateName
from headrace.control.states import State


def _of_microseconds(value: object) -> object:
    return datetime.fromtimestamp(value / 1e6, UTC) if isinstance(value, int) else value


Moment = Annotated[datetime, BeforeValidator(_of_microseconds)]
"""Given as microseconds since 1970."""


def moment(name: str) -> Any:
    """The field of a moment, which the object calls `name`_us."""
    return Field(validation_alias=f"{name}_us")


class Answer(BaseModel):
    """Of an answer; it takes its fields from an object that has them."""

    model_config = ConfigDict(frozen=True, from_attributes=True, use_attribute_docstrings=True)


class FieldProblem(Answer):
    """What is wrong with one field."""

    field: str
    """Dotted: of the request's body, or of the flow file in it."""
    message: str
    line: int | None = None
    """In the flow file."""


class Problem(Answer):
    """Why a request was not done."""

    error: str
    fix: str
    fields: list[FieldProblem] = []


class Me(Answer):
    user: str
    role: Role
    csrf: str | None
    """What a browser sends as `X-CSRF-Token` with all that changes something; null for tokens."""


class StateAnswer(Answer):
    name: StateName
    since: Moment = moment("since")
    why: str
    fix: str


class PipelineAnswer(Answer):
    name: str
    state: StateAnswer
    wanted: Wanted
    revision: int
    """The newest."""
    running_revision: int | None
    """The one that a process has; null without a process."""
    placement: Placement
    run: str | None
    rows: int | None
    """Changes delivered since the process began; null when that is not known."""
    lag_s: float | None
    """Of the flow that is furthest behind; null when that is not known."""

    @classmethod
    def of(cls, pipeline: Pipeline, run: Run | None, state: State, told: dict[str, Any]) -> PipelineAnswer:
        active = run if run is not None and run.state != "ended" else None
        wholes = [line for line in told.get("stages", []) if line["stage"] == "delivered"]
        lags = [line["lag_ms"] for line in wholes if line["lag_ms"] is not None]
        return cls(
            name=pipeline.name,
            state=StateAnswer.model_validate(state),
            wanted=pipeline.wanted,
            revision=pipeline.revision,
            running_revision=active.revision if active else None,
            placement=pipeline.placement,
            run=active.id if active else None,
            rows=sum(line["rows"] for line in wholes) if wholes else None,
            lag_s=max(lags) / 1000 if lags else None,
        )


class RevisionAnswer(Answer):
    pipeline: str
    number: int
    text: str
    author: str
    at: Moment = moment("at")


class RunAnswer(Answer):
    id: str
    revision: int
    placement: Placement
    state: RunState
    host: str
    pid: int | None
    attempt: int
    asked: Moment = moment("asked")
    began: Moment | None = moment("began")
    ended: Moment | None = moment("ended")
    code: int | None
    """Its exit code; null while it lives, and when it was ended from outside."""
    why: str
    fix: str


class StageAnswer(Answer):
    """What has passed a stage since the process began; null is unknown, never zero."""

    source: str
    stage: str
    flow: str
    table: str
    """Empty for all tables together."""
    rows: int
    failed: int
    bytes: int
    errors: int | None
    lag_ms: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    silent: bool | None
    rows_per_s: float | None
    """Over the last ten seconds or so; of a stage as a whole."""
    bytes_per_s: float | None
    watermark: Moment | None = moment("watermark")
    """Event time that has passed into the target, where the flow file asks for a watermark."""


class FiguresAnswer(Answer):
    at: Moment | None = moment("at")
    """When they were told; null when nothing was."""
    stages: list[StageAnswer]
    problems: list[str]


class LoadAnswer(Answer):
    """The full load of one table."""

    source: str
    table: str
    state: Literal["waiting", "loading", "paused", "loaded", "cancelled"]
    rows: int
    """Read since the process began."""
    rows_expected: int
    """By the source's own estimate."""
    shards: int
    """Parts that are planned so far; a few ahead of those that are done."""
    shards_done: int


class PathAnswer(Answer):
    """What has passed a source's log, or a flow's target from one source, since the process began; null is unknown, never zero."""

    source: str
    flow: str
    """Empty for a source's log."""
    rows: int
    failed: int
    errors: int | None
    rows_per_s: float | None
    bytes_per_s: float | None
    lag_ms: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    silent: bool | None
    watermark: datetime | None


class OverviewAnswer(Answer):
    name: str
    state: StateAnswer
    wanted: Wanted
    at: datetime | None
    """When its process told the rest; null without one."""
    sources: list[PathAnswer]
    flows: list[PathAnswer]


class ReaderAnswer(Answer):
    reader: str
    kind: str
    offset: int
    lag: int


class PartitionAnswer(Answer):
    topic: str
    partition: int
    start: int
    stop: int
    readers: list[ReaderAnswer]


class OperationAnswer(Answer):
    id: str
    pipeline: str
    kind: Kind
    options: dict[str, Any]
    user: str
    state: OperationState
    asked: Moment = moment("asked")
    ended: Moment | None = moment("ended")
    result: list[dict[str, Any]]
    """What the command printed, as JSON objects."""
    why: str
    fix: str

    @classmethod
    def of(cls, operation: Operation, now_us: int) -> OperationAnswer:
        return cls.model_validate({**asdict(operation), "state": operation.state(now_us)})


class EventAnswer(Answer):
    id: int
    at: Moment = moment("at")
    pipeline: str
    run: str | None
    kind: str
    message: str


class DeedAnswer(Answer):
    id: int
    at: Moment = moment("at")
    user: str
    address: str
    action: str
    object: str
    detail: str


class UserAnswer(Answer):
    name: str
    role: Role
    active: bool
    made: Moment = moment("made")


class TokenAnswer(Answer):
    id: str
    user: str
    name: str
    role: Role
    made: Moment = moment("made")
    expires: Moment = moment("expires")
    secret: str | None = None
    """Only in the answer to its making."""

    @classmethod
    def of(cls, token: Token, secret: str | None = None) -> TokenAnswer:
        return cls.model_validate({**asdict(token), "secret": secret})


class LeaderAnswer(Answer):
    holder: str
    address: str
    here: bool
    """Whether it is the server that answers."""


class LakeVersionAnswer(Answer):
    """One version of a table in a lake."""

    namespace: str
    files: int
    rows: int
    """Changes, not rows of the table."""
    bytes: int
    id: tuple[int, int]
    commit_time: tuple[datetime, datetime]
    operations: dict[str, int]


class HolderAnswer(Answer):
    """A member of a stage that is among the farthest behind: a host, a partition, a source."""

    name: str
    progress: Moment | None = moment("progress")
    silent_s: float
    """Since it was heard last."""
    share: float
    """Of all rows of the stage."""


class GoneAnswer(Answer):
    name: str
    state: str
    since: Moment = moment("since")


class WatermarkAnswer(Answer):
    """A stage: how far it is, and who holds it."""

    topology: str
    name: str
    members: int
    trouble: str
    input: Moment | None = moment("input")
    output: Moment | None = moment("output")
    overall: Moment | None = moment("global")
    """The low watermark of the whole topology."""
    lowest: list[HolderAnswer]
    gone: list[GoneAnswer]


class VerificationAnswer(Answer):
    """One table of one flow's target. Counts are null when it could not be compared: `problem` says why."""

    id: int
    pipeline: str
    flow: str
    source_table: str
    operation: str
    at: Moment = moment("at")
    ok: bool
    expected_rows: int | None
    actual_rows: int | None
    differing_keys: int | None
    changed: int | None
    """Keys that were changed meanwhile, and were judged by the log."""
    took_s: float
    differences: list[dict[str, Any]]
    """The first of them: `kind` (missing, extra, different), `key`, `expected`, `actual`."""
    problem: str
    fix: str


class ScheduleAnswer(Answer):
    every: int = Field(validation_alias="every_s")
    """Seconds."""
    options: dict[str, Any]
    author: str
    next: Moment = moment("next")
