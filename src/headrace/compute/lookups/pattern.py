"""Keys of stores that are texts: a pattern with the names of a lookup's `on` in braces."""

from __future__ import annotations

from collections.abc import Sequence
from string import Formatter
from typing import Annotated

from pydantic import AfterValidator

from headrace.compute.lookups.base import Key, as_texts
from headrace.errors import ConfigError


def _is_pattern(text: str) -> str:
    try:
        named = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError:
        named = []
    if not named:
        raise ValueError(f"'{text}' names no column; write for instance customer:{{id}}")
    return text


KeyPattern = Annotated[str, AfterValidator(_is_pattern)]
"""``customer:{id}``."""


def filled(pattern: str, on: Sequence[str], key: Key) -> str:
    """The store's key for a key of the lookup. ConfigError when the pattern names what is not in `on`."""
    try:
        return pattern.format(**dict(zip(on, as_texts(key), strict=True)))
    except (KeyError, IndexError) as error:
        raise ConfigError(
            f"the key of a lookup, {pattern}, names {error}, which is not in `on`", fix=f"write it with {', '.join(on)}"
        ) from error
