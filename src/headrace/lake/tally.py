"""How many rows there are, by operation, and what they hold: sums that add up and can be taken apart again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

DIGEST_RANGE = 1 << 128


@dataclass(frozen=True, slots=True)
class Tally:
    """Rows by operation (none is 0), and their order-free digest (rust/src/digest.rs). A difference may have negative counts."""

    operations: Mapping[str, int] = field(default_factory=dict)
    digest: int = 0

    @property
    def rows(self) -> int:
        return sum(self.operations.values())

    def __str__(self) -> str:
        operations = ", ".join(f"{count} {name}" for name, count in self.operations.items())
        return f"{self.rows} rows with digest {self.digest:032x} ({operations})"

    def __bool__(self) -> bool:
        return bool(self.operations or self.digest)

    def __add__(self, other: Tally) -> Tally:
        counts = {name: self._count(name) + other._count(name) for name in {*self.operations, *other.operations}}
        kept = {name: count for name, count in sorted(counts.items()) if count}
        return Tally(kept, (self.digest + other.digest) % DIGEST_RANGE)

    def __neg__(self) -> Tally:
        return Tally({name: -count for name, count in self.operations.items()}, -self.digest % DIGEST_RANGE)

    def __sub__(self, other: Tally) -> Tally:
        return self + -other

    def is_within(self, other: Tally) -> bool:
        """Whether this can be a part of the other's rows: of each operation as many or fewer, and none is negative."""
        if not self.operations:
            return not self.digest
        return all(0 <= count <= other._count(name) for name, count in self.operations.items())

    def _count(self, name: str) -> int:
        return self.operations.get(name, 0)

    def to_json(self) -> dict[str, Any]:
        return {"operations": dict(self.operations), "digest": f"{self.digest:032x}"}

    @classmethod
    def from_json(cls, described: Mapping[str, Any]) -> Self:
        return cls(described["operations"], int(described["digest"], 16))
