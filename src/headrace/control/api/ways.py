"""The way of a pipeline's changes as its flow file says it: sources, the log, and flows with their targets, for pictures.

It is read from the text as it was written, so that what ${NAMES} stand for cannot be in it, and a file that is wrong by now has a picture too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from headrace.control.api.answers import Answer
from headrace.flow.load import written_values

_FIELD = re.compile(r"(?P<part>source|log|flows)(?:\[(?P<index>\d+)\])?\.(?P<option>to\.\w+|\w+).*", re.DOTALL)
_PLACES = ("url", "host", "hosts", "brokers", "files", "path", "function", "topic", "topics")
"""Options that say where a source, a log or a target is, in the order in which they are asked."""
_CREDENTIALS = re.compile(r"(?<=//)[^@/]*@|[?;].*$", re.DOTALL)
_Options = Mapping[str, str]


class Way(Answer):
    """A source, the log, or a flow with its target."""

    name: str
    """Of a source or a flow; empty for the log."""
    type: str
    """Of source, log or target."""
    place: str
    """A host, a path or an address without credentials; empty when the flow file has none."""
    takes: str = ""
    """Which namespaces a flow takes."""
    computed: bool = False
    """Whether the flow computes what its target gets."""


class WaysAnswer(Answer):
    sources: list[Way]
    log: Way | None
    flows: list[Way]


def ways_of(text: str, path: Path) -> WaysAnswer:
    """What a flow file's text says; ConfigError when it is no YAML."""
    parts: dict[str, dict[int, dict[str, str]]] = {"source": {}, "log": {}, "flows": {}}
    for written in written_values(text, path):
        if found := _FIELD.fullmatch(written.field):
            options = parts[found["part"]].setdefault(int(found["index"] or 0), {})
            before = options.get(found["option"])
            options[found["option"]] = written.text if before is None else f"{before}, {written.text}"
    return WaysAnswer(
        sources=[_way(options) for options in parts["source"].values()],
        log=next((_way(options) for options in parts["log"].values()), None),
        flows=[_flow(options) for options in parts["flows"].values()],
    )


def _way(options: _Options) -> Way:
    place = next((options[option] for option in _PLACES if option in options), "")
    return Way(name=options.get("name", ""), type=options.get("type", ""), place=_CREDENTIALS.sub("", place))


def _flow(options: _Options) -> Way:
    target = _way({name.removeprefix("to."): text for name, text in options.items() if name.startswith("to.")})
    said = {"name": options.get("name", ""), "takes": options.get("from", "")}
    return target.model_copy(update={**said, "computed": bool(options.keys() & {"sql", "steps"})})
