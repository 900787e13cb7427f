"""Options of Spark, which are texts under names without case, into configurations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from uuid import uuid4

from pydantic import Field, ValidationError, model_validator

from headrace.errors import ConfigError
from headrace.model import Duration, Model
from headrace.storage.location import Location, scheme_of
from headrace.storage.options import StoreOptions
from headrace.stream.sources.own_log import OwnLog

M = TypeVar("M", bound=Model)
HOUR_S = 3600.0
_OF_PATH = "path."
_SAID = {
    name.lower(): name
    for name in ("startingOffsets", "endingOffsets", "maxRowsPerTrigger", "maxRegions", "beforeImages", "giveUpAfter")
} | {"start": "startingOffsets"}
"""Options as people write them."""
_PLAINLY = {"missing": "it is missing", "extra_forbidden": "there is no such option"}
"""What pydantic says for programmers."""


class QueryOptions(Model):
    """What both sources take besides where they read. Names are those of Spark in small letters."""

    path: Location | None = None
    """The directory that is the query's own, of the machines or ``hdfs://…``, ``s3://…``: its log, and versions of tables. A batch with it reads
    that log, without it the source."""
    store: StoreOptions = Field(default=StoreOptions(), alias="path.")
    """How the store of `path` is reached: options `path.web`, `path.endpoint`, …"""
    form: Literal["columns", "value"] | None = None
    """Typed columns of one table, or one value column of any; by default columns when `tables` names one table."""
    starting: str = Field(default="earliest", alias="startingoffsets")
    ending: str = Field(default="latest", alias="endingoffsets")
    """Of a batch."""
    most_rows: int = Field(default=0, alias="maxrowspertrigger", ge=0)
    """How many rows a batch of a stream has, about; 0: all that is there."""
    retention: Duration = Field(default=HOUR_S, ge=HOUR_S)
    """How long entries of the own log stay that Spark has read."""
    give_up_after: Duration = Field(default=60.0, alias="giveupafter", ge=0)
    """How long an outage of the source is waited out before the query fails."""
    name: str | None = None
    """The source's name in namespaces; made of `path` when left out."""

    def own(self, spark_format: str) -> OwnLog:
        if self.place is None:
            raise ConfigError(
                f"a stream of format {spark_format} needs the option 'path'",
                fix="name a directory that stays: there the consumer writes its log, from which the query goes on",
            )
        return OwnLog(self.place, self.source_name, self.retention, self.store)

    @property
    def bounds(self) -> dict[str, str]:
        """Where a batch begins and ends."""
        return {"startingOffsets": self.starting, "endingOffsets": self.ending}

    def require_a_stream(self, spark_format: str) -> None:
        """ConfigError for what is said of a batch only."""
        if "ending" in self.model_fields_set or self.starting.isdecimal():
            wrong = "endingOffsets" if "ending" in self.model_fields_set else "startingOffsets"
            raise ConfigError(
                f"a stream of format {spark_format} does not take the option '{wrong}' {self.bounds[wrong]}",
                fix="a stream begins at earliest, latest, a place of the source or a time, and has no end; ids are for batches",
            )

    @property
    def source_name(self) -> str:
        """Stable as long as `path` is, and no other query's: a server tells its replicas apart by it."""
        if self.name is not None:
            return self.name
        if self.place is None:
            return f"spark-{uuid4().hex[:12]}"
        return f"spark-{hashlib.sha256(str(self.place).encode()).hexdigest()[:12]}"

    @property
    def place(self) -> str | Path | None:
        """`path`, the same from whichever directory it is seen."""
        if self.path is None or scheme_of(self.path):
            return self.path
        return Path(self.path).expanduser().absolute()

    @model_validator(mode="after")
    def _store_is_of_path(self) -> Self:
        self.store.must_fit({scheme_of(self.path)} if self.path is not None else ())
        return self


def parted(options: Mapping[str, str], model: type[M], spark_format: str) -> tuple[M, dict[str, str]]:
    """The options that a model has, and the others."""
    given = {name.lower(): text for name, text in options.items()}
    known = {field.alias or name for name, field in model.model_fields.items()}
    of_path = {name: text for name, text in given.items() if name.startswith(_OF_PATH)}
    store = {_OF_PATH: {name.removeprefix(_OF_PATH): text for name, text in of_path.items()}} if of_path else {}
    mine = {name: text for name, text in given.items() if name in known}
    rest = {name: text for name, text in given.items() if name not in known and name not in of_path}
    return checked(model, mine | store, spark_format), rest


def checked(model: type[M], values: Mapping[str, Any], spark_format: str) -> M:
    """A configuration of options; ConfigError names the one that is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        [first, *_] = error.errors()
        option = ".".join(str(part) for part in first["loc"])
        option = _SAID.get(option, option)
        what = f"option '{option}' of format {spark_format}" if option else f"format {spark_format}"
        said = _PLAINLY.get(first["type"], first["msg"].removeprefix("Value error, "))
        raise ConfigError(f"{what}: {said}", fix="correct it (docs/how-to/spark-sources.md)") from error


def nested(options: Mapping[str, str], lists: frozenset[str]) -> dict[str, Any]:
    """Options as a flow file has them: levels by dots, lists by commas."""
    values: dict[str, Any] = {}
    for name, text in options.items():
        *levels, last = name.split(".")
        place = values
        for level in levels:
            place = place.setdefault(level, {})
        place[last] = [part.strip() for part in text.split(",")] if name in lists else text
    return values


def masks(options: Mapping[str, str], spark_format: str) -> dict[str, Any]:
    """The option `mask`: what a flow file has under that name, as JSON."""
    if "mask" not in options:
        return {}
    found: object = None
    with suppress(ValueError):
        found = json.loads(options["mask"])
    if not isinstance(found, dict):
        raise ConfigError(
            f"option 'mask' of format {spark_format} is no JSON object",
            fix='write {"shop.customers.phone": {"type": "hash", "algorithm": "sha256"}}: what a flow file has under `mask`',
        )
    return {"mask": found}


def refuse(options: Mapping[str, str], names: Collection[str], spark_format: str) -> None:
    """ConfigError for what a flow file has and a query does not take."""
    for option in options:
        if option.partition(".")[0] in names:
            raise ConfigError(
                f"format {spark_format} does not take the option '{option}'",
                fix="a flow file has it (`headrace run`); where to begin is `startingOffsets` here",
            )


def in_columns(options: QueryOptions, tables: Sequence[str]) -> bool:
    """Whether rows have typed columns, not one value. ConfigError when they cannot."""
    is_one = len(tables) == 1 and not set("*?[") & set(tables[0])
    if options.form == "columns" and not is_one:
        raise ConfigError(
            f"`form` columns is of one table, and `tables` is {', '.join(tables)}",
            fix="name one table in full, or use `form` value",
        )
    return options.form != "value" and is_one
