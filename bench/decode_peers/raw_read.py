"""The limit: reads a binlog file and looks at nothing. ``python raw_read.py FILE``."""

import sys
from pathlib import Path

buffer = bytearray(8 << 20)
print("begin", flush=True)
with Path(sys.argv[1]).open("rb", buffering=0) as file:
    while file.readinto(buffer):
        pass
