"""``headrace log ls|cat|stat PATH``: what is in an embedded log. Reads only; a writer may be at work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from headrace.errors import ConfigError, CorruptError
from headrace.log.base import Record, Span, offset_at
from headrace.log.directory import DirectoryLog
from headrace.ums.change import read_header

Row = dict[str, Any]


@click.group("log")
def log_group() -> None:
    """Look into an embedded log."""


@log_group.command("ls")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def ls_command(path: Path, as_json: bool) -> None:
    """Topics and partitions, with the offsets that can be read."""
    for row in partitions(_open(path)):
        click.echo(
            json.dumps(row) if as_json else "{topic}  partition {partition}  offsets {start} to {stop}".format(**row)
        )


@log_group.command("stat")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def stat_command(path: Path, as_json: bool) -> None:
    """Segments, sizes and writers of each partition."""
    text = (
        "{topic}  partition {partition}  offsets {start} to {stop}  segments {segments}  bytes {bytes:,}  "
        "epoch {epoch}  {state}\n  newest entry {newest}"
    )
    for row in statistics(_open(path)):
        click.echo(json.dumps(row) if as_json else text.format(**row))


@log_group.command("cat")
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("topic", required=False)
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option("--from", "start", type=click.IntRange(min=0), help="First offset; the oldest kept one by default.")
@click.option("--to", "stop", type=click.IntRange(min=0), help="Offset to stop before; the end by default.")
@click.option("--since", type=click.DateTime(), help="Start at the first entry of this time (UTC).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def cat_command(
    path: Path,
    *,
    topic: str | None,
    partition: int | None,
    start: int | None,
    stop: int | None,
    since: datetime | None,
    as_json: bool,
) -> None:
    """The entries' headers, not their rows (`headrace decode` shows rows)."""
    log = _open(path)
    wanted = [
        found
        for found in partitions(log)
        if topic in (None, found["topic"]) and partition in (None, found["partition"])
    ]
    if topic is not None and not wanted:
        raise ConfigError(
            f"{path} has no such topic or partition",
            fix=f"use one of the topics: {', '.join(log.topics()) or 'none yet'}",
        )
    for found in wanted:
        span = Span(found["start"] if start is None else start, found["stop"] if stop is None else stop)
        if since is not None:
            since_ms = int(since.replace(tzinfo=UTC).timestamp() * 1000)
            span = Span(max(span.start, offset_at(log, found["topic"], found["partition"], since_ms)), span.stop)
        for row in entries(log, found["topic"], found["partition"], span):
            click.echo(json.dumps(row, ensure_ascii=False) if as_json else _entry_line(row))


def partitions(log: DirectoryLog) -> Iterator[Row]:
    """One row per partition: topic, partition, start, stop."""
    for topic in log.topics():
        for partition, span in log.spans(topic).items():
            yield {"topic": topic, "partition": partition, "start": span.start, "stop": span.stop}


def statistics(log: DirectoryLog) -> Iterator[Row]:
    """The rows of `partitions` with segments, bytes, epoch, state and the time of the newest entry."""
    for row in partitions(log):
        topic, partition, stop = row["topic"], row["partition"], row["stop"]
        newest = next(log.read(topic, partition, Span(stop - 1, stop)), None) if stop > row["start"] else None
        yield row | log.statistics(topic, partition) | {"newest": newest and _time(newest.entry.time_ms)}


def entries(log: DirectoryLog, topic: str, partition: int, span: Span) -> Iterator[Row]:
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


def _open(path: Path) -> DirectoryLog:
    if "://" in str(path) or ":/" in str(path):
        raise ConfigError(f"{path} is not a directory", fix="name the directory of an embedded log")
    return DirectoryLog(DirectoryLog.Config(path=path))


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
