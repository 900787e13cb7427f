"""A cluster of the stand-in: frontends, backends and the MySQL port, in threads of this process."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from http.server import ThreadingHTTPServer
from itertools import count
from typing import Any, Self

from tests.servers.doris.faults import Faults
from tests.servers.doris.http import BackendHandler, FrontendHandler, Handler
from tests.servers.doris.sql import SqlPort
from tests.servers.doris.tables import Store
from tests.servers.doris.transactions import Clock, Limits, Transaction, Transactions


class Listener(ThreadingHTTPServer):
    """A frontend's or a backend's HTTP port."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, doris: Doris, role: str, handler: type[Handler], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), handler)
        self.doris, self.role = doris, role
        self.connections: set[socket.socket] = set()
        self.running: set[int] = set()
        """Transactions whose body is on its way here."""
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def cut(self, connection: socket.socket) -> None:
        """Ends a connection without a word."""
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        for connection in list(self.connections):
            self.cut(connection)
        self._thread.join()

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class Doris:
    """``with Doris() as doris:``; a database `db` is there. Everything is kept until the end, also when parts are stopped and started."""

    def __init__(
        self,
        frontends: int = 1,
        backends: int = 1,
        *,
        user: str = "root",
        password: str = "",
        counts_only: bool = False,
    ) -> None:
        """`counts_only`: the lines of bodies are counted, and that is all that becomes of them."""
        self.counts_only, self.rows_counted = counts_only, 0
        self.user, self.password = user, password
        self.clock, self.limits, self.faults = Clock(), Limits(), Faults()
        self.transactions = Transactions(self.clock, self.limits)
        self.store = Store()
        self.error_logs: dict[str, list[str]] = {}
        self.detached: list[tuple[Transaction, Callable[[], object]]] = []
        self.seen: list[tuple[str, str, str, dict[str, str]]] = []
        """Role, method, path and headers of each request."""
        self.style = "[LABEL_ALREADY_EXISTS]TStatus: "
        """How messages begin; "" in older releases."""
        self.quality = "DATA_QUALITY_ERROR"
        self._sizes = (frontends, backends)
        self.frontends: list[Listener | None] = []
        self.backends: list[Listener | None] = []
        self._ports: dict[tuple[str, int], int] = {}
        self._turn = count()
        self._sql = SqlPort(self)

    def __enter__(self) -> Self:
        self.frontends = [None] * self._sizes[0]
        self.backends = [None] * self._sizes[1]
        for number in range(self._sizes[0]):
            self.start_frontend(number)
        for number in range(self._sizes[1]):
            self.start_backend(number)
        self._sql.start()
        self.store.create_database("db")
        return self

    def __exit__(self, *_: object) -> None:
        for listener in (*self.frontends, *self.backends):
            if listener is not None:
                listener.stop()
        self._sql.stop()
        self.store.close()

    # --- addresses

    @property
    def frontend_places(self) -> list[str]:
        return [f"127.0.0.1:{self._ports['fe', number]}" for number in range(self._sizes[0])]

    @property
    def backend_places(self) -> list[str]:
        return [f"127.0.0.1:{self._ports['be', number]}" for number in range(self._sizes[1])]

    @property
    def sql_port(self) -> int:
        return self._sql.port

    def backends_alive(self) -> Sequence[str]:
        return [listener.place for listener in self.backends if listener is not None]

    def next_backend(self) -> str | None:
        alive = self.backends_alive()
        return alive[next(self._turn) % len(alive)] if alive else None

    # --- stopping and starting

    def start_frontend(self, number: int = 0) -> None:
        self.frontends[number] = self._listen("fe", number, FrontendHandler)

    def start_backend(self, number: int = 0) -> None:
        self.backends[number] = self._listen("be", number, BackendHandler)

    def stop_frontend(self, number: int = 0) -> None:
        """Its state is in the journal of the others."""
        if (listener := self.frontends[number]) is not None:
            self.frontends[number] = None
            listener.stop()

    def stop_backend(self, number: int = 0) -> None:
        """The loads whose bodies are on their way there are rolled back by the frontend."""
        if (listener := self.backends[number]) is not None:
            self.backends[number] = None
            listener.stop()
            for id_ in list(listener.running):
                self.transactions.abort(self.transactions.all[id_], "coordinate BE is down")

    def _listen(self, role: str, number: int, handler: type[Handler]) -> Listener:
        listener = self._bound(role, handler, self._ports.get((role, number), 0))
        self._ports[role, number] = listener.server_address[1]
        return listener

    def _bound(self, role: str, handler: type[Handler], port: int) -> Listener:
        """The port of before may be that of somebody's connection just now."""
        for _ in range(1200):
            try:
                return Listener(self, role, handler, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                time.sleep(0.1)
        raise AssertionError(f"port {port} does not become free")

    # --- what tests do to it

    def finish_detached(self) -> None:
        """Loads whose clients were cut off come to their end."""
        waiting, self.detached = self.detached, []
        for _, write in waiting:
            write()

    def rows(self, table: str, columns: str = "*", database: str = "db") -> list[tuple[Any, ...]]:
        """What a query sees, sorted."""
        self.transactions.tick()
        found, _ = self.store.query(f'SELECT {columns} FROM "{database}"."{table}"')
        return sorted(found, key=repr)

    def sql(self, statement: str) -> None:
        """A statement as over the MySQL port, by the administrator."""
        self._sql.execute(statement, "db")
