"""The watermark of a flow file: the server that keeps it, and who is expected in the file's sources."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from headrace.model import Model
from headrace.watermark.topology import Membership, Name


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class WatermarkSpec(Model):
    """How far event time is complete, from the sources to all targets (docs/how-to/watermark.md)."""

    url: Annotated[list[Annotated[str, Field(pattern=r"^https?://")]], BeforeValidator(_as_list)] = Field(
        default_factory=list
    )
    """The Watermark Servers, all over one store. When left out, each run of this file has a server of its own, with its store under `state`."""
    token: str | None = Field(default=None, repr=False)
    """What the servers ask for."""
    topology: Name = "run"
    """The name of this file's application at the servers; needed with `url`."""
    listen: Annotated[str, Field(pattern=r"^[^\s:]+:\d{1,5}$")] = "127.0.0.1:0"
    """Where a server of the run's own is to be found, for `headrace watermark show`; port 0 is any that is free."""
    sources: dict[str, Membership] = Field(default_factory=dict)
    """Of sources whose lines come from hosts: who is expected, and how many may be late, by the source's name."""

    @model_validator(mode="after")
    def _own_or_others(self) -> Self:
        if self.url and "topology" not in self.model_fields_set:
            raise ValueError("say under which name (`topology`) the servers at `url` are to know this file")
        if self.url and "listen" in self.model_fields_set:
            raise ValueError("`listen` is of a server of the run's own: leave it or `url` out")
        return self
