"""Rows into a prepared statement, by a loop that runs in the JVM.

A call from Python into Java costs about a microsecond, and a row needs one for each value. So whole columns cross the border, as arrays of
text, and Java binds them row by row. Java's own way to make a loop at run time is to put method handles together; what is built here is

    bind(statement, columns):
        for i in 0 … columns[0].length - 1:
            statement.setObject(1, columns[0][i], type of 1, scale of 1)
            statement.setObject(2, columns[1][i], type of 2, scale of 2)        bytes come in hex: HexFormat.parseHex(columns[1][i])
            …
            statement.addBatch()

with 3 microseconds for a row of 9 values, where calls from Python take 32 (docs/decisions/0028-jdbc.md).

That a driver turns text into the type that it is told is in JDBC's own table of conversions (its appendix B), for all types but binary.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import jpype

from headrace.sinks.jdbc.codes import VARBINARY
from headrace.sinks.jdbc.jvm import Java, java


class Binding(NamedTuple):
    """How a parameter is bound: its type in java.sql.Types (VARBINARY: as bytes), and of exact numbers the digits behind the point."""

    code: int
    scale: int = 0


def add_batch(statement: Java, columns: Sequence[Sequence[str | None]], types: Sequence[Binding]) -> None:
    """Adds one row of parameters to a statement's batch for each row of the columns."""
    given = jpype.JArray(jpype.JArray(jpype.JObject))(len(columns))
    for at, column in enumerate(columns):
        given[at] = jpype.JArray(jpype.JString)(column)
    _loop(tuple(types)).invokeWithArguments(_objects(statement, given))


@lru_cache(maxsize=1024)
def _loop(types: tuple[Binding, ...]) -> Java:
    """A handle of (PreparedStatement, Object[][])void."""
    handles = java("java.lang.invoke.MethodHandles")
    statement = java("java.sql.PreparedStatement").class_
    number, nothing = java("java.lang.Integer").TYPE, java("java.lang.Void").TYPE
    column, columns = (
        java("java.lang.Class").forName(name) for name in ("[Ljava.lang.Object;", "[[Ljava.lang.Object;")
    )
    add_row = handles.publicLookup().findVirtual(statement, "addBatch", _type(nothing))
    # Each step is (PreparedStatement, Object[][], int row)void; folded, they run one after another.
    body = None
    for at, kind in enumerate(types):
        step = _step(at, kind)
        body = step if body is None else handles.foldArguments(step, body)
    body = handles.foldArguments(handles.dropArguments(add_row, 1, _classes(columns, number)), body)
    # The loop gives its counter first.
    body = handles.permuteArguments(
        body, _type(nothing, number, statement, columns), jpype.JArray(jpype.JInt)([1, 2, 0])
    )
    first = handles.insertArguments(handles.arrayElementGetter(columns), 1, _objects(_boxed(0)))
    count = handles.filterArguments(handles.arrayLength(column), 0, _handles(first))
    return handles.countedLoop(handles.dropArguments(count, 0, _classes(statement)), None, body)


def _step(at: int, kind: Binding) -> Java:
    """``statement.setObject(at + 1, columns[at][row], code, scale)``"""
    handles = java("java.lang.invoke.MethodHandles")
    statement, value = java("java.sql.PreparedStatement").class_, java("java.lang.Object").class_
    number, nothing = java("java.lang.Integer").TYPE, java("java.lang.Void").TYPE
    column, columns = (
        java("java.lang.Class").forName(name) for name in ("[Ljava.lang.Object;", "[[Ljava.lang.Object;")
    )
    set_object = handles.publicLookup().findVirtual(
        statement, "setObject", _type(nothing, number, value, number, number)
    )
    step = handles.insertArguments(set_object, 3, _objects(_boxed(kind.code), _boxed(kind.scale)))
    step = handles.insertArguments(step, 1, _objects(_boxed(at + 1)))
    if kind.code == VARBINARY:
        step = handles.filterArguments(step, 1, _handles(_bytes()))
    of_column = handles.insertArguments(handles.arrayElementGetter(columns), 1, _objects(_boxed(at)))
    cell = handles.filterArguments(handles.arrayElementGetter(column), 0, _handles(of_column))
    return handles.collectArguments(step, 1, cell)


def _bytes() -> Java:
    """(Object)Object: text in hex to bytes, null to null."""
    handles = java("java.lang.invoke.MethodHandles")
    value, text = java("java.lang.Object").class_, java("java.lang.CharSequence").class_
    octets = java("java.lang.Class").forName("[B")
    lookup = handles.publicLookup()
    is_null = lookup.findStatic(
        java("java.util.Objects").class_, "isNull", _type(java("java.lang.Boolean").TYPE, value)
    )
    parse = lookup.findVirtual(java("java.util.HexFormat").class_, "parseHex", _type(octets, text))
    parsed = parse.bindTo(java("java.util.HexFormat").of()).asType(_type(value, value))
    return handles.guardWithTest(is_null, handles.identity(value), parsed)


def _type(returned: Java, *given: Java) -> Java:
    return java("java.lang.invoke.MethodType").methodType(returned, _classes(*given))


def _classes(*classes: Java) -> Java:
    return jpype.JArray(java("java.lang.Class"))(classes)


def _handles(*handles: Java) -> Java:
    return jpype.JArray(java("java.lang.invoke.MethodHandle"))(handles)


def _objects(*objects: Java) -> Java:
    return jpype.JArray(jpype.JObject)(objects)


def _boxed(number: int) -> Java:
    return java("java.lang.Integer")(number)
