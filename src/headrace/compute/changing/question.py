"""What can be told of the SQL of a computed table from its text: which inputs it reads, which columns it may need, and that its answer depends
on its inputs alone.

DuckDB's own parser reads it, as it reads that of flows (compute/query.py).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.compute.engine import Engine
from headrace.compute.query import parts, short
from headrace.errors import ConfigError

Json = dict[str, Any]
_TIMES = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"}
"""Functions that SQL writes as if they were columns."""
_FIX = "write one SELECT over the inputs that `from` names"


@dataclass(frozen=True, slots=True)
class Question:
    """A SELECT over inputs. `node` is its tree, as DuckDB tells it."""

    sql: str
    node: Json
    names: frozenset[str]
    """Every name of a column in it, in lower case."""
    takes_all: bool
    """It says ``*`` somewhere, or NATURAL."""

    @classmethod
    def parse(cls, engine: Engine, sql: str, inputs: Collection[str]) -> Question:
        """ConfigError when it is no SELECT over these inputs alone, or depends on anything else."""
        told = json.loads(engine.value("SELECT json_serialize_sql(?)", sql))
        if told["error"]:
            raise ConfigError(f"this is no SELECT ({told['error_message']}): {short(sql)}", fix=_FIX)
        if len(told["statements"]) != 1:
            raise ConfigError(f"these are {len(told['statements'])} statements: {short(sql)}", fix=_FIX)
        node: Json = told["statements"][0]["node"]
        _refuse_others(node, {name.casefold() for name in inputs}, sql)
        unstable = next(_unstable(node, engine.unstable()), None)
        if unstable is not None:
            raise ConfigError(
                f"the SQL has {unstable}, whose answer changes though no row does: {short(sql)}",
                fix="compute with columns alone; what depends on the time of reading belongs into the reader's query",
            )
        names = frozenset(name.lower() for part in parts(node) for name in _columns(part))
        takes_all = any(part.get("class") == "STAR" or part.get("ref_type") == "NATURAL" for part in parts(node))
        return cls(sql, node, names, takes_all)


def _refuse_others(node: Json, inputs: Collection[str], sql: str) -> None:
    known = {*inputs, *(each["key"].casefold() for part in parts(node) for each in _defined(part))}
    for part in parts(node):
        if part.get("type") == "TABLE_FUNCTION" and part["function"]["function_name"].lower() not in _SERIES:
            raise ConfigError(
                f"the SQL reads from the function {part['function']['function_name']}: {short(sql)}", fix=_FIX
            )
        if part.get("type") == "BASE_TABLE":
            name = ".".join(filter(None, (part["catalog_name"], part["schema_name"], part["table_name"])))
            if name.casefold() not in known:
                raise ConfigError(
                    f"the SQL reads from {name}, which is no input",
                    fix=f"name it in `from`, beside {', '.join(sorted(inputs))}",
                )


_SERIES = {"generate_series", "range", "unnest"}
"""Functions that make tables of their arguments alone."""


def _defined(part: Json) -> list[Json]:
    """What a WITH defines."""
    found: list[Json] = part["cte_map"]["map"] if isinstance(part.get("cte_map"), dict) else []
    return found


def _unstable(node: Json, functions: Collection[str]) -> Iterator[str]:
    for part in parts(node):
        name = str(part.get("function_name", "")).lower()
        if name in functions:
            yield f"{name}()"
        if part.get("class") == "COLUMN_REF" and part["column_names"][-1].lower() in _TIMES:
            yield part["column_names"][-1]


def _columns(part: Json) -> Iterator[str]:
    if part.get("class") == "COLUMN_REF":
        yield from part["column_names"]
    using: object = part.get("using_columns")
    if isinstance(using, list):
        yield from using


def wanted_columns(question: Question, columns: Mapping[str, str], key: Collection[str]) -> list[str]:
    """Of a table's columns (name -> identity) those that the question may need: all with a ``*``, else the named ones and the key."""
    return [
        name
        for name, identity in columns.items()
        if question.takes_all or name in key or {name.lower(), identity.lower()} & question.names
    ]
