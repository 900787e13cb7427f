"""The Watermark Server on HTTP: bytes for machines, JSON for people.

::

    PUT  /v1/topologies/{topology}                              registers a topology (topology.py)
    GET  /v1/topologies                                         their names
    GET  /v1/topologies/{topology}                              each stage: watermarks, who holds them, who has gone
    GET  /v1/topologies/{topology}/complete                     the global low watermark, and the members that it has not waited for
    POST /v1/topologies/{topology}/stages/{stage}/members       {"join": [name, ...], "leave": [name, ...]} -> {"ids": {name: id}}
    POST /v1/topologies/{topology}/stages/{stage}/report        wire.py, or {"progress": {name: µs}, "rows": {name: n}} -> watermarks
    GET  /v1/topologies/{topology}/stages/{stage}/watermark     watermarks; with ?until=µs it answers when the input has got there,
                                                                or after timeout_s
    GET  /metrics                                               for Prometheus
    GET  /healthz

With a token, every request but the last two carries `Authorization: Bearer TOKEN`. Errors are {"error", "fix"}.
"""

from __future__ import annotations

import asyncio
import gc
import math
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import numpy as np
import orjson
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from headrace.errors import CorruptError, HeadraceError
from headrace.guarded_http import Handler, failure, guarded, serve_at
from headrace.model import Model
from headrace.watermark.server import TICK_S, StageReport, WatermarkServer
from headrace.watermark.topology import Topology
from headrace.watermark.tracker import Times
from headrace.watermark.wire import MEDIA_TYPE, NEVER, Watermarks, decode_report, encode_answer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_WRONG_BODY = (CorruptError, ValidationError, orjson.JSONDecodeError)
_LONGEST_WAIT_S = 60.0


class MembersBody(Model):
    """Who joins a stage, and who leaves it because nothing will come any more."""

    join: list[str] = Field(default_factory=list)
    leave: list[str] = Field(default_factory=list)


class WatermarkApi:
    """A `WatermarkServer` behind HTTP, whose clock it keeps going."""

    def __init__(self, server: WatermarkServer, token: str | None = None) -> None:
        self._server = server
        self._token = token
        self._trouble = ""
        self._published = asyncio.Event()

    def app(self) -> Starlette:
        stage = "/v1/topologies/{topology}/stages/{stage}"
        routes = [  # looked through in this order: what is asked all the time comes first
            Route(f"{stage}/watermark", self._guarded(self._watermark)),
            Route(f"{stage}/report", self._guarded(self._report), methods=["POST"]),
            Route("/v1/topologies", self._guarded(self._list)),
            Route("/v1/topologies/{topology}", self._guarded(self._register), methods=["PUT"]),
            Route("/v1/topologies/{topology}", self._guarded(self._show)),
            Route("/v1/topologies/{topology}/complete", self._guarded(self._complete)),
            Route(f"{stage}/members", self._guarded(self._members), methods=["POST"]),
            Route("/metrics", self._metrics),
            Route("/healthz", self._health),
        ]
        return Starlette(routes=routes, lifespan=self._lifespan)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        self._server.on_publish(lambda: _call_in(loop, self._wake))
        stop = threading.Event()
        ticking = threading.Thread(target=self._tick, args=(stop,), name="ticks", daemon=True)
        ticking.start()
        try:
            yield
        finally:
            stop.set()
            ticking.join()

    def _tick(self, stop: threading.Event) -> None:
        while not stop.wait(TICK_S):
            try:
                self._server.tick()
                self._trouble = ""
            except HeadraceError as error:  # watermarks stand; the next tick tries again, and /healthz tells
                self._trouble = str(error)
            except Exception as error:  # a thread that ended would leave them standing for ever, without a word
                traceback.print_exc()
                self._trouble = f"a tick met an error that headrace does not know: {type(error).__name__}: {error}"

    def _wake(self) -> None:
        self._published.set()
        self._published = asyncio.Event()

    def _guarded(self, handler: Handler) -> Handler:
        return guarded(handler, self._token, _WRONG_BODY)

    async def _list(self, _: Request) -> Response:
        return _json({"topologies": self._server.names()})

    async def _register(self, request: Request) -> Response:
        body = _object(await request.body(), '{"stages": [{"name": …}, …]}')
        topology = Topology.model_validate({"name": request.path_params["topology"], **body})
        await run_in_threadpool(self._server.register, topology)
        return _json(topology.model_dump(mode="json"))

    async def _show(self, request: Request) -> Response:
        stages = await run_in_threadpool(self._server.show, request.path_params["topology"])
        return _json({"name": request.path_params["topology"], "stages": [_shown(stage) for stage in stages]})

    async def _complete(self, request: Request) -> Response:
        low_us, lacking = await run_in_threadpool(self._server.complete, request.path_params["topology"])
        told = [
            {"stage": one.stage, "name": one.name, "us": one.us, "is_abandoned": one.is_abandoned} for one in lacking
        ]
        return _json({"global_us": None if low_us == NEVER else low_us, "lacking": told})

    async def _members(self, request: Request) -> Response:
        topology, stage = _place(request)
        body = MembersBody.model_validate_json(await request.body())
        ids = await run_in_threadpool(self._server.join, topology, stage, body.join)
        if body.leave:
            await run_in_threadpool(self._server.leave, topology, stage, body.leave)
        return _json({"ids": ids})

    async def _report(self, request: Request) -> Response:
        topology, stage = _place(request)
        body = await request.body()
        if request.headers.get("content-type") == MEDIA_TYPE:
            report = decode_report(body)
            ids = np.frombuffer(report.ids, "<u4").astype(np.int64)
            rows = np.frombuffer(report.rows, "<u4").astype(np.int64)
            marks, life = self._server.report(topology, stage, ids, np.frombuffer(report.progress_us, "<i8"), rows)
            return Response(encode_answer(marks, life), media_type=MEDIA_TYPE)
        names, progress_us, rows = _spoken_report(body)
        known = self._server.known(topology, stage, names)
        if None in known:
            await run_in_threadpool(self._server.join, topology, stage, names)
            known = self._server.known(topology, stage, names)
        listed = np.array([member is not None for member in known], np.bool_)
        ids = np.array([member for member in known if member is not None], np.int64)
        marks, _ = self._server.report(topology, stage, ids, progress_us[listed], rows[listed])
        strangers = [name for name, member in zip(names, known, strict=True) if member is None]
        return _json(_told(marks) | {"unknown": strangers})

    async def _watermark(self, request: Request) -> Response:
        topology, stage = _place(request)
        until_us, timeout_s = _wish(request)
        deadline = asyncio.get_running_loop().time() + timeout_s
        while True:
            published = self._published
            marks = self._server.watermarks(topology, stage)
            left_s = deadline - asyncio.get_running_loop().time()
            if marks.input_us >= until_us or left_s <= 0:
                return _json(_told(marks))
            with suppress(TimeoutError):
                await asyncio.wait_for(published.wait(), left_s)

    async def _metrics(self, _: Request) -> Response:
        reports = {name: await run_in_threadpool(self._server.show, name) for name in self._server.names()}
        return PlainTextResponse(generate_latest(_registry(reports)))

    async def _health(self, _: Request) -> Response:
        return failure(503, self._trouble, "look at the store") if self._trouble else _json({"status": "ok"})


def serve(server: WatermarkServer, host: str, port: int, token: str | None) -> None:
    """Serves until the process, which does nothing else, is told to end. ConfigError when the address cannot be had."""
    gc.collect()
    gc.freeze()  # what was imported stays for ever: the collector, for which all requests wait, took 50 ms to look through it
    serve_at(WatermarkApi(server, token).app(), host, port)


def _call_in(loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(action)


def _place(request: Request) -> tuple[str, str]:
    return request.path_params["topology"], request.path_params["stage"]


def _wish(request: Request) -> tuple[int, float]:
    if not request.scope["query_string"]:
        return NEVER, 0.0
    wanted = request.query_params
    try:
        until_us, timeout_s = int(wanted.get("until", NEVER)), float(wanted.get("timeout_s", 30))
    except ValueError:
        timeout_s = math.nan
    if math.isnan(timeout_s):
        raise CorruptError("`until` is whole µs since 1970, `timeout_s` seconds", fix="correct them")
    return until_us, min(timeout_s, _LONGEST_WAIT_S)


def _spoken_report(body: bytes) -> tuple[list[str], Times, Times]:
    """Names, progress and rows of a report in JSON."""
    form = '{"progress": {name: µs since 1970}, "rows": {name: count}}'
    told = _object(body, form)
    progress, rows = told.get("progress"), told.get("rows", {})
    if not isinstance(progress, dict) or not isinstance(rows, dict):
        raise CorruptError("a report has `progress`, and may have `rows`, both by name", fix=f"send {form}")
    names = list(progress)
    return names, _numbers(list(progress.values())), _numbers([rows.get(name, 0) for name in names])


def _object(body: bytes, form: str) -> dict[str, object]:
    told = orjson.loads(body)
    if not isinstance(told, dict):
        raise CorruptError("the body is no JSON object", fix=f"send {form}")
    return told


def _numbers(values: list[object]) -> Times:
    found = np.array(values)
    if values and found.dtype.kind != "i":
        raise CorruptError("progress is in whole µs since 1970, rows are whole numbers", fix="send integers")
    return found.astype(np.int64)


def _told(marks: Watermarks) -> dict[str, int | None]:
    told = {"input_us": marks.input_us, "output_us": marks.output_us, "global_us": marks.global_us}
    return {name: None if value == NEVER else value for name, value in told.items()}


def _shown(stage: StageReport) -> dict[str, object]:
    lowest = [
        {
            "name": standing.name,
            "progress_us": None if standing.progress_us == NEVER else standing.progress_us,
            "silent_s": round(standing.silent_s, 1),
            "share": standing.share,
        }
        for standing in stage.lowest
    ]
    gone = [{"name": gone.name, "state": gone.state, "since_us": gone.since_us} for gone in stage.gone]
    head = {"name": stage.name, "version": stage.version, "members": stage.members, "trouble": stage.trouble}
    return head | _told(stage.watermarks) | {"lowest": lowest, "gone": gone}


def _registry(topologies: dict[str, list[StageReport]]) -> CollectorRegistry:
    registry = CollectorRegistry()
    labels = ("topology", "stage")

    def gauge(name: str, text: str) -> Gauge:
        return Gauge(f"headrace_watermark_{name}", text, labels, registry=registry)

    low = gauge("output_seconds", "Output low watermark, seconds since 1970")
    members = gauge("members", "Members that are expected")
    abandoned = gauge("abandoned_members", "Members that fell silent and hold the watermark no more")
    lists = gauge("list_failures", "1 when the list of expected members cannot be had")
    for topology, stages in topologies.items():
        for stage in stages:
            if stage.watermarks.output_us != NEVER:
                low.labels(topology, stage.name).set(stage.watermarks.output_us / 1e6)
            members.labels(topology, stage.name).set(stage.members)
            abandoned.labels(topology, stage.name).set(_abandoned(stage))
            lists.labels(topology, stage.name).set(bool(stage.trouble))
    return registry


def _abandoned(stage: StageReport) -> int:
    states: Sequence[str] = [gone.state for gone in stage.gone]
    return states.count("abandoned")


def _json(value: Mapping[str, object]) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")
