"""Statements of MySQL and MariaDB as tokens: strings, comments and quoted names cannot confuse who reads them.

Comments for a server (``/*!40000 … */``, ``/*M!100100 … */``) are read as if the server had executed them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Token:
    """`kind`: word, name (quoted), string, number, hex, bits, mark or end. `text`: unquoted and unescaped."""

    kind: str
    text: str

    def is_word(self, word: str) -> bool:
        return self.kind == "word" and self.text.upper() == word

    def is_mark(self, mark: str) -> bool:
        return self.kind == "mark" and self.text == mark


class UnreadableError(Exception):
    """The statement is not of a form that this module knows."""


_TOKEN = re.compile(
    r"(?P<skip>\s+|/\*M?!\d*|\*/|/\*.*?\*/|--(?=\s|$)[^\n]*|\#[^\n]*)"
    r"|(?P<hex>[xX]'[0-9A-Fa-f]*'|0x[0-9A-Fa-f]+\b)"
    r"|(?P<bits>[bB]'[01]*'|0b[01]+\b)"
    r"""|(?P<string>'(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")"""
    r"|(?P<name>`(?:[^`]|``)*`)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w$]))"
    r"|(?P<word>[\w$@]+)"
    r"|(?P<mark>.)",
    re.DOTALL,
)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}
END = Token("end", "")


def tokens(sql: str) -> list[Token]:
    """The statement's tokens, comments and white space left out."""
    found = []
    for match in _TOKEN.finditer(sql):
        kind, text = match.lastgroup or "mark", match[0]
        if kind in ("name", "string"):
            text = _unquoted(text, escapes=kind == "string")
        elif kind in ("hex", "bits"):
            text = text[2:].rstrip("'")
        if kind != "skip":
            found.append(Token(kind, text))
    return found


def without_literals(sql: str) -> str:
    """The statement for people to read, without its comments, and with … in place of every literal: those can be somebody's data."""
    shown = ""
    for match in _TOKEN.finditer(sql):
        if match[0] in ("'", '"'):
            # Where strings begin and end is not as it seems (NO_BACKSLASH_ESCAPES): what follows the first of them may be in one.
            return shown.partition("…")[0].rstrip() + " …"
        literal = match.lastgroup in ("string", "hex", "bits", "number")
        shown += " " if match.lastgroup == "skip" else "…" if literal else match[0]
    return shown.strip()


def _unquoted(text: str, *, escapes: bool) -> str:
    quote, inner = text[0], text[1:-1]
    pattern = re.escape(quote * 2) + (r"|\\(.)" if escapes else "")

    def plain(match: re.Match[str]) -> str:
        return quote if match[0] == quote * 2 else _ESCAPED.get(match[1], match[1])

    return re.sub(pattern, plain, inner, flags=re.DOTALL)


class Cursor:
    """A place in a list of tokens."""

    def __init__(self, found: list[Token], schema: str) -> None:
        self.tokens = found
        self.schema = schema
        self.at = 0

    @property
    def next(self) -> Token:
        return self.peek(0)

    def peek(self, ahead: int) -> Token:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else END

    def take(self) -> Token:
        token = self.next
        self.at += 1
        return token

    def accept(self, *words: str) -> bool:
        """Moves on over these keywords when they all come next."""
        if all(self.peek(ahead).is_word(word) for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def any_of(self, *words: str) -> bool:
        """Moves on over one keyword when it is one of these."""
        return any(self.accept(word) for word in words)

    def mark(self, mark: str) -> bool:
        if self.next.is_mark(mark):
            self.at += 1
            return True
        return False

    def name(self) -> str:
        token = self.take()
        if token.kind not in ("word", "name", "string"):  # with ANSI_QUOTES "x" is a name
            raise UnreadableError
        return token.text

    def table(self) -> tuple[str, str]:
        """A table's name with its schema."""
        first = self.name()
        return (first, self.name()) if self.mark(".") else (self.schema, first)

    def group(self) -> list[Token]:
        """What stands in the parentheses that open here."""
        if not self.mark("("):
            raise UnreadableError
        start, depth = self.at, 1
        while depth:
            token = self.take()
            if token is END:
                raise UnreadableError
            depth += token.is_mark("(") - token.is_mark(")")
        return self.tokens[start : self.at - 1]


def split(found: list[Token]) -> list[list[Token]]:
    """Parts between the commas that stand outside parentheses."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        depth += token.is_mark("(") - token.is_mark(")")
        if depth == 0 and token.is_mark(","):
            parts.append([])
        else:
            parts[-1].append(token)
    return parts
