"""Range partitions that are made ahead, for tables whose partitions Doris does not make itself.

A partition is of one hour, day, week, month or year: ``ALTER TABLE t ADD PARTITION IF NOT EXISTS p20260302 VALUES [("2026-03-02"), ("2026-03-03"))``.
What is there already, under whatever name and of whatever size, is left alone, and a span that overlaps with it is not made: two loaders,
or a person and a loader, may make partitions of one table.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from headrace.doris.config import Partitions
from headrace.doris.target import Target
from headrace.errors import ConfigError, FatalError
from headrace.sinks.doris.sql import Sql, literal, quoted

_BOUND = re.compile(r"keys: \[([^\]]*)\]")
_DATES = re.compile(r"date(v2)?$", re.IGNORECASE)
_TIMES = re.compile(r"datetime", re.IGNORECASE)
_NAMES = {"hour": "p%Y%m%d%H", "day": "p%Y%m%d", "week": "p%Y%m%d", "month": "p%Y%m", "year": "p%Y"}
_DATE, _TIME = "%Y-%m-%d", "%Y-%m-%d %H:%M:%S"

Span = tuple[datetime, datetime]


def spans(config: Partitions, now_s: float) -> list[Span]:
    """What is wanted: from `back` before the one of now to `ahead` behind it. Local times of the column, without a zone."""
    begin = _begin(
        datetime.fromtimestamp(now_s, UTC).astimezone(ZoneInfo(config.zone)).replace(tzinfo=None), config.unit
    )
    starts = [_moved(begin, config.unit, number) for number in range(-config.back, config.ahead + 2)]
    return list(pairwise(starts))


def make_ahead(sql: Sql, config: Partitions, target: Target, now_s: float) -> list[str]:
    """Makes those that are missing; their names. ConfigError when the table is not of such partitions."""
    form = _form(config, target)
    table = quoted(target.name.partition(".")[2])
    made = []
    for first, stop in spans(config, now_s):
        low, high, name = first.strftime(form), stop.strftime(form), first.strftime(_NAMES[config.unit])
        if _overlaps(sql, table, low, high):
            continue
        try:
            sql.run(
                f"ALTER TABLE {table} ADD PARTITION IF NOT EXISTS {quoted(name)} VALUES [({literal(low)}), ({literal(high)}))"
            )
        except FatalError:
            if not _overlaps(sql, table, low, high):  # else somebody else was faster
                raise
        made.append(name)
    return made


def _form(config: Partitions, target: Target) -> str:
    """How bounds are written."""
    by = target.partitioned_by
    if by is None:
        raise ConfigError(
            f"the table {target.name} has no range partitions that somebody must make",
            fix="take `partitions` out of the loader's file: the table has none, or Doris makes them itself",
        )
    type_ = target.types[target.columns.index(target.column(by))]
    if _TIMES.match(type_):
        return _TIME
    if not _DATES.match(type_) or config.unit == "hour":
        raise ConfigError(
            f"the partitions of {target.name} are of its column {by}, which is {type_}: none of a {config.unit} can be made",
            fix="make them by hand, or correct `unit`",
        )
    return _DATE


def _overlaps(sql: Sql, table: str, low: str, high: str) -> bool:
    """Whether some of a span is in a partition already. Dates order as their texts do; a bound that is empty is none."""
    for row in sql.run(f"SHOW PARTITIONS FROM {table}"):
        bounds = next(found for value in row if value and len(found := _BOUND.findall(value)) == 2)
        if bounds[0] < high and (not bounds[1] or low < bounds[1]):
            return True
    return False


def _begin(at: datetime, unit: str) -> datetime:
    """Of the span that a moment is in."""
    hour = at.replace(minute=0, second=0, microsecond=0)
    day = hour.replace(hour=0)
    if unit == "week":
        return day - timedelta(days=day.weekday())
    return {"hour": hour, "day": day, "month": day.replace(day=1), "year": day.replace(month=1, day=1)}[unit]


def _moved(begin: datetime, unit: str, number: int) -> datetime:
    """The begin of another span, so many behind."""
    if unit in ("hour", "day", "week"):
        return begin + number * timedelta(**{f"{unit}s": 1})
    months = begin.year * 12 + begin.month - 1 + number * (12 if unit == "year" else 1)
    return begin.replace(year=months // 12, month=months % 12 + 1)
