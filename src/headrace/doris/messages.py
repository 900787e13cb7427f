"""Messages of a topic as the body of a load. The same messages give the same bytes.

=======  ==========================================================================================================================
format   what becomes of a message
=======  ==========================================================================================================================
json     a row: of an object only what the columns need is taken out
csv      a row for each record: the fields that columns are for, by their names
ums      a row for each change of the tables that are wanted. A delete says so in `_is_active_` (0) or in `_ums_op_` (d) where the table has
         one of them; else it is Doris' delete sign, which a table with a unique key takes. What else UMS says is passed over, but not
         that a table was emptied.
=======  ==========================================================================================================================

What is none of that is bad: it is left out, and kept with the reason; or the loader stops (`bad_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace.codec.bodies import BodyLines, Made, Separated, of_json, of_separated
from headrace.doris.changes import Changes
from headrace.doris.config import CsvBody, CsvMessages, JsonBody, LoaderConfig, UmsMessages
from headrace.doris.target import Target
from headrace.errors import ConfigError, DataError
from headrace.log.kafka.tail import Taken
from headrace.sinks.doris.loads import json_headers
from headrace.sinks.doris.sequence import HEADER
from headrace.ums.schema import ID

_SHOWN = 10
_SHOWN_CHARACTERS = 200
_SEQUENCE = "headrace_sequence"
"""What a load calls the value that a hidden sequence column gets."""
Texts = Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Body:
    """What is sent. `bad`: what is left out, and why."""

    headers: Mapping[str, str]
    data: bytes
    rows: int
    bad: tuple[str, ...]


class Bodies:
    """Makes the bodies of one loader's loads for its table as it is now. Belongs to one thread."""

    def __init__(self, config: LoaderConfig, target: Target) -> None:
        """ConfigError when messages and columns do not fit together."""
        self._config = config
        self._audit = config.audit_column
        places = {target.column(name): place for name, place in config.columns.items()}
        audit = None if self._audit is None else target.column(self._audit)
        columns = {name: places.get(name, name) for name in target.columns if name != audit}
        if wrong := [name for name in (*config.columns, self._audit) if name is not None and not target.has(name)]:
            raise ConfigError(
                f"the table {config.database}.{config.table} has no column {', '.join(wrong)}",
                fix="correct `columns` and `audit_column`, or add it to the table",
            )
        if (place := self._sequence_place(target)) is not None:
            columns[_SEQUENCE] = place
        self._make: Callable[[Texts, Sequence[str]], Made]
        messages = config.messages
        if isinstance(messages, CsvMessages):
            columns, self._make = self._of_csv(messages, columns, places)
        elif isinstance(messages, UmsMessages):
            changes = Changes(messages, columns, target, self._lines)
            columns, self._make = dict.fromkeys(changes.columns, ""), changes.made
        else:
            self._make = self._of_json(columns)
        self._names = [*columns, *([] if self._audit is None else [self._audit])]
        by = {} if target.sequence.type is None else {HEADER: _SEQUENCE}
        self._headers = _headers(config.body, self._names) | by | {"max_filter_ratio": repr(config.bad_rows or 0)}
        self.headers_of_nothing = {"format": "csv", "columns": self._headers["columns"]} | by
        """Of a load without rows, which Doris takes when it takes the columns."""

    def of(self, messages: Sequence[Taken], label: str) -> Body:
        """Messages are `ordered` (cut.py). DataError when more are bad than may be."""
        made = self._make([one.value for one in messages], [] if self._audit is None else [label])
        bad = tuple(reason if number < 0 else _told(messages[number], reason) for number, reason in made.refused)
        if len(bad) > self._config.bad_rows * (made.rows + len(bad)):
            told = "".join(f"\n    {line}" for line in bad[:_SHOWN])
            raise DataError(
                f"{len(bad)} of {made.rows + len(bad)} rows cannot be loaded:{told}",
                fix="correct who writes them, or what the loader's file says of `messages` and `body`; or let some be left out and"
                " kept: `bad_rows: 0.01`",
            )
        return Body(self._headers, made.data, made.rows, bad)

    def _sequence_place(self, target: Target) -> str | None:
        """Where the value of a hidden sequence column stands; None for a table that has none."""
        said = self._config.sequence
        if target.sequence.type is None:
            if said is None:
                return None
            raise ConfigError(
                f"the table {target.name} has no hidden sequence column, so nothing gets `sequence`: {said}",
                fix="take `sequence` out of the loader's file: a sequence column that is not hidden is one of the `columns`",
            )
        if said is None and isinstance(self._config.messages, UmsMessages):
            return ID
        if said is None:
            raise ConfigError(
                f"of two rows of a key the table {target.name} keeps the one with the larger value of a hidden column"
                " (function_column.sequence_type), and nothing says what it gets",
                fix="name its place in a message: `sequence: updated_at`",
            )
        return said

    def _of_json(self, columns: Mapping[str, str]) -> Callable[[Texts, Sequence[str]], Made]:
        places = [place.split(".") for place in columns.values()]
        lines = self._lines(list(columns))
        return lambda texts, constants: of_json(lines, texts, places, constants)

    def _of_csv(
        self, csv: CsvMessages, columns: Mapping[str, str], wanted: Mapping[str, str]
    ) -> tuple[dict[str, str], Callable[[Texts, Sequence[str]], Made]]:
        """Columns that no field is for get their defaults."""
        there = {column: field for column, field in columns.items() if field in csv.fields}
        if _SEQUENCE in columns and _SEQUENCE not in there:
            raise ConfigError(
                f"there is no field {columns[_SEQUENCE]} that `sequence` asks for",
                fix=f"name one of the fields: {', '.join(csv.fields)}",
            )
        missing = sorted(set(wanted) - set(there))
        if missing or not there:
            raise ConfigError(
                f"no field is for the column {', '.join(missing)}" if missing else "no field is for any column",
                fix=f"`messages` names the fields {', '.join(csv.fields)}; `columns` says which column gets which",
            )
        form = Separated(csv.separator, csv.lines, csv.enclose, csv.escape, csv.null, len(csv.fields))
        places = [csv.fields.index(field) for field in there.values()]
        lines = self._lines(list(there))
        return there, lambda texts, constants: of_separated(lines, texts, form, places, constants)

    def _lines(self, columns: Sequence[str]) -> BodyLines:
        body = self._config.body
        if isinstance(body, JsonBody):
            return BodyLines.json([*columns, *([] if self._audit is None else [self._audit])])
        enclosed = None if body.enclose is None or body.escape is None else (ord(body.enclose), ord(body.escape))
        return BodyLines.csv(body.separator, body.lines, enclosed)


def _told(message: Taken, reason: str) -> str:
    shown = (message.value or b"")[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
    return f"{message.place} at offset {message.offset}: {reason}: {shown}"


def _headers(body: JsonBody | CsvBody, columns: Sequence[str]) -> dict[str, str]:
    headers = json_headers(columns)
    if isinstance(body, JsonBody):
        return headers
    del headers["read_json_by_line"]
    headers |= {
        "format": "csv",
        "column_separator": _in_header(body.separator),
        "line_delimiter": _in_header(body.lines),
    }
    if body.enclose is not None and body.escape is not None:
        headers |= {"enclose": body.enclose, "escape": body.escape, "trim_double_quotes": "true"}
    return headers


def _in_header(separator: str) -> str:
    """As a header has it: what is no plain sign, in hexadecimal digits."""
    is_plain = all("!" <= sign <= "~" and sign != "\\" for sign in separator)
    return separator if is_plain else f"\\x{separator.encode().hex()}"
