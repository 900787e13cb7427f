"""The page of the report: ``REPORT_URL=postgresql://… python -m examples.report.page [--port 8800]``.

``/`` is page.html, which draws a chart and loads nothing from elsewhere; ``/report.json`` is what the report's table has now, which the page asks for each second.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from decimal import Decimal
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psycopg

PAGE = Path(__file__).with_name("page.html")
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; connect-src 'self'; img-src data:; "
    "script-src 'unsafe-inline'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}


@dataclass(frozen=True)
class Line:
    """A row of the report."""

    region: str
    category: str
    orders: int
    amount: Decimal
    paid: Decimal


def report(url: str) -> list[Line]:
    """What the report's table has now, in the order of its key; nothing before headrace has made it."""
    with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
        if connection.execute("SELECT to_regclass('report')").fetchone() == (None,):
            return []
        lines = connection.execute(
            "SELECT region, category, orders, amount, paid FROM report ORDER BY region, category"
        )
        return [Line(*line) for line in lines]


@contextmanager
def serving(url: str, port: int = 0) -> Iterator[str]:
    """The page's address while it is served, by a thread; `port` 0 is any that is free."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/":
                self._answer(HTTPStatus.OK, "text/html", PAGE.read_text())
            elif self.path == "/report.json":
                self._report()
            else:
                self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there are / and /report.json\n")

        def _report(self) -> None:
            try:
                lines = [vars(line) for line in report(url)]
            except psycopg.OperationalError:
                self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", "the report's database does not answer\n")
                return
            except psycopg.Error as error:
                what = f"the report cannot be read: {str(error).splitlines()[0]}\n"
                self._answer(HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain", what)
                return
            # As texts amounts are exact.
            self._answer(HTTPStatus.OK, "application/json", json.dumps(lines, default=str))

        def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            for name, value in _HEADERS.items():
                self.send_header(name, value)
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the name is the library's
            """Nothing: a page asks each second."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def until_ctrl_c() -> None:
    """Returns when somebody has had enough."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print()


def main() -> int:
    parser = argparse.ArgumentParser(prog="examples.report.page")
    parser.add_argument("--port", type=int, default=8800)
    options = parser.parse_args()
    url = os.environ.get("REPORT_URL", "")
    if not url.startswith("postgresql://"):
        print("set REPORT_URL to the database of the report, as postgresql://user:password@host:5432/database")
        return 2
    with ExitStack() as stack:
        try:
            address = stack.enter_context(serving(url, options.port))
        except OSError as error:
            print(f"the port {options.port} is not to be had ({error.strerror}): choose another one by --port")
            return 2
        print(f"{address} until Ctrl-C", flush=True)
        until_ctrl_c()
    return 0


if __name__ == "__main__":
    sys.exit(main())
