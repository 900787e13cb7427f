"""Base of every configuration model: frozen, unknown keys refused, field docs kept for the generated reference."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationInfo

from headrace import registry
from headrace.errors import ConfigError

BASE = "base"
"""Key of the validation context: the directory that relative paths are relative to (the flow file's own)."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Model(BaseModel):
    """A piece of configuration. Immutable once built; a key that is not declared is an error, never ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        populate_by_name=True,
        hide_input_in_errors=True,  # URLs and others have passwords
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        """None: options have passwords in them, and what is printed of an object gets into logs."""
        return iter(())


class Component(Model):
    """Options of something that the registry knows by name: a sink, a log, a source."""

    type: str
    """The name in the registry."""


def config_of(kind: str) -> BeforeValidator:
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


class MaskConfig(Component):
    """Options that every mask has."""

    @property
    def keeps_rows_apart(self) -> bool:
        """The same value always becomes the same, different values become different ones: fit for a column of a key."""
        return False


def _of_column(pattern: str) -> str:
    if pattern.count(".") < 2 or not all(pattern.split(".", 2)):
        raise ValueError(f"write schema.table.column, not '{pattern}'")
    return pattern


class SourceConfig(Component):
    """Options that every source has."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    """The data source's name: second part of its namespaces, and its topic on the log."""
    partitions: int = Field(default=1, ge=1, le=256)
    """Into how many partitions of its topic its changes go, by their keys; lines of logs by their hosts. One keeps all of them in their order;
    with more, those of one key or host are in order, and transactions are whole in each partition only (docs/decisions/0016-partitions.md)."""
    mask: dict[
        Annotated[str, AfterValidator(_of_column)], Annotated[SerializeAsAny[MaskConfig], config_of("masks")]
    ] = Field(default_factory=dict)
    """What is never written in clear: ``{"shop.customers.phone": {type: hash, algorithm: sha256}}``. Names are compared without case,
    with ``*`` and ``?``; of several patterns that match a column the first counts."""

    def mask_pattern(self, schema: str, table: str, column: str) -> str | None:
        """The pattern in `mask` that counts for a column; None when there is none."""
        return next((pattern for pattern in self.mask if names_column(pattern, schema, table, column)), None)

    def is_masked(self, schema: str, table: str, column: str) -> bool:
        """Whether a column's values must not be written as they are."""
        pattern = self.mask_pattern(schema, table, column)
        return pattern is not None and self.mask[pattern].type != "keep"

    @property
    def reports_for_itself(self) -> bool:
        """Whether its changes come in the order of their commit times, so that it says alone how far it is; else its hosts do, or others."""
        return True

    @property
    def parted_by(self) -> str:
        """The column by which rows go to partitions; empty: the key of their table."""
        return ""

    @property
    def reads_from_log(self) -> list[str]:
        """Namespace patterns of what it reads from the same log; none where it reads something else."""
        return []

    @property
    def needs_watermark(self) -> bool:
        """Whether what it makes depends on how far the sources are that it reads from the log."""
        return False

    @property
    def heartbeat_every_s(self) -> float | None:
        """How often a sign of life is to come from this source; None when it sends none."""
        return None


def names_column(pattern: str, schema: str, table: str, column: str) -> bool:
    """Whether a pattern ``schema.table.column`` matches a column: without case, because servers compare column names so, and a mask
    had better match too much than too little."""
    parts = pattern.casefold().replace("[", "[[]").split(".", 2)
    return all(fnmatchcase(name.casefold(), part) for name, part in zip((schema, table, column), parts, strict=True))


def parse_duration(value: object) -> object:
    """Seconds from a number or from text such as ``500ms``, ``20s``, ``5m``, ``12h``, ``7d``."""
    if not isinstance(value, str):
        return value
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise ValueError("write a duration such as 500ms, 20s, 5m, 12h or 7d")
    return float(found[1]) * _SECONDS[found[2]]


def _local(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str) and "://" in value:
        raise ValueError(
            f"{value} is an address, not a path on this machine; of logs there are `type: hdfs` and `type: s3` for it"
        )
    return relative_to_base(value, info)


def relative_to_base(value: object, info: ValidationInfo) -> object:
    """A path in a flow file, which is relative to the file's directory."""
    base = (info.context or {}).get(BASE)
    if base is None or not isinstance(value, (str, Path)):
        return value
    return Path(base) / Path(value).expanduser()


def _url_relative_to_base(value: object, info: ValidationInfo) -> object:
    base = (info.context or {}).get(BASE)
    scheme, separator, path = value.partition(":///") if isinstance(value, str) else ("", "", "")
    if base is None or not separator or scheme not in {"sqlite", "duckdb"}:
        return value
    return f"{scheme}:///{Path(base) / Path(path).expanduser()}"


def names_server(url: str, *schemes: str) -> bool:
    """Whether a URL has one of these schemes, a host, and a port that is a number, or none."""
    parts = urlsplit(url)
    try:
        return parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


Duration = Annotated[float, BeforeValidator(parse_duration)]
"""Seconds; in YAML a number of seconds or text with a unit."""

LocalPath = Annotated[Path, BeforeValidator(_local)]
"""A path; in a flow file relative to the file's own directory."""

StoreUrl = Annotated[str, BeforeValidator(_url_relative_to_base)]
"""A store's URL; the file of ``sqlite:///FILE`` or ``duckdb:///FILE`` is relative to the flow file's directory like every other path."""
