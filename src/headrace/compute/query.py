"""What a SELECT does, as far as it can be told from its text: whether it makes each row of one row, and which columns it hands on.

DuckDB itself parses it, so there is one reading of SQL. Three things are asked of the tree:

* Nothing in it may look at other rows: no aggregate, window, join, subquery, DISTINCT, ORDER BY or LIMIT. Then what becomes of a change
  depends on that change alone, and may be computed again, in any order.
* A column that is only named (``id``, ``id AS order_id``, ``*``) is the same column behind the SELECT, with its type and its identity. A key
  must be such a column.
* The number of the row is added to what is selected, so that whoever asks knows which rows have passed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.compute.engine import Engine
from headrace.errors import ConfigError

ROW = "_headrace_row_"
"""The number of a row in its batch."""
Json = dict[str, Any]

_ONE_ROW = "write a SELECT that makes each row of one row: columns, expressions and WHERE, over one table; aggregates and joins are sources of type sql"
_CLAUSES = {"having": "HAVING", "qualify": "QUALIFY", "sample": "a sample", "group_expressions": "GROUP BY"}
_CLASSES = {"WINDOW": "a window function", "SUBQUERY": "a subquery"}
_MODIFIERS = {
    "ORDER_MODIFIER": "ORDER BY",
    "LIMIT_MODIFIER": "LIMIT",
    "LIMIT_PERCENT_MODIFIER": "LIMIT",
    "DISTINCT_MODIFIER": "DISTINCT",
}


@dataclass(frozen=True, slots=True)
class Select:
    """A SELECT that makes each row of one row."""

    table: str
    """What it reads, as it calls it."""
    _node: Json
    _engine: Engine

    @classmethod
    def parse(cls, engine: Engine, sql: str) -> Select:
        """ConfigError when the text is something else."""
        told = json.loads(engine.value("SELECT json_serialize_sql(?)", sql))
        if told["error"]:
            raise ConfigError(f"this is no SELECT ({told['error_message']}): {short(sql)}", fix=_ONE_ROW)
        if len(told["statements"]) != 1:
            raise ConfigError(f"these are {len(told['statements'])} statements: {short(sql)}", fix=_ONE_ROW)
        node: Json = told["statements"][0]["node"]
        found = next(_of_several_rows(node, engine.aggregates()), None)
        if found is not None:
            raise ConfigError(
                f"the SQL of a flow looks at one row at a time and cannot have {found}: {short(sql)}", fix=_ONE_ROW
            )
        for item in node["select_list"]:
            if not (item["alias"] or _is_star(item) or item["class"] == "COLUMN_REF"):
                raise ConfigError(
                    f"a column of the SQL has no name: {short(sql)}", fix="write `AS name` behind each expression"
                )
        return cls(node["from_table"]["table_name"], node, engine)

    def over(self, relation: str) -> str:
        """It in SQL over another relation of such rows, with their number."""
        table = self._node["from_table"]
        named = table["alias"] or table["table_name"]
        reading = {**table, "table_name": relation, "schema_name": "", "catalog_name": "", "alias": named}
        items = [*self._node["select_list"], *([] if any(map(_is_star, self._node["select_list"])) else [_column(ROW)])]
        node = {**self._node, "from_table": reading, "select_list": items}
        statement = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
        return self._engine.value("SELECT json_deserialize_sql(?::JSON)", json.dumps(statement))

    def columns(self, names: Sequence[str]) -> Iterator[tuple[str, str | None]]:
        """What comes out: the name of each column, and what it was called before when it is only handed on. `names`: what comes in."""
        for item in self._node["select_list"]:
            if _is_star(item):
                yield from _starred(item, names)
            elif item["class"] == "COLUMN_REF":
                before = item["column_names"][-1]
                yield item["alias"] or before, before
            else:
                yield item["alias"], None


def _of_several_rows(node: Json, aggregates: frozenset[str]) -> Iterator[str]:
    """What in a statement looks at several rows, or is none that headrace follows."""
    if node["type"] != "SELECT_NODE":
        yield "a set operation"
        return
    if node["cte_map"]["map"]:
        yield "WITH"
    yield from (_MODIFIERS.get(modifier["type"], modifier["type"]) for modifier in node["modifiers"])
    yield from (name for clause, name in _CLAUSES.items() if node[clause])
    if node["from_table"]["type"] != "BASE_TABLE":
        yield "a FROM of anything but one table"
    for part in parts([node["select_list"], node["where_clause"]]):
        kind = part.get("class")
        if kind in _CLASSES:
            yield _CLASSES[kind]
        elif kind == "FUNCTION" and part["function_name"].lower() in aggregates:
            yield f"the aggregate {part['function_name']}"
        elif kind == "FUNCTION" and part["function_name"].lower() == "unnest":
            yield "UNNEST"
        elif kind == "STAR" and (part["columns"] or part["expr"] is not None):
            yield "COLUMNS(…)"


def parts(tree: object) -> Iterator[Json]:
    """A tree and every tree in it."""
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for each in tree:
            yield from parts(each)


def _is_star(item: Json) -> bool:
    return bool(item["class"] == "STAR")


def _starred(star: Json, names: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    left_out = {name.casefold() for name in star["exclude_list"]}
    replaced = {each["key"].casefold() for each in star["replace_list"]}
    renamed = {each["key"]["column"].casefold(): each["value"] for each in star["rename_list"]}
    for name in names:
        if name.casefold() not in left_out:
            yield renamed.get(name.casefold(), name), None if name.casefold() in replaced else name


def _column(name: str) -> Json:
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", "query_location": 0, "column_names": [name]}


def short(sql: str) -> str:
    """SQL as a message has it."""
    text = " ".join(sql.split())
    return text if len(text) <= 200 else f"{text[:199]}…"
