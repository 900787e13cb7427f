"""Changes in UMS as rows of one table (the head of messages.py says what becomes of which)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.codec.bodies import BodyLines, Made, of_columns
from headrace.codec.ums import MalformedMessage, UmsReader, UmsRows
from headrace.doris.config import UmsMessages
from headrace.doris.target import Target
from headrace.errors import ConfigError
from headrace.ums.change import ChangeBatch, Clear, is_delete
from headrace.ums.schema import ACTIVE, ID, OP, RAW
from headrace.ums.values import Array, is_bytes, is_text, to_text

_SIGN = "__DORIS_DELETE_SIGN__"
NOWHERE = -1
"""In place of the number of a message: rows of many messages are read at once."""
_YES, _NO = pa.scalar("1"), pa.scalar("0")


class Changes:
    """What one table wants of UMS. `columns`: those that it gets, in their order."""

    def __init__(
        self,
        config: UmsMessages,
        columns: Mapping[str, str],
        target: Target,
        lines: Callable[[Sequence[str]], BodyLines],
    ) -> None:
        """`columns`: column -> the field that it gets. ConfigError when the table cannot say that a row was deleted."""
        sequence = target.sequence
        by_column = sequence.column is not None and columns.get(target.column(sequence.column)) == ID
        if sequence.is_unique and not by_column and not sequence.holds_ids:
            raise ConfigError(
                f"the table {target.name} has a unique key, and not {ID} as its sequence, so an older change could win",
                fix=f'make it with "function_column.sequence_col" = "{ID}", or "function_column.sequence_type" = "bigint"',
            )
        self._tables = config.tables
        self._fields = dict(columns)
        tells = {ACTIVE, OP} & set(columns.values())
        if not tells and not sequence.is_unique:
            raise ConfigError(
                f"the table {target.name} cannot say that a row was deleted",
                fix=f"give it a column {ACTIVE} or {OP}, or a unique key",
            )
        if not tells:
            self._fields[_SIGN] = _SIGN
        self.columns = list(self._fields)
        self._lines = lines(self.columns)
        self._reader = UmsReader()

    def made(self, texts: Sequence[bytes | None], constants: Sequence[str]) -> Made:
        """The body of these messages."""
        bad = [(number, "it has no value") for number, text in enumerate(texts) if text is None]
        data, rows = [], 0
        for found in self._read(texts, bad):
            batch, beyond = _beyond(found.batch)
            made = of_columns(self._lines, self._cells(batch), constants)
            bad += [(NOWHERE, f"{_row(beyond, row)}: a value is not of its type") for row in range(len(beyond))]
            bad += [(NOWHERE, f"{_row(batch, number)}: {reason}") for number, reason in made.refused]
            data.append(made.data)
            rows += made.rows
        return Made(b"".join(data), rows, sorted(bad))

    def _read(self, texts: Sequence[bytes | None], bad: list[tuple[int, str]]) -> Iterator[UmsRows]:
        """Rows of the tables that are wanted. One message that is not UMS spoils a whole reading: it is taken out, and all are read again."""
        left = [(number, text) for number, text in enumerate(texts) if text is not None]
        while True:
            try:
                found = self._reader.read([text for _, text in left])
                break
            except MalformedMessage as error:
                bad.append((left.pop(error.index)[0], f"not UMS: {error.reason}"))
        for one in found:
            if isinstance(one, Clear) and self._wants(one):
                bad.append((NOWHERE, f"{one.table.namespace} was emptied at its source, which a load cannot do"))
            elif isinstance(one, UmsRows) and any(one.batch.table.namespace.matches(name) for name in self._tables):
                yield one

    def _wants(self, clear: Clear) -> bool:
        return any(clear.table.namespace.matches(name) for name in self._tables)

    def _cells(self, batch: ChangeBatch) -> dict[str, Array]:
        deletes = is_delete(batch.data)
        made: dict[str, Array] = {
            ACTIVE: pc.if_else(deletes, _NO, _YES),
            _SIGN: pc.if_else(deletes, _YES, _NO),
        }
        nothing = pa.nulls(len(batch), pa.utf8())
        there = {name.casefold(): name for name in batch.data.schema.names}
        for field in self._fields.values():
            if field not in made:
                name = there.get(field.casefold())
                made[field] = nothing if name is None else _text(batch.data.column(name))
        return {column: made[field] for column, field in self._fields.items()}


def _beyond(batch: ChangeBatch) -> tuple[ChangeBatch, ChangeBatch]:
    """Rows whose values their types hold, and the others."""
    holds = pc.is_null(batch.data.column(RAW))
    rest = batch.data.filter(pc.invert(holds))
    return ChangeBatch(batch.table, batch.data.filter(holds)), ChangeBatch(batch.table, rest)


def _row(batch: ChangeBatch, number: int) -> str:
    return f"{batch.table.namespace}, {ID} {batch.data.column(ID)[number].as_py()}"


def _text(column: Array) -> Array:
    if is_bytes(column.type):
        encoded = [None if value is None else base64.b64encode(value).decode() for value in column.to_pylist()]
        return pa.array(encoded, pa.utf8())
    found: Array = column.cast(pa.utf8()) if is_text(column.type) else to_text(column).cast(pa.utf8())
    return found
