"""The MySQL port of the stand-in, through mysql-mimic. Statements of Doris are read here; what clients say to any MySQL is left to mysql-mimic.

Queries run on SQLite: names in backticks are the same there, texts are quoted anew.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mysql_mimic import IdentityProvider, MysqlServer, NativePasswordAuthPlugin, Session, User
from mysql_mimic.errors import ErrorCode, MysqlError

from tests.servers.doris.tables import Field, Partition, RowError, Rows, Table, TableError
from tests.servers.doris.transactions import LabelTakenError, TransactionError
from tests.servers.doris.values import canonical

if TYPE_CHECKING:
    from tests.servers.doris.cluster import Doris

Result = tuple[list[tuple[Any, ...]], list[str]]
_NAME = r"(?:`((?:[^`]|``)+)`|(\w+))"
_PLACE = rf"(?:{_NAME}\.)?{_NAME}"
_TEXT = re.compile(r"'((?:[^'\\]|\\.|'')*)'|\"((?:[^\"\\]|\\.|\"\")*)\"|(`(?:[^`]|``)*`)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}
_SHOWN = {
    "streaming_label_keep_max_second": "keep_s",
    "label_num_threshold": "keep_loads",
    "stream_load_default_precommit_timeout_second": "precommit_timeout_s",
    "max_running_txn_num_per_db": "running",
}
"""Settings of fe.conf -> our own names."""


class SqlPort:
    """Port 9030."""

    def __init__(self, doris: Doris) -> None:
        self._doris = doris
        self._statements = Statements(doris)
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # connections that `stop` ends
        logging.getLogger("mysql_mimic").setLevel(logging.CRITICAL)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def execute(self, sql: str, database: str | None) -> Result:
        return self._statements.execute(sql, database)

    async def _listen(self) -> int:
        doris, statements = self._doris, self._statements

        class Users(IdentityProvider):
            async def get_user(self, username: str) -> User | None:
                if username != doris.user:
                    return None
                auth = NativePasswordAuthPlugin.create_auth_string(doris.password) if doris.password else None
                return User(name=username, auth_string=auth, auth_plugin=NativePasswordAuthPlugin.name)

        class DorisSession(Session):
            async def handle_query(self, sql: str, attrs: dict[str, str]) -> Any:
                if "'lower_case_table_names'" in sql:
                    return [("lower_case_table_names", "2")], ["Variable_name", "Value"]  # as names are in SQLite
                if re.match(r"\s*(SET|USE|ROLLBACK|COMMIT|BEGIN|SHOW VARIABLES|SELECT\s+@@)\b", sql, re.IGNORECASE):
                    return await super().handle_query(sql, attrs)
                try:
                    return await asyncio.to_thread(statements.execute, sql, self.database)
                except (TableError, RowError, TransactionError, LabelTakenError) as error:
                    raise MysqlError(f"errCode = 2, detailMessage = {error}", ErrorCode.UNKNOWN_ERROR) from error

        self._server = MysqlServer(session_factory=DorisSession, identity_provider=Users())
        await self._server.start_server(host="127.0.0.1", port=0)
        sockets = self._server.sockets()
        return int(sockets[0].getsockname()[1])

    async def _close(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Statements:
    """What is done for a statement; TableError says what Doris would."""

    def __init__(self, doris: Doris) -> None:
        self._doris = doris
        self._all: list[tuple[re.Pattern[str], Callable[..., Result]]] = [
            (re.compile(pattern, re.IGNORECASE | re.DOTALL), action)
            for pattern, action in (
                (rf"CREATE DATABASE (?:IF NOT EXISTS )?{_NAME}", self._create_database),
                (rf"CREATE TABLE (IF NOT EXISTS )?{_PLACE}\s*\((.*)", self._create_table),
                (rf"DROP TABLE (IF EXISTS )?{_PLACE}", self._drop_table),
                (rf"TRUNCATE TABLE {_PLACE}", self._truncate),
                (rf"ALTER TABLE {_PLACE} ADD COLUMN (.*)", self._add_column),
                (rf"ALTER TABLE {_PLACE} DROP COLUMN {_NAME}", self._drop_column),
                (rf"ALTER TABLE {_PLACE} ADD PARTITION (IF NOT EXISTS )?{_NAME} VALUES (.*)", self._add_partition),
                (
                    rf"INSERT INTO {_PLACE}(?:\s+WITH LABEL {_NAME})?\s*\(([^()]*)\)\s*(SELECT .*|VALUES.*)",
                    self._insert,
                ),
                (rf"SHOW TRANSACTION FROM {_NAME} WHERE LABEL (=|LIKE) '([^']*)'", self._transactions),
                (rf"SHOW FULL COLUMNS FROM {_PLACE}|DESC(?:RIBE)? {_PLACE}", self._columns),
                (rf"SHOW PARTITIONS FROM {_PLACE}", self._partitions),
                (rf"SHOW CREATE TABLE {_PLACE}", self._show_create),
                (r"ADMIN SHOW FRONTEND CONFIG(?: LIKE '([^']*)')?", self._config),
                (r"SELECT (.*) FROM information_schema\.(\w+)(.*)", self._information),
                (r"(SELECT .*)", self._select),
            )
        ]

    def execute(self, sql: str, database: str | None) -> Result:
        text = sql.strip().rstrip(";")
        self._doris.transactions.tick()
        for pattern, action in self._all:
            if found := pattern.fullmatch(text):
                with self._doris.store.lock:
                    return action(found, database)
        raise TableError(f"the stand-in does not know the statement: {text}")

    def _create_database(self, found: re.Match[str], database: str | None) -> Result:
        self._doris.store.create_database(_name(found[1], found[2]))
        return [], []

    def _create_table(self, found: re.Match[str], database: str | None) -> Result:
        place = self._place(found.groups()[1:5], database)
        self._doris.store.create(_table(place, found[6]), if_not_exists=bool(found[1]))
        return [], []

    def _drop_table(self, found: re.Match[str], database: str | None) -> Result:
        place = self._place(found.groups()[1:5], database)
        if self._doris.store.has_table(*place) or not found[1]:
            self._doris.store.drop(*place)
        return [], []

    def _truncate(self, found: re.Match[str], database: str | None) -> Result:
        self._doris.store.truncate(self._table(found.groups()[:4], database))
        return [], []

    def _add_column(self, found: re.Match[str], database: str | None) -> Result:
        self._doris.store.add_column(self._table(found.groups()[:4], database), _field(found[5]))
        return [], []

    def _drop_column(self, found: re.Match[str], database: str | None) -> Result:
        self._doris.store.drop_column(self._table(found.groups()[:4], database), _name(found[5], found[6]))
        return [], []

    def _add_partition(self, found: re.Match[str], database: str | None) -> Result:
        table = self._table(found.groups()[:4], database)
        if table.properties.get("dynamic_partition.enable") == "true":
            raise TableError(
                "Cannot add/drop partition on a Dynamic Partition Table, Use command ALTER TABLE tbl_name SET "
                '("dynamic_partition.enable" = "false") firstly.'
            )
        name = _name(found[6], found[7])
        if any(one.name == name for one in table.partitions):
            if found[5]:
                return [], []
            raise TableError(f"Duplicate partition name {name}")
        made = _partition(name, found[8], table)
        if any(
            (a.low or "") < (b.high or "~") and (b.low or "") < (a.high or "~")
            for a, b in ((made, one) for one in table.partitions)
        ):
            raise TableError(f"Range {found[8]} is intersected with range of another partition")
        table.partitions.append(made)
        return [], []

    def _insert(self, found: re.Match[str], database: str | None) -> Result:
        table = self._table(found.groups()[:4], database)
        label = _name(found[5], found[6]) if found[5] or found[6] else f"insert_{uuid.uuid4().hex}"
        names = [table.field(name).name for name in _names(found[7])]
        transaction = self._doris.transactions.begin(table.database, table.name, label)
        try:
            rows, _ = self._doris.store.query(_for_sqlite(found[8], database))
            values = [self._doris.store.prepared(table, names, row, strict=True) for row in rows]
        except (TableError, RowError) as error:
            self._doris.transactions.abort(transaction, str(error))
            raise
        done = Rows(names, values, [0] * len(values))
        transaction.apply = lambda: self._doris.store.apply(table, done)
        self._doris.transactions.commit(transaction)
        return [], []

    def _select(self, found: re.Match[str], database: str | None) -> Result:
        return self._doris.store.query(_for_sqlite(found[1], database))

    def _information(self, found: re.Match[str], database: str | None) -> Result:
        """`tables` and `columns`, each made for the query."""
        tables = self._doris.store.tables.values()
        made: dict[str, list[dict[str, Any]]] = {
            "tables": [
                {"TABLE_SCHEMA": one.database, "TABLE_NAME": one.name, "TABLE_COMMENT": one.comment} for one in tables
            ],
            "columns": [
                {
                    "TABLE_SCHEMA": one.database, "TABLE_NAME": one.name, "COLUMN_NAME": column.name, "COLUMN_TYPE": column.type.lower(),
                    "IS_NULLABLE": "YES" if column.nullable else "NO", "COLUMN_KEY": "UNI" if column.name in one.keys else "",
                    "ORDINAL_POSITION": number, "COLUMN_DEFAULT": column.default,
                }
                for one in tables
                for number, column in enumerate(one.fields, 1)
            ],
            "schemata": [{"SCHEMA_NAME": name} for name in self._doris.store.databases],
        }  # fmt: skip
        rows = made.get(found[2].lower())
        if rows is None:
            raise TableError(f"the stand-in has no information_schema.{found[2]}")
        if not rows:
            return [], ["none"]
        names = list(rows[0])
        named = ", ".join(f"column{number} AS {name}" for number, name in enumerate(names, 1))
        literals = (f"({', '.join(_literal(row[name]) for name in names)})" for row in rows)
        source = f"(SELECT {named} FROM (VALUES {', '.join(literals)}))"
        return self._doris.store.query(_for_sqlite(f"SELECT {found[1]} FROM {source}{found[3]}", database))

    def _transactions(self, found: re.Match[str], database: str | None) -> Result:
        of, how, text = _name(found[1], found[2]), found[3].upper(), found[4]
        pattern = re.escape(text) if how == "=" else re.escape(text).replace("%", ".*").replace("_", ".")
        rows = [
            (str(one.id), one.label, "BE: 127.0.0.1", str(one.state), "BACKEND_STREAMING", one.reason)
            for one in self._doris.transactions.all.values()
            if one.database == of and re.fullmatch(pattern, one.label)
        ]
        return rows, ["TransactionId", "Label", "Coordinator", "TransactionStatus", "LoadJobSourceType", "Reason"]

    def _columns(self, found: re.Match[str], database: str | None) -> Result:
        table = self._table(next(g for g in (found.groups()[:4], found.groups()[4:]) if any(g)), database)
        rows = [
            (one.name, one.type.lower(), "Yes" if one.nullable else "No", str(one.name in table.keys).lower(), one.default, "")
            for one in table.fields
        ]  # fmt: skip
        return rows, ["Field", "Type", "Null", "Key", "Default", "Extra"]

    def _partitions(self, found: re.Match[str], database: str | None) -> Result:
        table = self._table(found.groups()[:4], database)
        rows = [
            (str(number), one.name, "NORMAL", table.partition_by or "", f"[types: [DATEV2]; keys: [{one.low or ''}]; ..types: [DATEV2]; keys: [{one.high or ''}]; )")
            for number, one in enumerate(table.partitions)
        ]  # fmt: skip
        return rows, ["PartitionId", "PartitionName", "State", "PartitionKey", "Range"]

    def _show_create(self, found: re.Match[str], database: str | None) -> Result:
        table = self._table(found.groups()[:4], database)
        columns = ", ".join(f"`{one.name}` {one.type}" for one in table.fields)
        keys = ", ".join(f"`{name}`" for name in table.keys)
        partition = "" if table.partition_by is None else f"\nPARTITION BY RANGE(`{table.partition_by}`) ()"
        properties = ", ".join(f'"{name}" = "{value}"' for name, value in table.properties.items())
        text = (
            f"CREATE TABLE `{table.name}` ({columns})\n{table.model} KEY({keys}){partition}\nPROPERTIES ({properties})"
        )
        return [(table.name, text)], ["Table", "Create Table"]

    def _config(self, found: re.Match[str], database: str | None) -> Result:
        rows = [
            (name, str(int(getattr(self._doris.limits, ours))), "int", "true", "false", "")
            for name, ours in _SHOWN.items()
            if found[1] in (None, "%", name)
        ]
        return rows, ["Key", "Value", "Type", "IsMutable", "MasterOnly", "Comment"]

    def _place(self, groups: tuple[str | None, ...], database: str | None) -> tuple[str, str]:
        of = _name(groups[0], groups[1]) if groups[0] or groups[1] else database
        if of is None:
            raise TableError("No database selected")
        return of, _name(groups[2], groups[3])

    def _table(self, groups: tuple[str | None, ...], database: str | None) -> Table:
        return self._doris.store.table(*self._place(groups, database))


# --- reading statements


def _name(quoted: str | None, plain: str | None) -> str:
    return quoted.replace("``", "`") if quoted else plain or ""


def _names(text: str) -> list[str]:
    return [_name(*found) for found in re.findall(_NAME, text)]


def _table(place: tuple[str, str], rest: str) -> Table:
    inside, behind = _closed(rest)
    fields = [_field(part) for part in _parts(inside)]
    keyed = re.match(r"\s*(DUPLICATE|UNIQUE) KEY\s*\(([^()]*)\)", behind, re.IGNORECASE)
    if keyed is None:
        raise TableError("the stand-in wants DUPLICATE KEY or UNIQUE KEY")
    if "DISTRIBUTED BY" not in behind.upper():
        raise TableError("Create olap table should contain distribution desc")
    table = Table(*place, fields, keyed[1].upper(), _names(keyed[2]))
    if found := re.search(r"COMMENT\s+(" + _TEXT.pattern + ")", behind, re.IGNORECASE | re.DOTALL):
        table.comment = _unquoted(found[1])
    if found := re.search(rf"PARTITION BY RANGE\s*\({_NAME}\)\s*\((.*)", behind, re.IGNORECASE | re.DOTALL):
        table.partition_by = _name(found[1], found[2])
        for part in filter(str.strip, _parts(_closed(found[3])[0])):
            named = re.fullmatch(rf"PARTITION {_NAME} VALUES (.*)", part.strip(), re.IGNORECASE | re.DOTALL)
            assert named is not None, part
            table.partitions.append(_partition(_name(named[1], named[2]), named[3], table))
    if found := re.search(r"PROPERTIES\s*\((.*)\)", behind, re.IGNORECASE | re.DOTALL):
        table.properties = dict(re.findall(r'"([^"]+)"\s*=\s*"([^"]*)"', found[1]))
    return table


def _field(text: str) -> Field:
    found = re.fullmatch(rf"\s*{_NAME}\s+(\w+(?:\s*\([\d,\s]*\))?)(.*)", text, re.IGNORECASE | re.DOTALL)
    if found is None:
        raise TableError(f"Syntax error in column definition: {text}")
    rest = re.sub(r"COMMENT\s+(?:" + _TEXT.pattern + ")", "", found[4], flags=re.IGNORECASE | re.DOTALL)
    default = re.search(r"DEFAULT\s+(NULL|" + _TEXT.pattern + r"|[\d.-]+)", rest, re.IGNORECASE | re.DOTALL)
    value = None if default is None or default[1].upper() == "NULL" else _unquoted(default[1])
    is_null = "NOT NULL" not in _TEXT.sub("", rest).upper()
    return Field(_name(found[1], found[2]), found[3].upper().replace(" ", ""), is_null, value)


def _partition(name: str, text: str, table: Table) -> Partition:
    kind = table.field(table.partition_by or "").type
    bounds = [canonical(kind, _unquoted(found[0])) for found in re.finditer(_TEXT, text)]
    if text.upper().lstrip().startswith("LESS THAN"):
        before = table.partitions
        return Partition(name, before[-1].high if before else None, bounds[0] if bounds else None)
    return Partition(name, bounds[0], bounds[1])


def _closed(text: str) -> tuple[str, str]:
    """What stands before the bracket that closes, and what behind it."""
    depth = 1
    for at, sign in _signs(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return text[:at], text[at + 1 :]
    raise TableError(f"Syntax error: {text}")


def _parts(text: str) -> list[str]:
    """What stands between commas."""
    depth, start, parts = 0, 0, []
    for at, sign in _signs(text):
        depth += (sign == "(") - (sign == ")") + (sign == "[") - (sign == "]")
        if sign == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _signs(text: str) -> list[tuple[int, str]]:
    inside = [(found.start(), found.end()) for found in _TEXT.finditer(text)]
    return [
        (at, sign)
        for at, sign in enumerate(text)
        if sign in "()[],|" and not any(start <= at < end for start, end in inside)
    ]


def _unquoted(text: str) -> str:
    found = _TEXT.fullmatch(text)
    if found is None:
        return text
    inner = found[1] if found[1] is not None else found[2]
    quote = text[0]
    return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), inner.replace(quote * 2, quote), flags=re.DOTALL)


def _for_sqlite(sql: str, database: str | None) -> str:
    """Texts as SQLite quotes them; names stay."""

    def again(found: re.Match[str]) -> str:
        return found[0] if found[3] is not None else _literal(_unquoted(found[0]))

    return _TEXT.sub(again, sql)


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, int):
        return str(value)
    text = str(value).replace("'", "''")
    # SQLite ends a statement at a NUL.
    return f"'{text}'" if "\0" not in text else f"CAST(x'{str(value).encode().hex()}' AS TEXT)"
