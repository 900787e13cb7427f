"""What a writer does when the one before it did not close: finds the true end of the log and cuts what was torn.

It walks from the published end on, which a power loss may have left behind the truth, never before it. Every batch that is
whole is kept: its append had been acknowledged, or might have been. One batch at most can be torn, the last, since an append
is acknowledged before the next one starts. So a bad place is cut only when it is beyond the published end, in the newest
segment, and no intact batch follows; anything else is damage, and an error. Without a readable published end the walk starts
at the oldest segment, and nothing is cut.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from headrace.errors import CorruptError
from headrace.log.disk import Disk, OpenFile, storage
from headrace.log.end import End
from headrace.log.segment import UNBOUNDED, Extent, damaged, holds_batch_after, runs, segment_bases, segment_path


def recover(disk: Disk, directory: Path, published: End | None) -> End:
    """The true end of a partition, durable. Leaves no torn bytes and no newest segment without a batch."""
    end = published or _from_the_beginning(disk, directory)
    bases = [base for base in _without_leftovers(disk, directory, end) if base >= end.segment]
    if end.segment not in bases and (bases or end.position > 0):
        raise damaged(segment_path(directory, end.segment), 0, "the segment is missing")
    previous = end
    for base, following in zip_longest(bases, bases[1:]):
        previous = end
        if base != end.segment:
            end = replace(end, segment=base, position=0)
        file = OpenFile(disk, segment_path(directory, base), os.O_RDWR)
        end = _walk(disk, file, end, following, may_cut=published is not None)
    if bases and end.position == 0:
        # The writer will start its own file, which must not be one that a zombie has open.
        path = segment_path(directory, end.segment)
        with storage("delete", path):
            disk.unlink(path)
        return previous
    return end


def _from_the_beginning(disk: Disk, directory: Path) -> End:
    oldest = segment_bases(disk, directory)[0]
    return End(epoch=0, start=oldest, segment=oldest, position=0, next_offset=oldest)


def _without_leftovers(disk: Disk, directory: Path, end: End) -> list[int]:
    """The segments' first offsets; those that retention had given up, but not yet deleted, are deleted."""
    bases = segment_bases(disk, directory)
    for base in bases:
        if base < end.start:
            path = segment_path(directory, base)
            with storage("delete", path):
                disk.unlink(path)
    return [base for base in bases if base >= end.start]


def _walk(disk: Disk, file: OpenFile, end: End, following: int | None, *, may_cut: bool) -> End:
    """The end after the batches of one segment; `following` is the next segment's first offset, None for the newest."""
    size_bytes = disk.size_bytes(file.fd)
    if size_bytes < end.position:
        raise damaged(file.path, size_bytes, f"the file ends before its published end at byte {end.position}")
    extent = Extent(file, size_bytes, UNBOUNDED if following is None else following)
    try:
        for position, run in runs(extent, end.position, end.next_offset, start=UNBOUNDED):
            end = replace(end, position=position + run.stop_at, next_offset=run.next_offset)
    except CorruptError:
        is_tail = may_cut and following is None
        if not is_tail or holds_batch_after(file, end.position, size_bytes, end.next_offset):
            raise
        with storage("cut the torn end of", file.path):
            disk.ftruncate(file.fd, end.position)
    if following is not None and end.next_offset != following:
        reason = f"offset {end.next_offset} is due, but the next segment starts at {following}"
        raise damaged(file.path, end.position, reason)
    with storage("sync", file.path):
        disk.fdatasync(file.fd)
    return end
