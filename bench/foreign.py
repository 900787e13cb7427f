"""How fast the formats of others are written and read, beside UMS in the same run on one core.

    python -m bench.foreign [--rows N]

The table of `bench.ums`. UMS goes through the native codec; of the others columns and messages become text as a whole in Arrow, and
reading is json.loads and then the UMS codec. Five rounds in turns, medians of CPU seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

from bench.machine import write_results
from bench.ums import TABLE, measure, orders
from headrace.codec.foreign import WRITERS
from headrace.codec.foreign.batches import Numbered, batch_of
from headrace.codec.foreign.changes import of_batch
from headrace.codec.foreign.reading import READERS, ForeignMessage
from headrace.codec.ums import UmsReader, UmsWriter
from headrace.codec.ums_schema import Dialect
from headrace.ums.change import ChangeBatch


def written(form: str, batch: ChangeBatch) -> list[bytes]:
    return [text.encode() for _, text in WRITERS[form].messages(of_batch(batch))]


def read(form: str, messages: list[bytes]) -> int:
    reader = READERS[form.removesuffix("-schema")]
    rows = [row for message in messages for row in reader(ForeignMessage("t", None, message, 0))]
    return len(batch_of(TABLE, [Numbered(number, row.ts_us, row) for number, row in enumerate(rows)], UmsReader()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    batch = orders(parser.parse_args().rows)
    ums = [value for _, value in UmsWriter(Dialect.HEADRACE).rows(batch)]
    actions: dict[str, Callable[[], object]] = {
        "write ums": lambda: list(UmsWriter(Dialect.HEADRACE).rows(batch)),
        "read ums": lambda: UmsReader().read(ums),
    }
    sizes = {"ums": sum(map(len, ums))}
    for form in WRITERS:
        messages = written(form, batch)
        assert read(form, messages) == len(batch)
        sizes[form] = sum(map(len, messages))
        actions |= {f"write {form}": partial(written, form, batch), f"read {form}": partial(read, form, messages)}
    took = measure(actions)
    lines = [
        "| format | write, rows per CPU-s | of ums | read, rows per CPU-s | of ums | bytes a row |",
        "|---|---|---|---|---|---|",
    ]
    for form, size in sizes.items():
        write_s, read_s = took[f"write {form}"][0], took[f"read {form}"][0]
        lines.append(
            f"| {form} | {len(batch) / write_s:,.0f} | {took['write ums'][0] / write_s:.3f} |"
            f" {len(batch) / read_s:,.0f} | {took['read ums'][0] / read_s:.3f} | {size / len(batch):,.0f} |"
        )
    write_results("foreign", [f"{len(batch):,} rows:", "", *lines])


if __name__ == "__main__":
    main()
