"""Base of every configuration model: frozen, unknown keys refused, field docs kept for the generated reference."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Model(BaseModel):
    """A piece of configuration. Immutable once built; a key that is not declared is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
