"""What care is taken of a lake, and how often."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headrace.lake.states import STATE_CHANGES
from headrace.model import Duration, Model

_US = 1_000_000


class Policy(Model):
    """Care of a lake: small files merged, states written, history and retired files given up in their time."""

    every: Annotated[Duration, Field(gt=0)] = 600.0
    """How often `headrace run` looks whether there is something to do."""
    period: Annotated[Duration, Field(ge=1)] = 86400.0
    """Small files whose newest change was committed in the same period are merged, once it is over: ``1d``, ``1h``."""
    target_bytes: Annotated[int, Field(ge=1 << 10)] = 128 << 20
    """The size that merged files are meant to have."""
    grace: Annotated[Duration, Field(ge=0)] = 3600.0
    """How long a file that others have taken the place of stays for readers that are at work."""
    keep: Annotated[Duration, Field(ge=0)] | None = None
    """How far back each moment of a table can be restored; older changes that were overwritten are left out. Unset: all is kept."""
    state_changes: Annotated[int, Field(ge=1)] = STATE_CHANGES
    """A table's live rows are written down after so many changes, or as many as it has rows if these are more."""

    @property
    def period_us(self) -> int:
        return int(self.period * _US)
