"""Functions of one's own in the SQL of flow files: plug-ins with the entry point ``headrace.functions``, over columns of Arrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP = "headrace.functions"
Column: TypeAlias = "pa.ChunkedArray[Any]"


@dataclass(frozen=True, slots=True)
class Function:
    """A function that SQL calls by the name of its entry point.

    `call` gets one chunked array of Arrow per parameter, all of one length (some thousand values at most), and returns one of that length, each value made of those
    at the same place alone. It must always make the same of the same values: changes are computed again after a crash. What it raises is told as an error of the value.
    """

    call: Callable[..., Column]
    parameters: tuple[str, ...]
    """Types as SQL writes them: ``VARCHAR``, ``DECIMAL(12,2)``."""
    returns: str
    takes_null: bool = False
    """Whether it sees nulls; else what has a null among its values is null, and is not asked for."""


@cache
def functions() -> dict[str, Function]:
    """All that are installed, by name. ConfigError when one of them cannot be loaded."""
    found: dict[str, Function] = {}
    for entry in entry_points(group=_GROUP):
        try:
            function = entry.load()
        except Exception as error:
            raise ConfigError(
                f"the function {entry.name} ({entry.value}) cannot be loaded: {type(error).__name__}: {error}",
                fix="mend the package that brings it, or uninstall it",
            ) from error
        if not isinstance(function, Function):
            raise ConfigError(
                f"the function {entry.name} ({entry.value}) is a {type(function).__name__}",
                fix="let its entry point name a headrace.compute.functions.Function",
            )
        found[entry.name] = function
    return found
