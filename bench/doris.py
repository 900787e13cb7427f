"""What a loader of Kafka messages into Doris costs: messages of 20 members become the bodies of loads with 8 columns, and are sent.

    python -m bench.doris [--rows N]

**Bodies.** Peers, in the same run, on the same messages: the first version of the article "Kafka To Doris" re-enacted in Python (the whole JSON
into a map, then a line of CSV), and the same with orjson. Batches of 50,000 messages, three rounds in turns, medians; seconds of CPU on one core.

**Whole loads.** The loader itself, from a real Kafka, with its store in SQLite, against the stand-in of the tests in another process, which counts
the rows of a body and does nothing else with them. The CPU time of its threads (not those of librdkafka) is that of taking messages, of
making bodies, of sending them, and the rest: ranges, labels, the store, offsets.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import orjson
from confluent_kafka import Producer
from tests.servers.doris import Doris
from tests.servers.kafka import Kafka

from bench.machine import write_results
from headrace.doris.config import LoaderConfig
from headrace.doris.loader import Loader
from headrace.doris.messages import Bodies
from headrace.doris.store import LoadStore
from headrace.doris.target import Target
from headrace.doris.topic import TopicSource
from headrace.log.kafka.tail import Taken
from headrace.sinks.doris.cluster import Cluster
from headrace.sinks.doris.sequence import KeySequence

ROUNDS = 3
BATCH_ROWS = 50_000
COLUMNS = ("id", "user", "at", "amount", "city", "note", "count", "flag")
TABLE = f"CREATE TABLE t ({', '.join(f'`{name}` STRING NULL' for name in COLUMNS).replace('STRING', 'BIGINT', 1)}) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1"


def messages(rows: int) -> list[Taken]:
    random = Random(1)
    made = []
    for number in range(rows):
        row = {
            "id": number, "user": f"user {random.randrange(10**6)}", "at": "2026-03-02 12:00:00", "amount": number / 4,
            "city": random.choice(["Zürich", "Lagos", "Quito"]), "note": "a note of some words, as people write them",
            "count": random.randrange(1000), "flag": True,
            **{f"other_{n}": random.choice([number, "some text that no column is for", None, [1, 2, 3]]) for n in range(12)},
        }  # fmt: skip
        made.append(Taken("t/0", number, None, json.dumps(row).encode(), 0))
    return made


def native(body: str) -> Callable[[Sequence[Taken]], bytes]:
    target = Target(
        "db.t", COLUMNS, ("string",) * len(COLUMNS), KeySequence(is_unique=False, column=None, type=None), None
    )
    bodies = Bodies(config(["fe:1"], "fe:2", "sqlite://", body), target)
    return lambda batch: bodies.of(batch, "label").data


def by_map(loads: Callable[[bytes], dict[str, object]]) -> Callable[[Sequence[Taken]], bytes]:
    def body(batch: Sequence[Taken]) -> bytes:
        lines = []
        for message in batch:
            row = loads(message.value or b"{}")
            lines.append("\t".join("\\N" if row.get(name) is None else str(row[name]) for name in COLUMNS))
        return "\n".join(lines).encode()

    return body


def bodies(made: Sequence[Taken]) -> list[str]:
    batches = [made[start : start + BATCH_ROWS] for start in range(0, len(made), BATCH_ROWS)]
    ways = {
        "headrace, JSON lines": native("json"),
        "headrace, CSV": native("csv"),
        "whole JSON to a map, then CSV": by_map(json.loads),
        "orjson to a map, then CSV": by_map(orjson.loads),
    }
    assert (
        ways["headrace, CSV"](made[:1]) == ways["orjson to a map, then CSV"](made[:1]).replace(b"True", b"true") + b"\n"
    )
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            begun = time.process_time()
            for batch in batches:
                way(batch)
            seconds[name].append(time.process_time() - begun)
    medians = {name: statistics.median(found) for name, found in seconds.items()}
    json_lines, csv = (medians[f"headrace, {name}"] for name in ("JSON lines", "CSV"))
    lines = ["| way | s | rows/s | JSON lines are faster by | CSV is faster by |", "|---|---|---|---|---|"]
    for name, found in medians.items():
        lines.append(
            f"| {name} | {found:.2f} | {len(made) / found:,.0f} | {found / json_lines:.1f} | {found / csv:.1f} |"
        )
    return lines


# --- whole loads


def config(frontends: list[str], query: str, store: str, body: str, brokers: str = "nobody:1") -> LoaderConfig:
    return LoaderConfig.model_validate(
        {
            "name": "bench", "kafka": {"brokers": brokers, "topics": ["t"]}, "database": "db", "table": "t", "store": store,
            "doris": {"frontends": frontends, "query": query}, "body": {"format": body}, "batch_rows": BATCH_ROWS,
        }
    )  # fmt: skip


def stand_in(ours: Connection) -> None:
    with Doris(counts_only=True) as doris:
        doris.sql(TABLE)
        ours.send((doris.frontend_places, f"127.0.0.1:{doris.sql_port}"))
        ours.recv()
        ours.send(doris.rows_counted)


class Clock:
    """CPU seconds of the calls that it wraps, of the threads that make them."""

    def __init__(self, stack: ExitStack, owner: type, name: str) -> None:
        self.seconds = 0.0
        action = getattr(owner, name)

        def timed(*args: Any) -> Any:
            begun = time.thread_time()
            try:
                return action(*args)
            finally:
                self.seconds += time.thread_time() - begun

        setattr(owner, name, timed)
        stack.callback(setattr, owner, name, action)


def produce(broker: Kafka, made: Sequence[Taken]) -> None:
    broker.create_topic("t")
    producer = Producer(broker.client() | {"linger.ms": "20", "queue.buffering.max.messages": "1000000"})
    for message in made:
        producer.produce("t", message.value, partition=0)
    assert producer.flush(300) == 0


def whole(broker: Kafka, rows: int, body: str) -> str:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=stand_in, args=(theirs,))
    server.start()
    frontends, query = ours.recv()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        reading, making = Clock(stack, TopicSource, "take"), Clock(stack, Bodies, "of")
        sending, delivering = Clock(stack, Cluster, "load"), Clock(stack, Loader, "_deliver")
        said = config(frontends, query, f"sqlite:///{Path(folder) / 'loads.db'}", body, broker.brokers)
        store, source = (
            stack.enter_context(closing(LoadStore(said.store))),
            stack.enter_context(closing(TopicSource(said))),
        )
        store.open()
        begun = time.thread_time()
        Loader(said, store, source).run(
            lambda: (last := store.last("bench")) is not None and last.range.end == {"t/0": rows}
        )
        total = time.thread_time() - begun + delivering.seconds
    ours.send("the end")
    assert ours.recv() == rows
    server.join()
    parts = [reading.seconds, making.seconds, sending.seconds]
    rest = total - sum(parts)
    return f"| {body} | {' | '.join(f'{part:.2f}' for part in [total, *parts, rest])} | {rest / total:.0%} |"


def _wait_for(store: LoadStore, rows: int, done: threading.Event) -> None:
    while store.loader("bench").rows_loaded < rows:
        time.sleep(0.1)
    done.set()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=500_000)
    made = messages(parser.parse_args().rows)
    loads = [
        "| body | CPU s in all | reading | bodies | sending | the rest | its part |",
        "|---|---|---|---|---|---|---|",
    ]
    with Kafka() as broker:
        produce(broker, made)
        loads += [whole(broker, len(made), body) for body in ("json", "csv")]
    head = f"{len(made):,} messages of 20 members, 8 columns; "
    write_results("doris", [f"{head}bodies:", "", *bodies(made), "", f"Loads of {BATCH_ROWS:,} rows:", "", *loads])


if __name__ == "__main__":
    main()
