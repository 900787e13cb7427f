"""Flat JSON: a message per row, as the row is after its change.

::

    {"id": 10}                                                                                                  the message's key on Kafka
    {"id": 10, "note": "x", "_ums_id_": "3000000001234", "_ums_ts_": "2024-02-29 23:59:59.000000", "_is_active_": 1}

Values are Maxwell's (numbers and decimals with all digits, JSON as JSON, bytes as base64, else text); 0 in `_is_active_` is a deleted row
as it was. `_ums_id_` is text, as half of the world's parsers read numbers as doubles: of two messages of a key the one with the larger
number is newer. There is no message for TRUNCATE TABLE.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.codec.foreign.changes import Changes, key_images
from headrace.codec.foreign.maxwell import STYLE
from headrace.codec.texts import array_of, joined, listed, moments
from headrace.ums.change import DELETE, Clear
from headrace.ums.system_columns import USUAL, SystemColumns


class FlatWriter:
    """Writes flat JSON; `names`: of what it says beside the columns."""

    def __init__(self, names: SystemColumns = USUAL) -> None:
        self._names = names

    def messages(self, changes: Changes) -> Iterator[tuple[int, str]]:
        """See `ForeignWriter.messages`."""
        names = self._names
        after, _ = changes.images(STYLE)
        active = array_of("0" if op == DELETE else "1" for op in changes.ops)
        times = moments(changes.times(), 6)
        system = (
            f', "{names.id}": "',
            changes.id_texts(),
            f'", "{names.ts}": "',
            times,
            f'", "{names.active}": ',
            active,
        )
        return zip(changes.ids, listed(joined("{", after.members(), *system, "}")), strict=True)

    def keys(self, changes: Changes) -> list[str]:
        """See `ForeignWriter.keys`: an object of the key's columns."""
        return listed(key_images(changes, STYLE).objects())

    def clear(self, clear: Clear) -> None:
        """There is no message for TRUNCATE TABLE."""
