"""A moment of a table: which of its changes had happened by then, and which files can hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Protocol, Self

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError
from headrace.lake.layout import parse_namespace
from headrace.lake.records import Horizon, LakeClear, LakeState, Shard, shard_of
from headrace.ums.schema import COMMIT_TS, ID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Ranges(Protocol):
    """Where rows lie, those of a file or of a row group; both ends belong to it."""

    @property
    def id(self) -> tuple[int, int]: ...

    @property
    def commit_ts(self) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class Moment:
    """Changes up to `limit` in `column` have happened; all have when there is no limit. Those up to id `floor` do not count."""

    column: str
    limit: int | None
    floor: int | None = None

    @classmethod
    def of(cls, id_: int | None, time: datetime | None) -> Self:
        if id_ is not None and time is not None:
            raise ConfigError("a moment is an id or a time, not both", fix="give one of them")
        if time is None:
            return cls(ID, id_)
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        return cls(COMMIT_TS, (aware - _EPOCH) // timedelta(microseconds=1))

    def after(self, clears: Sequence[LakeClear], shard: Shard) -> Self:
        """This moment in a shard, where what the newest clear by then has ended does not count."""
        happened = [
            clear.id
            for clear in clears
            if shard_of(parse_namespace(clear.namespace)) == shard and self._has_come(clear.id, clear.commit_ts_us)
        ]
        return self.above(max(happened, default=None))

    def above(self, floor: int | None) -> Self:
        """Without the changes up to an id as well."""
        floors = [each for each in (self.floor, floor) if each is not None]
        return replace(self, floor=max(floors, default=None))

    def is_in(self, state: LakeState) -> bool:
        """Whether all that the state takes in had happened."""
        return self._has_come(state.id, state.commit_ts_us)

    def must_not_be_before(self, horizon: Horizon | None, table: str) -> None:
        """ConfigError when the lake does not keep what this moment needs."""
        if horizon is None or self._has_come(horizon.id, horizon.commit_ts_us):
            return
        since = _EPOCH + timedelta(microseconds=horizon.commit_ts_us)
        raise ConfigError(
            f"the lake keeps the history of {table} from {since.isoformat()} (id {horizon.id}) on; what was overwritten before is gone",
            fix="ask for a later moment, or read a copy of the lake from before its retention",
        )

    def can_touch(self, rows: Ranges) -> bool:
        """Whether rows in these ranges can count."""
        in_time = self.limit is None or self._range(rows)[0] <= self.limit
        return in_time and (self.floor is None or rows.id[1] > self.floor)

    def covers(self, rows: Ranges) -> bool:
        """Whether all rows in these ranges count."""
        in_time = self.limit is None or self._range(rows)[1] <= self.limit
        return in_time and (self.floor is None or rows.id[0] > self.floor)

    def select(self, rows: pa.Table) -> pa.Table:
        """Those rows that have happened and count."""
        if self.limit is not None:
            moments = rows.column(self.column).cast(pa.int64())
            rows = rows.filter(pc.less_equal(moments, pa.scalar(self.limit, pa.int64())))
        if self.floor is not None:
            rows = rows.filter(pc.greater(rows.column(ID), pa.scalar(self.floor, pa.int64())))
        return rows

    def _has_come(self, id_: int, commit_ts_us: int) -> bool:
        return self.limit is None or (id_ if self.column == ID else commit_ts_us) <= self.limit

    def _range(self, rows: Ranges) -> tuple[int, int]:
        return rows.id if self.column == ID else rows.commit_ts
