"""Topics of Kafka that others write, as a source: their changes become changes like all others.

::

    messages of all partitions --format--> rows --> _ums_id_ = (sum of the next offsets of all partitions) x 10^5 + place in the message
                                               \\--> position = {"offsets": {"topic/partition": next offset}}

The sum grows with each message, whatever order the partitions come in, so ids only grow along our log; keys stay in the order of
their partition, which is the order in which those tools wrote them. A partition that is added on the way is taken in from its begin. Each
event ends with a mark: the messages' own transactions are not known any more.

Crash story: what was read and not appended is read again from the newest mark, under ids that may differ; what was appended is not
read again, as changes and mark are one unit. Tables are kept in `seen_tables.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from headrace.capture.base import Event
from headrace.capture.lines.fields import HOST
from headrace.capture.lines.rules import Rule, tables_of
from headrace.capture.lines.samples import sample_findings
from headrace.capture.lines.tables import Lines, LineTables
from headrace.capture.seen_tables import SeenTables
from headrace.capture.topic_lines import LineMessages, lines_of
from headrace.capture.topic_messages import IDS_PER_MESSAGE, Arrived, Interpreter, Refusal, Wanted, interpreter_of
from headrace.capture.topic_watermarks import PrintedWatermarks
from headrace.codec.foreign.log_events import LINE_READERS, LogEvent, read_line
from headrace.codec.foreign.reading import ForeignMessage, NotThisFormatError
from headrace.errors import ConfigError, Finding
from headrace.log.kafka.config import KafkaConfig, Sasl
from headrace.log.kafka.reader import no_longer_kept
from headrace.log.kafka.tail import Tail, Taken
from headrace.model import Duration, SourceConfig
from headrace.tls import Tls
from headrace.ums.change import Mark
from headrace.ums.printed import ALONE
from headrace.ums.schema import TableSchema

_WAIT_S = 0.1


class KafkaSourceConfig(SourceConfig):
    """Changes that another tool has put on topics of Apache Kafka."""

    type: Literal["kafka"] = "kafka"
    brokers: Annotated[str, Field(pattern=r"^[^\s,]+:\d+(,[^\s,]+:\d+)*$")]
    """Some brokers to ask for the others: ``host:port,host:port``."""
    topics: Annotated[list[str], Field(min_length=1)]
    """The topics, by name."""
    format: Literal[
        "debezium", "canal", "maxwell", "ums", "json", "filebeat", "vector", "fluentbit", "logstash", "line"
    ]
    """What their messages are: JSON of Debezium (with its schema or without), of canal (flat messages), of Maxwell; UMS of DBus or headrace;
    or one JSON object per row (`json`), with the row's key as a JSON object in the message's key. Or lines of logs, as Filebeat, Vector,
    Fluent Bit or Logstash write them, or as they are (`line`).
    """
    rules: list[Rule] = Field(default_factory=list)
    """From lines of logs to rows: the first rule that fits takes the line. Lines that none fits are rows of `logs._unmatched_`."""
    tables: list[str] = Field(default_factory=lambda: ["*.*"])
    """Only tables like this, ``schema.table`` with ``*`` and ``?``."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where to begin at the first start."""
    watermark: Literal["commit_time", "records"] = "commit_time"
    """What says how far it is, of formats other than lines: the commit times of its changes, in the order in which they come; or the low
    watermarks that an application of headrace has printed on its records (docs/how-to/watermark.md)."""
    bad_messages: Literal["stop", "skip"] = "stop"
    """What to do at a message that is not in the format, or is of a full load: stop there, or leave it out and say so."""
    tls: Tls | None = None
    """Encrypts the connection."""
    sasl: Sasl | None = None
    """Logs in."""
    timeout: Annotated[Duration, Field(ge=1)] = 10.0
    """How long brokers may take for an answer before that counts as an outage."""

    @model_validator(mode="after")
    def _lines_have_rules(self) -> Self:
        tables_of(self.rules)
        has_lines = self.format in LINE_READERS
        if has_lines != bool(self.rules):
            raise ValueError(
                f"`format: {self.format}` {'needs `rules`' if has_lines else 'has no lines: leave `rules` out'}"
            )
        if has_lines and self.tables != ["*.*"]:
            raise ValueError("the tables of lines are those that `rules` name: leave `tables` out")
        if has_lines and "watermark" in self.model_fields_set:
            raise ValueError("the hosts of lines say how far they are: leave `watermark` out")
        return self

    @property
    def reports_for_itself(self) -> bool:
        return not self.rules and self.watermark == "commit_time"

    @property
    def parted_by(self) -> str:
        return HOST if self.rules else ""

    def lines_of(self, texts: Sequence[str]) -> Lines:
        """Texts as messages with lines of logs; one that is no message is the line itself, so that files and all shippers may have the same samples."""
        now_ms = time.time_ns() // 1_000_000
        events = [_event(self.format, ForeignMessage(self.topics[0], None, text.encode(), now_ms)) for text in texts]
        return lines_of(events, [number * IDS_PER_MESSAGE for number in range(len(events))])


def _event(form: str, message: ForeignMessage) -> LogEvent:
    try:
        return LINE_READERS[form](message)
    except NotThisFormatError:
        return read_line(message)


class KafkaSource:
    """A `Source` over topics that others write. `state` is the directory in which tables are kept."""

    Config = KafkaSourceConfig

    def __init__(self, config: KafkaSourceConfig, state: Path) -> None:
        self._config = config
        self._path = state / "tables.json"
        self._tail = Tail(
            KafkaConfig(brokers=config.brokers, tls=config.tls, sasl=config.sasl, timeout=config.timeout),
            config.topics,
            with_headers=config.watermark == "records",
        )

    def check(self, newest: Mark | None) -> Iterator[Finding]:
        yield from sample_findings(self._config.rules, self._config.lines_of)
        try:
            kept = self._tail.kept()
        except ConfigError as error:
            yield Finding.of(error)
            return
        offsets = _Position.of(newest).offsets
        for place in sorted(kept.keys() & offsets.keys()):
            if not kept[place].start <= offsets[place] <= kept[place].stop:
                lost = no_longer_kept(f"topic and partition {place}", offsets[place])
                yield Finding(
                    lost.message,
                    "go on behind the gap (`headrace skip FLOW.yaml`), and fill the targets anew",
                    stops=True,
                )

    def tables(self) -> Sequence[TableSchema]:
        return self._load().tables()

    def tables_now(self) -> Iterator[TableSchema | Finding]:
        yield from self.tables()

    def follow(self, start: Mark | None) -> Iterator[Event]:
        at = _Position.of(start)
        # Partitions that are not read any more stay in the sum: ids must not fall.
        at.offsets |= self._tail.begin(at.offsets, latest=self._config.start == "latest")
        tables, config = self._load(), self._config
        refusal = Refusal(config.format, skip=config.bad_messages == "skip")
        tables.go_on_behind(start.id if start is not None else 0)
        wanted, commit_ts_us = Wanted(tables, config.tables), start.commit_ts_us if start is not None else 0
        interpreter: Interpreter
        if config.rules:
            interpreter = LineMessages(
                config.format, LineTables(config.rules, tables), refusal, commit_ts_us=commit_ts_us, hosts=at.hosts
            )
        else:
            interpreter = interpreter_of(config.format, wanted, refusal, commit_ts_us)
        watermarks = PrintedWatermarks(self._tail, at.watermarks)
        try:
            while True:
                at.offsets |= self._tail.grown()
                taken = self._tail.take(_WAIT_S)
                arrived = [one for one in at.numbered(taken) if one.message.key != ALONE]
                changes = list(interpreter.changes(arrived))
                tables.save()
                if isinstance(interpreter, LineMessages):
                    at.hosts, progress = interpreter.hosts, interpreter.progress
                else:
                    at.watermarks, progress = watermarks.seen_us, watermarks.progress(taken)
                mark = Mark(config.name, at.to_json(), at.id, interpreter.commit_ts_us)
                yield Event(changes, mark, self._tail.caught_up, refusal.take_notices(), progress=progress)
        finally:
            self._tail.close()

    def skip(self, newest: Mark, to: str) -> Mark:
        if to not in ("earliest", "latest"):
            raise ConfigError(
                f"'{to}' is no place to go on at", fix="write earliest (the oldest that is kept) or latest"
            )
        before = _Position.of(newest)
        ends = {place: span.start if to == "earliest" else span.stop for place, span in self._tail.kept().items()}
        there = _Position(before.offsets | ends, before.base)
        if there.offsets == before.offsets:
            raise ConfigError("there is nothing to skip: capture is there already", fix="start the capture")
        there.base += max(0, before.id - there.id) // IDS_PER_MESSAGE
        return Mark(self._config.name, there.to_json(), there.id, newest.commit_ts_us)

    def confirm(self, mark: Mark) -> None:
        """The topics belong to others: nothing is forgotten there."""

    def close(self) -> None:
        self._tail.close()

    def _load(self) -> SeenTables:
        tables = SeenTables(self._path, self._config.type, self._config.name)
        tables.load()
        return tables


@dataclass(slots=True)
class _Position:
    """The next offset of each partition. `base` is what ids begin above, where a gap was skipped to lower offsets.

    `hosts`: by host the newest time of the lines that came last, µs since 1970 UTC. `watermarks`: the newest that were read on records.
    """

    offsets: dict[str, int]
    base: int = 0
    hosts: dict[str, int] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, mark: Mark | None) -> Self:
        if mark is None:
            return cls({})
        known = {name: mark.position[name] for name in ("base", "hosts", "watermarks") if name in mark.position}
        return cls(dict(mark.position["offsets"]), **known)

    def to_json(self) -> dict[str, Any]:
        further = {"base": self.base, "hosts": self.hosts, "watermarks": dict(self.watermarks)}
        return {"offsets": dict(self.offsets)} | {name: value for name, value in further.items() if value}

    @property
    def id(self) -> int:
        """Above the id of every row before this position, and below those of all others."""
        return (self.base + sum(self.offsets.values())) * IDS_PER_MESSAGE

    def numbered(self, messages: Sequence[Taken]) -> list[Arrived]:
        """Messages with the ids that their rows begin with; the position goes on behind them."""
        found, id_ = [], self.id
        for message in messages:
            # The next one is for the end of a version before the first row, and is not that of the mark before.
            found.append(Arrived(id_ + 2, message))
            id_ += (message.offset + 1 - self.offsets[message.place]) * IDS_PER_MESSAGE
            self.offsets[message.place] = message.offset + 1
        return found
