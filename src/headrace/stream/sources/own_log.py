"""What a query keeps under its `path`: a directory, ``hdfs://…`` or ``s3://…``.

::

    PATH/log/       the embedded log, with one topic: what the consumer captured (log/directory.py, log/shared)
    PATH/state/     what the source remembers beside it, versions of tables and masks: the files of its state as one JSON (newest.py)
    PATH/read/      how far Spark has read the log: {partition: next offset}; retention does not go beyond it (newest.py)

The consumer has the state in a directory of its own as long as it lives, since a source works on files of its machine. What has changed there
is under PATH/state before what needs it is on the log, so it is never behind it, wherever the query is started next.

`read` is written behind each batch that Spark has committed. After a crash it is older than the truth, never newer, so at worst too much is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from headrace import registry
from headrace.errors import CorruptError, FatalError
from headrace.log.base import Holding, Span
from headrace.log.retention import Retention
from headrace.storage.base import FileTree
from headrace.storage.location import scheme_of, tree_at
from headrace.storage.options import StoreOptions
from headrace.stream.sources.newest import Newest


@dataclass(frozen=True)
class OwnLog:
    """Where the log of a query is, the name of its topic, and how long entries are kept that were read. It is sent to executors."""

    path: str | Path
    topic: str
    retention_s: float
    store: StoreOptions = field(default_factory=StoreOptions)

    def open(self) -> Holding:
        """The log; its writer keeps what Spark has not read."""
        kind = registry.load("logs", scheme_of(self.path) or "directory")
        options = self.store.model_dump(exclude_unset=True)
        retention = Retention(age_s=round(self.retention_s))
        config = kind.Config(path=f"{self.path}/log", retention=retention, **options)  # type: ignore[attr-defined]
        log: Holding = kind(config)
        return log

    def state(self) -> SourceState:
        """What the source remembers."""
        return SourceState(Newest(self._tree, "state"), f"{self.path}/state")

    def read_up_to(self) -> dict[int, int] | None:
        """How far Spark has read, None when it has read nothing yet."""
        content = self._read.load()
        if content is None:
            return None
        try:
            return {int(partition): int(offset) for partition, offset in json.loads(content).items()}
        except (ValueError, AttributeError) as error:
            raise CorruptError(
                f"what is in {self.path}/read is damaged", fix="remove it: retention then begins at the next batch"
            ) from error

    def note_read(self, offsets: Mapping[int, int]) -> None:
        self._read.save(json.dumps(offsets).encode())

    def hold(self, log: Holding, partitions: int) -> None:
        """Lets the writer keep what Spark has not read."""
        read = self.read_up_to() or {}
        for partition in range(partitions):
            log.hold(self.topic, partition, read.get(partition, 0))

    def require_has(self, spans: Mapping[int, Span], partition: int, offset: int) -> None:
        """FatalError when a checkpoint is not of this log."""
        kept = spans.get(partition, Span(0, 0))
        if offset > kept.stop:
            raise FatalError(
                f"the query's checkpoint has read up to entry {offset} of partition {partition} of the log in {self.path}, which has"
                f" {kept.stop}",
                fix="`path` must be the one that this checkpoint was made with: bring it back, or begin with a new checkpoint",
            )
        if offset < kept.start:
            raise FatalError(
                f"the query has read up to entry {offset} of the log in {self.path}, which begins at {kept.start} now",
                fix="another query with the same `path` has read on, and retention has taken what this one needs: begin with a new checkpoint,"
                " and give each query a `path` of its own",
            )

    @cached_property
    def _tree(self) -> FileTree:
        return tree_at(self.path, self.store)

    @cached_property
    def _read(self) -> Newest:
        return Newest(self._tree, "read")

    def __getstate__(self) -> dict[str, object]:
        # What was opened stays in its process.
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}


class SourceState:
    """``with own.state() as state: …``: `directory` is the source's own as long as it lasts, `save` keeps what has changed in it."""

    def __init__(self, kept: Newest, url: str) -> None:
        self._kept = kept
        self._url = url
        self._saved: list[tuple[object, ...]] = []

    def __enter__(self) -> Self:
        self._temporary = TemporaryDirectory(prefix="headrace-state-")
        self.directory = Path(self._temporary.name)
        content = self._kept.load()
        for name, text in self._decoded(content or b"{}").items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._saved = self._signature()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._temporary.cleanup()

    def save(self) -> None:
        """Durable on return, when anything is new."""
        signature = self._signature()
        if signature != self._saved:
            texts = {path.relative_to(self.directory).as_posix(): path.read_text() for path in self._files()}
            self._kept.save(json.dumps(texts).encode())
            self._saved = signature

    def _files(self) -> Iterator[Path]:
        return (path for path in sorted(self.directory.rglob("*")) if path.is_file())

    def _signature(self) -> list[tuple[object, ...]]:
        """Another one when a file is: each is replaced as a whole (files.py), so it has another inode."""
        found = ((path, path.stat()) for path in self._files())
        return [(path, status.st_ino, status.st_mtime_ns, status.st_size) for path, status in found]

    def _decoded(self, content: bytes) -> dict[str, str]:
        try:
            return {str(name): str(text) for name, text in json.loads(content).items()}
        except (ValueError, AttributeError) as error:
            raise CorruptError(
                f"what is in {self._url} is damaged", fix="bring it back from a copy; or begin with a new `path`"
            ) from error
