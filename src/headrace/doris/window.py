"""How long Doris remembers a label, and so how long UNKNOWN means "never loaded".

A frontend forgets a label some hours after its load has ended (`streaming_label_keep_max_second`), and sooner when a database has had so many
loads since (`label_num_threshold`), whoever made them. It then says UNKNOWN, as it does of a label that it has never seen. What tells the two
apart is kept with a load before it is sent: the time, and the newest number of a transaction. Numbers are the cluster's and only
grow, so their difference is never less than the loads that there were since.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import ConfigError, FatalError
from headrace.sinks.doris.sql import Sql

_PART_OF_TIME = 0.5
_PART_OF_LOADS = 0.9
"""A frontend that starts leaves out up to a thousand numbers; so this may be no small part."""
_KEEP_S, _KEEP_LOADS = 43_200.0, 2000


@dataclass(frozen=True, slots=True)
class Memory:
    """A frontend's settings."""

    keep_s: float = _KEEP_S
    keep_loads: int = _KEEP_LOADS
    """-1: however many."""

    @classmethod
    def of(cls, sql: Sql) -> Memory:
        """As the frontend has them; what Doris has by default where the user may not ask."""
        try:
            keep_s = _setting(sql, "streaming_label_keep_max_second")
            keep_loads = _setting(sql, "label_num_threshold")
        except (ConfigError, FatalError):
            return cls()
        return cls(_KEEP_S if keep_s is None else keep_s, _KEEP_LOADS if keep_loads is None else int(keep_loads))

    def covers(self, age_s: float, loads: int | None) -> bool:
        """Whether a label is surely still known, if it ever was: first sent so long ago, so many transactions ago (None: not known)."""
        if not 0 <= age_s < _PART_OF_TIME * self.keep_s:
            return False
        return self.keep_loads < 0 or (loads is not None and 0 <= loads < _PART_OF_LOADS * self.keep_loads)


def _setting(sql: Sql, name: str) -> float | None:
    found = sql.run(f"ADMIN SHOW FRONTEND CONFIG LIKE '{name}'")
    return float(found[0][1] or 0) if found else None
