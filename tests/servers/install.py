"""Installs the servers that the tests start: ``python -m tests.servers.install`` (run by ``make test``).

Debian packages: as root it installs what is missing with apt-get; otherwise it prints the command and exits with 1. Servers that
are published as jars (jars.py) are fetched into the user's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.servers import jars

PACKAGES = {
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "openssl": "openssl",
    "postgres": "postgresql",
    "initdb": "postgresql",
}
"""Program -> the Debian package that brings it."""

_ATTEMPTS = 4


class MissingPackageError(Exception):
    """A server's program is not installed."""


def find_program(name: str) -> str:
    """The path of a server's program, also where Debian keeps it out of PATH; an error naming the package when it is missing."""
    versioned = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]))
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/usr/local/sbin")
    path = str(versioned[-1]) if versioned else found
    if path is None:
        raise MissingPackageError(
            f"the program '{name}' is not installed: apt-get install {PACKAGES[name]} "
            "(or run tests/servers/install.py as root)"
        )
    return path


def missing_packages() -> list[str]:
    missing = set()
    for program, package in PACKAGES.items():
        try:
            find_program(program)
        except MissingPackageError:
            missing.add(package)
    return sorted(missing)


def main() -> int:
    try:
        jars.class_path("kafka")
    except jars.JarError as error:
        print(error, file=sys.stderr)
        return 1
    packages = missing_packages()
    if not packages:
        return 0
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    if os.geteuid() != 0:
        print(f"tests need Debian packages that are not installed; run as root: {' '.join(install)}", file=sys.stderr)
        return 1
    for attempt in range(_ATTEMPTS):
        if attempt > 0:
            time.sleep(5 * attempt)
            _apt(["apt-get", "update", "-qq"])  # lists that are missing or old are why an install fails
        output = _apt(install)
        if not missing_packages():
            return 0
    print(f"{' '.join(install)} failed {_ATTEMPTS} times, at last with:\n{output}", file=sys.stderr)
    return 1


def _apt(command: list[str]) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
