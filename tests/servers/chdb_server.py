"""ClickHouse's engine behind its HTTP interface: ``python chdb_server.py PORT FOLDER``, run by clickhouse.py.

The engine is chdb, ClickHouse's own code as a library; its tables lie in FOLDER as a server's do. What a server would do itself is done here:
the request's `query` and body become one query, `database` and settings go in front of it, and an error becomes the answer that
clients know. Users, roles and TLS are not here.
"""

from __future__ import annotations

import re
import sys
import tempfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import chdb

_INSERT = re.compile(rb"(\s*INSERT\s.*?)\sFORMAT\s+(\w+)[ ]*\n", re.IGNORECASE | re.DOTALL)
_CODE = re.compile(r"Code: (\d+)")
_NO_SETTINGS = {
    "query",
    "database",
    "session_id",
    "query_id",
    "client_protocol_version",
    "role",
    "compress",
    "buffer_size",
    "wait_end_of_query",
}


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection, each in a session of its own."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet: the second one would wait for the acknowledgement of the first
    folder: ClassVar[str]

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def _answer(self, body: bytes) -> None:
        url = urlsplit(self.path)
        if url.path == "/ping":
            self._send(200, b"Ok.\n")
            return
        given = dict(parse_qsl(url.query, keep_blank_values=True))
        session = chdb.connect(self.folder)
        try:
            if given.get("database"):
                session.query(f"USE `{given['database']}`")
            for name, value in given.items():
                if name not in _NO_SETTINGS and not name.startswith("param_"):
                    session.query(f"SET {name} = '{value}'")
            self._send(200, _run(session, given.get("query", "").encode(), body))
        except RuntimeError as error:
            code = _CODE.search(str(error))
            self._send(500, str(error).encode(), {"X-ClickHouse-Exception-Code": code[1] if code else "1000"})
        finally:
            session.close()

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """Nothing: the log is for the server's own troubles."""


def _run(session: Any, query: bytes, body: bytes) -> bytes:
    whole = query + b"\n" + body
    insert = _INSERT.match(whole)
    if insert is None:
        return bytes(session.query(whole.decode(), "TabSeparated").bytes() or b"")
    with tempfile.NamedTemporaryFile() as file:  # the engine reads what is inserted from a file, by the same parser
        file.write(whole[insert.end() :])
        file.flush()
        session.query(f"{insert[1].decode()} FROM INFILE '{file.name}' FORMAT {insert[2].decode()}")
    return b""


def main() -> None:
    port, Handler.folder = int(sys.argv[1]), sys.argv[2]
    Path(Handler.folder).mkdir(parents=True, exist_ok=True)
    with chdb.connect(Handler.folder), ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.serve_forever()


if __name__ == "__main__":
    main()
