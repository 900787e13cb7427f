"""In which order files that nobody has read yet were written.

What the file system tells of it::

    names     the name without what rotation adds is the newest. Numbers behind it (`app.log.2.gz`, `app.log-20261002`) are an order, but names do not say
              which end is the older one: logrotate counts up what is old, days and some loggers what is new
    times     of the last change: never fall from an older file to a newer one where the kernel sets them. They are equal within a tick
              of its clock (4 ms), and those who copy or pack set them, some to whole seconds only
    births    not kept by copies and packed files, nor everywhere: not asked

So the numbers are taken in a direction in which the times do not fall, where those of packed files may be a second more than they say. Where both
directions fit, as all was written in one moment, days count up and other numbers count down. Where none fits exactly, two seconds are
allowed for; where none fits even so (numbers that go round), or where there are no numbers, times alone say it, and equal ones go by name.
Logs of different names come by the times of their files, and each log's own order is kept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from headrace.capture.applog.content import is_packed, without_packing

_NUMBERS = re.compile(r"(?:[.\-_]\d+)+$")
_COARSE_S = 2.0
_PACKER_S = 1.0
_DAY_DIGITS = 6


@dataclass(frozen=True, slots=True)
class Unread:
    """A file: the name under which its log was found, its own name now, and when it was written last."""

    path: str
    at: str
    written_s: float

    @property
    def log(self) -> str:
        """The name of the newest file of its log."""
        return _NUMBERS.sub("", without_packing(self.path))

    @property
    def numbers(self) -> tuple[int, ...]:
        """Those at the end of its name."""
        found = _NUMBERS.search(without_packing(self.at))
        return tuple(map(int, re.findall(r"\d+", found[0]))) if found is not None else ()


def in_order(files: Sequence[Unread]) -> list[int]:
    """Which of the files comes first, which next, …: places in `files`."""
    logs: dict[str, list[int]] = {}
    for place, file in enumerate(files):
        logs.setdefault(file.log, []).append(place)
    keyed: list[tuple[float, list[int | str], int, int]] = []
    for log, places in logs.items():
        own = _of_log(files, places)
        ages = accumulate((files[place].written_s for place in own), max)
        keyed += [(age, _natural(log), turn, place) for turn, (age, place) in enumerate(zip(ages, own, strict=True))]
    return [place for *_, place in sorted(keyed)]


def _of_log(files: Sequence[Unread], places: Sequence[int]) -> list[int]:
    rotated = [place for place in places if files[place].at != files[place].log]
    newest = [place for place in places if files[place].at == files[place].log]
    return _of_rotated(files, rotated) + newest


def _of_rotated(files: Sequence[Unread], places: Sequence[int]) -> list[int]:
    if all(files[place].numbers for place in places):
        usual = sorted(
            places,
            key=lambda place: files[place].numbers,
            reverse=not any(_is_of_day(files[place]) for place in places),
        )
        for slack_s in (0.0, _COARSE_S):
            for found in (usual, usual[::-1]):
                if all(_fits(files[old], files[new], slack_s) for old, new in pairwise(found)):
                    return found
    return sorted(places, key=lambda place: (files[place].written_s, _natural(files[place].at)))


def _is_of_day(file: Unread) -> bool:
    return len("".join(map(str, file.numbers))) >= _DAY_DIGITS


def _fits(old: Unread, new: Unread, slack_s: float) -> bool:
    """Whether a file's time may be before another one's."""
    return old.written_s <= new.written_s + slack_s + _PACKER_S * is_packed(new.at)


def _natural(name: str) -> list[int | str]:
    """A name so that numbers in it are compared as such: texts and numbers in turns."""
    return [int(piece) if place % 2 else piece for place, piece in enumerate(re.split(r"(\d+)", name))]
