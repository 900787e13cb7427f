"""What a flow does when its tables change at the source: the words of `on_change` in a flow file (docs/schema-changes.md)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import Field, model_validator

from headrace.model import Model


class Policy(StrEnum):
    """What becomes of one kind of change."""

    EVOLVE = "evolve"
    """The target follows."""
    LENIENT = "lenient"
    """The target follows as far as it loses nothing."""
    IGNORE = "ignore"
    """The target stays as it is and takes the values that fit."""
    FAIL = "fail"
    """The flow stops, and says which statement it was."""


def how_to_go_on(kind: str) -> str:
    """What to do when a flow has stopped at a change of that kind."""
    return f"make the target ready, write `on_change: {{{kind}: evolve}}` (or lenient, or ignore) into the flow and start again"


class OnChange(Model):
    """A policy per kind of change."""

    added: Policy = Policy.EVOLVE
    """A column was added."""
    dropped: Policy = Policy.LENIENT
    """A column was dropped."""
    retyped: Policy = Policy.EVOLVE
    """A column has another type."""
    renamed: Policy = Policy.EVOLVE
    """A column has another name."""
    rekeyed: Policy = Policy.EVOLVE
    """The table has another primary key. A database stops with `ignore` too: rows of the new key do not fit the old one."""
    truncated: Policy = Policy.EVOLVE
    """TRUNCATE TABLE."""
    table_dropped: Policy = Policy.LENIENT
    """DROP TABLE, and a new table under the old name."""
    table_renamed: Policy = Policy.LENIENT
    """A table has another name."""
    every: Policy | None = Field(default=None, alias="all")
    """For all kinds that are not named."""

    @model_validator(mode="before")
    @classmethod
    def _one_word(cls, value: Any) -> Any:
        if isinstance(value, str):
            value = {"all": value}
        if not isinstance(value, dict) or "all" not in value:
            return value
        kinds = cls.model_fields.keys() - {"every"}
        return dict.fromkeys(kinds, value["all"]) | value
