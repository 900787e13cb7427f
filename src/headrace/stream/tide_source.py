"""The log with the tide in it, as a Spark source: ``spark.readStream.format("headrace-tide")``. What it is for: tide.py.

::

    offset     {"log": {partition: next offset, …}, "tide_us": µs since 1970, or the smallest i64 where nothing is known yet}
    rows       those of format headrace-log, whose `tide` is null, and in each batch one whose `tide` is the offset's and all else null;
               `passed` of every row is the tide of the batch before, and `batch` names the range of offsets: other ranges, other names

Options: those of headrace-log (source.py), and `watermarks` (URLs of Watermark Servers, with blanks between them), `topology`, `stage` (one that is after
the sources of the topic) and `token`. With `member` the query reports to that stage what it has passed.

Proof that the tide never overtakes data. Let W be the input low watermark of the stage, asked *before* the ends E of all partitions. All rows
below W that are waited for were on the log by then, before E. A batch gets W as its tide only when it ends at E or farther in every partition: then this
batch and those before it have all of these rows, and Spark moves its watermark behind the batch. A rate limit makes W wait, a partition that
came after E has no row below W, and on idle topics the offset still changes with W, so batches come. What is planned is in Spark's
checkpoint, the tide too: a batch that is run again has the same rows and the same tide.

What the query has passed: Spark's watermark in a batch is the tide of the batch before it. When a batch is committed, all windows up to that are
in the target.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import TypedDict

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from headrace.errors import ConfigError
from headrace.stream.source import ENTRIES_DDL, ENTRY_FIELDS, LogStreamReader, LogTopic, Offsets
from headrace.watermark.client import StageClient, WatermarkClient
from headrace.watermark.wire import NEVER

FORMAT = "headrace-tide"
_OURS = ("watermarks", "topology", "stage", "token", "member")
_TIME = pa.timestamp("us", "UTC")


class Reached(TypedDict):
    """An offset of the source."""

    log: Offsets
    tide_us: int


class Tides:
    """Which tide holds at which offsets of the log."""

    def __init__(self) -> None:
        self._coming: deque[tuple[Mapping[str, int], int]] = deque()
        """Ends of all partitions, with the watermark that was asked before them, both growing."""

    def holds_behind(self, ends: Mapping[str, int], watermark_us: int) -> None:
        """A watermark that was asked before the ends, larger than those before it."""
        self._coming.append((ends, watermark_us))

    @property
    def newest_us(self) -> int:
        return self._coming[-1][1] if self._coming else NEVER

    def at(self, reached: Mapping[str, int]) -> int:
        """The tide of who has read up to there; what is reached once stays reached."""
        while len(self._coming) > 1 and _is_at(reached, self._coming[1][0]):
            self._coming.popleft()
        return self._coming[0][1] if self._coming and _is_at(reached, self._coming[0][0]) else NEVER


def _is_at(reached: Mapping[str, int], ends: Mapping[str, int]) -> bool:
    return all(reached.get(partition, 0) >= end for partition, end in ends.items())


class _Waters:
    """The stage that a query reads behind; asked by the driver only."""

    def __init__(self, options: Mapping[str, str]) -> None:
        missing = [name for name in ("watermarks", "topology", "stage") if not options.get(name)]
        if missing:
            raise ConfigError(
                f"format {FORMAT} needs {', '.join(f'`{name}`' for name in missing)}",
                fix="say which stage of which topology the query reads behind, and the URLs of its Watermark Servers",
            )
        self._options = dict(options)
        self._client: WatermarkClient | None = None
        self._stage: StageClient | None = None

    def now_us(self) -> int:
        """What a server says now. RetryableError when none answers."""
        return self._opened().low(self._options["topology"], self._options["stage"]).input_us

    def input_us(self) -> int:
        """What servers said a second ago at most, while they answer. ConfigError when they refuse."""
        return self._reporting().low().input_us

    def passed(self, tide_us: int) -> None:
        if member := self._options.get("member"):
            self._reporting().passed({member: tide_us})

    def _opened(self) -> WatermarkClient:
        if self._client is None:
            self._client = WatermarkClient(self._options["watermarks"].split(), self._options.get("token"))
        return self._client

    def _reporting(self) -> StageClient:
        if self._stage is None:
            self._stage = self._opened().stage(self._options["topology"], self._options["stage"])
        return self._stage

    def __getstate__(self) -> dict[str, Mapping[str, str] | None]:
        """Tasks that read have no use for connections, and no server is asked there."""
        return {"_options": self._options, "_client": None, "_stage": None}

    def close(self) -> None:
        """Idempotent."""
        if self._stage is not None:
            self._stage.close()
        if self._client is not None:
            self._client.close()
        self._stage = self._client = None


class _Slice(InputPartition):
    """A range of the log, or the tide of a batch when it has none."""

    def __init__(self, entries: InputPartition | None, start: Reached, end: Reached) -> None:
        super().__init__(None)
        self.entries = entries
        self.tide_us = end["tide_us"]
        self.passed_us = start["tide_us"]
        self.batch = sha256(json.dumps([start, end], sort_keys=True).encode()).hexdigest()[:16]


class TideReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The log from a starting offset on, with the tide that holds where each batch ends."""

    def __init__(self, topic: LogTopic, options: Mapping[str, str]) -> None:
        self._entries = LogStreamReader(topic, options)
        self._waters = _Waters(options)
        self._tides = Tides()
        self._is_bounded = False
        self._before: deque[int] = deque(maxlen=2)
        """The newest tides that were planned."""

    def initialOffset(self) -> Reached:  # type: ignore[override]  # noqa: N802 - Spark's name
        return {"log": self._entries.initialOffset(), "tide_us": NEVER}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._entries.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        watermark_us = self._waters.now_us()
        self._entries.prepareForTriggerAvailableNow()
        self._tides.holds_behind(self._entries.ends(), watermark_us)
        self._is_bounded = True

    def latestOffset(self, start: Reached, limit: ReadLimit) -> Reached:  # type: ignore[override]  # noqa: N802
        watermark_us = NEVER if self._is_bounded else self._waters.input_us()
        if watermark_us > self._tides.newest_us:
            self._tides.holds_behind(self._entries.ends(), watermark_us)
        reached = self._entries.latestOffset(start["log"], limit)
        return {"log": reached, "tide_us": max(start["tide_us"], self._tides.at(reached))}

    def partitions(self, start: Reached, end: Reached) -> list[InputPartition]:  # type: ignore[override]
        if end["tide_us"] not in self._before:
            self._before.append(end["tide_us"])
        ranges = self._entries.partitions(start["log"], end["log"])
        return [_Slice(entries, start, end) for entries in (None, *ranges)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Slice)
        if partition.entries is None:
            yield from _tide_row(partition)
            return
        for batch in self._entries.read(partition.entries):
            yield _with_tides(batch, None, partition)

    def commit(self, end: Reached) -> None:  # type: ignore[override]
        if len(self._before) == 2 and end["tide_us"] == self._before[1] and self._before[0] != NEVER:
            self._waters.passed(self._before[0])

    def stop(self) -> None:
        self._waters.close()


def _tide_row(piece: _Slice) -> Iterator[pa.RecordBatch]:
    if piece.tide_us != NEVER:
        nothing = [pa.nulls(1, field.type) for field in ENTRY_FIELDS]
        entries = pa.RecordBatch.from_arrays(nothing, schema=pa.schema(ENTRY_FIELDS))
        yield _with_tides(entries, as_watermark(piece.tide_us), piece)


def _with_tides(entries: pa.RecordBatch, tide_us: int | None, piece: _Slice) -> pa.RecordBatch:
    passed_us = None if piece.passed_us == NEVER else as_watermark(piece.passed_us)
    times = [pa.repeat(pa.scalar(time, _TIME), len(entries)) for time in (tide_us, passed_us)]
    columns = [*entries.columns, *times, pa.repeat(pa.scalar(piece.batch), len(entries))]
    return pa.RecordBatch.from_arrays(columns, names=[*entries.schema.names, "tide", "passed", "batch"])


def as_watermark(tide_us: int) -> int:
    """Spark's watermark for a tide: for Spark a row at the watermark is late and a window that ends there is over, and
    behind a tide W a row with the time W may come. Spark rounds down to ms."""
    return (tide_us - 1) // 1000 * 1000


class TideDataSource(DataSource):
    """``format("headrace-tide")``."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return f"{ENTRIES_DDL}, tide timestamp, passed timestamp, batch string"

    def streamReader(self, schema: object) -> TideReader:  # noqa: N802
        of_log = {name: value for name, value in self.options.items() if name.lower() not in _OURS}
        return TideReader(LogTopic(of_log), self.options)
