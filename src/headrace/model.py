"""Base of every configuration model: frozen, unknown keys refused, field docs kept for the generated reference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

BASE = "base"
"""Key of the validation context: the directory that relative paths are relative to (the flow file's own)."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Model(BaseModel):
    """A piece of configuration. Immutable once built; a key that is not declared is an error, never ignored."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, populate_by_name=True
    )


class Component(Model):
    """Options of something that the registry knows by name: a sink, a log, a source."""

    type: str
    """The name in the registry."""


class SourceConfig(Component):
    """Options that every source has."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    """The data source's name: second part of its namespaces, and its topic on the log."""


def parse_duration(value: object) -> object:
    """Seconds from a number or from text such as ``500ms``, ``20s``, ``5m``, ``12h``, ``7d``."""
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise ValueError("write a duration such as 500ms, 20s, 5m, 12h or 7d")
    return float(found[1]) * _SECONDS[found[2]]


def _relative_to_base(value: object, info: ValidationInfo) -> object:
    base = (info.context or {}).get(BASE)
    if base is None or not isinstance(value, (str, Path)):
        return value
    return Path(base) / Path(value).expanduser()


def _url_relative_to_base(value: object, info: ValidationInfo) -> object:
    base = (info.context or {}).get(BASE)
    prefix = "sqlite:///"
    if base is None or not isinstance(value, str) or not value.startswith(prefix):
        return value
    return f"{prefix}{Path(base) / Path(value.removeprefix(prefix)).expanduser()}"


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds; in YAML a number of seconds or text with a unit."""

LocalPath = Annotated[Path, BeforeValidator(_relative_to_base)]
"""A path; in a flow file relative to the file's own directory."""

StoreUrl = Annotated[str, BeforeValidator(_url_relative_to_base)]
"""A store's URL; the file of ``sqlite:///FILE`` is relative to the flow file's directory like every other path."""
