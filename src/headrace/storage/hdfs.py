"""HDFS without Java: hdfs-native (Rust) speaks with NameNode and DataNodes; the open end of a growing file comes over WebHDFS.

What is used of HDFS, and what it promises (each measured, docs/decisions/0018-shared-file-systems.md):

* `create` of a name is decided by the NameNode: one of several wins.
* `GrowingFile.append` returns after an hsync: the bytes are on the disks of all DataNodes of the pipeline, and the NameNode knows the
  new length. The length in a listing so is exactly what is durable and may be read.
* `stop_writers` (recoverLease) closes a file that somebody may still be writing to; whoever does cannot add anything from then on.
* hdfs-native does not read the last block of a file that is open. WebHDFS does, up to the length the NameNode knows.
* What a writer has flushed without telling the NameNode (hflush, as HBase does) a DataNode gives, also over WebHDFS, when it is asked itself: any of
  them reads any offset. It refuses an offset at which there is nothing yet, and cuts what is asked for to what there is. So whoever follows a file
  asks the NameNode once, and that DataNode from then on.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from getpass import getuser
from http import HTTPStatus
from http.client import HTTPException
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit, urlunsplit
from uuid import uuid4

import pyarrow as pa
from hdfs_native import Client, FileReader, FileWriter, WriteOptions

from headrace.crash import crash_point
from headrace.errors import ConfigError, HeadraceError, RetryableError, StorageError
from headrace.storage.base import UNFINISHED, Aged, Found
from headrace.storage.options import HdfsOptions
from headrace.storage.ranges import BufferedTarget, ranged

_WEB_PORT = 9870
_MOST_OPEN = 1_000
_REMOTE = re.compile(r'(?:RPCError\(|"exception":)\s*"(?:[\w.$]*\.)?(\w+)"(?:, |.*?"message":)"([^"\\]*)')


class HdfsFileStore:
    """The `FileTree` on a directory of HDFS: ``hdfs://namenode:8020/directory``. Nothing is asked before it is used."""

    def __init__(self, url: str, options: HdfsOptions) -> None:
        self.root = url.rstrip("/")
        self._options = options
        parts = urlsplit(self.root)
        self._base = parts.path
        self._cluster = f"hdfs://{parts.netloc}"
        self._web = options.web or f"http://{parts.hostname}:{_WEB_PORT}"
        # Whoever calls tries again in a way of its own: a quarter of an hour in one call would hide an outage.
        short = {"dfs.client.failover.max.attempts": "2", "dfs.client.failover.sleep.max.millis": "1000"}
        self._config = short | {"dfs.client.socket-timeout": str(int(options.timeout * 1000))} | options.config
        self._timeout_s = options.timeout
        self._opened: Client | None = None
        self._datanodes: dict[str, SplitResult] = {}
        """Of open files that were read to their ends: who was asked."""

    def __reduce__(self) -> tuple[Callable[[str, HdfsOptions], HdfsFileStore], tuple[str, HdfsOptions]]:
        return HdfsFileStore, (self.root, self._options)

    @property
    def settings(self) -> dict[str, str]:
        """See `FileTree.settings`."""
        return dict(self._options.config)

    def claim(self, path: str) -> None:
        """See `FileTree.claim`."""
        self.create(path, b"")

    def create(self, path: str, content: bytes) -> bool:
        """See `FileStore.create`."""
        directory, slash, _ = path.rpartition("/")
        aside = f"{directory}{slash}.{uuid4().hex}"
        file = self.grow(aside)
        try:
            if content:
                file.append([content])
            file.close()
            crash_point("create.written")
            with self.translated("write", path):
                self._client().rename(self._path(aside), self._path(path))
        except FileExistsError:
            self.delete(aside)
            return False
        crash_point("create.named")
        return True

    def content(self, path: str) -> bytes:
        """See `FileTree.content`."""
        with self.translated("read", path):
            return self._client().read(self._path(path)).read()

    def source(self, path: str, size_bytes: int, moved_to: str) -> pa.NativeFile:
        """See `FileTree.source`. What is open stays readable wherever it is moved: its blocks keep their names."""
        try:
            reader = self._open(path)
        except FileNotFoundError:
            reader = self._open(moved_to)
        if len(reader) < size_bytes:
            raise EOFError(f"it has {len(reader)} bytes in place of {size_bytes}")

        def read(start: int, stop: int) -> bytes:
            with self.translated("read", path):
                return reader.read_range(start, stop - start)

        return ranged(size_bytes, read)

    def new_file(self, path: str) -> NewHdfsFile:
        """See `FileTree.new_file`."""
        return NewHdfsFile(self, path)

    def read(self, path: str, start: int, stop: int) -> bytes:
        """See `FileStore.read`."""
        if start == stop:
            return b""
        with self.translated("read", path):
            reader = self._client().read(self._path(path))
            if stop <= len(reader):
                return reader.read_range(start, stop - start)
        return self._read_open(path, start, stop)

    def read_on(self, path: str, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`, or as many as have been written, also by a writer that goes on and has only flushed them;
        FileNotFoundError when there is no such file (any more)."""
        if (found := self._straight(path, start, stop)) is not None:
            return found
        with self.translated("read", path):
            reader = self._client().read(self._path(path))
            if start < len(reader):
                return reader.read_range(start, min(stop, len(reader)) - start)
        with self.translated("read", path):
            try:
                return self._of_datanode(path, start, stop)
            except urllib.error.HTTPError as error:
                if error.code == HTTPStatus.FORBIDDEN:
                    return b""  # nothing there yet
                raise

    def files(self, directory: str, after: str = "") -> Iterator[Found]:
        """See `FileStore.files`."""
        return iter(
            sorted(
                Found(name, size) for name, size, is_folder in self._listed(directory) if not is_folder and name > after
            )
        )

    def names(self, directory: str) -> list[str]:
        """See `FileStore.names`."""
        return sorted(name for name, _, _ in self._listed(directory))

    def delete(self, path: str) -> None:
        """See `FileStore.delete`."""
        with suppress(FileNotFoundError), self.translated("delete", path):
            self._client().delete(self._path(path))

    def sync(self, paths: Iterable[str]) -> None:
        """See `FileTree.sync`. Names are durable at the NameNode already."""

    def move(self, path: str, to: str) -> None:
        """See `FileTree.move`."""
        with self.translated("rename", path):
            self._client().rename(self._path(path), self._path(to))

    def tree(self, directory: str = "") -> Iterator[Aged]:
        """See `FileTree.tree`."""
        with suppress(FileNotFoundError), self.translated("list", directory):
            for status in self._client().list_status(self._path(directory), recursive=True):
                if not status.isdir:
                    yield Aged(status.path.removeprefix(f"{self._base}/"), status.modification_time / 1000)

    def grow(self, path: str) -> GrowingFile:
        """A new file that this process may add to; FileExistsError when there is one of that path."""
        with self.translated("create", path):
            options = WriteOptions(overwrite=False, create_parent=True)
            return GrowingFile(self, path, self._client().create(self._path(path), options))

    def stop_writers(self, path: str) -> None:
        """Ends whoever may be adding to a file; its length is final on return. RetryableError when its DataNodes do not answer."""
        give_up_at = time.monotonic() + self._timeout_s
        pause_s = 0.05
        with self.translated("close", path):
            while not self._client().recover_lease(self._path(path)):
                if time.monotonic() >= give_up_at:
                    raise self.away("close", path, "the DataNodes that hold its end do not answer")
                # The recovery goes with the heartbeats of DataNodes, each second or three; asking often makes it no faster.
                time.sleep(pause_s)
                pause_s = min(1.0, pause_s * 2)

    def away(self, action: str, path: str, reason: str) -> HeadraceError:
        return RetryableError(
            f"could not {action} {self.root}/{path}: {reason}",
            fix="check that NameNode and DataNodes run and can be reached from here; nothing that was acknowledged is lost",
            retry_after_s=0.5,
        )

    def _open(self, path: str) -> FileReader:
        with self.translated("read", path):
            return self._client().read(self._path(path))

    def _listed(self, directory: str) -> list[tuple[str, int, bool]]:
        with self.translated("list", directory):
            try:
                found = list(self._client().list_status(self._path(directory)))
            except FileNotFoundError:
                return []
        return [(status.path.rpartition("/")[2], status.length, status.isdir) for status in found]

    def _read_open(self, path: str, start: int, stop: int) -> bytes:
        with self.translated("read", path):
            return self._fetched(self._web_url(path, offset=start, length=stop - start))

    def _of_datanode(self, path: str, start: int, stop: int) -> bytes:
        """What a DataNode has of an open file. The NameNode is asked for one at an offset that it knows of."""
        answer = json.loads(self._fetched(self._web_url(path, offset=0, noredirect="true")))
        place = urlsplit(answer["Location"])
        content = self._fetched(_part(place, start, stop))
        if len(content) < stop - start:
            if len(self._datanodes) >= _MOST_OPEN:
                self._datanodes.clear()
            self._datanodes[path] = place
        return content

    def _straight(self, path: str, start: int, stop: int) -> bytes | None:
        """The same of the DataNode that was asked before; None when that does not answer so, or there is more than one answer holds."""
        if (place := self._datanodes.pop(path, None)) is None:
            return None
        try:
            content = self._fetched(_part(place, start, stop))
        except OSError:
            return None  # the file has moved, or the DataNode is away: the long way tells
        if len(content) < stop - start:
            self._datanodes[path] = place
        return content

    def _web_url(self, path: str, **more: int | str) -> str:
        user = os.environ.get("HADOOP_USER_NAME") or getuser()
        return f"{self._web}/webhdfs/v1{quote(self._path(path))}?{urlencode({'op': 'OPEN', 'user.name': user} | more)}"

    def _fetched(self, url: str) -> bytes:
        try:
            with urllib.request.urlopen(url, timeout=self._timeout_s) as answer:  # noqa: S310
                content: bytes = answer.read()
                return content
        except HTTPException as error:
            raise ConnectionError(f"the answer broke off: {error!r}") from error

    def _path(self, path: str) -> str:
        return f"{self._base}/{path}".rstrip("/")

    def _client(self) -> Client:
        if self._opened is None:
            self._opened = Client(self._cluster, config=self._config)
        return self._opened

    @contextmanager
    def translated(self, action: str, path: str) -> Iterator[None]:
        """FileNotFoundError and FileExistsError go through; everything else becomes an error of ours."""
        try:
            yield
        except (FileNotFoundError, FileExistsError):
            raise
        except (RuntimeError, OSError, ValueError) as error:
            text = error.read().decode("utf-8", "replace") if isinstance(error, urllib.error.HTTPError) else str(error)
            raise self._error(action, path, text) from error

    def _error(self, action: str, path: str, text: str) -> Exception:
        found = _REMOTE.search(text)
        kind, said = (found[1], found[2]) if found else ("", text.partition("\n")[0][:200])
        if kind == "FileNotFoundException":
            return FileNotFoundError(said)
        if kind in ("AccessControlException", "SecurityException"):
            return ConfigError(
                f"{self.root} refuses to {action} {path}: {said}",
                fix="check whom HADOOP_USER_NAME or the Kerberos ticket names, and what that user may do there",
            )
        if kind in ("NSQuotaExceededException", "DSQuotaExceededException"):
            return StorageError(
                f"could not {action} {self.root}/{path}: {said}", fix="raise the directory's quota or free space in it"
            )
        return self.away(action, path, f"{kind}: {said}" if kind else said)


def _part(place: SplitResult, start: int, stop: int) -> str:
    asked = dict(parse_qsl(place.query)) | {"offset": str(start), "length": str(stop - start)}
    return urlunsplit(place._replace(query=urlencode(asked)))


class GrowingFile:
    """A file of HDFS that is open for adding, until `close` or until somebody ends that (`HdfsFileStore.stop_writers`)."""

    def __init__(self, store: HdfsFileStore, path: str, writer: FileWriter) -> None:
        self.path = path
        self._store = store
        self._writer = writer

    def append(self, parts: Sequence[bytes]) -> None:
        """Adds bytes, durable on return. After an error they may be there in part, and nothing may be added any more."""
        self.add(b"".join(parts))
        self.sync()

    def add(self, content: bytes) -> None:
        """Adds bytes, which the next `sync` makes durable."""
        with self._store.translated("append to", self.path):
            self._writer.write(content)

    def sync(self) -> None:
        """Makes durable what was added."""
        with self._store.translated("append to", self.path):
            self._writer.hsync()

    def close(self) -> None:
        """Lets others add to it."""
        with self._store.translated("close", self.path):
            self._writer.close()


class NewHdfsFile:
    """Lies beside its name until it is whole, hidden from those who read the directory."""

    def __init__(self, store: HdfsFileStore, path: str) -> None:
        self._store = store
        self._path = path
        directory, slash, name = path.rpartition("/")
        self._growing = store.grow(f"{directory}{slash}_{name}{UNFINISHED}")
        self._size_bytes = 0
        self.target: pa.NativeFile = BufferedTarget(self._add).file

    def finish(self) -> int:
        """See `NewFile.finish`."""
        self.target.close()
        self._growing.sync()
        self._growing.close()
        crash_point("file.synced")
        self._store.move(self._growing.path, self._path)
        return self._size_bytes

    def abandon(self) -> None:
        """See `NewFile.abandon`."""
        for end in (self.target.close, self._growing.close, lambda: self._store.delete(self._growing.path)):
            with suppress(HeadraceError, OSError):
                end()

    def _add(self, content: bytes) -> None:
        self._growing.add(content)
        self._size_bytes += len(content)
