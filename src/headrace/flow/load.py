"""From a YAML file to a PipelineSpec, with every error at its file:line.

``${NAME}`` in a value is replaced from the environment; a name that is not set is an error, ``${NAME:-default}`` has a default.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from headrace.errors import ConfigError
from headrace.flow.spec import PipelineSpec
from headrace.model import BASE, Model

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_MOST_VALUES = 200_000
_DEEPEST = 100
Location = tuple[str | int, ...]
M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with one field of a file."""

    line: int
    field: str
    """Dotted, such as ``source[0].tables``; empty for the file as a whole."""
    message: str


class FieldsError(ConfigError):
    """A file that does not fit its model. `problems` are all there are, in the order of lines."""

    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, path: Path, problems: list[Problem]) -> FieldsError:
        first, *others = sorted(problems, key=lambda problem: (problem.line, problem.message))
        rest = "".join(f"\n  {path}:{other.line}: {other.message}" for other in others)
        error = cls(
            f"{first.message}{rest}",
            fix="correct these; `headrace list sinks --json` (sources, logs, lookups, masks) says which options there are",
            where=f"{path}:{first.line}",
        )
        error.problems = (first, *others)
        return error


@dataclass(frozen=True, slots=True)
class Written:
    """A value as it stands in a file, `${NAMES}` and all."""

    field: str
    line: int
    text: str


def load(path: Path, environment: Mapping[str, str] = os.environ) -> PipelineSpec:
    """Reads and validates a flow file; ConfigError with ``file:line`` when it is wrong."""
    return load_as(path, PipelineSpec, environment)


def load_as(path: Path, model: type[M], environment: Mapping[str, str] = os.environ) -> M:
    """The same for a file of another kind."""
    return parse_as(_read(path), path, model, environment)


def parse_as(text: str, path: Path, model: type[M], environment: Mapping[str, str]) -> M:
    """The same for the text of a file that is, or will be, at `path`."""
    root = _compose(text, path)
    reader = _Reader(path, environment)
    try:
        value = reader.value(root, ())
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error) from error
    try:
        return model.model_validate(value, context={BASE: path.resolve().parent})
    except ValidationError as error:
        raise reader.config_error(error) from error


def written_values(text: str, path: Path) -> Iterator[Written]:
    """Every value of a file's text that is no mapping and no list, without anything put in its place."""
    yield from _written(_compose(text, path), ())


def _written(node: yaml.Node, at: Location) -> Iterator[Written]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _written(value, (*at, str(key.value)))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _written(value, (*at, index))
    else:
        yield Written(_dotted(at), node.start_mark.line + 1, node.value)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", fix="check the path of the flow file") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text", fix="save the flow file as UTF-8") from error


def _compose(text: str, path: Path) -> yaml.Node:
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _not_yaml(path, error) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {error}", fix="correct the file") from error
    except RecursionError as error:
        raise _too_much(path) from error
    if not isinstance(root, yaml.MappingNode):
        raise ConfigError(
            "a flow file is a mapping", fix="start with `source:`, `log:`, `state:`, `flows:`", where=f"{path}:1"
        )
    if _size(root, {}, 0) > _MOST_VALUES:
        raise _too_much(path)
    return root


def _size(node: yaml.Node, known: dict[int, int], depth: int) -> int:
    """How many values there are in a node with all aliases put in; too many for what stands in itself, or too deep.

    Each node is reckoned once, however often it is named: a file of ten lines can name 10^9 values.
    """
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = _MOST_VALUES + 1  # until it is known: when it is met again before, it stands in itself
        below = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        if depth < _DEEPEST:
            known[id(node)] = 1 + sum(_size(each, known, depth + 1) for each in below)
    return known[id(node)]


def _too_much(path: Path) -> ConfigError:
    return ConfigError(
        f"{path} refers to itself, is nested too deeply, or has more than {_MOST_VALUES:,} values",
        fix="take out aliases (*name) that name what they stand in, or that multiply each other",
    )


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

    def config_error(self, error: ValidationError) -> FieldsError:
        """One error out of all that pydantic found: the first is the headline, the rest follow line by line."""
        return FieldsError.of(
            self._path, [self._problem(found["loc"], found["type"], found["msg"]) for found in error.errors()]
        )

    def _problem(self, location: Location, kind: str, message: str) -> Problem:
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
        return Problem(self._lines[at], name, text)


def _dotted(location: Location) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text
