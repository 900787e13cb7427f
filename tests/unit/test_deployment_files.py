"""What deploy/ installs headrace by: systemd units, the container file and the Helm chart, each read by the tool that it is for."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from helm_python import chart
from helm_python.chart import Chart
from helm_python.errors import HelmError

from headrace.cli.main import cli
from tests.servers.install import find_program

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "headrace"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
CONTAINER = ROOT / "deploy" / "container" / "Containerfile"
_BINARIES = Path(sys.executable).parent
_MOST_EXPOSED = 2.0
"""Of ten; systemd calls up to 2 "safe" or "OK"."""

_LARGE = {
    "server": {
        "replicas": 2,
        "store": {"secret": "store"},
        "secrets": {"secret": "secrets"},
        "tls": {"secret": "certificate"},
        "volume": {"accessModes": ["ReadWriteMany"], "storageClass": "nfs"},
        "podAnnotations": {"prometheus.io/scrape": "true"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "data", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    },
    "watermark": {"enabled": True, "replicas": 2, "store": {"secret": "marks"}, "token": {"secret": "token"}},
    "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "certificate", "annotations": {"a": "b"}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {}}]},
    "spark": {"executors": True},
    "imagePullSecrets": [{"name": "registry"}],
}
_MIDDLE = {"watermark": {"enabled": True, "token": {"secret": "token"}, "volume": {"storageClass": "ssd"}}}


def manifests(values: dict[str, Any]) -> list[dict[str, Any]]:
    with Chart.load(CHART) as loaded:
        made = loaded.render(values, name="shop", namespace="data")
    texts = [text for path, text in made.items() if path.endswith(".yaml")]
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def containers(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    pods = [each["spec"]["template"]["spec"] for each in found if each["kind"] in {"Deployment", "StatefulSet"}]
    return [container for pod in pods for container in pod["containers"]]


def assert_headrace_knows(words: list[str]) -> None:
    """A command line of which nothing may be unknown."""
    command, arguments = cli, words
    while arguments and not arguments[0].startswith("-") and hasattr(command, "get_command"):
        found = command.get_command(None, arguments[0])
        assert found is not None, words
        command, arguments = found, arguments[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word.partition("=")[0] for word in arguments if word.startswith("--")} <= known, words


@pytest.mark.parametrize("values", [{}, _MIDDLE, _LARGE], ids=["as it comes", "with watermarks", "with everything"])
def test_the_chart_is_what_helm_and_kubernetes_expect(values: dict[str, Any]) -> None:
    report = chart.lint(CHART, values, strict=True, kube_version="v1.31.0")
    assert report["errors"] == []
    assert {message["severity"] for message in report["messages"]} <= {0, 1}, report
    found = manifests(values)
    assert len({(each["kind"], each["metadata"]["name"]) for each in found}) == len(found) >= 4
    for each in found:
        for version in ("1.27", "1.37"):  # the oldest that the chart admits, and the newest that is known
            kubernetes_validate.validate(each, version, strict=True)


def test_the_chart_runs_what_headrace_has() -> None:
    for container in containers(manifests(_LARGE)):
        assert_headrace_knows(container["args"])
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["image"].endswith(f":{yaml.safe_load((CHART / 'Chart.yaml').read_text())['appVersion']}")


def test_secrets_are_references_in_the_chart() -> None:
    found = manifests(_LARGE)
    assert "Secret" not in {each["kind"] for each in found}
    given = [variable for container in containers(found) for variable in container.get("env", [])]
    assert {variable["name"] for variable in given} == {
        "HEADRACE_STORE", "HEADRACE_WATERMARK_TOKEN", "HEADRACE_WATERMARK_STORE",
    }  # fmt: skip
    assert all("secretKeyRef" in variable["valueFrom"] for variable in given)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"server": {"replicas": 2}}, "server.store.secret"),
        ({"server": {"replicas": 2, "store": {"secret": "s"}}}, "ReadWriteMany"),
        ({"watermark": {"enabled": True}}, "watermark.token.secret"),
        ({"watermark": {"enabled": True, "token": {"secret": "t"}, "replicas": 2}}, "watermark.store.secret"),
    ],
)
def test_the_chart_says_what_is_missing(values: dict[str, Any], told: str) -> None:
    with pytest.raises(HelmError, match=re.escape(told)):
        manifests(values)


@pytest.mark.parametrize("wrong", [{"server": {"replica": 2}}, {"server": {"port": "9300"}}, {"colour": "red"}])
def test_the_chart_refuses_values_that_it_does_not_have(wrong: dict[str, Any]) -> None:
    with Chart.load(CHART) as loaded, pytest.raises(HelmError):
        loaded.validate_schema(loaded.merge_values(wrong))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_understands_the_unit_and_finds_it_closed(unit: Path, tmp_path: Path) -> None:
    """Read with the headrace that is here, as systemd looks whether there is such a program."""
    here = tmp_path / unit.name.replace("@.", "@shop.")
    shutil.copyfile(unit, tmp_path / unit.name)
    here.write_text(unit.read_text().replace("/opt/headrace/bin/", f"{_BINARIES}/"))
    analyze = find_program("systemd-analyze")
    verified = subprocess.run([analyze, "verify", "--man=no", here], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run(
        [analyze, "security", "--offline=true", "--no-pager", f"--threshold={round(_MOST_EXPOSED * 10)}", here],
        capture_output=True,
        text=True,
        check=False,
    )
    assert judged.returncode == 0, judged.stdout


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_unit_runs_what_headrace_has(unit: Path) -> None:
    [line] = re.findall(r"^ExecStart=/opt/headrace/bin/headrace (.*)$", unit.read_text(), re.MULTILINE)
    assert_headrace_knows(line.split())


def test_the_container_file_has_nothing_that_hadolint_knows_better() -> None:
    told = subprocess.run([_BINARIES / "hadolint", CONTAINER], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (0, "")


def test_the_container_is_not_root_and_says_how_it_is() -> None:
    text = CONTAINER.read_text()
    last = text[text.rindex("\nFROM ") :]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert "HEALTHCHECK" in last
    [command] = re.findall(r"^CMD (\[.*\])$", last, re.MULTILINE)
    assert_headrace_knows(yaml.safe_load(command))


def test_the_container_is_made_of_what_git_has_and_of_nothing_else() -> None:
    copied = [
        word
        for line in re.findall(r"^COPY (?!--)(.*)$", CONTAINER.read_text(), re.MULTILINE)
        for word in line.split()[:-1]
    ]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    ignored = (CONTAINER.parent / "Containerfile.dockerignore").read_text().splitlines()
    assert next(line for line in ignored if not line.startswith("#")) == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == {name.removeprefix("./") for name in copied}


def test_the_container_has_what_the_tests_have() -> None:
    def locked(name: str) -> set[str]:
        return set(re.findall(r"^([a-z0-9._-]+==\S+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE))

    assert len(locked("runtime.lock")) > 50
    assert locked("runtime.lock") <= locked("dev.lock")
