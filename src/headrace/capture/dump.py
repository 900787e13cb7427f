"""Definitions of tables out of a dump (``mysqldump --no-data``): what tables were where a recorded log begins."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.capture.ddl import Ddl
from headrace.capture.ddl_statements import read_tokens
from headrace.capture.definitions import BEFORE_ALL, Definitions
from headrace.capture.tokens import Cursor, Token, tokens
from headrace.errors import ConfigError

_DATABASE = re.compile(r"^-- Host: .*Database: (\S+)[ \t]*$", re.MULTILINE)
"""How mysqldump says which schema a dump of one schema is of."""


def learn_from_dump(path: Path, definitions: Definitions) -> None:
    """Takes in the tables of a dump as what was there before anything else. ConfigError when it cannot be read as one."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot read the dump {path}: {error.strerror}", fix="correct the path") from error
    told = _DATABASE.search(text)
    schema = told[1] if told else ""
    found = Definitions(lambda _schema, _table: True)
    for number, statement in enumerate(_statements(tokens(text)), start=1):
        cursor = Cursor(statement, schema)
        if cursor.accept("USE"):
            schema = cursor.name()
        found.statement(read_tokens(statement, schema), Ddl(schema, "", number, 0))
    if not found.names():
        raise ConfigError(
            f"the dump {path} has no CREATE TABLE", fix="make it by mysqldump --no-data --databases SCHEMA…"
        )
    for name in found.names():
        if not name[0]:
            raise ConfigError(
                f"the dump {path} does not say in which schema the table {name[1]} is",
                fix="make it by mysqldump --no-data --databases SCHEMA…, or write `USE schema;` in front",
            )
        definition = found.newest(name)
        if definition is not None:
            definitions.learn(name, BEFORE_ALL, definition)
        definitions.learn_charset(name[0], BEFORE_ALL, found.newest_charset(name[0]))


def _statements(found: list[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in found:
        if token.is_mark(";"):
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]
