"""Captures all that the sources of a flow file have, and counts the changes: ``python headrace_capture.py FLOW.yaml``.

It is `headrace capture FLOW.yaml --until-idle`, with the words that bench/decode_peers/measure.py listens to.
"""

import sys
from pathlib import Path

from headrace.flow.load import load
from headrace.stream.alone import capture_all


def main() -> None:
    pipeline = load(Path(sys.argv[1]))
    print("begin", flush=True)
    captured = capture_all(pipeline, over=lambda: False, until_idle=True, progress=lambda figures: None)
    print(sum(captured.values()))


if __name__ == "__main__":
    main()
