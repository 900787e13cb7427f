"""What decides in a table with a unique key which of two rows of a key stays.

::

    "function_column.sequence_col" = "v"         the larger value of the column v; a load that has the column says all
    "function_column.sequence_type" = "bigint"   the larger value of a hidden column: each load says by a header which of its own columns is meant
    neither                                      the row that was loaded last

To Doris a hidden column gets an expression, for which strict mode does not count: a value that is not of its type becomes NULL, which loses against all others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_UNIQUE = re.compile(r"UNIQUE KEY\s*\(")
_COLUMN = re.compile(r'"function_column\.sequence_col"\s*=\s*"([^"]+)"')
_TYPE = re.compile(r'"function_column\.sequence_type"\s*=\s*"([^"]+)"')
HEADER = "function_column.sequence_col"


@dataclass(frozen=True, slots=True)
class KeySequence:
    """Of one table. At most one of `column` and `type` is said."""

    is_unique: bool
    column: str | None
    type: str | None

    @classmethod
    def of(cls, created: str) -> KeySequence:
        """By what SHOW CREATE TABLE says."""
        column, type_ = _COLUMN.search(created), _TYPE.search(created)
        return cls(
            _UNIQUE.search(created) is not None,
            None if column is None else column[1],
            None if type_ is None or column is not None else type_[1].lower(),
        )

    @property
    def holds_ids(self) -> bool:
        """Whether a hidden column takes every `_ums_id_`."""
        return self.type in ("bigint", "largeint")

    @property
    def takes_repeats(self) -> bool:
        """Whether a load that is done twice is done once."""
        return self.is_unique and (self.column is not None or self.type is not None)

    @property
    def wants_order(self) -> bool:
        """Whether of two rows of a key the one that is loaded later stays."""
        return self.is_unique and not self.takes_repeats
