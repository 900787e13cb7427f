"""A Doris cluster over HTTP: loads, the states of labels, second phases.

A load goes to a frontend, which names a backend by a redirect; the request is made again there, with the same headers and our own login (a
redirect of Doris has one in its URL, which is neither used nor shown). A redirect is followed only to a place that is configured, or
that a frontend lists among its backends; never from TLS to without. Frontends are tried in turn, beginning with the one that answered last.

No request is repeated here when it may have been done: who calls asks for the label's state first (delivery.py).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlsplit

from headrace.errors import ConfigError
from headrace.sinks.doris.answers import LabelState, LoadAnswer, Second, load_answer, object_of, second_phase
from headrace.sinks.doris.config import ClusterConfig
from headrace.sinks.doris.http import Answer, Http, NoAnswerError, Place

T = TypeVar("T")
_LOCATION = re.compile(r"(https?://)(?:.*@)?([^@/]+)/api/")
_MOST_REDIRECTS = 3
_ERROR_LINES = 100


@dataclass(frozen=True, slots=True)
class Load:
    """Rows for one table, as they are sent: the same bytes and headers for a label, whenever."""

    database: str
    table: str
    label: str
    headers: Mapping[str, str]
    body: bytes
    two_phase: bool = False


class Cluster:
    """No connection is kept: each request has its own."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self._tls = config.tls is not None
        self._frontends = [Place.parse(text, tls=self._tls) for text in config.frontends]
        self._backends = {Place.parse(text, tls=self._tls) for text in config.backends}
        self._reached = {
            Place.parse(named, tls=self._tls): Place.parse(real, tls=self._tls)
            for named, real in config.addresses.items()
        }
        self._opened: Http | None = None
        login = f"{config.user}:{config.password}".encode()
        self._login = {"Authorization": f"Basic {base64.b64encode(login).decode()}"}

    # --- what is asked

    def load(self, load: Load) -> LoadAnswer:
        """Sends a load once. NoAnswerError: perhaps it was done."""
        headers = {**load.headers, "label": load.label}
        if load.two_phase:
            headers["two_phase_commit"] = "true"
        said = self._put(f"/api/{quote(load.database)}/{quote(load.table)}/_stream_load", headers, load.body)
        return load_answer(said, two_phase=load.two_phase)

    def state(self, database: str, label: str) -> LabelState:
        """What the frontends know of a label."""
        said = self._get(f"/api/{quote(database)}/get_load_state?label={quote(label)}")
        text = str(said.get("data", ""))
        if text in LabelState.__members__:
            return LabelState(text)
        raise NoAnswerError(
            f"asked for the label {label}, Doris says: {said.get('msg')}: {text}",
            fix=f"look whether the database '{database}' is there, and see the frontend's log",
            sent=True,
        )

    def commit(self, database: str, transaction: int) -> Second:
        """Commits what was pre-committed. By its id: by label, a commit that was done before looks like an abort."""
        headers = {"txn_operation": "commit", "txn_id": str(transaction)}
        return second_phase(self._put(f"/api/{quote(database)}/_stream_load_2pc", headers), "commit")

    def abort(self, database: str, label: str) -> Second:
        """Aborts what runs or was pre-committed under a label. FORGOTTEN: there was nothing to abort; ask for its state."""
        headers = {"txn_operation": "abort", "label": label}
        return second_phase(self._put(f"/api/{quote(database)}/_stream_load_2pc", headers), "abort")

    def check(self) -> None:
        """ConfigError when the user is not let in or no backend is alive, NoAnswerError when no frontend answers."""
        self._get("/api/bootstrap")
        if not self._alive():
            raise NoAnswerError("the Doris cluster has no backend that is alive", fix="start one", sent=False)

    def error_lines(self, url: str) -> list[str]:
        """Why rows were filtered, as the backend has it; a line that says why not, when it cannot be fetched."""
        parts = urlsplit(url)
        try:
            place = self._allowed(Place.parse(url))
            answer = self._http.request(place, "GET", f"{parts.path}?{parts.query}", self._login)
        except (NoAnswerError, ConfigError, ValueError) as error:
            return [f"(the list of rows at {parts.netloc} could not be fetched: {str(error).splitlines()[0]})"]
        text = answer.body.decode("utf-8", "replace")
        return text.splitlines()[:_ERROR_LINES] if answer.status == 200 else [f"({parts.netloc}: {answer.status})"]

    # --- requests

    @property
    def _http(self) -> Http:
        if self._opened is None:
            context = None if self._config.tls is None else self._config.tls.context()
            self._opened = Http(self._config.timeout, context)
        return self._opened

    def _put(self, path: str, headers: Mapping[str, str], body: bytes = b"") -> dict[str, Any]:
        all_headers = {**headers, **self._login}
        return self._of_any(lambda frontend: self._follow(frontend, path, all_headers, body))

    def _get(self, path: str) -> dict[str, Any]:
        return self._of_any(
            lambda place: object_of(self._http.request(place, "GET", path, self._login), f"the frontend {place}")
        )

    def _of_any(self, ask: Callable[[Place], T]) -> T:
        """From the first frontend that answers; one after which a load may have been done is not passed over."""
        last: NoAnswerError | None = None
        for frontend in list(self._frontends):
            try:
                said = ask(self._reached.get(frontend, frontend))
            except NoAnswerError as error:
                if isinstance(error, _BackendError):
                    raise
                last = error
                continue
            self._frontends.remove(frontend)
            self._frontends.insert(0, frontend)
            return said
        assert last is not None
        raise last

    def _follow(self, place: Place, path: str, headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
        """The answer at the end of redirects."""
        where = f"the frontend {place}"
        answer = self._http.request(place, "PUT", path, headers, body)
        for _ in range(_MOST_REDIRECTS):
            if answer.status not in (307, 308):
                break
            to = self._redirected(place, answer)
            where = f"the backend {to}"
            try:
                answer = self._http.request(to, "PUT", path, headers, body)
            except NoAnswerError as error:
                raise _BackendError(error.message, fix=error.fix, sent=error.sent) from error
            place = to
        try:
            return object_of(answer, where)
        except NoAnswerError as error:
            if where.startswith("the backend"):
                raise _BackendError(error.message, fix=error.fix, sent=True) from error
            raise

    def _redirected(self, place: Place, answer: Answer) -> Place:
        # A password in it may have any sign, quoted or not.
        named_by = _LOCATION.match(answer.headers.get("location", ""))
        try:
            named = Place.parse("".join(named_by.groups()) if named_by else "")
        except ValueError:
            raise NoAnswerError(
                f"the frontend {place} names no place to send a load to", fix="see the frontend's log", sent=False
            ) from None
        if place.tls and not named.tls:
            raise ConfigError(
                f"the frontend {place} sends loads on to {named} without encryption",
                fix="switch on TLS for the backends (enable_https), or name another address for it in `addresses`",
            )
        return self._allowed(named)

    def _allowed(self, named: Place) -> Place:
        """Where the place is reached; ConfigError when nobody has named it."""
        if named in self._reached:
            return self._reached[named]
        known: Iterator[Place] = iter((*self._frontends, *self._backends))
        if not any((one.host, one.port) == (named.host, named.port) for one in known):
            self._backends |= set(self._alive())
        if not any((one.host, one.port) == (named.host, named.port) for one in (*self._frontends, *self._backends)):
            raise ConfigError(
                f"a frontend sends loads on to {named}, which is none of the cluster's backends, with the password",
                fix="when it is one, name it in `backends`, or say where it is reached: `addresses: {HOST:PORT: HOST:PORT}`",
            )
        return named

    def _alive(self) -> list[Place]:
        listed = self._get("/api/backends?is_alive=true").get("data", {})
        backends: list[dict[str, Any]] = listed.get("backends", []) if isinstance(listed, dict) else []
        try:
            return [Place(str(one["ip"]), int(one["http_port"]), self._tls) for one in backends]
        except (KeyError, TypeError, ValueError) as error:
            raise NoAnswerError(
                f"a frontend lists backends without an `ip` and an `http_port`: {listed}",
                fix="see the frontend's log; or name them in `backends`",
                sent=False,
            ) from error


class _BackendError(NoAnswerError):
    """Of a backend: another frontend must not be asked to load the same before the label's state is known."""
