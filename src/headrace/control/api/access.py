"""Who may do what: the token or the session that a request shows, and what its role allows.

A browser sends its cookie with every request, also with those that other pages make it send. So with a cookie, whatever changes something must
carry the session's CSRF token as well, which other pages cannot read; the cookie itself is not sent across sites (SameSite), nor to be read by
scripts (HttpOnly). Tokens travel in a header that no browser sends by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import HTTPConnection

from headrace.control.api.plane import Plane, plane_of
from headrace.control.journal import Actor
from headrace.control.people import Admitted, Role, allows, same

_COOKIE = "headrace_session"
_SAFE = {"GET", "HEAD", "OPTIONS"}
_bearer = HTTPBearer(auto_error=False, description="A token of a user: `Authorization: Bearer hr_…`")


class _SessionCookie(APIKeyCookie):
    async def __call__(self, request: HTTPConnection) -> str | None:
        return request.cookies.get(cookie_of(request))


_cookie = _SessionCookie(
    name=_COOKIE,
    auto_error=False,
    description=f"The session of a browser, from POST /api/v1/session; over HTTPS its name is __Host-{_COOKIE}",
)

ThePlane = Annotated[Plane, Depends(plane_of)]


class AccessError(Exception):
    """A request that may not be done: 401 without (valid) credentials, 403 with those of somebody who may not."""

    def __init__(self, status: int, message: str, fix: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.fix = fix


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    admitted: Admitted
    actor: Actor

    @property
    def role(self) -> Role:
        return self.admitted.role


def _caller(
    request: Request,
    plane: ThePlane,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    cookie: Annotated[str | None, Security(_cookie)],
) -> Caller:
    if bearer is not None:
        admitted = plane.people.of_token(bearer.credentials)
    else:
        admitted = plane.people.of_session(cookie) if cookie else None
    if admitted is None:
        raise AccessError(401, "no token and no session, or one that is not valid any more", "log in, or send a token")
    is_proven = admitted.csrf is None or same(request.headers.get("x-csrf-token", ""), admitted.csrf)
    if request.method not in _SAFE and not is_proven:
        raise AccessError(403, "the CSRF token is missing or wrong", "send `csrf` of GET /api/v1/me as X-CSRF-Token")
    return Caller(admitted, Actor(admitted.user, address_of(request)))


def _needs(role: Role) -> Callable[..., Caller]:
    def permitted(caller: Annotated[Caller, Depends(_caller)]) -> Caller:
        if not allows(caller.role, role):
            raise AccessError(403, f"this needs the role {role}, and yours is {caller.role}", "ask an admin")
        return caller

    return permitted


def cookie_of(request: HTTPConnection) -> str:
    """The name of a session's cookie. Over HTTPS it has a prefix by which browsers take it from this very server alone, and by HTTPS alone."""
    return f"__Host-{_COOKIE}" if request.url.scheme == "https" else _COOKIE


def address_of(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client is not None else ""


Viewer = Annotated[Caller, Depends(_needs("viewer"))]
Operator = Annotated[Caller, Depends(_needs("operator"))]
Admin = Annotated[Caller, Depends(_needs("admin"))]
