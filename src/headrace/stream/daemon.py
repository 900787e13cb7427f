"""The process that Spark forks its Python workers from: pyspark's own, with what every task needs imported once, in front of the fork.

Each following task has a worker of its own. Forked from here they share the interpreter, pyspark, pyarrow and headrace: a worker costs
what it changes, a fourth of what it costs when it imports all of that itself, and begins at once. No thread of ours runs before the
fork (pyarrow's allocators and pools know how to be forked), and the garbage collector leaves alone what was made before it.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

from pyspark.daemon import manager

IMPORTED = (
    "pyspark.worker",
    "headrace.stream.epoch",
    "headrace.capture.mysql",
    "headrace.log.directory",
    "headrace.sinks.lake",
)
"""What is not here (drivers of stores, plug-ins) is imported by the tasks that use it."""


def main() -> None:
    # Spark puts its own jar on the path of modules, and every worker would keep the list of its thousands of files.
    sys.path[:] = [place for place in sys.path if not place.endswith(".jar")]
    for place in [place for place in sys.path_importer_cache if place.endswith(".jar")]:
        del sys.path_importer_cache[place]
    for module in IMPORTED:
        import_module(module)
    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
