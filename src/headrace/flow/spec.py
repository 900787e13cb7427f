"""The flow file as a model. A store's or source's own options are the `Config` of its class (registry.py)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import combinations
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from headrace.compute.steps import AnyStep, Sql, Step
from headrace.flow.monitoring import InfluxSpec, LineageSpec, TracesSpec
from headrace.flow.watermark import WatermarkSpec
from headrace.model import Component, Duration, LocalPath, Model, SourceConfig, config_of
from headrace.on_change import OnChange
from headrace.ums.system_columns import SystemColumns


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


_PLACE = {"type", "url", "path", "db_schema", "table", "topic", "function", "index", "hosts", "keyspace"}
"""Options of targets that say where rows go."""
_CREDENTIALS = re.compile(r"//[^@/\"]*@")


def may_match(patterns: Sequence[str], source: SourceConfig) -> bool:
    """Whether namespace patterns can match anything of a source: the first two parts of a namespace are its type and name."""
    for pattern in patterns:
        type_, _, rest = pattern.partition(".")
        if fnmatchcase(source.type, type_) and fnmatchcase(source.name, rest.partition(".")[0] or "*"):
            return True
    return False


class ColumnsSpec(Model):
    """Which columns of the source a target gets, and under which names."""

    keep: list[str] = Field(default_factory=list)
    """Only these and the columns of the key; all when left out. Columns that come later are not among them."""
    drop: list[str] = Field(default_factory=list)
    """Columns to leave out (a key column cannot be left out)."""
    rename: dict[str, str] = Field(default_factory=dict)
    """Source name -> target name."""

    @model_validator(mode="after")
    def _one_way_of_choosing(self) -> ColumnsSpec:
        if self.keep and self.drop:
            raise ValueError("say which columns to `keep` or which to `drop`, not both")
        return self


class SetAside(Model):
    """How many rows that the target refuses may go to the error ledger, instead of stopping the flow."""

    rows: Annotated[int, Field(ge=1)] | None = None
    """So many of one topic may wait there for a replay."""
    percent: Annotated[float, Field(gt=0, le=100)] | None = None
    """Of the rows read in one epoch of a partition; where they are fewer than 10,000, of 10,000."""

    @model_validator(mode="after")
    def _has_a_limit(self) -> SetAside:
        if self.rows is None and self.percent is None:
            raise ValueError("say how many: `rows`, `percent` or both")
        return self


def _set_aside(value: object) -> object:
    """``100``, ``"1%"`` or a mapping."""
    if isinstance(value, str) and value.endswith("%"):
        return {"percent": value.removesuffix("%")}
    return {"rows": value} if isinstance(value, (int, str)) else value


class FlowSpec(Model):
    """One flow: namespaces from the log into one target."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    """Unique in the file; positions are kept under it, so renaming a flow starts it anew."""
    sources: Annotated[list[str], BeforeValidator(_as_list), Field(alias="from", min_length=1)]
    """Namespace patterns, for instance ``mysql.db1.shop.*``; parts left out at the end match everything."""
    exclude: Annotated[list[str], BeforeValidator(_as_list)] = Field(default_factory=list)
    """Namespace patterns that `from` would match and the flow is not to take."""
    to: Annotated[SerializeAsAny[Component], config_of("sinks")]
    """The target: `type` and the options of that store."""
    delete: Literal["soft", "hard"] | None = None
    """What a delete at the source does in a database: `soft` keeps the row with `_is_active_` = 0, `hard` removes it; soft when left out."""
    system_columns: SystemColumns | None = None
    """What the target calls the columns that headrace adds to its rows: ``{id: ums_id, active: is_active}``."""
    columns: ColumnsSpec = ColumnsSpec()
    """Columns to drop or rename on the way."""
    sql: str | None = None
    """Computes the rows that the target gets, each of one row: ``SELECT id, amount * 1.2 AS gross FROM orders WHERE status = 'paid'``
    (docs/how-to/sql.md)."""
    steps: list[AnyStep] = Field(default_factory=list)
    """The same in several steps, one after the other: ``[{do: filter, where: "amount > 10"}, {do: set, columns: {gross: "amount * 1.2"}}]``."""
    on_change: OnChange = OnChange()
    """What the flow does when tables change at the source: one word for all, or a word per kind (docs/schema-changes.md)."""
    key: dict[str, list[str]] = Field(default_factory=dict)
    """Key columns, never null and never changed, of tables that have no primary key: ``{"shop.visits": [day, page]}``."""
    set_aside: Annotated[SetAside | None, BeforeValidator(_set_aside)] = None
    """Rows that the target refuses go to the error ledger, up to ``100`` of them, ``1%``, or ``{rows: 100, percent: 1}``, and the others go on
    (docs/how-to/refused-rows.md); when left out the flow stops at the first."""
    rate: Annotated[float, Field(gt=0)] | None = None
    """At most so many rows a second of each source; as many as come when left out."""

    @model_validator(mode="after")
    def _computes_in_one_way(self) -> FlowSpec:
        if self.sql is not None and self.steps:
            raise ValueError("write `sql` or `steps`, not both; a step may be SQL, `{do: sql, query: …}`")
        return self

    @model_validator(mode="after")
    def _target_can_delete(self) -> FlowSpec:
        if self.delete is not None and "delete" not in type(self.to).model_fields:
            raise ValueError(f"a target of type {self.to.type} keeps every change: leave `delete` out")
        return self

    @model_validator(mode="after")
    def _target_has_system_columns(self) -> FlowSpec:
        if self.system_columns is not None and "system_columns" not in type(self.to).model_fields:
            raise ValueError(
                f"the columns of a target of type {self.to.type} have names of their own: leave `system_columns` out"
            )
        return self

    def may_take(self, source: SourceConfig) -> bool:
        """Whether `from` can match anything of a source."""
        return may_match(self.sources, source)

    @property
    def computing(self) -> list[Step]:
        """What is computed on the way, step by step; nothing mostly."""
        return [*self.steps] if self.sql is None else [Sql(do="sql", query=self.sql)]

    def fingerprint(self) -> str:
        """What a position of this flow belongs to: what it takes and where it brings it, without passwords."""
        target = self.to.model_dump_json(include=_PLACE)
        without = f" without {sorted(self.exclude)}" if self.exclude else ""
        return f"{sorted(self.sources)}{without} -> {_CREDENTIALS.sub('//', target)}"

    def target(self) -> Component:
        """The target's options with what the flow says about it."""
        said = {"delete": self.delete, "on_change": self.on_change, "system_columns": self.system_columns}
        known = {name: said[name] for name in said.keys() & type(self.to).model_fields.keys() if said[name] is not None}
        return self.to.model_copy(update=known)


class MetricsSpec(Model):
    """Where figures are served for Prometheus: ``9108``, ``"0.0.0.0:9108"`` or a mapping."""

    host: str = "127.0.0.1"
    """The address to listen on; ``0.0.0.0`` for all of this machine's."""
    port: Annotated[int, Field(ge=1, le=65535)]

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> MetricsSpec:
        """Reads HOST:PORT, or a port alone; ValueError when it is neither."""
        host, colon, port = text.rpartition(":")
        if not port.isascii() or not port.isdecimal() or not 0 < int(port) <= 65535 or (colon and not host):
            raise ValueError(f"write HOST:PORT or a port, not '{text}'")
        return cls(host=host.strip("[]"), port=int(port)) if host else cls(port=int(port))


def _metrics(value: object) -> object:
    return MetricsSpec.parse(str(value)) if isinstance(value, (str, int)) else value


class SparkSpec(Model):
    """Where the tasks of `headrace run` work: on this machine, or on the executors of a cluster (docs/how-to/cluster.md)."""

    master: Annotated[str, Field(min_length=1)] | None = None
    """The cluster, as Spark names it: ``spark://spark1:7077``, ``yarn``, ``k8s://…``; this machine when left out."""
    config: dict[str, Annotated[str, Field(coerce_numbers_to_str=True)]] = Field(default_factory=dict)
    """Settings of Spark: ``{spark.executor.memory: 2g}``. They go before headrace's own."""

    @model_validator(mode="after")
    def _one_master(self) -> SparkSpec:
        if "spark.master" in self.config:
            raise ValueError("name the cluster by `master`, not in `config`")
        return self


class PipelineSpec(Model):
    """A flow file: sources, the log between, and flows."""

    source: Annotated[list[Annotated[SerializeAsAny[SourceConfig], config_of("sources")]], BeforeValidator(_as_list)]
    """What is captured: one source or a list of them."""
    log: Annotated[SerializeAsAny[Component], config_of("logs")]
    """Where changes rest between capture and delivery."""
    state: LocalPath
    """Directory of positions, checkpoints and schema versions."""
    flows: list[FlowSpec] = Field(default_factory=list)
    """What is delivered where; none in a file for `headrace capture`."""
    epoch: Annotated[Duration, Field(gt=0.2)] = 300.0
    """How long a following epoch lasts; a shorter one makes stopping and Spark's bookkeeping finer, a longer one latency smoother."""
    give_up_after: Annotated[Duration, Field(ge=0)] = 60.0
    """How long a source or target may stay away before the run ends with an error (nothing is lost: start again)."""
    spark: SparkSpec = SparkSpec()
    """Where the tasks work; on this machine when left out."""
    metrics: Annotated[MetricsSpec | None, BeforeValidator(_metrics)] = None
    """Where figures are served for Prometheus while this file runs; nowhere when left out."""
    influx: InfluxSpec | None = None
    """Figures of each period for InfluxDB, to its server or into a file; nowhere when left out."""
    traces: TracesSpec | None = None
    """Spans for OpenTelemetry; none when left out."""
    lineage: LineageSpec | None = None
    """OpenLineage events of flows and their tables; none when left out."""
    watermark: WatermarkSpec | None = None
    """Keeps how far event time is complete, and closes the lake's windows by it; when left out they close by the sources' commit times."""

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
        taken = {
            what: path.resolve() if isinstance(path, Path) else PurePosixPath(path)
            for what, path in places.items()
            if path is not None
        }
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
            apart = getattr(flow.to, "merge", False) or "{source}" in getattr(flow.to, "table", "{source}")
            if len(taken) > 1 and not apart:
                raise ValueError(
                    f"flow {flow.name} would write tables of {' and '.join(taken)} into the same target tables; tell them apart"
                    ' with `table: "{source}_{table}"` in `to`, merge them with `merge: true` there, or write a flow for each'
                )
        return self

    @model_validator(mode="after")
    def _computed_from_others(self) -> PipelineSpec:
        behind: list[str] = []
        left = list(self.source)
        while left:
            ready = [source for source in left if all(each.name in behind for each in self.inputs_of(source))]
            if not ready:
                raise ValueError(
                    f"the sources {', '.join(source.name for source in left)} are computed from one another"
                )
            behind += [source.name for source in ready]
            left = [source for source in left if source not in ready]
        for source in self.source:
            for pattern in source.reads_from_log:
                if not any(may_match([pattern], other) for other in self.inputs_of(source)):
                    raise ValueError(
                        f"source {source.name}: `{pattern}` matches none of the other sources; begin with type.name"
                    )
        return self

    @model_validator(mode="after")
    def _watermark_where_it_is_needed(self) -> PipelineSpec:
        for source in self.source if self.watermark is None else ():
            hosts = [other.name for other in self.inputs_of(source) if not other.reports_for_itself]
            if source.needs_watermark and hosts:
                raise ValueError(
                    f"source {source.name} has windows over {', '.join(hosts)}, whose times are those of many hosts or applications:"
                    " write `watermark: {}` into the file, and who is expected"
                )
        return self

    @property
    def is_exported(self) -> bool:
        """Whether others than Prometheus are told how a run of it goes."""
        return any(option is not None for option in (self.influx, self.traces, self.lineage))

    def inputs_of(self, source: SourceConfig) -> list[SourceConfig]:
        """The sources whose changes a source may be computed from."""
        return [other for other in self.source if may_match(source.reads_from_log, other) and other is not source]

    @model_validator(mode="after")
    def _watermark_is_of_this_file(self) -> PipelineSpec:
        by_name = {source.name: source for source in self.source}
        for name in self.watermark.sources if self.watermark is not None else ():
            if name not in by_name:
                raise ValueError(f"`watermark` names the source {name}, which is none of {', '.join(by_name)}")
            if by_name[name].reports_for_itself:
                raise ValueError(
                    f"`watermark` says who may be late in the source {name}, whose log is one, in its order: leave it out there"
                )
        if self.watermark is not None and not self.watermark.url and self.spark.master is not None:
            raise ValueError(
                f"a run on {self.spark.master} needs Watermark Servers that its executors reach: name them in `watermark`, `url`"
            )
        return self

    @model_validator(mode="after")
    def _keys_keep_rows_apart(self) -> PipelineSpec:
        for flow in self.flows:
            named = [(table, column) for table, columns in flow.key.items() for column in columns]
            for source in (source for source in self.source if flow.may_take(source)):
                for table, column in named:
                    pattern = source.mask_pattern(*table.partition(".")[::2], column)
                    if pattern and not source.mask[pattern].keeps_rows_apart:
                        raise ValueError(
                            f"flow {flow.name}: mask `{pattern}` would make different rows one, as `key` names {table}.{column};"
                            " mask a key with `hash`, without `salt_column`"
                        )
        return self
