"""Which rows of an answer a round can have changed, so that only those are computed again.

An answer can be *narrowed* when one input of its FROM, the *anchor*, has at least a part of the key: columns of the key that are expressions over columns of the
anchor alone. Then all rows of the answer with a value v of that part come of rows of the anchor with v, and the answer over those
rows alone has exactly them.

Which v can have changed, when rows of an input T were touched (as they were and as they are)::

    T is the anchor       the values of the touched rows
    T is another input    those of rows of the anchor that are joined to touched rows by a chain of equalities, T.x = U.y, U.z = anchor.w

Proof. The anchor is never on the side of an outer join that is filled with nulls, so what the FROM makes has exactly one row of the anchor in each of its
rows. Such a row r is made otherwise than before only if a row of some T in it came, went or changed: r has it now or had it then. On the chain from
there to the anchor all equalities hold in r as it is now or as it was then (where the join has found nothing, because of what it would find).
So the chain, followed through rows as they are and rows as they were, meets r's row of the anchor. WHERE, GROUP BY and HAVING look only at rows with one v together,
as the part of the key is of one value in a row of the answer. More v than necessary do no harm: their rows are answered as they were told.

What is not covered (windows, DISTINCT, LIMIT, subqueries, WITH, set operations, full joins, no anchor) is answered as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.compute.changing.question import Json
from headrace.compute.engine import Engine
from headrace.compute.query import parts
from headrace.compute.steps import quoted

VALUES = "narrowed"
"""The table of the values that may have changed: v0, v1, …"""
ROWS = "narrowed_rows"
"""The view of the anchor's rows with one of them."""
_JOINS = {"INNER", "LEFT", "RIGHT"}
_KINDS = {"REGULAR", "CROSS", "ASOF"}
_NOT_OF_ONE_ROW = {"WINDOW", "SUBQUERY", "STAR", "LAMBDA", "LAMBDA_REF", "PARAMETER"}
Columns = Mapping[str, Collection[str]]
"""By alias in FROM, the columns of its input, in lower case."""


def touched(name: str) -> str:
    """The view of what a round has touched of an input."""
    return f"touched {name}"


@dataclass(frozen=True, slots=True)
class Edge:
    """An equality of columns of two aliases that every joined row fulfils."""

    one: str
    column: str
    other: str
    other_column: str

    def turned(self) -> Edge:
        return Edge(self.other, self.other_column, self.one, self.column)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """How an answer is narrowed. Made by `narrowing`."""

    anchor: str
    """The alias."""
    inputs: Mapping[str, str]
    """By alias the input."""
    part: Mapping[str, str]
    """The part of the key: column -> expression over the anchor."""
    chains: Mapping[str, Sequence[Sequence[Edge]]]
    """By alias the way to the anchor: steps of equalities between two aliases."""
    sql: str
    """The answer over the narrowed rows of the anchor."""

    def values(self) -> str:
        """SQL for the values that may have changed."""
        return " UNION ".join(self._values_of(alias) for alias in self.inputs)

    def rows(self) -> str:
        """SQL for the rows of the anchor that have one of them."""
        same = " AND ".join(f"v.v{at} IS NOT DISTINCT FROM ({sql})" for at, sql in enumerate(self.part.values()))
        anchor = quoted(self.anchor)
        return (
            f"SELECT {anchor}.* FROM {quoted(self.inputs[self.anchor])} AS {anchor} SEMI JOIN {VALUES} AS v ON {same}"
        )

    def told(self) -> str:
        """The condition of rows ``t`` that were told and are answered again."""
        same = " AND ".join(f"v.v{at} IS NOT DISTINCT FROM t.{quoted(name)}" for at, name in enumerate(self.part))
        return f"EXISTS (SELECT 1 FROM {VALUES} AS v WHERE {same})"

    def _values_of(self, alias: str) -> str:
        rows = f"(FROM {quoted(touched(self.inputs[alias]))})"
        for step in self.chains[alias]:
            there = self.inputs[step[0].other]
            both = f"(FROM {quoted(there)} UNION ALL BY NAME FROM {quoted(touched(there))})"
            same = " AND ".join(f"a.{quoted(edge.other_column)} = b.{quoted(edge.column)}" for edge in step)
            rows = f"(SELECT a.* FROM {both} AS a SEMI JOIN {rows} AS b ON {same})"
        wanted = ", ".join(f"{sql} AS v{at}" for at, sql in enumerate(self.part.values()))
        return f"SELECT {wanted} FROM {rows} AS {quoted(self.anchor)}"


def narrowing(
    engine: Engine, node: Json, inputs: Mapping[str, Collection[str]], key: Sequence[str]
) -> Narrowing | None:
    """How the answer to a question over inputs (name -> columns) is narrowed; None when it is answered as a whole."""
    if not _is_plain(node):
        return None
    found = _From(inputs)
    if not found.read(node["from_table"]):
        return None
    found.equalities(node["where_clause"])
    for anchor in found.tables:
        part = _part(engine, node["select_list"], anchor, found.columns, key)
        chains = {alias: found.chain(alias, anchor) for alias in found.tables}
        if part and anchor not in found.filled and all(chain is not None for chain in chains.values()):
            sql = _statement(engine, {**node, "from_table": _in_place(node["from_table"], anchor)})
            there = {alias: chain for alias, chain in chains.items() if chain is not None}
            return Narrowing(anchor, found.tables, part, there, sql)
    return None


def _is_plain(node: Json) -> bool:
    if node["type"] != "SELECT_NODE" or node["cte_map"]["map"] or node["qualify"] or node["sample"]:
        return False
    if any(modifier["type"] != "ORDER_MODIFIER" for modifier in node["modifiers"]) or len(node["group_sets"]) > 1:
        return False
    return not any(part.get("class") in {"WINDOW", "SUBQUERY"} for part in parts(node))


class _From:
    """What a FROM has: aliases, which of them may be filled with nulls, and equalities between them."""

    def __init__(self, inputs: Mapping[str, Collection[str]]) -> None:
        self._inputs = {name.casefold(): (name, {c.lower() for c in columns}) for name, columns in inputs.items()}
        self.tables: dict[str, str] = {}
        self.columns: dict[str, Collection[str]] = {}
        self.filled: set[str] = set()
        self._edges: list[Edge] = []

    def read(self, tree: Json) -> bool:
        """Whether it is made of inputs and joins whose effect is known."""
        if tree["type"] == "BASE_TABLE":
            name, columns = self._inputs[tree["table_name"].casefold()]
            alias = tree["alias"] or tree["table_name"]
            known = alias.casefold() in {other.casefold() for other in self.tables}
            self.tables[alias], self.columns[alias] = name, columns
            return not (known or tree["column_name_alias"] or tree["sample"])
        if tree["type"] != "JOIN" or tree["join_type"] not in _JOINS or tree["ref_type"] not in _KINDS:
            return False
        before = set(self.tables)
        if not self.read(tree["left"]):
            return False
        left = set(self.tables) - before
        if not self.read(tree["right"]):
            return False
        right = set(self.tables) - before - left
        self.filled |= {"INNER": set(), "LEFT": right, "RIGHT": left}[tree["join_type"]]
        self.equalities(tree["condition"])
        for name in tree["using_columns"]:
            owners = [[alias for alias in side if name.lower() in self.columns[alias]] for side in (left, right)]
            if [len(side) for side in owners] == [1, 1]:
                self._edges.append(Edge(owners[0][0], name, owners[1][0], name))
        return True

    def equalities(self, condition: Json | None) -> None:
        """Takes in what a condition, all of whose members hold, says of two aliases."""
        if condition is None:
            return
        if condition["type"] == "CONJUNCTION_AND":
            for child in condition["children"]:
                self.equalities(child)
        elif condition["type"] == "COMPARE_EQUAL":
            sides = [self._column(condition[side]) for side in ("left", "right")]
            if sides[0] is not None and sides[1] is not None and sides[0][0] != sides[1][0]:
                self._edges.append(Edge(*sides[0], *sides[1]))

    def chain(self, alias: str, anchor: str) -> list[list[Edge]] | None:
        """The shortest way from an alias to the anchor; None when there is none."""
        edges = [*self._edges, *(edge.turned() for edge in self._edges)]
        ways: dict[str, list[list[Edge]]] = {alias: []}
        for here in _growing(ways):
            for there in {edge.other for edge in edges if edge.one == here} - ways.keys():
                ways[there] = [*ways[here], [edge for edge in edges if (edge.one, edge.other) == (here, there)]]
        return ways.get(anchor)

    def _column(self, expression: Json) -> tuple[str, str] | None:
        if expression["class"] != "COLUMN_REF":
            return None
        owner = _owner(expression, self.columns)
        return None if owner is None else (owner, expression["column_names"][-1])


def _growing(ways: dict[str, list[list[Edge]]]) -> Iterator[str]:
    """The names in a mapping that grows meanwhile."""
    seen: set[str] = set()
    while left := [name for name in ways if name not in seen]:
        seen.update(left)
        yield from left


def _owner(column: Json, columns: Columns) -> str | None:
    """The alias that a column is of; None when that is not sure."""
    *qualified, name = column["column_names"]
    if len(qualified) > 1:
        return None
    owners = [alias for alias, has in columns.items() if name.lower() in has]
    if qualified:
        owners = [alias for alias in owners if alias.casefold() == qualified[0].casefold()]
    return owners[0] if len(owners) == 1 else None


def _part(engine: Engine, select: Sequence[Json], anchor: str, columns: Columns, key: Sequence[str]) -> dict[str, str]:
    """The columns of the key that are the anchor's alone, and what they are."""
    items = {_name(item): item for item in select if item["class"] != "STAR"}
    found: dict[str, str] = {}
    for name in key:
        item = items.get(name)
        if item is not None and _is_of(item, anchor, columns, engine):
            found[name] = _statement(engine, _bare(item)).removeprefix("SELECT ")
        elif item is None and _is_starred(select, anchor, columns, name):
            found[name] = f"{quoted(anchor)}.{quoted(name)}"
    return found


def _name(item: Json) -> str:
    return str(item["alias"] or (item["column_names"][-1] if item["class"] == "COLUMN_REF" else ""))


def _is_of(item: Json, anchor: str, columns: Columns, engine: Engine) -> bool:
    """Whether an expression is of one row of the anchor, and of nothing else."""
    tree = list(parts(item))
    if any(part.get("class") in _NOT_OF_ONE_ROW for part in tree):
        return False
    if any(str(part.get("function_name", "")).lower() in {*engine.aggregates(), "unnest"} for part in tree):
        return False
    owners = [_owner(part, columns) for part in tree if part.get("class") == "COLUMN_REF"]
    return bool(owners) and all(owner == anchor for owner in owners)


def _is_starred(select: Sequence[Json], anchor: str, columns: Columns, name: str) -> bool:
    """Whether a column comes by ``anchor.*``, or by ``*`` where the anchor is all there is, as it is."""
    if name.lower() not in columns[anchor]:
        return False
    stars = [item for item in select if item["class"] == "STAR"]
    of_anchor = [
        star
        for star in stars
        if (star["relation_name"] or (anchor if len(columns) == 1 else "")).casefold() == anchor.casefold()
    ]
    return (
        len(stars) == len(of_anchor) == 1
        and not of_anchor[0]["replace_list"]
        and not of_anchor[0]["rename_list"]
        and of_anchor[0]["expr"] is None
    )


def _in_place(tree: Json, anchor: str) -> Json:
    """A FROM with the narrowed rows in the place of the anchor."""
    if tree["type"] == "BASE_TABLE":
        alias = tree["alias"] or tree["table_name"]
        return {**tree, "table_name": ROWS, "alias": alias} if alias == anchor else tree
    return {**tree, "left": _in_place(tree["left"], anchor), "right": _in_place(tree["right"], anchor)}


def _bare(item: Json) -> Json:
    """The statement that selects an expression alone."""
    empty = {"type": "EMPTY", "alias": "", "sample": None, "query_location": 0}
    clauses = {"where_clause": None, "having": None, "sample": None, "qualify": None}
    return {
        "type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "select_list": [{**item, "alias": ""}],
        "from_table": empty, "group_expressions": [], "group_sets": [], "aggregate_handling": "STANDARD_HANDLING", **clauses,
    }  # fmt: skip


def _statement(engine: Engine, node: Json) -> str:
    statement = {"error": False, "statements": [{"node": node, "named_param_map": []}]}
    return engine.value("SELECT json_deserialize_sql(?::JSON)", json.dumps(statement))
