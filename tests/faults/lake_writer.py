"""A writer of the lake as a process of its own, to be killed: ``python -m tests.faults.lake_writer PATH FLOW TRANSACTIONS``.

Transaction number n puts one row with id n into each of two tables, a second behind the one before. It prints a line when it has opened the lake, waits for one on
its input, and prints the offset after each commit. Exit 3 when it is fenced.
"""

from __future__ import annotations

import sys

import pyarrow as pa

from headrace.errors import FencedError
from tests.lake_tables import changes, open_sink, table
from tests.lake_windows import passed

TABLES = ("debits", "credits")
PER_COMMIT = 3


def main(path: str, flow: str, transactions: int) -> int:
    schemas = [table(("id", pa.int64()), name=name) for name in TABLES]
    sink = open_sink(path, flow)
    position = sink.position("db1", 0)
    done = position.offset if position else 0
    print("open", flush=True)
    sys.stdin.readline()
    try:
        while done < transactions:
            until = min(done + PER_COMMIT, transactions)
            for number in range(done + 1, until + 1):
                for schema in schemas:
                    sink.write(changes(schema, (number, "i", number)))
            sink.commit(passed(until, until))
            done = until
            print(done, flush=True)
    except FencedError:
        return 3
    sink.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
