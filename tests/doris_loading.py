"""A loader over messages that are kept here, for tests of what becomes of its loads: the cluster, the store and the loader are whole."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path

from headrace.doris.config import LoaderConfig
from headrace.doris.loader import Loader
from headrace.doris.ranges import Offsets, Range
from headrace.doris.store import LoadStore
from headrace.errors import RetryableError
from headrace.log.kafka.reader import no_longer_kept
from headrace.log.kafka.tail import Taken
from tests.servers.doris import Doris

TABLE = "CREATE TABLE t (place VARCHAR(20) NOT NULL, off BIGINT NOT NULL, note STRING NULL{more}) {key} DISTRIBUTED BY HASH(off) BUCKETS 1{props}"
DUPLICATE = TABLE.format(more="", key="DUPLICATE KEY(place, off)", props="")


def message(place: str, offset: int) -> Taken:
    """Says where it stands, among members that no column is for."""
    value = {"unused": [1, {"a": None}], "off": offset, "place": place, "note": f'"{offset}"\n\\N', "more": "x" * 20}
    return taken(place, offset, json.dumps(value).encode())


def taken(place: str, offset: int, value: bytes | None) -> Taken:
    """A message of some value."""
    return Taken(place, offset, None, value, 1_700_000_000_000)


class Messages:
    """Partitions of a topic, some messages of each at a time."""

    def __init__(self, ends: Mapping[str, int], make: Callable[[str, int], Taken] = message) -> None:
        self.ends = dict(ends)
        self._make = make
        self.starts: dict[str, int] = {}
        """What is kept of them begins there, where it is not 0."""
        self.committed: dict[str, int] = {}
        self._at: dict[str, int] = {}

    def begin(self, offsets: Offsets, *, latest: bool) -> dict[str, int]:
        self._at = {
            place: offsets.get(place, end if latest and not offsets else self.starts.get(place, 0))
            for place, end in self.ends.items()
        }
        return dict(self._at)

    def grown(self) -> dict[str, int]:
        added = {place: self.starts.get(place, 0) for place in self.ends if place not in self._at}
        self._at |= added
        return added

    def take(self, timeout_s: float) -> list[Taken]:
        for place in sorted(self._at, key=lambda one: self._at[one]):
            first, stop = self._at[place], min(self._at[place] + 3, self.ends[place])
            if first < stop:
                self._at[place] = stop
                return [self._make(place, offset) for offset in range(first, stop)]
        time.sleep(0.001)
        return []

    def again(self, range_: Range) -> list[Taken]:
        for place, (first, _) in range_.moved().items():
            if first < self.starts.get(place, 0):
                raise no_longer_kept(f"topic and partition {place}", first)
        return [self._make(place, n) for place, (first, stop) in range_.moved().items() for n in range(first, stop)]

    def commit(self, offsets: Offsets) -> None:
        assert all(offsets[place] >= stop for place, stop in self.committed.items())
        self.committed = dict(offsets)


class Loading:
    """A loader that is started again and again, on one cluster and one store."""

    def __init__(self, doris: Doris, folder: Path, ends: Mapping[str, int], **settings: object) -> None:
        self.doris, self.source = doris, Messages(ends)
        self.url = f"sqlite:///{folder / 'loads.db'}"
        self.settings = {"batch_rows": 5, "batch_wait": 0.005, "give_up_after": 30, **settings}
        self.slept: Callable[[], object] = lambda: None
        """Called whenever the loader waits for Doris."""
        with closing(self.store()) as store:
            store.open()

    def store(self) -> LoadStore:
        return LoadStore(self.url, lambda: self.doris.clock.now)

    def config(self) -> LoaderConfig:
        doris = self.doris
        cluster = {"frontends": doris.frontend_places, "query": f"127.0.0.1:{doris.sql_port}", "timeout": 5}
        kafka = {"brokers": "nobody:1", "topics": ["t"]}
        place = {"name": "load_er", "database": "db", "table": "t", "store": self.url}
        return LoaderConfig.model_validate({**place, "kafka": kafka, "doris": cluster, **self.settings})

    def run(self) -> None:
        """Until all messages are loaded."""
        config = self.config()
        with closing(self.store()) as store:

            def is_done() -> bool:
                last = store.last(config.name)
                # A partition without a message is in no range.
                has_all = last is not None and all(
                    last.range.end.get(place, 0) >= end for place, end in self.source.ends.items()
                )
                return has_all and not store.unloaded(config.name)

            loader = Loader(config, store, self.source, clock=lambda: self.doris.clock.now, sleep=self._sleep)
            loader.run(is_done)

    def run_through(self) -> None:
        """As `run`, started again while Doris is away for too long."""
        for _ in range(50):
            try:
                return self.run()
            except RetryableError:
                continue
        raise AssertionError("the loader does not come to its end")

    def _sleep(self, seconds: float) -> None:
        self.slept()
        time.sleep(min(seconds, 0.003))

    # --- what must be true

    def expected(self) -> list[tuple[str, int]]:
        return sorted((place, n) for place, end in self.source.ends.items() for n in range(end))

    def check(self) -> None:
        """Each offset is visible once, under one label; and no label was ever used for other offsets."""
        self.doris.clock.advance(700)  # for what was published late
        found = sorted(self.doris.rows("t", "place, off"))
        assert found == self.expected(), difference(found, self.expected())
        assert {row[0] for row in self.doris.rows("t", "note")} == {f'"{n}"\n\\N' for _, n in self.expected()}
        with closing(self.store()) as store:
            assert store.unloaded("load_er") == []
            rows = store.rows("load_er", 10_000)
        assert len({row.label for row in rows}) == len(rows)
        committed = [one.label for one in self.doris.transactions.begun if one.state in ("COMMITTED", "VISIBLE")]
        assert len(set(committed)) == len(committed), "a label was committed twice"


def difference(found: Iterable[tuple[str, int]], expected: Iterable[tuple[str, int]]) -> str:
    """In words: what is twice, and what is not there."""
    found = list(found)
    twice = sorted({one for one in found if found.count(one) > 1})
    return f"twice: {twice}, missing: {sorted(set(expected) - set(found))}"
