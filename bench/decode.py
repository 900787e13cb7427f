"""Binlog decoders side by side on one log: ``PYTHONPATH=src python -m bench.decode [--rounds N] [--scale S] [NAME…]``.

The log is recorded by a real MySQL server from a fixed workload (bench/decode_log), more than 500 MB at scale 1; mysql-replication,
which is slow, gets the same workload at a tenth of the scale. Limit: reading the file. Each decoder is a process of its own, those that
read the file take turns, and the run with the least processor time counts. NAMEs choose decoders (parts of their names);
bench/results/decode.md is written when all ran at scale 1. Needs what bench/decode_peers/peers.py builds from (Go, Maven, a JDK),
sysbench, and the MySQL server of tests/servers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import methodcaller
from typing import TypeVar

from tests.servers.install import MissingPackageError

from bench.decode_log.record import RecordedLog, recorded_log
from bench.decode_peers.measure import PeerError, Run
from bench.decode_peers.peers import (
    Debezium,
    FilePeer,
    GoMySql,
    Headrace,
    JavaConnector,
    MySqlBinlog,
    MySqlReplication,
    Peer,
    RawRead,
    ServerPeer,
)
from bench.decode_peers.serving import serving
from bench.machine import write_results

HEADRACE, BOTH_IMAGES, TWO_THREADS = Headrace(), Headrace(before_images=True), Headrace(files=2)
ON_FILE: list[FilePeer] = [RawRead(), HEADRACE, BOTH_IMAGES, TWO_THREADS, MySqlBinlog(), GoMySql(), JavaConnector()]
ON_SERVER: list[ServerPeer] = [Debezium(), MySqlReplication()]

P = TypeVar("P", bound=Peer)


@dataclass(frozen=True)
class Result:
    peer: Peer
    log: RecordedLog
    run: Run

    @property
    def rows_per_cpu_s(self) -> float:
        """By the rows in the log, also those that were missed."""
        return self.log.rows * self.peer.files / self.run.cpu_s


@contextmanager
def telling(peer: Peer, failed: set[Peer]) -> Iterator[None]:
    """A peer that cannot be run is told in one line and remembered; the others go on."""
    try:
        yield
    except (PeerError, MissingPackageError) as error:
        failed.add(peer)
        print(f"{peer.label} cannot be run: {error}", file=sys.stderr, flush=True)


def in_turns(peers: Sequence[P], run: Callable[[P], Run], rounds: int, failed: set[Peer]) -> dict[Peer, Run]:
    """For each peer the run with the least processor time: what else goes on in the machine only adds to it."""
    runs: dict[Peer, list[Run]] = {}
    for _ in range(rounds):
        for peer in peers:
            if peer not in failed:
                with telling(peer, failed):
                    runs.setdefault(peer, []).append(run(peer))
    return {peer: min(all_runs, key=lambda one: one.cpu_s) for peer, all_runs in runs.items() if peer not in failed}


def measure_all(peers: Sequence[Peer], scale: float, rounds: int) -> tuple[dict[Peer, Result], set[Peer]]:
    """The results of those that ran, and those that cannot be run."""
    failed: set[Peer] = set()
    for peer in peers:
        with telling(peer, failed):
            peer.prepare()
    logs = {peer: recorded_log(scale * peer.part) for peer in peers}
    on_file = [peer for peer in peers if isinstance(peer, FilePeer)]
    for path in {logs[peer].path for peer in on_file}:
        RawRead().run(path)  # all find the log in the page cache
    runs = in_turns(on_file, lambda peer: peer.run(logs[peer].path), rounds, failed)
    for peer in peers:
        if isinstance(peer, ServerPeer) and peer not in failed:
            with serving(logs[peer]) as server:
                runs |= in_turns([peer], methodcaller("run", server), rounds, failed)
    return {peer: Result(peer, logs[peer], run) for peer, run in runs.items()}, failed


def line(result: Result, results: dict[Peer, Result]) -> str:
    peer, run = result.peer, result.run
    megabytes = result.log.size_bytes * peer.files / 1e6
    rows = result.log.rows * peer.files
    seen = "-" if run.rows is None else "all" if run.rows == rows else f"{run.rows:,}, {rows - run.rows:,} missed"
    cells = [
        f"{peer.label} {peer.version()}".strip(),
        f"{result.log.size_bytes / 1e6:.0f}",
        seen,
        f"{result.rows_per_cpu_s:,.0f}",
        f"{megabytes / run.cpu_s:,.0f}",
        f"{rows / run.seconds:,.0f}",
        f"{megabytes / run.seconds:,.0f}",
        f"{run.peak_bytes / 1e6:,.0f}",
        f"{run.startup_cpu_s:.1f}",
        *(
            f"{results[ours].rows_per_cpu_s / result.rows_per_cpu_s:.2f}" if ours in results else "-"
            for ours in (HEADRACE, BOTH_IMAGES)
        ),
    ]
    return f"| {' | '.join(cells)} |"


def report(results: dict[Peer, Result], rounds: int) -> list[str]:
    logs = {result.log.size_bytes: result.log for result in results.values()}
    lines = [
        f"Log of MySQL {log.server}: {log.size_bytes / 1e6:.0f} MB, {log.rows:,} row changes by the server's own count."
        for log in logs.values()
    ]
    head = [
        "decoder",
        "log, MB",
        "rows seen",
        "**rows/CPU-s**",
        "MB/CPU-s",
        "rows/s",
        "MB/s",
        "peak MB",
        "start-up, CPU-s",
        "headrace is times",
        "with before images, times",
    ]
    lines += ["", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [line(result, results) for result in results.values()]
    if HEADRACE in results and TWO_THREADS in results:
        one, two = results[HEADRACE], results[TWO_THREADS]
        lines.append(
            "\n"
            f"Two threads on two files: {one.rows_per_cpu_s / two.rows_per_cpu_s:.2f} times the processor time per row of one thread "
            f"(wanted: at most 1.1), {2 * one.run.seconds / two.run.seconds:.2f} times its rows/s."
        )
    lines.append(
        "\n"
        f"Of {rounds} runs the one with the least processor time. Rates count the rows in the log, also those that a decoder "
        "misses and yet ends with 0 (mysqlbinlog remarks GEOMETRY that it cannot print). Processor time is that of the decoder's process "
        "behind its start-up, in which Java warms up; for those that read from a server, the server's is not in it. headrace verifies "
        "every checksum, its peers run with their defaults. mysqlbinlog prints to /dev/null without base64; Debezium hands Connect structs "
        "to a consumer that only counts; Java has -Xmx1g."
    )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    every: list[Peer] = [*ON_FILE, *ON_SERVER]
    chosen = [peer for peer in every if not arguments.names or any(name in peer.label for name in arguments.names)]
    if not chosen:
        parser.error(f"no decoder has such a name; there are: {', '.join(peer.label for peer in every)}")
    try:
        results, failed = measure_all(chosen, arguments.scale, arguments.rounds)
    except MissingPackageError as error:
        sys.exit(f"the log cannot be recorded: {error}")
    lines = report(results, arguments.rounds)
    if len(results) == len(every) and arguments.scale == 1:
        write_results("decode", lines)
    else:
        print("\n".join(lines))
    if failed:
        sys.exit(
            f"{len(failed)} of {len(chosen)} decoders cannot be run: {', '.join(sorted(peer.label for peer in failed))}"
        )


if __name__ == "__main__":
    main()
