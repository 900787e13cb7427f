"""The application: routes, and what each error is answered with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException

from headrace import __version__
from headrace.control.api import alerts, data, lakes, pipelines, quality, users
from headrace.control.api.access import AccessError
from headrace.control.api.answers import FieldProblem, Problem
from headrace.control.api.console import add_console
from headrace.control.api.guard import Allowance, Guard
from headrace.control.api.metrics import exposition
from headrace.control.api.plane import Plane
from headrace.control.pipelines import ConflictError, UnknownError
from headrace.errors import ConfigError, HeadraceError, RetryableError
from headrace.flow.load import FieldsError

_ANSWERED: dict[int | str, dict[str, Any]] = {
    400: {"model": Problem, "description": "The body is no JSON"},
    401: {"model": Problem, "description": "No credentials, or wrong ones"},
    403: {"model": Problem, "description": "The role does not allow it, or the CSRF token is missing"},
    404: {"model": Problem, "description": "There is no such thing"},
    409: {"model": Problem, "description": "It cannot be done as things are now"},
    413: {"model": Problem, "description": "The body is too large"},
    422: {"model": Problem, "description": "A field is wrong"},
    429: {"model": Problem, "description": "Too many requests"},
    500: {"model": Problem, "description": "An operator must act"},
    503: {"model": Problem, "description": "The store, or something else, is away for the moment"},
}


def application(plane: Plane, per_s: float) -> FastAPI:
    """The API over a plane; `per_s` requests a second are allowed to each address."""
    app = FastAPI(
        title="headrace",
        version=__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,  # they load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.plane = plane
    api = APIRouter(prefix="/api/v1", responses=_ANSWERED)
    for router in (
        pipelines.overview,
        pipelines.router,
        data.router,
        lakes.router,
        quality.router,
        alerts.router,
        users.router,
    ):
        api.include_router(router)
    app.include_router(api)
    app.add_api_route("/healthz", _health, include_in_schema=False)
    app.add_api_route("/metrics", _metrics, include_in_schema=False)
    add_console(app)
    app.add_exception_handler(AccessError, _denied)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HeadraceError, _failed)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(Exception, _broken)
    app.add_middleware(Guard, allowance=Allowance(per_s))
    return app


def _health(request: Request) -> JSONResponse:
    """Whether this server can do its part; a probe needs no login for that."""
    plane: Plane = request.app.state.plane
    status = "trouble" if plane.troubles else "ok"
    return JSONResponse(
        {"status": status, "pipelines_in_trouble": len(plane.reconciler.in_trouble)}, 503 if plane.troubles else 200
    )


def _metrics(request: Request) -> PlainTextResponse:
    return PlainTextResponse(exposition(request.app.state.plane))


async def _denied(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, AccessError)
    headers = {"www-authenticate": "Bearer"} if error.status == 401 else None
    return _problem(error.status, str(error), error.fix, headers=headers)


async def _invalid(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    fields = [
        FieldProblem(field=".".join(str(part) for part in found["loc"][1:]), message=found["msg"])
        for found in error.errors()
    ]
    is_no_json = any(found["type"] == "json_invalid" for found in error.errors())
    first = fields[0]
    message = f"`{first.field}`: {first.message}" if first.field and not is_no_json else first.message
    return _problem(400 if is_no_json else 422, message, "correct the request", fields)


async def _failed(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HeadraceError)
    fields = []
    if isinstance(error, FieldsError):
        fields = [FieldProblem(field=each.field, message=each.message, line=each.line) for each in error.problems]
    # Where the server keeps its files is nothing to callers.
    message = error.message.replace(f"{request.app.state.plane.places.directory}/", "")
    return _problem(_status(error), message, error.fix, fields)


async def _refused(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return _problem(error.status_code, error.detail, "see /api/v1/openapi.json", headers=dict(error.headers or {}))


async def _broken(_: Request, error: Exception) -> JSONResponse:
    return _problem(500, f"a fault of headrace: {type(error).__name__}", "see what the server printed, and report it")


def _status(error: HeadraceError) -> int:
    if isinstance(error, UnknownError):
        return 404
    if isinstance(error, ConflictError):
        return 409
    if isinstance(error, ConfigError):
        return 422
    return 503 if isinstance(error, RetryableError) else 500


def _problem(
    status: int, error: str, fix: str, fields: Sequence[FieldProblem] = (), headers: dict[str, str] | None = None
) -> JSONResponse:
    body = Problem(error=error, fix=fix, fields=list(fields))
    return JSONResponse(body.model_dump(mode="json"), status, headers=headers)
