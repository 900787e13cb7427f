"""Pages that are made of the code: the command line, flow files, the REST API, metrics, and what Python programs import."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from headrace import registry
from headrace.cli.main import cli
from headrace.control.api.app import application
from headrace.control.api.plane import Plane
from headrace.control.tables import ControlDatabase
from headrace.flow.spec import PipelineSpec

Json = dict[str, Any]
_TYPES = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "mapping",
    "null": "null",
}
MODULES = {
    "headrace.watermark.client": "what jobs of any kind report to and ask a Watermark Server by",
    "headrace.spark": "formats for Spark sessions of your own",
    "headrace.capture.hbase.client": "changes of HBase without Spark",
    "headrace.capture.base": "the contract of sources",
    "headrace.sinks.base": "the contract of sinks",
    "headrace.log.base": "the contract of logs",
    "headrace.compute.lookups.base": "the contract of lookups",
    "headrace.ums.change": "what travels",
    "headrace.ums.schema": "tables and their columns",
    "headrace.testing": "what a sink of your own is tested with",
    "headrace.errors": "errors, by who must act",
}


def write_reference(folder: Path) -> None:
    """Writes a page only when it has changed, so that a site is made again of what has."""
    folder.mkdir(exist_ok=True)
    pages = {
        "cli": _command_line(),
        "flow-files": _flow_files(),
        "rest-api": _rest(),
        "python": _python(),
    }
    for name, lines in pages.items():
        text = "\n".join(lines) + "\n"
        page = folder / f"{name}.md"
        if not page.exists() or page.read_text() != text:
            page.write_text(text)


def _command_line() -> Iterator[str]:
    yield "# Command line\n\nEach page of `--help`. Exit codes: 0 fine, 1 a difference or a failure, 2 wrong use or configuration."
    yield from _command(cli, "headrace", 1)


def _command(command: click.Command, name: str, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=name, terminal_width=110, max_content_width=110)
    if level > 1:
        yield f"\n{'#' * min(level, 4)} {name}\n"
        yield f"```text\n{command.get_help(context)}\n```"
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            found = command.get_command(context, verb)
            assert found is not None
            yield from _command(found, f"{name} {verb}", level + 1)


def _flow_files() -> Iterator[str]:
    yield "# Flow files\n"
    yield "Every field, from the models that read a flow file. `headrace list sinks --json` (sources, logs, lookups, masks) prints the same as JSON schema."
    yield from _schema("The file", PipelineSpec.model_json_schema(), 2)
    for kind in ("sources", "logs", "sinks", "lookups", "masks"):
        yield f"\n## {kind.capitalize()}"
        for name in registry.names(kind):
            loaded: Any = registry.load(kind, name)
            yield from _schema(f"{kind[:-1].capitalize()} {name}", loaded.Config.model_json_schema(), 3)


def _schema(title: str, schema: Json, level: int) -> Iterator[str]:
    """A table of a model's fields, then one of each model in it."""
    yield f"\n{'#' * level} {title}\n"
    yield _plain(schema.get("description", ""))
    yield from _fields(schema)
    for name, inner in schema.get("$defs", {}).items():
        if "properties" in inner and not (title == "The file" and name.endswith("Config")):
            yield f"\n**{name}**: {_plain(inner.get('description', ''))}"
            yield from _fields(inner)


def _fields(schema: Json) -> Iterator[str]:
    yield "\n| field | type | default | |\n|---|---|---|---|"
    for name, field in schema.get("properties", {}).items():
        default = "needed" if name in schema.get("required", ()) else f"`{json.dumps(field.get('default'))}`"
        yield f"| `{name}` | {_type(field)} | {default} | {_plain(field.get('description', ''))} |"


def _type(field: Json) -> str:
    """In few words: text, whole number, one of several, a list of something."""
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "$ref" in field:
        return field["$ref"].rsplit("/", 1)[1]
    if choices := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(dict.fromkeys(_type(choice) for choice in choices))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {}))}"
    return _TYPES.get(field.get("type", ""), "any value")


def _rest() -> Iterator[str]:
    with TemporaryDirectory() as folder, closing(ControlDatabase("sqlite://")) as database:
        plane = Plane.of(database, Path(folder), Path(folder), "")  # nobody asks it for anything
        described: Json = application(plane, 1).openapi()
    yield "# REST API\n\nOf `headrace serve`, from its own description (`GET /api/v1/openapi.json`, OpenAPI 3.1). Bodies and answers are JSON."
    by_tag: dict[str, list[str]] = {}
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            by_tag.setdefault(operation.get("tags", [""])[0], []).extend(_operation(method, path, operation))
    for tag, lines in by_tag.items():
        yield f"\n## {tag.capitalize()}"
        yield from lines
    yield "\n## Bodies and answers"
    for name, schema in sorted(described["components"]["schemas"].items()):
        yield f"\n### {name}\n\n{_plain(schema.get('description', ''))}"
        yield from _fields(schema)


def _operation(method: str, path: str, operation: Json) -> Iterator[str]:
    yield f"\n### {method.upper()} {path}\n\n{_plain(operation.get('description', operation.get('summary', '')))}\n"
    for parameter in operation.get("parameters", ()):
        needed = "" if parameter.get("required") else ", may be left out"
        yield f"- `{parameter['name']}` ({parameter['in']}{needed}): {_type(parameter['schema'])}"
    for content in operation.get("requestBody", {}).get("content", {}).values():
        yield f"- body: {_type(content['schema'])}"
    for status, answer in operation["responses"].items():
        if status.startswith("2"):
            kinds = [_type(content["schema"]) for content in answer.get("content", {}).values()]
            yield f"- {status}: {kinds[0] if kinds else 'no body'}"


def _python() -> Iterator[str]:
    yield "# Python\n\nWhat programs and plug-ins import, from the docstrings."
    for module, line in MODULES.items():
        yield f"\n## {module}\n\n{line.capitalize()}.\n\n```{{eval-rst}}\n.. automodule:: {module}\n```"


def _plain(text: str) -> str:
    """A docstring as a line of a Markdown table."""
    line = re.sub(r"\s+", " ", text.partition("\n\n")[0]).strip().replace("``", "`").replace("|", "\\|")
    return re.sub(r"(?<![`\w])<|>(?![`\w])", "", line) if "`" not in line else line
