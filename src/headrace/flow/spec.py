"""The flow file as a model. A store's or source's own options are the `Config` of its class (registry.py)."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationInfo, model_validator

from headrace import registry
from headrace.errors import ConfigError
from headrace.model import Component, Duration, LocalPath, Model, SourceConfig


def _config_of(kind: str) -> BeforeValidator:
    """Turns a mapping with a `type` into the Config of the class that the registry has under that name."""

    def build(value: object, info: ValidationInfo) -> object:
        if not isinstance(value, dict):
            return value
        if "type" not in value:
            raise ValueError(f"say which with `type:`, one of {', '.join(registry.names(kind))}")
        try:
            config: type[Component] = getattr(registry.load(kind, str(value["type"])), "Config")  # noqa: B009
        except ConfigError as error:
            raise ValueError(f"{error.message}; {error.fix}") from error
        return config.model_validate(value, context=info.context)

    return BeforeValidator(build)


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


_CREDENTIALS = re.compile(r"//[^@/\"]*@")


class ColumnsSpec(Model):
    """Which columns of the source a target gets, and under which names."""

    drop: list[str] = Field(default_factory=list)
    """Columns to leave out (a key column cannot be left out)."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Source name -> target name."""


class FlowSpec(Model):
    """One flow: namespaces from the log into one target."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    """Unique in the file; positions are kept under it, so renaming a flow starts it anew."""
    sources: Annotated[list[str], BeforeValidator(_as_list), Field(alias="from", min_length=1)]
    """Namespace patterns, for instance ``mysql.db1.shop.*``; parts left out at the end match everything."""
    exclude: Annotated[list[str], BeforeValidator(_as_list)] = Field(default_factory=list)
    """Namespace patterns that `from` would match and the flow is not to take."""
    to: Annotated[SerializeAsAny[Component], _config_of("sinks")]
    """The target: `type` and the options of that store."""
    delete: Literal["soft", "hard"] | None = None
    """What a delete at the source does in a database: `soft` keeps the row with `_is_active_` = 0, `hard` removes it; soft when left out."""
    columns: ColumnsSpec = ColumnsSpec()
    """Columns to drop or rename on the way."""
    key: dict[str, list[str]] = Field(default_factory=dict)
    """Key columns, never null and never changed, of tables that have no primary key: ``{"shop.visits": [day, page]}``."""

    @model_validator(mode="after")
    def _target_can_delete(self) -> FlowSpec:
        if self.delete is not None and "delete" not in type(self.to).model_fields:
            raise ValueError(f"a target of type {self.to.type} keeps every change: leave `delete` out")
        return self

    def may_take(self, source: SourceConfig) -> bool:
        """Whether `from` can match anything of a source: the first two parts of a namespace are its type and name."""
        for pattern in self.sources:
            type_, _, rest = pattern.partition(".")
            if fnmatchcase(source.type, type_) and fnmatchcase(source.name, rest.partition(".")[0] or "*"):
                return True
        return False

    def fingerprint(self) -> str:
        """What a position of this flow belongs to: what it takes and where it brings it, without passwords."""
        target = self.to.model_dump_json(include={"type", "url", "path", "db_schema", "table"})
        without = f" without {sorted(self.exclude)}" if self.exclude else ""
        return f"{sorted(self.sources)}{without} -> {_CREDENTIALS.sub('//', target)}"

    def target(self) -> Component:
        """The target's options with what the flow says about it."""
        return self.to if self.delete is None else self.to.model_copy(update={"delete": self.delete})


class PipelineSpec(Model):
    """A flow file: sources, the log between, and flows."""

    source: Annotated[list[Annotated[SerializeAsAny[SourceConfig], _config_of("sources")]], BeforeValidator(_as_list)]
    """What is captured: one source or a list of them."""
    log: Annotated[SerializeAsAny[Component], _config_of("logs")]
    """Where changes rest between capture and delivery."""
    state: LocalPath
    """Directory of positions, checkpoints and schema versions."""
    flows: list[FlowSpec] = Field(default_factory=list)
    """What is delivered where; none in a file for `headrace capture`."""
    epoch: Annotated[Duration, Field(gt=0.2)] = 300.0
    """How long a following epoch lasts; a shorter one makes stopping and Spark's bookkeeping finer, a longer one latency smoother."""
    give_up_after: Annotated[Duration, Field(ge=0)] = 60.0
    """How long a source or target may stay away before the run ends with an error (nothing is lost: start again)."""

    @model_validator(mode="after")
    def _unique_names(self) -> PipelineSpec:
        for what, used in (
            ("source", [source.name for source in self.source]),
            ("flow", [flow.name for flow in self.flows]),
        ):
            twice = sorted({name for name in used if used.count(name) > 1})
            if twice:
                raise ValueError(f"{what} names must be unique; used twice: {', '.join(twice)}")
        return self

    @model_validator(mode="after")
    def _places_keep_apart(self) -> PipelineSpec:
        places = {"state": self.state, "log": getattr(self.log, "path", None)}
        places |= {f"the lake of flow {flow.name}": getattr(flow.to, "path", None) for flow in self.flows}
        taken = {what: Path(path).resolve() for what, path in places.items() if path is not None}
        for (one, here), (other, there) in combinations(taken.items(), 2):
            both_lakes = "lake" in one and "lake" in other
            if not both_lakes and (here == there or here in there.parents or there in here.parents):
                raise ValueError(f"{one} and {other} must not be in one another: {here}, {there}")
        return self

    @model_validator(mode="after")
    def _sources_keep_apart(self) -> PipelineSpec:
        for flow in self.flows:
            taken = [source.name for source in self.source if flow.may_take(source)]
            if not taken:
                raise ValueError(f"flow {flow.name}: `from` matches none of the sources; begin with type.name")
            if len(taken) > 1 and "{source}" not in getattr(flow.to, "table", "{source}"):
                raise ValueError(
                    f"flow {flow.name} would write tables of {' and '.join(taken)} into the same target tables; tell them apart"
                    ' with `table: "{source}_{table}"` in `to`, or write a flow for each'
                )
        return self
