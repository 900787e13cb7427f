"""One connection to a Thrift2 server of HBase: tables, rows in pages, and its errors in our words."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from thriftpy2.protocol import TCompactProtocolFactory, TCyBinaryProtocolFactory
from thriftpy2.rpc import make_client
from thriftpy2.thrift import TApplicationException, TClient, TException
from thriftpy2.transport import TCyBufferedTransportFactory, TCyFramedTransportFactory

from headrace.errors import ConfigError, FatalError, HeadraceError, RetryableError
from headrace.sinks.hbase.protocol import IDL

PAGE = 1000
_ONE_MORE = b"\0"
IDLE_S = 20.0
"""How long a connection may lie still: the server closes those that nobody uses, after a minute by default."""
_LASTING = ("DoNotRetryIOException", "NoSuchColumnFamily", "TableNotFound", "IllegalArgument")
"""Not a namespace that is not there: `create_table` makes it, and another writer that does so too may be in the middle of it."""


class Client:
    """Connects when it is first asked, and anew after a connection is lost."""

    def __init__(self, url: str, *, framed: bool, compact: bool, timeout_s: float) -> None:
        self._url = url
        self._transport = TCyFramedTransportFactory() if framed else TCyBufferedTransportFactory()
        factory: Any = TCompactProtocolFactory if compact else TCyBinaryProtocolFactory
        self._protocol = factory()
        self._timeout_ms = round(timeout_s * 1000)
        self._client: TClient | None = None
        self._used_at = 0.0

    def call(self, name: str, *arguments: Any) -> Any:
        """A request by the protocol's name; RetryableError when HBase is away, FatalError when asking again would not help."""
        with self._errors():
            answer = getattr(self._connected(), name)(*arguments)
            self._used_at = time.monotonic()
            return answer

    # --- tables

    def table(self, name: str) -> Any | None:
        """The descriptor of a table; None when there is none."""
        if not self.call("tableExists", _table_name(name)):
            return None
        return self.call("getTableDescriptor", _table_name(name))

    def create_table(self, name: str, family: Any, splits: Sequence[bytes] = ()) -> None:
        """Makes a table, and its namespace, unless somebody else is quicker."""
        space, _, _ = name.rpartition(":")
        if space and space not in self.call("listNamespaces"):
            self._unless_there("createNamespace", IDL.TNamespaceDescriptor(space))
        self._unless_there("createTable", IDL.TTableDescriptor(_table_name(name), [family]), list(splits))

    def add_family(self, name: str, family: Any) -> None:
        """Gives a table one more family of columns."""
        self._unless_there("addColumnFamily", _table_name(name), family)

    def _unless_there(self, name: str, *arguments: Any) -> None:
        try:
            self.call(name, *arguments)
        except HeadraceError as error:
            if not re.search("TableExists|NamespaceExist|already exists", error.message):
                raise

    # --- rows

    def pages(self, table: str, **scan: Any) -> Iterator[list[Any]]:
        """The rows of a table by key, some hundred at once; each page is a request of its own, so nothing is kept at the server."""
        start = b""
        while True:
            wanted = IDL.TScan(startRow=start, caching=PAGE, limit=PAGE, cacheBlocks=False, **scan)
            rows = self.call("getScannerResults", table.encode(), wanted, PAGE)
            if rows:
                yield rows
            if len(rows) < PAGE:
                return
            start = rows[-1].row + _ONE_MORE

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    # --- the connection

    def _connected(self) -> TClient:
        if time.monotonic() > self._used_at + IDLE_S:
            self.close()
        if self._client is None:
            at = urlsplit(self._url)
            self._client = make_client(
                IDL.THBaseService,
                at.hostname or "",
                at.port or 9090,
                proto_factory=self._protocol,
                trans_factory=self._transport,
                timeout=self._timeout_ms,
            )
        return self._client

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except IDL.TIOError as error:
            raise _of_hbase(str(error.message or error)) from error
        except TApplicationException as error:
            self.close()
            raise FatalError(
                f"the Thrift server at {self._url} does not do what it was asked: {error.message}",
                fix="check that it is HBase's Thrift2 server (hbase thrift2 start) of HBase 2.2 or newer, and see its log",
            ) from error
        except (TException, OSError) as error:
            self.close()  # an answer that still comes would be taken for that of the next request
            raise RetryableError(
                f"HBase's Thrift2 server at {self._url} is away: {getattr(error, 'message', None) or error}",
                fix="start it, or correct `url`, `framed` and `compact`",
            ) from error


def _of_hbase(told: str) -> HeadraceError:
    """What HBase said: a Java exception, of which the first line is enough."""
    what = f"HBase said: {told.splitlines()[0][:500] if told else 'nothing'}"
    if "AccessDenied" in told:
        return ConfigError(
            what, fix="give the user of the Thrift2 server the rights RWC on the namespace (grant in hbase shell)"
        )
    if re.fullmatch(r"[\w:.-]+", told):
        return FatalError(f"there is no HBase table {told} any more", fix="start again: it is made anew; then load it")
    if any(name in told for name in _LASTING):
        return FatalError(what, fix="see the master's and the Thrift2 server's logs for the reason, then start again")
    return RetryableError(what, fix="check that the master and all region servers run")


def _table_name(name: str) -> Any:
    space, _, own = name.rpartition(":")
    return IDL.TTableName(ns=space.encode() or None, qualifier=own.encode())
