"""The service of loaders on HTTP.

::

    GET  /v1/loads                              each loader: its state, offsets, lag, newest loads, rows
    GET  /v1/loads/{name}                       one of them
    POST /v1/loads/{name}/start|stop|restart    -> the same, as it is then
    GET  /v1/loads/{name}/refused?rows=100      rows that were left out, the newest first, with the reasons
    POST /v1/loads/{name}/{sequence}/accept     the rows of a load that nobody can decide are in Doris: the next start goes on behind it
    POST /v1/loads/{name}/{sequence}/load       they are not: the next start loads them
    GET  /metrics                               for Prometheus (metrics.py)
    GET  /healthz

With a token, every request but the last two carries `Authorization: Bearer TOKEN`. Errors are {"error", "fix"}.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from headrace.doris.metrics import exposed
from headrace.doris.service import Report, Service
from headrace.guarded_http import Handler, failure, guarded, serve_at

_TICK_S = 0.5
_LOOK_S = 10.0
_MOST_ROWS = 10_000


class ServiceApi:
    """An open `Service` behind HTTP, which it keeps going, and closes at its end."""

    def __init__(self, service: Service, token: str | None = None) -> None:
        self._service = service
        self._token = token
        self._threads: list[threading.Thread] = []
        self._stop = threading.Event()

    def app(self) -> Starlette:
        load = "/v1/loads/{name}"
        routes = [
            Route("/v1/loads", self._guarded(self._list)),
            Route(load, self._guarded(self._show)),
            Route(f"{load}/start", self._guarded(self._changed(self._service.start)), methods=["POST"]),
            Route(f"{load}/stop", self._guarded(self._changed(self._service.stop)), methods=["POST"]),
            Route(f"{load}/restart", self._guarded(self._changed(self._service.restart)), methods=["POST"]),
            Route(f"{load}/refused", self._guarded(self._refused)),
            Route(f"{load}/{{sequence:int}}/{{verdict}}", self._guarded(self._judge), methods=["POST"]),
            Route("/metrics", self._metrics),
            Route("/healthz", self._health),
        ]
        return Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        for action, every_s in ((self._service.tick, _TICK_S), (self._service.look, _LOOK_S)):
            thread = threading.Thread(target=self._repeat, args=(action, every_s), daemon=True)
            thread.start()
            self._threads.append(thread)
        try:
            yield
        finally:
            self._stop.set()
            await run_in_threadpool(self._service.close)

    def _repeat(self, action: Callable[[], None], every_s: float) -> None:
        action()
        while not self._stop.wait(every_s):
            action()

    def _guarded(self, handler: Handler) -> Handler:
        return guarded(handler, self._token)

    async def _list(self, _: Request) -> Response:
        return JSONResponse({"loads": [_told(report) for report in self._service.reports()]})

    async def _show(self, request: Request) -> Response:
        return JSONResponse(_told(self._service.report(_name(request))))

    def _changed(self, change: Callable[[str], None]) -> Handler:
        async def changed(request: Request) -> Response:
            await run_in_threadpool(change, _name(request))
            return await self._show(request)

        return changed

    async def _refused(self, request: Request) -> Response:
        rows = request.query_params.get("rows", "100")
        if not rows.isdecimal() or not 0 < int(rows) <= _MOST_ROWS:
            return failure(400, f"`rows` is '{rows}'", f"ask for 1 to {_MOST_ROWS}")
        found = await run_in_threadpool(self._service.refused, _name(request), int(rows))
        return JSONResponse({"refused": [{"sequence": number, "reason": reason} for number, reason in found]})

    async def _judge(self, request: Request) -> Response:
        verdict = request.path_params["verdict"]
        if verdict not in ("accept", "load"):
            return failure(404, f"there is no verdict '{verdict}'", "say `accept` or `load`")
        await run_in_threadpool(self._service.judge, _name(request), request.path_params["sequence"], verdict)
        return await self._show(request)

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(exposed(self._service.reports()))

    async def _health(self, _: Request) -> Response:
        if not all(thread.is_alive() for thread in self._threads):
            return failure(503, "the service does not tend its loaders any more", "start it again; see its log")
        return JSONResponse({"status": "ok"})


def serve(service: Service, host: str, port: int, token: str | None) -> None:
    """Serves until the process is told to end; loaders end what is under way. ConfigError when the address cannot be had."""
    service.open()
    serve_at(ServiceApi(service, token).app(), host, port)


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _told(report: Report) -> dict[str, object]:
    known = {"name": report.name} if report.status is None else report.status.told()
    return {
        **known, "state": report.state, "starts": report.starts, "said": report.said, "trouble": report.trouble,
        "age_s": None if report.status is None else round(report.status_age_s, 1),
    }  # fmt: skip
