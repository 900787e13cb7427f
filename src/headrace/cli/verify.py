"""``headrace verify``: whether the targets of a flow file hold what they should."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click
from rich.table import Column, Table
from rich.text import Text

from headrace.cli.lake_rows import console
from headrace.cli.lake_windows import iso
from headrace.errors import ConfigError
from headrace.flow.load import load
from headrace.flow.spec import PipelineSpec
from headrace.lake.commit import Manifest
from headrace.sinks.lake import LakeConfig
from headrace.storage.location import resolved
from headrace.verify.checks import Checked, Wish, verified
from headrace.verify.repair import KEYS, repairs
from headrace.verify.report import Report
from headrace.verify.windows import TableWindows, WindowResult, check_windows


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--windows", is_flag=True, help="Each certificate of the lakes' windows, against all files, read again.")
@click.option(
    "--batch", is_flag=True, help="Each computed table, beside what its SQL answers as a batch over the lake."
)
@click.option("--flow", help="Only the target of this flow.")
@click.option("--table", "tables", multiple=True, metavar="SCHEMA.TABLE", help="Only this one; may use * and ?.")
@click.option("--against", metavar="FLOW", help="Hold targets against that of another flow, not against the source.")
@click.option("--repair", is_flag=True, help="Load again what differs, then look once more.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=10, show_default=True, help="Keys to show per table.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per table (or window, or problem) and line.")
def verify(
    file: Path,
    *,
    windows: bool,
    batch: bool,
    flow: str | None,
    tables: tuple[str, ...],
    against: str | None,
    repair: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Check that the targets of FILE hold the rows that the sources have, while both keep changing. Exit code 1 when something is wrong.

    A run of FILE must be active, unless everything has been delivered. Nothing is changed, but by --repair.
    """
    if (windows or batch) and (flow or tables or against or repair):
        raise click.UsageError("--windows and --batch check all that FILE has as it is: they go with --json alone")
    pipeline = load(file)
    if windows or batch:
        fine = not windows or _windows(pipeline, file, as_json=as_json)
        fine &= not batch or _batch(pipeline, as_json=as_json)
    else:
        fine = _rows(
            pipeline, Wish(flow, tables, against, KEYS if repair else limit), limit, repair=repair, as_json=as_json
        )
    if not fine:
        raise click.exceptions.Exit(1)


def _rows(pipeline: PipelineSpec, wish: Wish, limit: int, *, repair: bool, as_json: bool) -> bool:
    """Whether each target has the rows that it should have, in the end."""
    wrong = _wrong(pipeline, wish, limit, as_json=as_json)
    if repair and wrong:
        _repair(pipeline, wrong)
        wrong = _wrong(pipeline, wish, limit, as_json=as_json)
    return not wrong


def _wrong(pipeline: PipelineSpec, wish: Wish, limit: int, *, as_json: bool) -> list[Checked]:
    """The tables that are wrong, of all that were told."""
    wrong = []
    for checked in verified(pipeline, wish, partial(click.echo, err=True)):
        _tell(checked, limit, as_json=as_json)
        wrong += [] if checked.ok else [checked]
    return wrong


def _repair(pipeline: PipelineSpec, wrong: Sequence[Checked]) -> None:
    from headrace.cli.progress import shown_progress  # noqa: PLC0415 - rich and Spark load only when they are needed
    from headrace.stream.load import load_again  # noqa: PLC0415

    with shown_progress(as_json=False) as progress:
        for table, where in repairs(pipeline, wrong):
            click.echo(f"{table}: loading {f'rows with {where}' if where else 'all of it'} again", err=True)
            load_again(pipeline, [table], where, progress=progress)


def _tell(checked: Checked, limit: int, *, as_json: bool) -> None:
    if as_json:
        told = checked.to_json()
        told["differences"] = told.get("differences", ())[:limit]
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    name = f"{checked.flow}: {checked.schema}.{checked.table}"
    if checked.verified is None:
        click.echo(f"{name}: not compared: {checked.problem}; what to do: {checked.fix}")
        return
    result = checked.verified.result
    rows = f"{result.expected_rows:,} rows, {checked.verified.changed:,} changed meanwhile, {checked.took_s:.1f} s"
    if checked.ok:
        click.echo(f"{name}: same ({rows})")
        return
    click.echo(f"{name}: WRONG: {result.differing_keys:,} keys differ; the target has {result.actual_rows:,} of {rows}")
    console().print(Report((replace(result, differences=result.differences[:limit]),)).rendered())
    if checked.verified.open_parts:
        click.echo(f"  and more: {checked.verified.open_parts:,} parts of the table that differ were not looked into")


def _batch(pipeline: PipelineSpec, *, as_json: bool) -> bool:
    """Whether each computed table is what its SQL answers."""
    from headrace.stream.batch import verify_batch  # noqa: PLC0415 - its engine is an extra

    fine = True
    for each in verify_batch(pipeline):
        found = each.result
        fine &= found.ok
        if as_json:
            counts = {"rows": found.rows, "missing": found.missing, "different": found.different, "extra": found.extra}
            line = {"ok": found.ok, "source": each.source, **counts, "examples": list(found.examples)}
            click.echo(json.dumps(line, ensure_ascii=False))
        elif found.ok:
            click.echo(f"{each.source}: the same {found.rows:,} rows")
        else:
            click.echo(
                f"{each.source}: WRONG: of {found.rows:,} rows {found.missing:,} are missing, {found.different:,} are others, and"
                f" {found.extra:,} more are there; for instance {'; '.join(found.examples)}"
            )
    return fine


def _windows(pipeline: PipelineSpec, file: Path, *, as_json: bool) -> bool:
    """Whether every certificate fits its files."""
    lakes = {resolved(flow.to.path): flow.to for flow in pipeline.flows if isinstance(flow.to, LakeConfig)}
    results = [(path, result) for path, lake in lakes.items() for result in check_windows(Manifest.open(lake.tree()))]
    if not results:
        raise ConfigError(
            f"no lake of {file} has windows yet",
            fix="write `windows: 1h` (or another length) in `to` of a lake's flow, and run it",
        )
    if as_json:
        for path, result in results:
            for line in _lines(path, result):
                click.echo(json.dumps(line, ensure_ascii=False))
    else:
        _show([result for _, result in results])
    return all(result.ok for _, result in results)


def _lines(path: str, result: TableWindows) -> Iterator[dict[str, Any]]:
    for problem in result.problems:
        yield {"ok": False, "lake": path, "table": result.table, "problem": problem}
    for window in result.windows:
        yield {
            "ok": not window.wrong,
            "lake": path,
            "table": result.table,
            "from": iso(window.start_us),
            "to": iso(window.end_us),
            "amendment": window.number,
            "certified": window.certified.to_json(),
            "there": window.there.to_json(),
            "taken": window.taken.to_json(),
            "late": window.late.to_json(),
            "problem": window.wrong,
        }


def _show(results: list[TableWindows]) -> None:
    counts = ("windows", "amended", "certified rows", "taken since", "late rows")
    shown = Table("table", *(Column(name, justify="right") for name in counts), "result")
    for result in results:
        sums = (
            len(result.windows),
            sum(bool(window.number) for window in result.windows),
            sum(window.certified.rows for window in result.windows),
            sum(window.taken.rows for window in result.windows),
            sum(window.late.rows for window in result.windows),
        )
        shown.add_row(
            Text(result.table), *(f"{number:,}" for number in sums), "[green]same" if result.ok else "[red]WRONG"
        )
    screen = console()
    screen.print(shown)
    for result in results:
        for problem in [*result.problems, *map(_told, filter(lambda window: window.wrong, result.windows))]:
            screen.print(Text(f"{result.table}: {problem}"), style="red")
    if not all(result.ok for result in results):
        screen.print(
            "what to do: bring what is named back from a copy of the lake; rows can also come from another lake that has them"
        )
        screen.print("  (headrace lake backfill --replace)")


def _told(window: WindowResult) -> str:
    return f"{iso(window.start_us)} to {iso(window.end_us)}: {window.wrong}"
