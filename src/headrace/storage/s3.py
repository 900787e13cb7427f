"""S3 and what speaks its protocol, through obstore (the object_store library of Rust).

A file in the making lies on this machine (in memory while it is small), and is one upload at its end: so whoever dies before leaves nothing
at the store, and who dies in the upload of a large one parts that nobody sees (give the bucket a rule that ends incomplete uploads).

A PUT with ``If-None-Match: *`` is `create`: the store itself decides who of several was first. Stores that do not know the condition
and overwrite instead are found out by `requires_conditional_writes`, before anything relies on it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from tempfile import SpooledTemporaryFile
from typing import TYPE_CHECKING

import obstore
import pyarrow as pa
from obstore import exceptions
from obstore.store import S3Store

from headrace.crash import crash_point
from headrace.errors import ConfigError, HeadraceError, RetryableError, storage_error
from headrace.storage.base import Aged, Found
from headrace.storage.options import S3Options
from headrace.storage.ranges import BufferedTarget, ranged

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Config

_ATTEMPTS = 3
_IN_MEMORY_BYTES = 8 << 20
_PART_BYTES = 16 << 20
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""Where the environment names a store that is not Amazon's."""


class S3FileStore:
    """The `FileTree` on a bucket, under a prefix: ``s3://bucket/prefix``."""

    def __init__(self, url: str, options: S3Options) -> None:
        self.root = url.rstrip("/")
        self._options = options
        bucket, _, self._prefix = self.root.removeprefix("s3://").partition("/")
        client: ClientConfig = {"timeout": timedelta(seconds=options.timeout), "connect_timeout": timedelta(seconds=5)}
        config: S3Config = {}
        self._endpoint = options.endpoint or next(filter(None, map(os.environ.get, _ENDPOINTS)), None)
        if self._endpoint is not None:
            config["endpoint"] = self._endpoint
            client["allow_http"] = self._endpoint.startswith("http://")
        if options.region is not None:
            config["region"] = options.region
        if options.access_key is not None:
            config["access_key_id"] = options.access_key
        if options.secret_key is not None:
            config["secret_access_key"] = options.secret_key
        give_up: RetryConfig = {"max_retries": _ATTEMPTS, "retry_timeout": timedelta(seconds=options.timeout)}
        try:
            self._store = S3Store(bucket, config=config, client_options=client, retry_config=give_up)
        except exceptions.BaseError as error:
            raise ConfigError(
                f"{self.root} cannot be used so: {_code(str(error))}",
                fix="give access_key and secret_key together, and check the other options and the environment (AWS_…)",
            ) from error

    def __reduce__(self) -> tuple[Callable[[str, S3Options], S3FileStore], tuple[str, S3Options]]:
        return S3FileStore, (self.root, self._options)

    @property
    def settings(self) -> dict[str, str]:
        """See `FileTree.settings`."""
        given = {
            "aws_endpoint": self._endpoint,
            "aws_region": self._options.region,
            "aws_access_key_id": self._options.access_key,
            "aws_secret_access_key": self._options.secret_key,
            "aws_allow_http": "true" if (self._endpoint or "").startswith("http://") else None,
            "aws_conditional_put": "etag",
        }
        return {name: value for name, value in given.items() if value is not None}

    def claim(self, path: str) -> None:
        """See `FileTree.claim`."""
        self.require_conditional_writes(path)

    def create(self, path: str, content: bytes) -> bool:
        """See `FileStore.create`."""
        crash_point("create.written")
        for _ in range(_ATTEMPTS):
            try:
                with self._translated("write", path):
                    obstore.put(self._store, self._key(path), content, mode="create", use_multipart=False)
            except exceptions.AlreadyExistsError:
                # A retry inside the library finds its own first attempt; and of two at once a store may refuse both.
                with suppress(FileNotFoundError):
                    return self.content(path) == content
            else:
                crash_point("create.named")
                return True
        raise self._away("write", path, "it refuses two writers at once again and again")

    def read(self, path: str, start: int, stop: int) -> bytes:
        """See `FileStore.read`."""
        if start == stop:
            return b""
        with self._translated("read", path):
            return obstore.get_range(self._store, self._key(path), start=start, end=stop).to_bytes()

    def content(self, path: str) -> bytes:
        """See `FileTree.content`."""
        with self._translated("read", path):
            return obstore.get(self._store, self._key(path)).bytes().to_bytes()

    def source(self, path: str, size_bytes: int, moved_to: str) -> pa.NativeFile:
        """See `FileTree.source`."""

        def read(start: int, stop: int) -> bytes:
            try:
                return self.read(path, start, stop)
            except FileNotFoundError:
                return self.read(moved_to, start, stop)

        return ranged(size_bytes, read)

    def new_file(self, path: str) -> _NewObject:
        """See `FileTree.new_file`."""
        return _NewObject(self, path)

    def upload(self, path: str, content: SpooledTemporaryFile[bytes], size_bytes: int) -> None:
        """Makes an object of a name that was never used."""
        with self._translated("write", path):
            several = size_bytes > _PART_BYTES
            obstore.put(self._store, self._key(path), content, use_multipart=several, chunk_size=_PART_BYTES)

    def sync(self, paths: Iterable[str]) -> None:
        """See `FileTree.sync`. An object that was acknowledged is durable."""

    def move(self, path: str, to: str) -> None:
        """See `FileTree.move`. The store copies; up to 5 GB."""
        with self._translated("rename", path):
            obstore.copy(self._store, self._key(path), self._key(to))
        self.delete(path)

    def tree(self, directory: str = "") -> Iterator[Aged]:
        """See `FileTree.tree`."""
        start = f"{self._prefix}/" if self._prefix else ""
        with self._translated("list", directory):
            for page in obstore.list(self._store, self._key(directory) or None, chunk_size=1000):
                for found in page:
                    yield Aged(found["path"].removeprefix(start), found["last_modified"].timestamp())

    def files(self, directory: str, after: str = "") -> Iterator[Found]:
        """See `FileStore.files`."""
        prefix = self._key(directory)
        offset = f"{prefix}/{after}" if after else None
        with self._translated("list", directory):
            for page in obstore.list(self._store, prefix, offset=offset, chunk_size=1000):
                for found in page:
                    yield Found(found["path"].removeprefix(f"{prefix}/"), found["size"])

    def names(self, directory: str) -> list[str]:
        """See `FileStore.names`."""
        with self._translated("list", directory):
            found = obstore.list_with_delimiter(self._store, self._key(directory))
        paths = [*found["common_prefixes"], *(file["path"] for file in found["objects"])]
        return sorted(path.rpartition("/")[2] for path in paths)

    def delete(self, path: str) -> None:
        """See `FileStore.delete`."""
        with self._translated("delete", path):
            try:
                obstore.delete(self._store, self._key(path))
            except FileNotFoundError:
                return

    def require_conditional_writes(self, path: str) -> None:
        """Makes a small file, and raises ConfigError when the store lets it be made again."""
        if self._put_if_absent(path) and self._put_if_absent(path):
            raise ConfigError(
                f"{self.root} overwrites objects although it is told not to (If-None-Match): two writers would destroy each other's",
                fix="use a store with conditional writes: Amazon S3, MinIO, R2, SeaweedFS and others have them",
            )

    def _put_if_absent(self, path: str) -> bool:
        try:
            with self._translated("write", path):
                obstore.put(self._store, self._key(path), b"", mode="create", use_multipart=False)
        except exceptions.AlreadyExistsError:
            return False
        return True

    def _key(self, path: str) -> str:
        return f"{self._prefix}/{path}".strip("/")

    def _away(self, action: str, path: str, reason: str) -> HeadraceError:
        return RetryableError(
            f"could not {action} {self.root}/{path}: {reason}",
            fix="check that the store runs and can be reached from here; nothing that was acknowledged is lost",
            retry_after_s=0.5,
        )

    @contextmanager
    def _translated(self, action: str, path: str) -> Iterator[None]:
        """FileNotFoundError and AlreadyExistsError go through; everything else becomes an error of ours."""
        try:
            yield
        except (FileNotFoundError, exceptions.AlreadyExistsError) as error:
            if "NoSuchBucket" in str(error):
                raise self._no_bucket() from error
            raise
        except (exceptions.BaseError, OSError, ValueError) as error:
            text = str(error)
            if "NoSuchBucket" in text:
                raise self._no_bucket() from error
            refused = isinstance(error, (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError))
            if refused or "403 Forbidden" in text or "401 Unauthorized" in text:
                raise ConfigError(
                    f"{self.root} refuses to {action} {path}: {_code(text)}",
                    fix="check access_key, secret_key and region, and what this user may do with the bucket",
                ) from error
            raise self._away(action, path, _code(text)) from error

    def _no_bucket(self) -> ConfigError:
        return ConfigError(
            f"there is no bucket for {self.root}", fix="make the bucket, or check its name and the endpoint"
        )


class _NewObject:
    """Lies on this machine until it is whole."""

    def __init__(self, store: S3FileStore, path: str) -> None:
        self._store = store
        self._path = path
        self._spool: SpooledTemporaryFile[bytes] = SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - `finish` and `abandon` close it
        self.target: pa.NativeFile = BufferedTarget(self._add).file

    def finish(self) -> int:
        """See `NewFile.finish`."""
        self.target.close()
        size_bytes = self._spool.tell()
        self._spool.seek(0)
        self._store.upload(self._path, self._spool, size_bytes)
        self._spool.close()
        return size_bytes

    def abandon(self) -> None:
        """See `NewFile.abandon`."""
        with suppress(HeadraceError, OSError):
            self.target.close()
        self._spool.close()

    def _add(self, content: bytes) -> None:
        try:
            self._spool.write(content)
        except OSError as error:
            raise storage_error(
                "write", f"the beginning of {self._store.root}/{self._path}, on this machine", error
            ) from error


def _code(text: str) -> str:
    """What a store answered, in short: its error's code and message, or the beginning of the library's own words."""
    code, message = (text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0] for tag in ("Code", "Message"))
    if code:
        return f"{code}: {message}" if message else code
    return text.partition("\n")[0].rpartition(" - ")[2][:200]
