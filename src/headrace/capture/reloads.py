"""Tables that capture asks to be loaded again (load/planner.py), where the source has a load.

*Tables that `tables` names again* after capture has run without them: what changed meanwhile is not on the log. The schema history remembers
which of its tables were not captured when capture began (versions.py). Versions go on where they were: the statements of all tables that
were ever captured are read.

*Tables that have another key:* rows of the old key that were loaded may not have reached all targets, and fit none behind that.

Crash story: a request is durable before the history forgets that a table was left out, and before the end of the old key is on the log;
so a table may be loaded twice and never not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from headrace.capture.definitions import Name
from headrace.capture.history import History
from headrace.capture.load.wishes import Request
from headrace.capture.mysql_config import MySqlConfig
from headrace.ums.change import ChangeBatch, Clear, End


def returned(config: MySqlConfig, history: History, directory: Path) -> tuple[str, ...]:
    """What a person must know of tables that are captured again. `directory`: of the source's state."""
    names = history.returned(config.delivers)
    loaded = _ask(config, names, directory)
    history.save()
    return tuple(
        f"{'.'.join(name)} is captured again, and its changes since it was left out of `tables` were not:"
        f" {'it is loaded again' if name in loaded else 'targets lack them until it is loaded again (`load` of the source, `headrace load`)'}"
        for name in names
    )


def rekeyed(config: MySqlConfig, changes: Iterable[ChangeBatch | Clear | End], directory: Path) -> None:
    """Tables that have another key behind these changes."""
    spaces = [
        change.table.namespace
        for change in changes
        if isinstance(change, End) and change.table.key_identities != change.successor.key_identities
    ]
    _ask(config, [(space.schema, space.table) for space in spaces], directory)


def _ask(config: MySqlConfig, names: Sequence[Name], directory: Path) -> list[Name]:
    load = config.load
    wanted = [name for name in names if load is not None and not load.excludes(*name)]
    if wanted:
        Request(wanted).write(directory)
    return wanted
