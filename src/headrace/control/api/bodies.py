"""What requests hold. A field that is not declared is refused, and so is a value of another type."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from headrace.control.alerts.rules import Pattern
from headrace.control.people import SHORTEST_PASSWORD, Role
from headrace.control.placement import Local, Placement

PipelineName = Annotated[
    str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="Lower-case letters, digits, - and _.")
]
UserName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$")]
Text = Annotated[str, Field(max_length=500_000, description="A flow file (YAML). Secrets are written as ${NAME}.")]
FlowName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
TableName = Annotated[str, Field(pattern=r"^[^\x00-\x1f-][^\x00-\x1f]{0,500}$", description="schema.table")]
_Password = Annotated[str, Field(min_length=1, max_length=200)]
_Word = Annotated[str, Field(pattern=r"^[^\x00-\x1f]{1,200}$")]


class Body(BaseModel):
    """Of a request."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )


class Limit(Body):
    """Of a list: the newest first."""

    model_config = ConfigDict(strict=False)  # a query has text alone

    limit: Annotated[int, Field(ge=1, le=200)] = 50


class Page(Limit):
    """Of a list that grows for ever: those before an id."""

    before: Annotated[int, Field(ge=1, le=2**31)] | None = None


class LogIn(Body):
    name: Annotated[str, Field(max_length=100)]
    password: _Password


class NewPipeline(Body):
    name: PipelineName
    text: Text
    placement: Placement = Local()


class ChangedPipeline(Body):
    text: Text
    base: Annotated[int, Field(ge=1, le=2**31)]
    """The revision that the change was made of."""


class CheckedText(Body):
    text: Text
    name: PipelineName = "draft"


class Drift(Body):
    placement: Placement


class Replay(Body):
    flow: _Word | None = None


class VerifyRows(Body):
    flow: FlowName | None = None
    """Only the target of this flow."""
    table: list[_Word] = []
    """As schema.table, with * and ?; all when left out."""
    against: FlowName | None = None
    """Hold it against the target of this flow; against the source when left out."""
    repair: bool = False
    """Load again what differs."""


class Verify(VerifyRows):
    windows: bool = False
    """Check the certificates of the lakes' windows instead, against all files, read again; goes with nothing else."""


class NewSchedule(VerifyRows):
    every: Annotated[int, Field(ge=60, le=366 * 86_400)]
    """Seconds."""


class NewSilence(Body):
    rule: Pattern = "*"
    """Of which rules; with * and ?."""
    pipeline: Pattern = "*"
    """Of which pipelines; with * and ?."""
    seconds: Annotated[int, Field(ge=60, le=366 * 86_400)]
    """For how long, from now on."""
    reason: Annotated[str, Field(min_length=1, max_length=500)]


class Load(Body):
    table: list[_Word] = []
    where: Annotated[str, Field(max_length=2000)] | None = None


class CancelLoad(Body):
    table: list[_Word] = []
    """As schema.table, with * and ?; all when left out."""


class Backfill(Body):
    to_flow: _Word
    from_flow: _Word | None = None
    from_: Annotated[_Word | None, Field(alias="from")] = None
    to: _Word | None = None
    table: list[_Word] = []
    replace: bool = False


class NewUser(Body):
    name: UserName
    role: Role
    password: Annotated[str, Field(min_length=SHORTEST_PASSWORD, max_length=200)]


class ChangedUser(Body):
    role: Role | None = None
    active: bool | None = None
    password: Annotated[str, Field(min_length=SHORTEST_PASSWORD, max_length=200)] | None = None


class NewPassword(Body):
    current: _Password
    new: Annotated[str, Field(min_length=SHORTEST_PASSWORD, max_length=200)]


class NewToken(Body):
    name: _Word
    role: Role
    days: Annotated[int, Field(ge=1, le=3650)] = 90
