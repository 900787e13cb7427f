"""docs/how-to/add-a-sink.md, followed: the package of its blocks is built, installed and tested, and a flow delivers into its store."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flows.command import Result

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "add-a-sink.md"
FILE = re.compile(r"^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The package's directory, and an environment in which it is installed."""
    package, place = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("installed")
    for name, content in FILE.findall(PAGE.read_text()):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(content)
    assert (package / "pyproject.toml").exists()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--disable-pip-version-check", "--target", str(place), str(package)], check=True)
    return package, {**os.environ, "PYTHONPATH": f"{place}:{ROOT / 'src'}"}


def run(*command: str, cwd: Path, env: dict[str, str]) -> Result:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    return Result(done.returncode, done.stdout, done.stderr)


def test_the_package_passes_the_kit(installed: tuple[Path, dict[str, str]]) -> None:
    package, env = installed
    done = run("pytest", "-q", "-p", "no:cacheprovider", "tests", cwd=package, env=env)
    assert done.code == 0, done.out + done.err
    passed = re.search(r"(\d+) passed", done.out)
    assert passed is not None
    assert int(passed[1]) > 50
    assert "skipped" not in done.out


def test_headrace_knows_it_by_its_name(installed: tuple[Path, dict[str, str]]) -> None:
    _, env = installed
    listed = run("headrace", "list", "sinks", "--json", cwd=ROOT, env=env).out.splitlines()
    [options] = [line["options"] for line in map(json.loads, listed) if line["name"] == "jsonfile"]
    assert options["properties"]["path"]["description"] == "The file.", "the options' texts are their documentation"
