"""What headrace's own services have in common on HTTP: where they listen, the token that requests show, and what errors are answered with."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import uvicorn
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from headrace.errors import ConfigError, HeadraceError, RetryableError

Handler = Callable[[Request], Awaitable[Response]]


def guarded(handler: Handler, token: str | None, wrong_body: tuple[type[Exception], ...] = ()) -> Handler:
    """The handler for those who show `Authorization: Bearer TOKEN`, for all when there is no token.

    `wrong_body`: errors that say that the request's body is wrong.
    """

    async def answered(request: Request) -> Response:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token is not None and not hmac.compare_digest(given.encode(), token.encode()):
            return failure(401, "no token, or a wrong one", "send `Authorization: Bearer TOKEN`")
        try:
            return await handler(request)
        except wrong_body as error:
            return failure(400, *_said(error))
        except ConfigError as error:
            return failure(404, error.message, error.fix)
        except RetryableError as error:
            return failure(503, error.message, error.fix)
        except HeadraceError as error:
            return failure(500, error.message, error.fix)

    return answered


def _said(error: Exception) -> tuple[str, str]:
    """What is wrong with a body, and what to do; of pydantic the first that it has to say, without its words about itself."""
    if isinstance(error, HeadraceError):
        return error.message, error.fix
    said = str(error)
    if isinstance(error, ValidationError):
        [first, *_] = error.errors()
        where = [".".join(map(str, first["loc"]))] if first["loc"] else []
        said = ": ".join([*where, first["msg"].removeprefix("Value error, ")])
    return said, "correct the body"


def failure(status: int, error: str, fix: str) -> Response:
    """An answer that says what is wrong and what to do."""
    return JSONResponse({"error": error, "fix": fix}, status)


def serve_at(app: ASGIApp, host: str, port: int) -> None:
    """Serves until the process is told to end. ConfigError when the address cannot be had."""
    config = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False, proxy_headers=False)
    with listening(host, port) as found, suppress(KeyboardInterrupt):
        uvicorn.Server(config).run([found])


def listening(host: str, port: int) -> socket.socket:
    """Port 0 is any that is free. ConfigError when the address cannot be had."""
    try:
        return socket.create_server((host, port))
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"nothing can be served at {host}:{port}: {why}",
            fix="name another port, or an address of this machine",
        ) from error
