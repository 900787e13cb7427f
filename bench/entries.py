"""What the form of a log's entries costs: writing changes into entries and reading them back, in one run on one core.

    python -m bench.entries [--rows N]

The same rows for all: the table of `bench.ums`, in batches as capture hands them out under load (4,000 rows) and as single
transactions (1 row each). Blocks are the limit, as headrace alone needs them. Five rounds in turns, medians of CPU seconds. Reading is one
entry at a time, as a follower does it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from bench.machine import write_results
from bench.ums import measure, orders
from headrace.codec.entries import EntryReader, EntryWriter
from headrace.log.base import Entry, EntryForm, Form
from headrace.ums.change import ChangeBatch

FORMS = {
    "block": EntryForm(Form.BLOCK),
    "ums": EntryForm(Form.UMS),
    "ums-dbus, 5 rows a message": EntryForm(Form.UMS_DBUS),
    "ums-dbus, 500 rows a message": EntryForm(Form.UMS_DBUS, rows=500, size_bytes=512 << 10),
}


def parts(batch: ChangeBatch, rows: int) -> list[ChangeBatch]:
    return [ChangeBatch(batch.table, batch.data.slice(start, rows)) for start in range(0, len(batch), rows)]


def written(form: EntryForm, batches: list[ChangeBatch]) -> list[Entry]:
    writer = EntryWriter(form, "mysql")
    return [entry for batch in batches for entry in writer.changes(batch, 0)]


def read(entries: list[Entry]) -> int:
    reader = EntryReader()
    return sum(len(found) for entry in entries if isinstance(found := reader.read(entry), ChangeBatch))


def table(batch: ChangeBatch, rows: int) -> list[str]:
    batches = parts(batch, rows)
    entries = {name: written(form, batches) for name, form in FORMS.items()}
    actions: dict[str, Callable[[], object]] = {}
    for name, form in FORMS.items():
        assert read(entries[name]) == len(batch)
        actions[f"write {name}"] = partial(written, form, batches)
        actions[f"read {name}"] = partial(read, entries[name])
    took = measure(actions)
    lines = [
        f"{len(batch):,} rows in batches of {rows:,}:",
        "",
        "| form | write, rows per CPU-s | of block | read, rows per CPU-s | of block | bytes a row |",
        "|---|---|---|---|---|---|",
    ]
    for name in FORMS:
        write_s, read_s = took[f"write {name}"][0], took[f"read {name}"][0]
        lines.append(
            f"| {name} | {len(batch) / write_s:,.0f} | {took['write block'][0] / write_s:.2f} |"
            f" {len(batch) / read_s:,.0f} | {took['read block'][0] / read_s:.2f} |"
            f" {sum(len(entry.value) for entry in entries[name]) / len(batch):,.0f} |"
        )
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    rows: int = parser.parse_args().rows
    batch = orders(rows)
    write_results(
        "entries", [*table(batch, 4000), *table(ChangeBatch(batch.table, batch.data.slice(0, rows // 20)), 1)]
    )


if __name__ == "__main__":
    main()
