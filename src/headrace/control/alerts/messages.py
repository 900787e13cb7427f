"""What a message says: of one alert as it is, of many as a list. The same words go into mails and, as placeholders, into webhooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic import JsonValue

from headrace.control.alerts.noted import Message, Notice
from headrace.control.alerts.rules import PLACEHOLDERS

_WORDS = {"firing": "firing", "again": "still firing", "over": "over", "test": "test"}
_ORDER = ("critical", "warning", "info")


@dataclass(frozen=True, slots=True)
class Words:
    """Of a message."""

    title: str
    text: str
    fields: Mapping[str, JsonValue]
    """By the names of `rules.PLACEHOLDERS`."""


def words_of(message: Message) -> Words:
    """What is said of all its alerts."""
    title = _title(message.notices)
    text = "\n\n".join(_paragraph(notice) for notice in message.notices)
    alerts: list[JsonValue] = [_as_json(notice) for notice in message.notices]
    states = {_WORDS[notice.kind] for notice in message.notices}
    values = (title, text, _worst(message.notices), ", ".join(sorted(states)), len(message.notices), message.id, alerts)
    return Words(title, text, dict(zip(PLACEHOLDERS, values, strict=True)))


def filled(value: JsonValue, fields: Mapping[str, JsonValue]) -> JsonValue:
    """A body with its placeholders filled in: inside of its texts, so that it stays what it is whatever an alert says. A text that is one placeholder and
    no more becomes the value itself.
    """
    whole = {f"{{{name}}}": field for name, field in fields.items()}
    return changed_texts(value, lambda text: whole[text] if text in whole else _in_text(text, fields))


def changed_texts(value: JsonValue, change: Callable[[str], JsonValue]) -> JsonValue:
    """The same value with other texts in it."""
    if isinstance(value, dict):
        return {name: changed_texts(each, change) for name, each in value.items()}
    if isinstance(value, list):
        return [changed_texts(each, change) for each in value]
    return change(value) if isinstance(value, str) else value


def _in_text(text: str, fields: Mapping[str, JsonValue]) -> str:
    """In one walk: what is filled in may look like a placeholder, and is none."""
    parts = []
    while text:
        before, brace, rest = text.partition("{")
        parts.append(before)
        name = next((name for name in fields if rest.startswith(f"{name}}}")), None) if brace else None
        if name is not None:
            parts.append(str(fields[name]))
            rest = rest[len(name) + 1 :]
        elif brace:
            parts.append(brace)
        text = rest
    return "".join(parts)


def _title(notices: Sequence[Notice]) -> str:
    if len(notices) > 1:
        counts = Counter(_WORDS[notice.kind] for notice in notices)
        return f"[{_worst(notices)}] {', '.join(f'{count} {word}' for word, count in counts.items())}"
    [notice] = notices
    if notice.alert is None:
        return "[test] headrace"
    return f"[{notice.content['severity']}] {_WORDS[notice.kind]}: {_name(notice.content)}"


def _name(content: Mapping[str, Any]) -> str:
    where = content["pipeline"] or "this server"
    return f"{content['rule']}, {where}" + (f", {content['subject']}" if content["subject"] else "")


def _paragraph(notice: Notice) -> str:
    content = notice.content
    if notice.alert is None:
        return str(content["text"])
    lines = [
        f"{_WORDS[notice.kind]} [{content['severity']}]: {_name(content)}",
        content["text"],
        f"since {_time(content['began_us'])}"
        + (f", over since {_time(content['over_us'])}" if content["over_us"] else ""),
    ]
    return "\n".join([*lines, *([f"What to do: {content['note']}"] if content["note"] else [])])


def _as_json(notice: Notice) -> JsonValue:
    content = notice.content
    if notice.alert is None:
        return {"id": None, "state": "test", "text": content["text"]}
    told = {name: content[name] for name in ("rule", "pipeline", "subject", "severity", "text", "note")}
    times = {"began": _time(content["began_us"]), "over": content["over_us"] and _time(content["over_us"])}
    return {"id": notice.alert, "state": _WORDS[notice.kind], **told, **times}


def _worst(notices: Sequence[Notice]) -> str:
    found = {notice.content.get("severity", "info") for notice in notices}
    return next(severity for severity in _ORDER if severity in found)


def _time(us: int) -> str:
    return f"{datetime.fromtimestamp(us / 1e6, UTC):%Y-%m-%dT%H:%M:%SZ}"
