"""CSV as a backend reads it.

Lines that are empty are no rows. Without `enclose` a line ends at each delimiter and a value at each separator, and a carriage return
before a newline is taken off. With it neither counts between two enclosures, of which the escape and a second enclosure take the
meaning; they are taken off a value (for `"` only with `trim_double_quotes`). Then a value that is `\\N` is NULL, and only then escapes go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Csv:
    """What the headers of a load say."""

    separator: bytes
    delimiter: bytes
    enclose: bytes
    escape: bytes
    trims: bool

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> Csv:
        enclose = headers.get("enclose", "").encode()
        return cls(
            separator(headers.get("column_separator", "\\t")),
            separator(headers.get("line_delimiter", "\\n")),
            enclose,
            headers.get("escape", "").encode(),
            enclose != b'"' or headers.get("trim_double_quotes", "").lower() == "true",
        )

    def rows(self, body: bytes) -> Iterator[list[bytes | None]]:
        at = 0
        while at < len(body):
            end, separators = self._line(body, at)
            line = body[at:end]
            if self.delimiter == b"\n" and line.endswith(b"\r"):
                line = line[:-1]
            if line:
                starts = [0, *(one + len(self.separator) for one in separators)]
                stops = [*separators, len(line)]
                yield [self._value(line[first:stop]) for first, stop in zip(starts, stops, strict=True)]
            at = end + len(self.delimiter)

    def _line(self, body: bytes, start: int) -> tuple[int, list[int]]:
        """Where a line ends, and where its separators stand in it."""
        separators: list[int] = []
        at, begins = start, True
        while at < len(body) and not body.startswith(self.delimiter, at):
            if begins and self.enclose and body.startswith(self.enclose, at):
                at = self._closed(body, at + 1)
                begins = False
            elif body.startswith(self.separator, at):
                separators.append(at - start)
                at += len(self.separator)
                begins = True
            else:
                at += 1
                begins = False
        return at, separators

    def _closed(self, body: bytes, at: int) -> int:
        while at < len(body):
            if self.escape and body.startswith(self.escape, at):
                at += 2
            elif body.startswith(self.enclose, at):
                if not body.startswith(self.enclose, at + 1):
                    return at + 1
                at += 2
            else:
                at += 1
        return at

    def _value(self, value: bytes) -> bytes | None:
        if (
            self.enclose
            and self.trims
            and len(value) > 1
            and value.startswith(self.enclose)
            and value.endswith(self.enclose)
        ):
            value = value[1:-1]
        if value == b"\\N":
            return None
        if self.escape:
            marks = b"".join(re.escape(mark) + b"|" for mark in (self.enclose, self.escape) if mark)[:-1]
            value = re.sub(re.escape(self.escape) + b"(" + marks + b")", rb"\1", value)
        return value


def separator(text: str) -> bytes:
    """As headers write it: ``\\t``, ``\\n``, or ``\\x`` before hexadecimal digits of all its bytes."""
    if text[:2].lower() == "\\x":
        return bytes.fromhex(text[2:])
    return text.replace("\\t", "\t").replace("\\n", "\n").replace("\\r", "\r").encode()
