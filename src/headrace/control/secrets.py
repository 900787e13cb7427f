"""Secrets: files of a directory, which flow files name as ``${NAME}``; what the control plane keeps and shows has their names only.

A directory is what Kubernetes mounts and systemd hands over (``LoadCredential=``). A file's contents, without a newline at the end, are the
value. Environment variables of the server are not to be had by flow files: they hold what is not theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from headrace.errors import ConfigError
from headrace.flow.load import FieldsError, Problem, Written, parse_as, written_values
from headrace.flow.spec import PipelineSpec

_FILE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET = re.compile(
    r"(password|passphrase|secret|token|credentials?|api_?key|access_?key|secret_?key|authorization)$", re.IGNORECASE
)
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_IN_URL = re.compile(
    r"://[^/@\s:]*:(?P<secret>[^@/\s]+)@|[?&;](?:password|pwd|token)=(?P<option>[^&;\s]+)", re.IGNORECASE
)
_NAMES = re.compile(r"(^|\.)(columns|key|rename|on_change|system_columns)(\.|\[)")
"""Fields below these are names of columns."""
_MASK_KEY = re.compile(r"\bmask\..*\.key$")


class Secrets:
    """The secrets of a directory, as they are when they are asked for."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def names(self) -> list[str]:
        if not self._directory.is_dir():
            return []
        return sorted(path.name for path in self._directory.iterdir() if _FILE.fullmatch(path.name) and path.is_file())

    def values(self) -> Mapping[str, str]:
        """ConfigError when one cannot be read."""
        try:
            return {
                name: (self._directory / name).read_text(encoding="utf-8").removesuffix("\n") for name in self.names()
            }
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"a secret in {self._directory} cannot be read: {error}",
                fix="give headrace's user the right to read it",
            ) from error


def read_pipeline(text: str, path: Path, secrets: Secrets) -> PipelineSpec:
    """The flow file that `text` is, as if it were at `path`. FieldsError for secrets in clear, ConfigError for all else that is wrong."""
    in_clear = [
        Problem(found.line, found.field, f"`{found.field}` has a secret in clear; write its name, ${{NAME}}")
        for found in _in_clear(written_values(text, path))
    ]
    if in_clear:
        raise FieldsError.of(path, in_clear)
    return parse_as(text, path, PipelineSpec, secrets.values())


def names_secret(field: str) -> bool:
    """Whether what stands under a name is not for everybody to see."""
    return bool(_SECRET.search(field))


def clear_in_text(text: str) -> bool:
    """Whether an address has a password or a token in it that is not the name of a secret."""
    parts = [found["secret"] or found["option"] for found in _IN_URL.finditer(text)]
    return not all(_REFERENCE.fullmatch(part) for part in parts)


def _in_clear(values: Iterator[Written]) -> Iterator[Written]:
    for value in values:
        if _NAMES.search(value.field):
            continue
        is_secret = names_secret(value.field) or _MASK_KEY.search(value.field)
        is_clear = is_secret and value.text and not _REFERENCE.fullmatch(value.text)
        if is_clear or clear_in_text(value.text):
            yield value
