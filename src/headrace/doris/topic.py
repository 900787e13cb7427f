"""Topics of Kafka as a loader's source."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.doris.config import LoaderConfig
from headrace.doris.ranges import Offsets, Range
from headrace.errors import FatalError
from headrace.log.base import Span
from headrace.log.kafka.again import Again
from headrace.log.kafka.config import KafkaConfig
from headrace.log.kafka.reader import NoLongerKeptError
from headrace.log.kafka.tail import Tail, Taken

_SKIP = "keep more (retention of the topic); `headrace doris skip` with the loader's file goes on behind them"
_ACCEPT = (
    "keep more (retention of the topic); `headrace doris accept` with the loader's file and the load's number leaves all of the load out:"
    " `headrace doris status` has it"
)


class TopicSource:
    """A `Source` (loader.py). Belongs to one thread."""

    def __init__(self, config: LoaderConfig) -> None:
        topic = config.kafka
        reached = KafkaConfig(brokers=topic.brokers, tls=topic.tls, sasl=topic.sasl, timeout=topic.timeout)
        self._tail = Tail(reached, topic.topics)
        self._again = Again(reached)
        self._topics = topic.topics
        self._group = topic.group or f"headrace-{config.name}"

    def begin(self, offsets: Offsets, *, latest: bool) -> dict[str, int]:
        self._must_have({place: (at, at) for place, at in offsets.items()}, _SKIP)
        return self._tail.begin(offsets, latest=latest)

    def grown(self) -> dict[str, int]:
        return self._tail.grown()

    def take(self, timeout_s: float) -> list[Taken]:
        try:
            return self._tail.take(timeout_s)
        except NoLongerKeptError as error:
            raise FatalError(error.message, fix=_SKIP) from error

    def again(self, range_: Range) -> list[Taken]:
        self._must_have(range_.moved(), _ACCEPT)
        return self._again.read(range_.moved())

    def commit(self, offsets: Offsets) -> None:
        # Topics that were taken out of the file may not be there any more.
        if of_topics := {place: n for place, n in offsets.items() if place.rpartition("/")[0] in self._topics}:
            self._again.tell(self._group, of_topics)

    def kept(self) -> dict[str, Span]:
        """What each partition has now."""
        return self._tail.kept()

    def close(self) -> None:
        """Ends the connections. Idempotent."""
        self._tail.close()
        self._again.close()

    def _must_have(self, ranges: Mapping[str, tuple[int, int]], fix: str) -> None:
        """FatalError when Kafka has lost some of them."""
        for place, span in self.kept().items():
            first, stop = ranges.get(place, (span.start, span.stop))
            if stop > span.stop:
                raise FatalError(
                    f"{place} ends at offset {span.stop}, and {stop} is behind what was read of it: the topic was made anew, or has lost messages",
                    fix="give the loader a new `name`: it begins by `start` then, with the messages that are there",
                )
            if first < span.start:
                raise FatalError(f"the offsets {first} to {span.start - 1} of {place} are not kept any more", fix=fix)
