"""A loader's table in Doris: its columns, and whether it takes a row twice."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import ConfigError
from headrace.sinks.doris.sequence import KeySequence
from headrace.sinks.doris.sql import Sql, quoted

_PARTITIONED = re.compile(r"(AUTO\s+)?PARTITION BY RANGE\s*\(\s*`([^`]+)`\s*\)", re.IGNORECASE)
_DYNAMIC = re.compile(r'"dynamic_partition\.enable"\s*=\s*"true"', re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Target:
    """What is known of a table. Doris does not tell capitals from small letters in names of columns."""

    name: str
    columns: tuple[str, ...]
    types: tuple[str, ...]
    sequence: KeySequence
    """Which of two rows of a key stays."""
    partitioned_by: str | None
    """The column of range partitions that somebody must make: Doris makes none of them itself."""

    @classmethod
    def of(cls, sql: Sql, database: str, table: str) -> Target:
        """As Doris has it; ConfigError when it is not there."""
        columns = sql.run(
            "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.columns WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
            " ORDER BY ORDINAL_POSITION",
            (database, table),
        )
        if not columns:
            raise ConfigError(
                f"there is no table {database}.{table} in Doris, or the user must not see it",
                fix="create it, and grant the user LOAD and SELECT on it",
            )
        made = str(sql.run(f"SHOW CREATE TABLE {quoted(table)}")[0][1])
        partitioned = _PARTITIONED.search(made)
        makes_itself = partitioned is None or partitioned[1] is not None or _DYNAMIC.search(made) is not None
        names, types = zip(*((str(name), str(type_)) for name, type_ in columns), strict=True)
        return cls(
            f"{database}.{table}",
            names,
            types,
            KeySequence.of(made),
            None if partitioned is None or makes_itself else partitioned[2],
        )

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return any(one.casefold() == name.casefold() for one in self.columns)

    def column(self, name: str) -> str:
        """A column's name as the table writes it, or as it is given where there is none."""
        return next((one for one in self.columns if one.casefold() == name.casefold()), name)
