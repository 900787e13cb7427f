"""The callable sink: a function of the user's own takes the changes, as Arrow batches.

::

    from headrace.ums.change import ChangeBatch, Clear

    def deliver(change: ChangeBatch | Clear) -> None: ...

    change.table   namespace, columns and key of the table's version
    change.data    an Arrow batch of a ChangeBatch: `_ums_id_`, `_ums_ts_`, `_ums_op_` (i, u, d), `_ums_commit_ts_`, `_ums_raw_`, the columns
    change.id      of a Clear: all rows of the table with a smaller `_ums_id_` are gone (TRUNCATE, DROP, a load that is over)

What the function must bear. It is called in the order of the log, and again from an earlier place after each crash, outage or refusal; flows
with several partitions, and full loads beside changes, call it in several processes and threads. So of two changes of a key the one with
the larger `_ums_id_` counts, whichever comes first, and a change with an id that is there already is the same change. What it was told
must be durable when it returns: behind it the flow goes on and does not come back.

What it raises. RetryableError, and Python's ConnectionError and TimeoutError: it is called again, later, as long as `give_up_after` lasts.
DataError, and every other exception: it does not take these rows. The flow stops, or finds out which rows those are by calling it
with parts of them, and sets them aside (`set_aside` of the flow).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from headrace.errors import ConfigError, DataError, HeadraceError, RetryableError
from headrace.model import Component
from headrace.sinks.base import Capabilities, Position
from headrace.sinks.gathered import GatheringSink
from headrace.ums.change import ChangeBatch, Clear
from headrace.ums.schema import TableSchema

Deliver = Callable[[ChangeBatch | Clear], None]


class CallableConfig(Component):
    """Hands changes to a Python function."""

    type: Literal["callable"]
    function: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]
    """``package.module:function``, which every worker must be able to import."""
    batch_rows: Annotated[int, Field(ge=1)] = 10_000
    """How many rows the function gets at most at a time."""


class CallableSink(GatheringSink):
    """Gathers what comes, and calls the function when there is enough, or a commit."""

    Config = CallableConfig
    capabilities: ClassVar[Capabilities] = Capabilities(needs_key=False, remembers_position=False, scans=False)

    def __init__(self, config: CallableConfig, flow: str) -> None:
        super().__init__(config.batch_rows)
        self._config = config
        self._function: Deliver | None = None

    def prepare(self, table: TableSchema) -> None:
        self._function = self._function or _found(self._config.function)

    def clear(self, clear: Clear) -> None:
        self.flush()
        self._call(clear)

    def flush(self) -> None:
        for batch in self._take():
            self._call(batch)

    def commit(self, position: Position) -> None:
        self.flush()

    def check(self) -> None:
        _found(self._config.function)

    def close(self) -> None:
        super().close()

    def _call(self, change: ChangeBatch | Clear) -> None:
        assert self._function is not None, "prepare comes first"
        try:
            self._function(change)
        except HeadraceError:
            raise
        except (ConnectionError, TimeoutError) as error:
            raise RetryableError(
                f"{self._config.function} could not reach what it writes to: {_told(error)}",
                fix="see what it writes to",
            ) from error
        except Exception as error:
            # It may raise anything, and no row may pass for delivered.
            raise DataError(
                f"{self._config.function} does not take changes of {change.table.namespace.all_versions}: {_told(error)}",
                fix="correct the function, or the rows where they are made",
            ) from error


def _found(name: str) -> Deliver:
    """The function; ConfigError when there is none."""
    module, _, path = name.partition(":")
    try:
        found: object = import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigError(
            f"there is no function {name}: {_told(error)}",
            fix="write module:function, and put the module on PYTHONPATH",
        ) from error
    if not callable(found):
        raise ConfigError(f"{name} is no function", fix="name one that takes a ChangeBatch or a Clear")
    return found


def _told(error: BaseException) -> str:
    """The kind of an error, its text, and the line of the user's code that it came from."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = f" ({frame.tb_frame.f_code.co_filename}:{frame.tb_lineno})" if frame is not None else ""
    return f"{type(error).__name__}: {error}{where}"
