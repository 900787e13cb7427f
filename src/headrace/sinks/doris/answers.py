"""What the answers of Doris mean. Nearly all come with HTTP 200, in two dialects (`Status` and `Message` from backends, `status` and `msg`
from frontends and of two-phase commits), and their texts vary by release: they are searched, never compared as a whole.

========================================== ================================================================================================
`Success`                                  loaded; with two phases: pre-committed, nothing is visible
`Publish Timeout`                          committed, visible later: loaded
`Label Already Exists`                     a load of that label is FINISHED, PRECOMMITTED or RUNNING
`Fail`, `FAILED`                           rolled back, or never begun: by its message again, refused (rows), or wrong (settings, tables)
========================================== ================================================================================================
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Any

from headrace.errors import ConfigError
from headrace.sinks.doris.http import Answer, NoAnswerError

_TRANSACTION = re.compile(r"txn \[(\d+)\]|transaction \[(\d+)\]")
_AGAIN = re.compile(
    r"err=-235|too many versions|current running txns|larger than limit|MEM_LIMIT_EXCEEDED|memory|quorum|No backend|no alive backend"
    r"|FE Master|NOT_MASTER|not master|timeout|timed out|heartbeat|BE is down|connect|TOO_MANY_TASKS|sender is gone|body bytes",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"too many filtered rows|DATA_QUALITY", re.IGNORECASE)
_WRONG = re.compile(
    r"unknown (table|database|column)|access denied|denied|privilege|Authorization|ANALYSIS_ERROR|Invalid|not support|quota"
    r"|does not exist|need to specify|format|INVALID_ARGUMENT",
    re.IGNORECASE,
)


class Kind(Enum):
    """What has become of a load."""

    LOADED = auto()
    COMMITTED = auto()
    """Loaded, and visible later."""
    PRECOMMITTED = auto()
    FINISHED_BEFORE = auto()
    PRECOMMITTED_BEFORE = auto()
    RUNNING = auto()
    AGAIN = auto()
    UNKNOWN_FAILURE = auto()
    """The message says nothing that is known here: worth some more attempts."""
    REFUSED = auto()
    WRONG = auto()


_EXISTING = {
    "FINISHED": Kind.FINISHED_BEFORE,
    "COMMITTED": Kind.FINISHED_BEFORE,
    "VISIBLE": Kind.FINISHED_BEFORE,
    "PRECOMMITTED": Kind.PRECOMMITTED_BEFORE,
}


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    """The answer to a load. `error_url`: where the rows that were filtered are listed."""

    kind: Kind
    message: str
    transaction: int | None = None
    total: int = 0
    loaded: int = 0
    filtered: int = 0
    error_url: str | None = None


class LabelState(StrEnum):
    """What a frontend says of a label. UNKNOWN: never seen, or forgotten."""

    UNKNOWN = "UNKNOWN"
    PREPARE = "PREPARE"
    PRECOMMITTED = "PRECOMMITTED"
    COMMITTED = "COMMITTED"
    VISIBLE = "VISIBLE"
    ABORTED = "ABORTED"


class Second(Enum):
    """What has become of a transaction that was to be committed or aborted."""

    COMMITTED = auto()
    ABORTED = auto()
    RUNNING = auto()
    FORGOTTEN = auto()
    """Not known any more, or of no such state: it may have been either."""


def object_of(answer: Answer, where: str) -> dict[str, Any]:
    """The JSON object of an answer; NoAnswerError when it is none, ConfigError when the user is not let in."""
    try:
        said = json.loads(answer.body)
    except (ValueError, RecursionError):
        said = None
    if answer.status in (401, 403) or (isinstance(said, dict) and said.get("code") == 401):
        raise ConfigError(
            f"{where} does not let the user in", fix="correct `user` and `password`, and grant the user LOAD and SELECT"
        )
    if not isinstance(said, dict) or answer.status >= 300:
        text = answer.body[:200].decode("utf-8", "replace").strip()
        raise NoAnswerError(
            f"{where} answers {answer.status} with what is not Doris' JSON: {text}",
            fix="see the log of that server, and of proxies on the way",
            sent=True,
        )
    return said


def load_answer(said: dict[str, Any], *, two_phase: bool) -> LoadAnswer:
    """What became of a load; NoAnswerError when numbers in it are none."""
    status = str(said.get("Status", said.get("status", "")))
    message = str(said.get("Message", said.get("msg", "")))
    number = _number(said, "TxnId", -1)
    found = _TRANSACTION.search(message)
    transaction = number if number > 0 else int(found[1] or found[2]) if found else None
    total, loaded, filtered = (_number(said, f"Number{name}Rows", 0) for name in ("Total", "Loaded", "Filtered"))
    url = str(said["ErrorURL"]) if said.get("ErrorURL") else None
    return LoadAnswer(_kind(status, message, said, two_phase), message, transaction, total, loaded, filtered, url)


def _number(said: dict[str, Any], name: str, default: int) -> int:
    value = said.get(name, default)
    if not isinstance(value, int):
        raise NoAnswerError(
            f"the answer to a load has {value!r} as its {name}", fix="see the log of the backend", sent=True
        )
    return value


def _kind(status: str, message: str, said: dict[str, Any], two_phase: bool) -> Kind:
    if status == "Success":
        return Kind.PRECOMMITTED if two_phase else Kind.LOADED
    if status == "Publish Timeout":
        return Kind.COMMITTED
    if status == "Label Already Exists":
        return _EXISTING.get(str(said.get("ExistingJobStatus", "")), Kind.RUNNING)
    # What refuses rows first: its message may have more in it.
    for pattern, kind in ((_REFUSED, Kind.REFUSED), (_AGAIN, Kind.AGAIN), (_WRONG, Kind.WRONG)):
        if pattern.search(message):
            return kind
    return Kind.UNKNOWN_FAILURE


def second_phase(said: dict[str, Any], operation: str) -> Second:
    """What became of a transaction; NoAnswerError when the text says nothing that is known."""
    status, message = str(said.get("status", "")), str(said.get("msg", ""))
    if status == "Success":
        return Second.COMMITTED if operation == "commit" else Second.ABORTED
    text = message.lower()
    if "already visible" in text or "already committed" in text:
        return Second.COMMITTED
    if "already aborted" in text:
        return Second.ABORTED
    if "is prepare" in text:
        return Second.RUNNING
    if "not found" in text:
        return Second.FORGOTTEN
    raise NoAnswerError(
        f"Doris could not {operation} a transaction: {message}", fix="see the frontend's log for the reason", sent=True
    )
