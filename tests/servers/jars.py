"""Servers that are published as jars: fetched once from a Maven repository into the user's cache, each checked against its sha256.

The list of a server is a file `<server>.jars` here, one jar a line: ``group:artifact:version sha256``. `HEADRACE_MAVEN` names
another repository of the ordinary Maven layout than Maven Central, for instance a mirror.
"""

from __future__ import annotations

import hashlib
import os
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

CENTRAL = "https://repo.maven.apache.org/maven2"
_TIMEOUT_S = 60
_ATTEMPTS = 4


class JarError(Exception):
    """A jar could not be fetched, or is not what the list says."""


def class_path(server: str, lists: Path | None = None) -> str:
    """What ``java -cp`` needs to start a server; jars that are not in the cache are fetched. `lists`: where the list is, here by default."""
    jars = [
        line.split() for line in (lists or Path(__file__).parent).joinpath(f"{server}.jars").read_text().splitlines()
    ]
    with ThreadPoolExecutor(4) as pool:
        return os.pathsep.join(str(path) for path in pool.map(lambda jar: _cached(*jar), jars))


def _cached(coordinates: str, sha256: str) -> Path:
    group, artifact, version = coordinates.split(":")
    name = f"{artifact}-{version}.jar"
    path = _cache() / f"{sha256[:16]}-{name}"
    if not path.exists():
        content = _fetch(f"{group.replace('.', '/')}/{artifact}/{version}/{name}", sha256)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.{uuid4().hex}")
        aside.write_bytes(content)
        aside.replace(path)
    return path


def _fetch(place: str, sha256: str) -> bytes:
    url = f"{os.environ.get('HEADRACE_MAVEN', CENTRAL).rstrip('/')}/{place}"
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
                content: bytes = answer.read()
        except OSError as error:
            problem = str(error)
            continue
        if hashlib.sha256(content).hexdigest() == sha256:
            return content
        problem = "its sha256 is not the one in the list"
    raise JarError(f"{url}: {problem} (HEADRACE_MAVEN names another Maven repository)")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "jars"
