"""From a YAML file to a PipelineSpec, with every error at its file:line.

``${NAME}`` in a value is replaced from the environment; a name that is not set is an error, ``${NAME:-default}`` has a default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from headrace.errors import ConfigError
from headrace.flow.spec import PipelineSpec
from headrace.model import BASE

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
Location = tuple[str | int, ...]
T = TypeVar("T")


def load(path: Path, environment: Mapping[str, str] = os.environ) -> PipelineSpec:
    """Reads and validates a flow file; ConfigError with ``file:line`` when it is wrong."""
    root = _compose(path)
    reader = _Reader(path, environment)
    try:
        value = reader.value(root, ())
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error) from error
    except RecursionError as error:
        raise ConfigError(f"{path} refers to itself", fix="take the alias out that names what it stands in") from error
    try:
        return PipelineSpec.model_validate(value, context={BASE: path.resolve().parent})
    except ValidationError as error:
        raise reader.config_error(error) from error


def _compose(path: Path) -> yaml.Node:
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", fix="check the path of the flow file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text", fix="save the flow file as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}", fix="correct the file") from error
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            "a flow file is a mapping", fix="start with `source:`, `log:`, `state:`, `flows:`", where=f"{path}:1"
        )
    return root


def _not_yaml(path: Path, error: yaml.MarkedYAMLError) -> ConfigError:
    line = error.problem_mark.line + 1 if error.problem_mark else 1
    problem = " ".join(filter(None, (error.context, error.problem)))
    return ConfigError(
        f"not valid YAML: {problem}",
        fix="correct the line (text with braces, brackets, colons or a ${VARIABLE} inside braces needs quotes)",
        where=f"{path}:{line}",
    )


class _Reader:
    """Builds plain values from YAML nodes and remembers the line of every one."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        self._path = path
        self._environment = environment
        self._lines: dict[Location, int] = {}
        self._scalars = yaml.SafeLoader("")

    def value(self, node: yaml.Node, at: Location) -> object:
        self._lines[at] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, at)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*at, index)) for index, item in enumerate(node.value)]
        scalar: object = self._scalars.construct_object(node)
        return self._substituted(scalar, node) if isinstance(scalar, str) else scalar

    def _mapping(self, node: yaml.MappingNode, at: Location) -> dict[str, object]:
        found: dict[str, object] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key in found:
                raise self._error(f"'{key}' stands here twice", "keep one of them", key_node)
            found[key] = self.value(value_node, (*at, key))
            self._lines[(*at, key)] = key_node.start_mark.line + 1
        return found

    def _substituted(self, text: str, node: yaml.Node) -> str:
        def replacement(found: re.Match[str]) -> str:
            name, default = found[1], found[2]
            value = self._environment.get(name, default)
            if value is None:
                raise self._error(
                    f"the environment variable {name} is not set",
                    f"export {name}=… before starting, or write ${{{name}:-default}}",
                    node,
                )
            return value

        return _VARIABLE.sub(replacement, text)

    def _error(self, message: str, fix: str, node: yaml.Node) -> ConfigError:
        return ConfigError(message, fix=fix, where=f"{self._path}:{node.start_mark.line + 1}")

    def config_error(self, error: ValidationError) -> ConfigError:
        """One error out of all that pydantic found: the first is the headline, the rest follow line by line."""
        messages = [self._message(found["loc"], found["type"], found["msg"]) for found in error.errors()]
        messages.sort()
        line, first = messages[0]
        rest = "".join(f"\n  {self._path}:{number}: {text}" for number, text in messages[1:])
        return ConfigError(
            f"{first}{rest}",
            fix="correct these; `headrace list sinks --json` (sources, logs) says which options there are",
            where=f"{self._path}:{line}",
        )

    def _message(self, location: Location, kind: str, message: str) -> tuple[int, str]:
        # Pydantic's locations also name models, validators and the index of a single source; only what stands in the file counts.
        at: Location = ()
        for part in location:
            if (*at, part) in self._lines:
                at = (*at, part)
        name = _dotted((*at, location[-1]) if kind == "missing" else at)
        known = {
            "missing": f"`{name}` is missing",
            "extra_forbidden": f"`{name}` is not a known key",
        }
        text = known.get(
            kind,
            f"`{name}`: {message.removeprefix('Value error, ')}" if name else message.removeprefix("Value error, "),
        )
        return self._lines[at], text


def _dotted(location: Location) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
