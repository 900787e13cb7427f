"""Users, tokens, sessions, and who did what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from headrace.control.api.access import AccessError, Admin, Caller, ThePlane, Viewer, address_of, cookie_of
from headrace.control.api.answers import DeedAnswer, LeaderAnswer, Me, TokenAnswer, UserAnswer
from headrace.control.api.bodies import ChangedUser, LogIn, NewPassword, NewToken, NewUser, Page, UserName
from headrace.control.people import SESSION_S, allows

router = APIRouter(tags=["users"])
Name = Annotated[UserName, Path()]
TokenId = Annotated[str, Path(pattern=r"^[0-9a-f]{16}$")]


@router.post("/session")
def log_in(body: LogIn, request: Request, response: Response, plane: ThePlane) -> Me:
    """Begins the session of a browser: a cookie, and the CSRF token that goes with it. One that it had before ends."""
    secret = plane.people.log_in(body.name, body.password, address_of(request))
    admitted = plane.people.of_session(secret) if secret is not None else None
    if secret is None or admitted is None:
        raise AccessError(401, "name or password is wrong, or too many were wrong before", "try again in a while")
    plane.people.log_out(request.cookies.get(cookie_of(request), ""))
    response.set_cookie(
        cookie_of(request),
        secret,
        max_age=round(SESSION_S),
        path="/",
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return Me(user=admitted.user, role=admitted.role, csrf=admitted.csrf)


@router.delete("/session", status_code=204)
def log_out(request: Request, response: Response, plane: ThePlane, _: Viewer) -> None:
    """Ends the session that the cookie names."""
    plane.people.log_out(request.cookies.get(cookie_of(request), ""))
    _forget(request, response)


@router.get("/me")
def get_me(caller: Viewer) -> Me:
    """Who asks, and what may be done."""
    return Me(user=caller.admitted.user, role=caller.role, csrf=caller.admitted.csrf)


@router.put("/me/password", status_code=204)
def change_password(body: NewPassword, request: Request, response: Response, plane: ThePlane, caller: Viewer) -> None:
    """A new password of one's own. All sessions end, also this one; tokens stay."""
    plane.people.change_own(caller.admitted.user, body.current, body.new, caller.actor)
    _forget(request, response)


@router.get("/users")
def list_users(plane: ThePlane, _: Admin) -> list[UserAnswer]:
    return [UserAnswer.model_validate(user) for user in plane.people.all()]


@router.post("/users", status_code=201)
def add_user(body: NewUser, plane: ThePlane, caller: Admin) -> UserAnswer:
    return UserAnswer.model_validate(plane.people.add(body.name, body.role, body.password, caller.actor))


@router.patch("/users/{user}")
def change_user(user: Name, body: ChangedUser, plane: ThePlane, caller: Admin) -> UserAnswer:
    """Changes what is given. The user's sessions end."""
    changed = plane.people.change(user, caller.actor, role=body.role, active=body.active, password=body.password)
    return UserAnswer.model_validate(changed)


@router.delete("/users/{user}", status_code=204)
def remove_user(user: Name, plane: ThePlane, caller: Admin) -> None:
    """With all tokens and sessions."""
    plane.people.remove(user, caller.actor)


@router.get("/users/{user}/tokens")
def list_tokens(user: Name, plane: ThePlane, caller: Viewer) -> list[TokenAnswer]:
    """One's own; an admin sees those of all."""
    _own(caller, user)
    return [TokenAnswer.model_validate(token) for token in plane.people.tokens(user)]


@router.post("/users/{user}/tokens", status_code=201)
def add_token(user: Name, body: NewToken, plane: ThePlane, caller: Viewer) -> TokenAnswer:
    """For oneself, with at most the role that one has here. The secret is in this answer only."""
    if caller.admitted.user != user:
        raise AccessError(403, "tokens are made by the users themselves", "let the user do it")
    if not allows(caller.role, body.role):
        raise AccessError(403, f"your role here is {caller.role}", "choose that role or a lower one")
    token, secret = plane.people.add_token(user, body.name, body.role, body.days, caller.actor)
    return TokenAnswer.of(token, secret)


@router.delete("/users/{user}/tokens/{token}", status_code=204)
def remove_token(user: Name, token: TokenId, plane: ThePlane, caller: Viewer) -> None:
    """One's own; an admin may remove those of all."""
    _own(caller, user)
    plane.people.remove_token(user, token, caller.actor)


@router.get("/audit")
def list_deeds(page: Annotated[Page, Query()], plane: ThePlane, _: Admin) -> list[DeedAnswer]:
    """Who did what, the newest first."""
    return [DeedAnswer.model_validate(deed) for deed in plane.journal.deeds(before=page.before, limit=page.limit)]


@router.get("/secrets")
def list_secrets(plane: ThePlane, _: Viewer) -> list[str]:
    """The names that flow files may use as ${NAME}; never what they stand for."""
    return plane.places.secrets.names()


@router.get("/leader")
def get_leader(plane: ThePlane, _: Viewer) -> LeaderAnswer | None:
    """Which server starts and stops processes; null when none does."""
    leader = plane.runs.leader()
    if leader is None:
        return None
    return LeaderAnswer(holder=leader.holder, address=leader.address, here=leader.holder == plane.reconciler.holder)


def _forget(request: Request, response: Response) -> None:
    """Leaves nothing of a session in the browser."""
    is_https = request.url.scheme == "https"
    response.delete_cookie(cookie_of(request), path="/", secure=is_https, httponly=True, samesite="strict")
    response.headers["clear-site-data"] = '"cache"'


def _own(caller: Caller, user: str) -> None:
    if caller.admitted.user != user and caller.role != "admin":
        raise AccessError(403, "these are not yours", "ask an admin")
