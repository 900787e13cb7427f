"""Tables by which gh-ost and pt-online-schema-change alter another one.

What they do to a table x, in the order of the log::

    gh-ost   CREATE _x_ghc · CREATE _x_gho LIKE x · ALTER _x_gho · rows into both · RENAME x TO _x_del, _x_gho TO x · DROP the others
    pt-osc   CREATE _x_new (as x) · ALTER _x_new · triggers on x · rows into it · RENAME x TO _x_old, _x_new TO x · DROP _x_old

All changes of x stand in the log as changes of x, before and after the RENAME, and rows of the helpers only say them again. So the
helpers are not captured, and the RENAME is the moment at which x gets all that was altered in the helper.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.capture.ddl import Change, Effect

# gh-ost puts the time into names with --timestamp-old-table; pt-osc adds underscores when a name is taken.
_HELPER = re.compile(r"_+(?P<table>.+?)_(?:gho|ghc|new|old|(?:\d{14}_)?del)")


def helped_table(name: str) -> str | None:
    """The table to which a name like those of helpers belongs; None for other names."""
    found = _HELPER.fullmatch(name)
    return found["table"] if found else None


def swapped_in(changes: Sequence[Change]) -> dict[tuple[str, str], tuple[str, str]]:
    """Tables that a statement replaces by one of their helpers: each with the helper that becomes it."""
    return {
        (change.new_schema, change.new_name): (change.schema, change.table)
        for change in changes
        if change.effect is Effect.RENAME
        and change.schema == change.new_schema
        and helped_table(change.table) == change.new_name
    }
