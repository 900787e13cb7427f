"""Counts the row changes that headrace decodes into Arrow batches: ``python headrace_rows.py [--before-images] FILE…``.

Each file in a thread of its own, with a decoder of its own. Checksums are verified, as always.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa

from headrace.codec.binlog import BinlogReader, Rows, decode_file


def rows_of(path: Path, before_images: bool) -> int:
    reader = BinlogReader(["*.*"], before_images=before_images)
    rows = 0
    with path.open("rb") as file:
        for decoded in decode_file(reader, file, path.name):
            for item in decoded.items:
                if isinstance(item, Rows):
                    batch: pa.RecordBatch = item.data
                    rows += batch.num_rows
    return rows


def main() -> None:
    arguments = sys.argv[1:]
    before_images = "--before-images" in arguments
    paths = [Path(argument) for argument in arguments if argument != "--before-images"]
    print("begin", flush=True)
    with ThreadPoolExecutor(len(paths)) as threads:
        rows = sum(threads.map(lambda path: rows_of(path, before_images), paths))
    print(rows)


if __name__ == "__main__":
    main()
