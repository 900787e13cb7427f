"""``headrace lake current|zipper|register``: tables derived from a lake, by hand; flows derive them with `derive` in their target."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import click
from pydantic import ValidationError

from headrace.cli.lake_options import PLACE, duration
from headrace.errors import ConfigError, DataError
from headrace.lake.asof import files_named
from headrace.lake.commit import Manifest
from headrace.lake.derived.place import find
from headrace.lake.derived.spec import Delete, Derive, Format, Kind
from headrace.lake.derived.upkeep import Derived, derive
from headrace.on_change import OnChange, Policy

_NAME = re.compile(r"(\w+\.)?\w+")
_FORMAT = click.option(
    "--format",
    "form",
    type=click.Choice([each.value for each in Format]),
    default=Format.DELTA.value,
    show_default=True,
    help="How the tables lie on disk.",
)
_INTO = click.option(
    "--into",
    type=PLACE,
    required=True,
    help="Where the tables lie: a directory per table below it, outside the lake.",
)
_GRACE = click.option(
    "--grace",
    type=duration,
    default=86400.0,
    metavar="DURATION",
    help="How long old files stay for readers at work; 1d when left out.",
)
_ON_CHANGE = click.option(
    "--on-change",
    type=click.Choice([each.value for each in Policy if each is not Policy.FAIL]),
    help="What to do with columns that change at the source; as a flow does when left out.",
)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """What both kinds have in common."""
    for option in reversed(
        (
            click.argument("path", type=PLACE),
            click.argument("tables", nargs=-1, metavar="[TABLE]…"),
            _INTO,
            _FORMAT,
            _GRACE,
            _ON_CHANGE,
            click.option("--json", "as_json", is_flag=True, help="One JSON object."),
        )
    ):
        command = option(command)
    return command


@click.command("current")
@_options
@click.option(
    "--delete",
    type=click.Choice([each.value for each in Delete]),
    default=Delete.SOFT.value,
    show_default=True,
    help="soft keeps deleted rows with _is_active_ = 0, hard removes them.",
)
def current(*, path: str | Path, delete: str, **options: object) -> None:
    """Make or keep up current tables of the lake at PATH: the newest row per key.

    TABLE is type.source.schema.table; all tables when none is named.
    """
    _derive(path, Kind.CURRENT, {"delete": delete}, **options)  # type: ignore[arg-type]  # click gives what is declared


@click.command("zipper")
@_options
def zipper(*, path: str | Path, **options: object) -> None:
    """Make or keep up zipper tables of the lake at PATH: every state of every row, with the time in which it held.

    TABLE is type.source.schema.table; all tables when none is named.
    """
    _derive(path, Kind.ZIPPER, {}, **options)  # type: ignore[arg-type]  # click gives what is declared


def _derive(
    path: str | Path,
    kind: Kind,
    also: dict[str, str],
    *,
    tables: Sequence[str],
    into: str | Path,
    form: str,
    grace: float,
    on_change: str | None,
    as_json: bool,
) -> None:
    manifest = Manifest.open(path)
    for table in tables:
        if files_named(manifest, table)[0].table.all_versions != table:
            raise ConfigError(f"'{table}' is one version of a table", fix=f"name the table, {table.rsplit('.', 3)[0]}")
    try:
        wanted = Derive.model_validate({kind.value: form, "path": into, "grace": grace, **also})
    except ValidationError as error:
        raise ConfigError(
            str(error.errors()[0]["msg"]), fix="correct the options, or install what is missing"
        ) from error
    done = derive(manifest, wanted, OnChange.model_validate(on_change) if on_change else None, tables)
    click.echo(json.dumps(asdict(done), ensure_ascii=False) if as_json else _told(done))
    if done.problems:
        raise DataError(
            f"{len(done.problems)} tables were not derived: {'; '.join(done.problems)}",
            fix="do what is said of each, or leave them out by naming the others",
        )


def _told(done: Derived) -> str:
    return f"{done.tables:,} tables changed: {done.changes:,} changes taken in, {done.pieces:,} files written"


@click.command("register")
@click.argument("path", type=PLACE)
@click.argument("namespace")
@click.option("--name", required=True, metavar="DB.TABLE", help="The table's name in the catalog.")
@click.option(
    "--metastore",
    type=click.Path(path_type=Path, file_okay=False),
    help="A directory for a metastore of Spark's own (Derby); the one that Spark is configured for when left out.",
)
@click.option("--replace", is_flag=True, help="Forget a table of this name first; its files stay.")
@click.option("--ddl", is_flag=True, help="Print the statement that does it, and do nothing.")
def register(*, path: str | Path, namespace: str, name: str, metastore: Path | None, replace: bool, ddl: bool) -> None:
    """Register files as a table in Spark's catalog, which is Hive's: one version of a table of the lake at PATH, or a table derived into PATH.

    NAMESPACE is type.source.schema.table, with all seven parts for one of several versions.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(f"'{name}' is not a name for a table", fix="write db.table in letters, digits and _")
    place = find(path, namespace)
    if ddl:
        click.echo(f"{place.statement(name)};")
        return
    from headrace.stream.register import register as registered  # Spark starts only here  # noqa: PLC0415

    registered(place, name, metastore, replace=replace)
    click.echo(f"{name} is {place.url}, {place.format.value}")
