"""``headrace log ls|cat|stat LOG``: what is in a log. Reads only; a writer may be at work.

LOG is a directory (the embedded log), ``hdfs://…``, ``s3://…``, ``kafka://host:port,host:port``, or a flow file, whose `log` then is looked into with all
its options (login, encryption, prefix).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

import click
from pydantic import ValidationError

from headrace import registry
from headrace.cli.jsonl import change_lines
from headrace.codec.entries import EntryReader, EntryWriter
from headrace.codec.foreign import WRITERS
from headrace.codec.foreign.changes import ForeignWriter, of_batch
from headrace.errors import ConfigError, CorruptError, DataError
from headrace.flow.load import load
from headrace.log.base import Committed, Entry, EntryForm, Form, Inspectable, Log, Span, last, offset_at
from headrace.log.layout import kind_of
from headrace.model import Component
from headrace.stream.readers import flow_positions
from headrace.ums.change import ChangeBatch, Clear, End, Mark

Row = dict[str, Any]
_UMS = (Form.UMS, Form.UMS_DBUS)
_ANY_TYPE = "*"
"""The type of a source in a mark's namespace, which a log does not say before the first change."""
_KAFKA = "kafka://"
_FLOW_FILE = (".yaml", ".yml")


@click.group("log")
def log_group() -> None:
    """Look into a log: a directory, hdfs://…, s3://…, kafka://host:port or the log of a flow file."""


@log_group.command("ls")
@click.argument("log", metavar="LOG")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def ls_command(log: str, as_json: bool) -> None:
    """Topics and partitions, with the offsets that can be read, and who has read how far."""
    with opened_log(log) as opened:
        for row in with_readers(opened, log):
            click.echo(json.dumps(row) if as_json else "\n".join([_partition_line(row), *reader_lines(row)]))


@log_group.command("stat")
@click.argument("log", metavar="LOG")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def stat_command(log: str, as_json: bool) -> None:
    """Figures of each partition: segments, sizes and writers; on Kafka copies and retention; and who has read how far.

    Flows are told of when LOG is their file, by what they have reported; on Kafka consumer groups as well.
    """
    with opened_log(log) as opened:
        for row in with_readers(opened, log):
            found = opened.statistics(row["topic"], row["partition"])
            newest = last(opened, row["topic"], row["partition"])
            time = newest and _time(newest.entry.time_ms)
            if as_json:
                click.echo(json.dumps(row | found | {"newest": time}))
            else:
                figures = "  ".join(f"{name} {_figure(value)}" for name, value in found.items())
                lines = [f"{_partition_line(row)}  {figures}", f"  newest entry {time}", *reader_lines(row)]
                click.echo("\n".join(lines))


@log_group.command("cat")
@click.argument("log", metavar="LOG")
@click.argument("topic", required=False)
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition.")
@click.option("--from", "start", type=click.IntRange(min=0), help="First offset; the oldest kept one by default.")
@click.option("--to", "stop", type=click.IntRange(min=0), help="Offset to stop before; the end by default.")
@click.option("--since", type=click.DateTime(), help="Start at the first entry of this time or a later one (UTC).")
@click.option("--until", type=click.DateTime(), help="Stop before the first entry of this time or a later one (UTC).")
@click.option("--json", "as_json", is_flag=True, help="Headers as one JSON object per line.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["headers", "jsonl", *(form.value for form in _UMS), *WRITERS]),
    default="headers",
    show_default=True,
    help="What is shown of an entry.",
)
def cat_command(
    log: str,
    *,
    topic: str | None,
    partition: int | None,
    start: int | None,
    stop: int | None,
    since: datetime | None,
    until: datetime | None,
    as_json: bool,
    form: str,
) -> None:
    """The entries of a log: their headers, their rows (jsonl), or what they say as messages, whatever form they have.

    jsonl has a line per row, as it is after its change; ums and ums-dbus have a message per line (docs/formats/ums.md), as have debezium,
    debezium-schema, canal and maxwell, without rows before changes, which a log does not keep (docs/formats/foreign.md).
    """
    with opened_log(log) as opened:
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
        topics = {found["topic"] for found in wanted}
        if form != "headers" and len(topics) > 1:
            raise ConfigError(
                f"{log} has several topics, and not all hold changes", fix=f"name one: {', '.join(sorted(topics))}"
            )
        for found in wanted:
            span = Span(found["start"] if start is None else start, found["stop"] if stop is None else stop)
            if since is not None:
                span = Span(max(span.start, _offset_at(opened, found, since)), span.stop)
            if until is not None:
                span = Span(span.start, min(span.stop, _offset_at(opened, found, until)))
            if form != "headers":
                sys.stdout.writelines(f"{line}\n" for line in _contents(opened, found, span, form))
                continue
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
    """One row per entry; `header` is null when the entry is neither a block of headrace nor UMS."""
    reader = EntryReader()
    for record in log.read(topic, partition, span):
        yield {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "time": _time(record.entry.time_ms),
            "key": record.entry.key.decode("utf-8", "replace"),
            "bytes": len(record.entry.value),
            "header": reader.header(record.entry),
        }


def with_readers(log: OpenedLog, place: str) -> Iterator[Row]:
    """The same rows, each with who has read how far: ``{"reader": …, "kind": "flow" or "group", "offset": next, "lag": offsets}``."""
    flows = list(flow_positions(load(Path(place)))) if place.endswith(_FLOW_FILE) else []
    for topic, rows in groupby(partitions(log), key=lambda row: row["topic"]):
        groups = log.readers(topic) if isinstance(log, Committed) else []
        for row in rows:
            found = [("flow", name, at.offset) for name, at in flows if (at.topic, at.partition) == _place(row)]
            found += [("group", group.name, group.offset) for group in groups if group.partition == row["partition"]]
            readers = [
                {"reader": name, "kind": kind, "offset": offset, "lag": _lag(log, row, offset)}
                for kind, name, offset in found
            ]
            yield {**row, "readers": readers}


def _place(row: Row) -> tuple[str, int]:
    return row["topic"], row["partition"]


def _lag(log: Log, row: Row, offset: int) -> int:
    """How many offsets are before the end; none when no entry is, as a log's last offsets may hold none."""
    rest = Span(max(offset, row["start"]), row["stop"])
    return row["stop"] - offset if next(log.read(*_place(row), rest), None) is not None else 0


def _offset_at(log: Log, row: Row, moment: datetime) -> int:
    return offset_at(log, *_place(row), int(moment.replace(tzinfo=UTC).timestamp() * 1000))


def reader_lines(row: Row) -> list[str]:
    """A line for each reader of a partition."""
    return ["  read by {kind} {reader} up to {offset}, {lag:,} behind".format(**reader) for reader in row["readers"]]


def _contents(log: Log, place: Row, span: Span, form: str) -> Iterator[str]:
    """What entries hold: a line per row, or the messages that they are or would be."""
    reader, lines = EntryReader(), _lines_of(form)
    for record in log.read(place["topic"], place["partition"], span):
        try:
            found = reader.read(record.entry)
            if isinstance(found, (ChangeBatch, Clear, End, Mark)):
                yield from lines(found)
        except (CorruptError, DataError) as error:
            where = f"{place['topic']}/{place['partition']}, offset {record.offset}"
            raise type(error)(f"{where}: {error.message}", fix=error.fix) from error


def _lines_of(form: str) -> Callable[[ChangeBatch | Clear | End | Mark], Iterable[str]]:
    """What makes lines of changes and marks; only UMS has marks."""
    if form in _UMS:
        writer = EntryWriter(EntryForm(Form(form)), _ANY_TYPE)
        return lambda found: _messages([writer.mark(found, 0)] if isinstance(found, Mark) else writer.changes(found, 0))
    if form in WRITERS:
        return lambda found: () if isinstance(found, Mark) else _foreign(WRITERS[form], found)
    return lambda found: () if isinstance(found, Mark) else change_lines(found)


def _foreign(writer: ForeignWriter, change: ChangeBatch | Clear | End) -> Iterator[str]:
    if isinstance(change, ChangeBatch):
        yield from (message for _, message in writer.messages(of_batch(change)))
    elif isinstance(change, Clear) and (message := writer.clear(change)) is not None:
        yield message


def _messages(entries: Sequence[Entry]) -> Iterator[str]:
    return (entry.value.decode() for entry in entries)


@contextmanager
def opened_log(place: str) -> Iterator[OpenedLog]:
    """The log at a place given on the command line."""
    if place.endswith(_FLOW_FILE):
        config = load(Path(place)).log
    elif place.startswith(_KAFKA):
        config = _config("kafka", brokers=place.removeprefix(_KAFKA).rstrip("/"))
    elif "://" in place and kind_of(place) == "directory":
        raise ConfigError(
            f"{place} is not a log", fix="name a directory, hdfs://…, s3://…, kafka://host:port or a flow file"
        )
    else:
        config = _config(kind_of(place), path=place)
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
            f"that is not a log: {error.errors()[0]['msg']}",
            fix="kafka://host:port,host:port, hdfs://namenode:8020/directory or s3://bucket/prefix",
        ) from error
    return config


def _partition_line(row: Row) -> str:
    return "{topic}  partition {partition}  offsets {start} to {stop}".format(**row)


def _figure(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _entry_line(row: Row) -> str:
    header = json.dumps(row["header"], ensure_ascii=False) if row["header"] else "neither a block of headrace nor UMS"
    return f"{row['topic']}/{row['partition']}  {row['offset']}  {row['time']}  {row['key']}  {row['bytes']:,} bytes  {header}"


def _time(time_ms: int) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000, tz=UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{time_ms} ms"
