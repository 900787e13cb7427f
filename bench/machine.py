"""What a results file says about where its figures come from."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

RESULTS = Path(__file__).parent / "results"
_LOAD_BEFORE = os.getloadavg()[0]
"""Taken when a benchmark imports this: results are written behind the run, whose own load is no news."""


def machine() -> str:
    """One line: processors, memory, versions, load before the run, date."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    packages = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow"))
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory_gib:.0f} GiB, Linux {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, {packages}; load before the run {_LOAD_BEFORE:.1f}; {datetime.now(UTC):%Y-%m-%d}"
    )


def processor_s(process: psutil.Process) -> float:
    """Seconds of processor time of a process and of all that it has started, also of those that have ended."""
    taken = 0.0
    for each in [process, *process.children(recursive=True)]:
        try:
            times = each.cpu_times()
        except psutil.Error:  # has ended: its parent has its time
            continue
        taken += times.user + times.system + times.children_user + times.children_system
    return taken


def write_results(name: str, lines: list[str]) -> None:
    """Prints the figures and writes them to results/<name>.md under a line that describes the machine."""
    text = "\n".join([f"# {name}", "", machine(), "", *lines, ""])
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.md").write_text(text)
    print(text)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
