"""Installs the servers that the tests start: ``python -m tests.servers.install`` (run by ``make test``).

As root it installs missing Debian packages with apt-get, and MySQL, which Debian has only in its development suite, with
debootstrap into a folder of the user's cache; otherwise it prints the commands and exits with 1. Servers that are published as jars
(jars.py) are fetched into the user's cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.servers import jars

PACKAGES = {
    "mariadbd": "mariadb-server",
    "mariadb-install-db": "mariadb-server",
    "openssl": "openssl",
    "postgres": "postgresql",
    "initdb": "postgresql",
    "debootstrap": "debootstrap",
    "javac": "default-jdk-headless",
    "redis-server": "redis-server",
    "promtool": "prometheus",
    "systemd-analyze": "systemd",
    "chromium": "chromium",
}
"""Program -> the Debian package that brings it."""

MYSQL_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headrace" / "mysql"
"""A small Debian with MySQL in it; to get a newer MySQL, remove the folder."""

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
            "(or run python -m tests.servers.install as root)"
        )
    return path


def find_mysql_program(name: str) -> list[str]:
    """How a program of the MySQL in the cache is started: by the loader and with the libraries beside it."""
    program = next(
        (path for folder in ("sbin", "bin") if (path := MYSQL_FOLDER / "usr" / folder / name).exists()), None
    )
    loader = next(MYSQL_FOLDER.glob("usr/lib/*-linux-gnu/ld-linux*.so.*"), None)
    if program is None or loader is None:
        raise MissingPackageError(
            f"there is no MySQL in {MYSQL_FOLDER}: run python -m tests.servers.install as root"
            f" (it needs the Debian package debootstrap), or {' '.join(_debootstrap('MIRROR', MYSQL_FOLDER))}"
        )
    return [str(loader), "--library-path", str(loader.parent), str(program)]


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
        for server in ("cassandra", "derby", "elasticsearch", "h2", "hbase", "hdfs", "kafka", "opensearch", "registry"):
            jars.class_path(server)
    except jars.JarError as error:
        print(error, file=sys.stderr)
        return 1
    packages = missing_packages()
    if packages:
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
        problem = _as_root("Debian packages that are not installed", command, lambda: _install_packages(command))
        if problem:
            print(problem, file=sys.stderr)
            return 1
    if not MYSQL_FOLDER.exists():
        command = _debootstrap(_debian_mirror() or "MIRROR", MYSQL_FOLDER)
        problem = _as_root(f"MySQL in {MYSQL_FOLDER}", command, _install_mysql)
        if problem:
            print(problem, file=sys.stderr)
            return 1
    return 0


def _as_root(what: str, command: list[str], install: Callable[[], str]) -> str:
    """Installs, and says what went wrong; "" when nothing did."""
    if os.geteuid() != 0:
        return f"tests need {what}; run as root: {' '.join(command)}"
    for attempt in range(_ATTEMPTS):
        if attempt > 0:
            time.sleep(5 * attempt)
            _run(["apt-get", "update", "-qq"])  # lists that are missing or old are why an install fails
        problem = install()
        if not problem:
            return ""
    return f"{' '.join(command)} failed {_ATTEMPTS} times, at last with:\n{problem}"


def _install_packages(command: list[str]) -> str:
    output = _run(command)
    return output if missing_packages() else ""


def _install_mysql() -> str:
    mirror = _debian_mirror()
    if not mirror:
        return "apt-get on this machine knows no mirror of Debian: put one into its sources (tests need Debian's MySQL)"
    # Under a name of its own until it is whole, and on the same disk.
    making = MYSQL_FOLDER.with_name(f"{MYSQL_FOLDER.name}-{os.getpid()}")
    making.parent.mkdir(parents=True, exist_ok=True)
    try:
        output = _run(_debootstrap(mirror, making))
        if not (making / "usr" / "sbin" / "mysqld").exists():
            return "\n".join(output.splitlines()[-20:])
        shutil.rmtree(making / "var" / "cache" / "apt")
        making.rename(MYSQL_FOLDER)
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return ""


def _debootstrap(mirror: str, folder: Path) -> list[str]:
    packages = "--include=mysql-server-core,mysql-client-core"
    return ["debootstrap", "--variant=minbase", packages, "sid", str(folder), mirror]


def _debian_mirror() -> str:
    """Where this machine's own apt gets Debian from; "" when it does not."""
    wanted = ["--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages", "Origin: Debian", "Component: main"]
    suites = [line.split() for line in _run(["apt-get", "indextargets", *wanted]).splitlines()]
    # Updates and security, which have a suffix, stand beside the suite itself.
    return next((address for codename, address in suites if "-" not in codename), "")


def _run(command: list[str]) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


if __name__ == "__main__":
    sys.exit(main())
