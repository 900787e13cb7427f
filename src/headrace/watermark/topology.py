"""What a client registers: the stages of an application, and who is expected in each."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from headrace.model import Duration, LocalPath, Model

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}$")]


class Expected(Model):
    """The list of a stage's members, or where it is kept. Exactly one of them."""

    names: Annotated[list[str], Field(min_length=1)] | None = None
    """The list itself."""
    file: LocalPath | None = None
    """A file with one name a line; ``#`` begins a remark."""
    url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    """A naming service that answers GET with a JSON list of names."""
    dns: str | None = None
    """A name whose addresses are the members."""
    every: Duration = 10.0
    """How often it is looked at."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(place is not None for place in (self.names, self.file, self.url, self.dns)) != 1:
            raise ValueError("say one of `names`, `file`, `url` and `dns`")
        return self


class Membership(Model):
    """Who must report in a stage, and how many of them may be late."""

    tolerate: float = Field(default=0.0, ge=0, lt=1)
    """Which share may be late without holding the watermark: 0.001 waits for 99.9 %."""
    by: Literal["volume", "hosts"] = "volume"
    """What the share is of: of the rows that members usually send, or of their number."""
    grace: Duration = 15.0
    """How long those within the tolerated share are waited for after all others have passed."""
    lease: Duration | None = None
    """A member that is silent for longer is abandoned: it is listed as such, and holds the watermark no more. Never when left out."""
    expected: Expected | None = None
    """Who must report. When left out, whoever has joined."""


class Stage(Membership):
    """A source, an operator or a sink. Its members are hosts, processes or groups of keys: whoever reports progress."""

    name: Name
    after: list[Name] = Field(default_factory=list)
    """The stages whose output it reads; none for a source."""


class Topology(Model):
    """An application: its stages, each after those whose output it reads."""

    name: Name
    stages: Annotated[list[Stage], Field(min_length=1)]

    @model_validator(mode="after")
    def _is_one_graph(self) -> Self:
        names = [stage.name for stage in self.stages]
        if len(set(names)) != len(names):
            raise ValueError("two stages have the same name")
        for stage in self.stages:
            for before in stage.after:
                if before not in names:
                    raise ValueError(f"stage {stage.name} is after {before}, which is no stage of {self.name}")
        try:
            self.in_order()
        except CycleError as error:
            raise ValueError(f"the stages {', '.join(error.args[1])} follow each other in a circle") from error
        return self

    def in_order(self) -> list[Stage]:
        """The stages, each behind all that it is after."""
        by_name = {stage.name: stage for stage in self.stages}
        order = TopologicalSorter({stage.name: stage.after for stage in self.stages}).static_order()
        return [by_name[name] for name in order]

    def last(self) -> Iterator[Stage]:
        """The stages that nobody is after: what has left them is done."""
        followed = {name for stage in self.stages for name in stage.after}
        return (stage for stage in self.stages if stage.name not in followed)
