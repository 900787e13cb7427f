"""The command lines that put a driver on YARN or Kubernetes; that spark-submit takes them is in tests/flows/test_control_plane.py."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headrace.control.placement import Local, SparkSubmit
from headrace.control.secrets import Secrets, read_pipeline
from headrace.errors import ConfigError
from tests.control import shop

SCRIPT = Path("/srv/launch.py")
ARGUMENTS = ["launched", "r1.yaml", "launches/a"]


def command(spark: str, tmp_path: Path, place: SparkSubmit) -> list[str]:
    (tmp_path / "KEY").write_text("hidden-hidden-hidden")
    pipeline = read_pipeline(shop(spark=spark), tmp_path / "r1.yaml", Secrets(tmp_path))
    return place.command("headrace-shop-a", SCRIPT, ARGUMENTS, pipeline)


def test_yarn(tmp_path: Path) -> None:
    told = command("{master: yarn, config: {spark.executor.memory: 2g}}", tmp_path, SparkSubmit(queue="etl"))
    assert Path(told[0]).is_file()
    assert " ".join(told[1:]) == (
        "--master yarn --deploy-mode cluster --name headrace-shop-a --queue etl --conf spark.executor.memory=2g"
        f" --conf spark.pyspark.python={sys.executable}"
        " --conf spark.yarn.submit.waitAppCompletion=false --conf spark.kubernetes.submission.waitAppCompletion=false"
        " /srv/launch.py launched r1.yaml launches/a"
    )


def test_kubernetes_and_no_secret_on_the_command_line(tmp_path: Path) -> None:
    spark = (
        '{master: "k8s://https://k8s:6443", config: '
        '{spark.kubernetes.container.image: headrace, spark.ssl.keyPassword: "${KEY}"}}'
    )
    told = " ".join(command(spark, tmp_path, SparkSubmit()))
    assert "--master k8s://https://k8s:6443 --deploy-mode cluster" in told
    assert "--conf spark.kubernetes.container.image=headrace" in told
    assert "hidden" not in told
    assert "keyPassword" not in told


def test_a_cluster_that_is_not_named_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not name one"):
        command("{}", tmp_path, SparkSubmit())


def test_a_local_process_is_this_python(tmp_path: Path) -> None:
    pipeline = read_pipeline(shop(), tmp_path / "r1.yaml", Secrets(tmp_path))
    assert Local().command("a", SCRIPT, ARGUMENTS, pipeline)[1:] == [str(SCRIPT), *ARGUMENTS]


@pytest.mark.parametrize(
    "line",
    [
        {"flows": '[{name: m, from: "mysql.db1.shop.*", key: {shop.visits: [password]}, to: {type: lake, path: ./lake}}]'},
        {"flows": '[{name: m, from: "mysql.db1.shop.*", columns: {rename: {password: pw}}, to: {type: lake, path: ./lake}}]'},
        {"flows": '[{name: m, from: "mysql.db1.shop.*", to: {type: database, url: "postgresql://me:${KEY}@h/d"}}]'},
        {"source": '{type: mysql, name: db1, files: ./b, tables: ["shop.*"], mask: {"shop.c.p": {type: hash, algorithm: hmac_sha256, key: "${KEY}"}}}'},
    ],
)  # fmt: skip
def test_what_is_no_secret_in_clear_is_taken(line: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "KEY").write_text("hidden-hidden-hidden")
    read_pipeline(shop(**line), tmp_path / "r1.yaml", Secrets(tmp_path))


def test_a_mask_s_key_in_clear_is_refused(tmp_path: Path) -> None:
    mask = '{"shop.c.p": {type: hash, algorithm: hmac_sha256, key: salt}}'
    source = f'{{type: mysql, name: db1, files: ./b, tables: ["shop.*"], mask: {mask}}}'
    with pytest.raises(ConfigError, match="in clear") as raised:
        read_pipeline(shop(source=source), tmp_path / "r1.yaml", Secrets(tmp_path))
    assert "salt" not in str(raised.value)
