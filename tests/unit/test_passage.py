"""What a partition of a flow passes on: a watermark counts once all is in the target that was on the log when it was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from headrace.stream.passage import Passage
from headrace.ums.printed import LowWatermark
from headrace.watermark.wire import NEVER, Watermarks


@dataclass
class Stage:
    """What a server has told, and what it was told."""

    marks: Watermarks = field(default_factory=lambda: Watermarks(NEVER, NEVER, NEVER))
    told: list[int] = field(default_factory=list)

    def low(self) -> Watermarks:
        return self.marks

    def passed(self, progress_us: dict[str, int]) -> None:
        [told] = progress_us.values()
        self.told.append(told)

    def says(self, input_us: int, output_us: int = NEVER) -> None:
        self.marks = Watermarks(input_us, output_us, NEVER)


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def passage(stage: Stage) -> Passage:
    return Passage(stage, "shop/raw", "web.0")  # type: ignore[arg-type]


def test_it_passes_behind_the_end_that_was_there_then(stage: Stage, passage: Passage) -> None:
    assert passage.look(lambda: 5) == 5
    passage.committed(5)
    assert stage.told == []
    stage.says(100)
    assert passage.look(lambda: 7) == 7
    passage.committed(6)
    assert stage.told == []
    stage.says(200)
    assert passage.look(lambda: 9) == 9
    passage.committed(8)
    assert stage.told == [100]
    passage.committed(9)
    assert stage.told == [100, 200]


def test_the_end_is_asked_for_after_the_watermark(stage: Stage, passage: Passage) -> None:
    stage.says(100)

    def end() -> int:
        stage.says(200)  # published while the log is asked
        return 7

    passage.look(end)
    passage.committed(7)
    assert stage.told == [100]


def test_a_new_attempt_begins_anew(stage: Stage, passage: Passage) -> None:
    stage.says(100)
    passage.look(lambda: 7)
    passage.begin()
    passage.committed(7)
    assert stage.told == []
    passage.look(lambda: 7)
    passage.committed(7)
    assert stage.told == [100]


def test_what_is_printed_is_the_output(stage: Stage, passage: Passage) -> None:
    assert passage.low_watermark() is None
    stage.says(100, 60)
    assert passage.low_watermark() == LowWatermark("shop/raw", 60)


@pytest.mark.parametrize("seed", range(20))
def test_no_row_is_behind_what_was_passed(stage: Stage, passage: Passage, seed: int) -> None:
    """A source that appends rows and then reports, a follower that reads and commits, in any interleaving."""
    pick, log, committed = Random(seed), list[int](), 0
    newest = 0
    for _ in range(300):
        match pick.randrange(4):
            case 0:
                newest += pick.randrange(5)
                log.append(newest)
            case 1:
                stage.says(newest)
            case 2:
                passage.look(lambda: len(log))
            case _:
                committed = pick.randint(committed, len(log))
                passage.committed(committed)
        if stage.told:
            assert all(time_us >= stage.told[-1] for time_us in log[committed:])
