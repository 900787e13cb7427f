"""`headrace list`: what can be named in a flow file."""

from __future__ import annotations

import json

import click

from headrace import registry
from headrace.compute.functions import functions
from headrace.errors import ConfigError


@click.command("list")
@click.argument("kind", type=click.Choice(["sinks", "sources", "logs", "lookups", "masks", "functions"]))
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line, with all options.")
def list_(kind: str, as_json: bool) -> None:
    """List the sinks, sources, logs, lookups, masks or functions of one's own that a flow file can name."""
    if kind == "functions":
        _functions(as_json=as_json)
        return
    for name in registry.names(kind):
        try:
            loaded = registry.load(kind, name)
        except ConfigError as error:
            if not as_json:
                click.echo(f"{name:12} {error.message}: {error.fix}")
            continue
        if as_json:
            click.echo(json.dumps({"name": name, "options": loaded.Config.model_json_schema()}))  # type: ignore[attr-defined]
        else:
            click.echo(f"{name:12} {(loaded.Config.__doc__ or '').strip().splitlines()[0]}")  # type: ignore[attr-defined]


def _functions(*, as_json: bool) -> None:
    for name, function in sorted(functions().items()):
        if as_json:
            click.echo(json.dumps({"name": name, "parameters": function.parameters, "returns": function.returns}))
        else:
            click.echo(f"{name}({', '.join(function.parameters)}) -> {function.returns}")
