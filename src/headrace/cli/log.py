"""``headrace log ls|cat|stat LOG``: what is in a log. Reads only; a writer may be at work.

LOG is a directory (the embedded log), ``kafka://host:port,host:port``, or a flow file, whose `log` then is looked into with all
its options (login, encryption, prefix).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import click
from pydantic import ValidationError

from headrace import registry
from headrace.errors import ConfigError, CorruptError
from headrace.flow.load import load
from headrace.log.base import Inspectable, Log, Record, Span, last, offset_at
from headrace.model import Component
from headrace.ums.change import read_header

Row = dict[str, Any]
_KAFKA = "kafka://"


@click.group("log")
def log_group() -> None:
    """Look into a log: a directory, kafka://host:port or the log of a flow file."""


@log_group.command("ls")
@click.argument("log", metavar="LOG")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def ls_command(log: str, as_json: bool) -> None:
    """Topics and partitions, with the offsets that can be read."""
    with _opened(log) as opened:
        for row in partitions(opened):
            click.echo(json.dumps(row) if as_json else _partition_line(row))


@log_group.command("stat")
@click.argument("log", metavar="LOG")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def stat_command(log: str, as_json: bool) -> None:
    """Figures of each partition: segments, sizes and writers; on Kafka copies and retention."""
    with _opened(log) as opened:
        for row in partitions(opened):
            found = opened.statistics(row["topic"], row["partition"])
            newest = last(opened, row["topic"], row["partition"])
            time = newest and _time(newest.entry.time_ms)
            if as_json:
                click.echo(json.dumps(row | found | {"newest": time}))
            else:
                figures = "  ".join(f"{name} {_figure(value)}" for name, value in found.items())
                click.echo(f"{_partition_line(row)}  {figures}\n  newest entry {time}")


@log_group.command("cat")
@click.argument("log", metavar="LOG")
@click.argument("topic", required=False)
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option("--from", "start", type=click.IntRange(min=0), help="First offset; the oldest kept one by default.")
@click.option("--to", "stop", type=click.IntRange(min=0), help="Offset to stop before; the end by default.")
@click.option("--since", type=click.DateTime(), help="Start at the first entry of this time (UTC).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def cat_command(
    log: str,
    *,
    topic: str | None,
    partition: int | None,
    start: int | None,
    stop: int | None,
    since: datetime | None,
    as_json: bool,
) -> None:
    """The entries' headers, not their rows (`headrace decode` shows rows)."""
    with _opened(log) as opened:
        wanted = [
            found
            for found in partitions(opened)
            if topic in (None, found["topic"]) and partition in (None, found["partition"])
        ]
        if topic is not None and not wanted:
            raise ConfigError(
                f"{log} has no such topic or partition",
                fix=f"use one of the topics: {', '.join(opened.topics()) or 'none yet'}",
            )
        for found in wanted:
            span = Span(found["start"] if start is None else start, found["stop"] if stop is None else stop)
            if since is not None:
                since_ms = int(since.replace(tzinfo=UTC).timestamp() * 1000)
                span = Span(max(span.start, offset_at(opened, found["topic"], found["partition"], since_ms)), span.stop)
            for row in entries(opened, found["topic"], found["partition"], span):
                click.echo(json.dumps(row, ensure_ascii=False) if as_json else _entry_line(row))


class OpenedLog(Log, Inspectable, Protocol):
    """A log that people can look into."""


def partitions(log: OpenedLog) -> Iterator[Row]:
    """One row per partition: topic, partition, start, stop."""
    for topic in log.topics():
        for partition, span in log.spans(topic).items():
            yield {"topic": topic, "partition": partition, "start": span.start, "stop": span.stop}


def entries(log: Log, topic: str, partition: int, span: Span) -> Iterator[Row]:
    """One row per entry; `header` is null when the entry is not a headrace block."""
    for record in log.read(topic, partition, span):
        yield {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "time": _time(record.entry.time_ms),
            "key": record.entry.key.decode("utf-8", "replace"),
            "bytes": len(record.entry.value),
            "header": _header(record),
        }


@contextmanager
def _opened(place: str) -> Iterator[OpenedLog]:
    """The log at a place given on the command line."""
    if place.endswith((".yaml", ".yml")):
        config = load(Path(place)).log
    elif place.startswith(_KAFKA):
        config = _config("kafka", brokers=place.removeprefix(_KAFKA).rstrip("/"))
    elif "://" in place:
        raise ConfigError(f"{place} is not a log", fix="name a directory, kafka://host:port or a flow file")
    else:
        config = _config("directory", path=Path(place))
    log: Log = registry.load("logs", config.type)(config)
    try:
        if not isinstance(log, Inspectable):
            raise ConfigError(f"a log of type {config.type} cannot be looked into", fix="use the tools of its own")
        yield log
    finally:
        log.close()


def _config(kind: str, **options: object) -> Component:
    try:
        config: Component = registry.load("logs", kind).Config(**options)  # type: ignore[attr-defined]
    except ValidationError as error:
        raise ConfigError(
            f"that is not a log: {error.errors()[0]['msg']}", fix="kafka://host:port,host:port"
        ) from error
    return config


def _partition_line(row: Row) -> str:
    return "{topic}  partition {partition}  offsets {start} to {stop}".format(**row)


def _figure(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _header(record: Record) -> Row | None:
    try:
        return read_header(record.entry.value)
    except CorruptError:
        return None


def _entry_line(row: Row) -> str:
    header = json.dumps(row["header"], ensure_ascii=False) if row["header"] else "not a headrace block"
    return f"{row['topic']}/{row['partition']}  {row['offset']}  {row['time']}  {row['key']}  {row['bytes']:,} bytes  {header}"


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
