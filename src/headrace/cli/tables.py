"""`headrace tables`: the versions of captured tables, by position."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from headrace.capture import versions
from headrace.errors import CorruptError
from headrace.flow.load import load
from headrace.stream.parts import state_of

Json = dict[str, Any]


@click.command("tables")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per version and line.")
def tables(file: Path, as_json: bool) -> None:
    """The tables that FILE's sources have captured: each version, from which position on, and with which columns."""
    pipeline = load(file)
    for source in pipeline.source:
        for version in _versions(state_of(source, pipeline) / "schemas.json"):
            click.echo(json.dumps(version, ensure_ascii=False) if as_json else _line(version))


def _versions(path: Path) -> Iterator[Json]:
    if not path.exists():
        return
    try:
        known = versions.decoded(json.loads(path.read_bytes()))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError(
            f"the schema history {path} is damaged: {error}", fix="restore it from its copy; `headrace run` says more"
        ) from error
    for table in known.values():
        for version in table.versions:
            yield {
                "table": version.schema.namespace.all_versions,
                "version": version.schema.namespace.version,
                "from": version.from_id,
                "key": list(version.schema.key),
                "columns": [
                    {"name": column.name, "type": str(column.type), "source_type": column.source_type}
                    for column in version.schema.columns
                ],
            }


def _line(version: Json) -> str:
    columns = ", ".join(f"{column['name']} {column['source_type']}" for column in version["columns"])
    return f"{version['table']}  version {version['version']}  from {version['from']}: {columns}"
