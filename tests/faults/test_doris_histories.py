"""Random histories of faults, crashes and passing time: each offset is visible once, or the loader says that it does not know.

HEADRACE_HISTORIES: how many, of both kinds together (`make test-long` raises it). HEADRACE_SEED: one of them again.
"""

from __future__ import annotations

import os
import random
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Lock

import pytest

from headrace.doris import loader as loader_module
from headrace.doris.loader import UndecidedError
from headrace.errors import FatalError, RetryableError
from headrace.sinks.doris import delivery as delivery_module
from tests.doris_loading import DUPLICATE, Loading
from tests.servers.doris import Doris

HISTORIES = int(os.environ.get("HEADRACE_HISTORIES", "200")) // 10
"""A tenth: each starts a cluster, and has some dozens of loads."""
_FAULTS = (
    "fe_cut", "fe_500", "fe_html", "fe_no_backend", "state_500", "be_cut_headers", "be_cut_body", "be_500", "be_detach",
    "be_fail", "be_publish_timeout", "be_cut_committed", "be_html_committed", "be_json_committed", "2pc_cut_before", "2pc_cut_after", "2pc_publish_timeout",
)  # fmt: skip
_POINTS = (
    "doris.row_durable", "doris.before_send", "doris.after_send", "doris.decided", "doris.committed", "doris.before_loaded",
    "doris.loaded", "doris.repairing", "doris.repaired",
)  # fmt: skip
_TEXTS = (
    "err=-235",
    "current running txns on db 1 is 100, larger than limit 100",
    "what nobody has ever seen",
    "MEM_LIMIT_EXCEEDED",
)


class KilledError(BaseException):
    """The process would be dead."""


class History:
    """What happens to one loader."""

    def __init__(self, chance: random.Random, loading: Loading, monkeypatch: pytest.MonkeyPatch) -> None:
        self.chance, self.loading, self.doris = chance, loading, loading.doris
        self.is_forgetful = chance.random() < 0.3
        self._dies_at, self._passed = "", count(1)
        self._sleeping = Lock()
        for module in (loader_module, delivery_module):
            monkeypatch.setattr(module, "crash_point", self._point)
        loading.slept = self._slept

    def run(self) -> None:
        chance, ends = self.chance, self.loading.source.ends
        for _ in range(chance.randint(2, 6)):
            for place in ends:
                ends[place] += chance.randrange(12)
            if chance.random() < 0.3 and len(ends) < 4:
                ends[f"t/{len(ends)}"] = chance.randrange(8)
            for _ in range(chance.randrange(4)):
                self.doris.faults.add(
                    chance.choice(_FAULTS), "", chance.randint(1, 4), chance.choice(_TEXTS), chance.choice([30, 600])
                )
            self._dies_at, self._nth, self._passed = chance.choice(_POINTS), chance.randint(1, 6), count(1)
            self._attempt()
            self.doris.clock.advance(chance.choice([0, 1, 60, 3000, 50_000 if self.is_forgetful else 2000]))
        self._dies_at = ""
        self.doris.faults.clear()
        while not self._attempt():
            pass

    def _attempt(self) -> bool:
        """True when the loader came to its end."""
        try:
            self.loading.run()
        except (KilledError, RetryableError):
            return False
        except UndecidedError:
            assert self.is_forgetful
            self._judge()
            return False
        except FatalError as error:
            if "does not take a load" not in error.message:  # a failure that nobody knows has lasted
                raise
            return False
        return True

    def _judge(self) -> None:
        """An operator looks, as the message says."""
        self.doris.finish_detached()
        self.doris.clock.advance(700)
        self.doris.transactions.tick()
        with closing(self.loading.store()) as store:
            row = store.unloaded("load_er")[0]
            there = set(self.doris.rows("t", "place, off"))
            offsets = {(place, n) for place, (first, stop) in row.range.moved().items() for n in range(first, stop)}
            assert offsets <= there or not offsets & there, "a load is visible by halves"
            store.judge("load_er", row.sequence, "accept" if offsets <= there else "load")

    def _point(self, name: str) -> None:
        if name == self._dies_at and next(self._passed) == self._nth:
            raise KilledError(name)

    def _slept(self) -> None:
        with self._sleeping:  # loads in flight wait in threads of their own
            self._passes()

    def _passes(self) -> None:
        self.doris.clock.advance(self.chance.choice([0, 0, 1, 30]))
        if self.chance.random() < 0.2:
            self.doris.finish_detached()
        if self.chance.random() < 0.05:
            self.doris.stop_backend(1)
        elif self.chance.random() < 0.1 and self.doris.backends[1] is None:
            self.doris.start_backend(1)


@pytest.mark.timeout(60 + 10 * HISTORIES)
@pytest.mark.parametrize("two_phase", [False, True], ids=["one phase", "two phases"])
def test_each_offset_is_visible_once(two_phase: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = int(os.environ.get("HEADRACE_SEED", random.randrange(2**32)))
    for seed in range(first, first + (1 if "HEADRACE_SEED" in os.environ else max(1, HISTORIES // 2))):
        print(f"HEADRACE_SEED={seed}")
        chance, folder = random.Random(seed), tmp_path / str(seed)
        folder.mkdir()
        with Doris(frontends=2, backends=2) as doris:
            doris.sql(DUPLICATE)
            settings = {"two_phase": two_phase, "in_flight": chance.randint(1, 4), "commit_every": chance.randint(1, 8)}
            loading = Loading(doris, folder, {"t/0": 1}, batch_rows=chance.randint(1, 9), **settings)
            History(chance, loading, monkeypatch).run()
            doris.finish_detached()
            loading.check()
