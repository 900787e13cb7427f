"""What stands before all requests: how many there may be, how large they may be, and what every answer says to browsers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_LARGEST_BODY_BYTES = 1 << 20
_PASSWORDS = {("POST", "/api/v1/session"), ("PUT", "/api/v1/me/password")}
_PASSWORD_COST = 20.0
"""A password takes as much of an address' allowance as so many other requests: they are guessed one by one."""
_ADDRESSES = 10_000
_CONSOLE = "/ui/"
_ONLY_HTTPS = (b"strict-transport-security", b"max-age=31536000")
"""Said over HTTPS alone, where browsers believe it: for a year they come by HTTPS."""
_HEADERS = [(b"referrer-policy", b"no-referrer"), (b"x-content-type-options", b"nosniff")]
_OF_THE_API = [
    *_HEADERS,
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
]
_ONLY_FROM_HERE = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    b"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
)
_OF_THE_CONSOLE = [
    *_HEADERS,
    (b"cache-control", b"no-cache"),  # asked for again each time, and sent when it has changed
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"content-security-policy", _ONLY_FROM_HERE),
]


class Allowance:
    """So many requests a second of each address, and four seconds' worth at once (a token bucket each)."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._most = 4 * per_s
        self._clock = clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, address: str, cost: float) -> bool:
        """Whether a request is within the allowance, which it then uses."""
        now = self._clock()
        left, at = self._left.pop(address, (self._most, now))
        left = min(self._most, left + (now - at) * self._per_s)
        is_allowed = left >= cost
        self._left[address] = (left - cost if is_allowed else left, now)
        while len(self._left) > _ADDRESSES:
            self._left.popitem(last=False)
        return is_allowed


class _TooLargeError(Exception):
    """A body without a length was longer than it may be."""


class Guard:
    """Around the application."""

    def __init__(self, app: ASGIApp, allowance: Allowance) -> None:
        self._app = app
        self._allowance = allowance

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_begun = False
        headers = _OF_THE_CONSOLE if scope["path"].startswith(_CONSOLE) else _OF_THE_API
        if scope["scheme"] == "https":
            headers = [*headers, _ONLY_HTTPS]

        async def with_headers(message: Message) -> None:
            nonlocal is_begun
            if message["type"] == "http.response.start":
                is_begun = True
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        refusal = self._refusal(scope)
        if refusal is None:
            try:
                await self._app(scope, _limited(receive), with_headers)
            except _TooLargeError:
                if not is_begun:
                    await _too_large()(scope, receive, with_headers)
        else:
            await refusal(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        address = scope["client"][0] if scope.get("client") else ""
        has_password = (scope["method"], scope["path"]) in _PASSWORDS
        if not self._allowance.take(address, _PASSWORD_COST if has_password else 1.0):
            problem = {"error": "too many requests from this address", "fix": "wait a second", "fields": []}
            return JSONResponse(problem, 429, headers={"retry-after": "1"})
        return _too_large() if _length(scope["headers"]) > _LARGEST_BODY_BYTES else None


def _limited(receive: Receive) -> Receive:
    read = 0

    async def limited() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > _LARGEST_BODY_BYTES:
            raise _TooLargeError
        return message

    return limited


def _length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    said = dict(headers).get(b"content-length", b"0")
    return int(said) if said.isdigit() else 0


def _too_large() -> JSONResponse:
    problem = {"error": f"the body has more than {_LARGEST_BODY_BYTES:,} bytes", "fix": "send less", "fields": []}
    return JSONResponse(problem, 413)
