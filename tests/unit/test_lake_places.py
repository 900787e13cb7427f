"""Where a lake can lie, and what is said when it cannot: options, libraries, buckets, rights, stores that overwrite."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from deltalake import DeltaTable
from pydantic import ValidationError

from headrace.cli.lake import lake as command
from headrace.errors import ConfigError
from headrace.lake.commit import Manifest
from headrace.lake.derived.place import find
from headrace.lake.derived.spec import Derive
from headrace.sinks.lake import LakeConfig
from headrace.storage import location
from headrace.storage.location import are_apart, tree_at
from headrace.storage.options import StoreOptions
from headrace.stream.lake_source import LakeDataSource
from tests.lake_tables import ID_NAME, ORDERS, changes, land, open_sink, rows
from tests.servers.s3 import S3


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"path": "ftp://host/lake"}, "'ftp://host/lake' is no place for files; write a directory, hdfs://"),
        ({"path": "s3:/bucket/lake", "endpoint": "http://s3"}, "`endpoint` is for paths that begin with s3://"),
        ({"path": "hdfs://node"}, "is no place for files"),
        ({"path": "hdfs://node/lake", "secret_key": "x"}, "`secret_key` is for paths that begin with s3://"),
        ({"path": "s3://bucket/lake", "web": "http://node:9870"}, "`web` is for paths that begin with hdfs://"),
        ({"path": "./lake", "timeout": "5s"}, "`timeout` is for paths that begin with"),
        (
            {"path": "s3://b/lake", "derive": [{"current": "delta", "path": "s3://b/lake/x"}]},
            "directories of their own",
        ),
        ({"path": "s3://b/lake", "derive": [{"zipper": "parquet", "path": "s3://b/z"}]}, "derive Delta tables there"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError) as refused:
        LakeConfig.model_validate({"type": "lake", **given})
    assert told in str(refused.value)


def test_options_are_those_of_the_shared_log() -> None:
    given = {"endpoint": "http://s3:9000", "access_key": "a", "secret_key": "b", "region": "r", "timeout": "5s"}
    config = LakeConfig.model_validate({"type": "lake", "path": "s3://bucket/lake/", **given})
    assert config.path == "s3://bucket/lake"
    assert config.store_options() == StoreOptions.model_validate(given)
    derived = LakeConfig.model_validate(
        {"type": "lake", "path": "lake", "derive": [{"current": "delta", "path": "s3://bucket/current"}], **given}
    )
    assert derived.store_options().endpoint == "http://s3:9000"


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as told:
        tree_at("s3://bucket/lake")
    assert told.value.fix == "pip install 'headrace[s3]'"
    with pytest.raises(ValidationError, match=r"pip install 'headrace\[hdfs\]'"):
        Derive.model_validate({"current": "delta", "path": "hdfs://node/current"})


def test_places_that_are_in_one_another(tmp_path: Path) -> None:
    assert not are_apart("s3://bucket/lake", "s3://bucket/lake/")
    assert not are_apart("s3://bucket", "s3://bucket/lake")
    assert are_apart("s3://bucket/lake", "s3://bucket/lake2")
    assert not are_apart(tmp_path, tmp_path / "deep" / "..")


def test_the_command_line_takes_urls(shared_place: str) -> None:
    land(shared_place, changes(ID_NAME, (1, "i", 1, "a"), (2, "u", 1, "b")))

    def told(*arguments: str) -> str:
        return CliRunner().invoke(command, arguments, catch_exceptions=False).output

    [listed] = told("ls", shared_place, "--json").splitlines()
    assert json.loads(listed)["rows"] == 2
    assert [json.loads(told("asof", shared_place, ORDERS, "--id", "1", "--format", "jsonl"))["name"]] == ["a"]
    assert len(told("history", shared_place, ORDERS, "--format", "jsonl").splitlines()) == 2
    assert json.loads(told("compact", shared_place, "--json"))["problems"] == []
    statement = told("register", shared_place, f"{ORDERS}.0.0.0", "--name", "shop.orders", "--ddl")
    scheme = "s3a" if shared_place.startswith("s3") else "hdfs"
    assert f"USING parquet LOCATION '{scheme}://" in statement
    purged = told("purge", shared_place, ORDERS, "--key", "id=1", "--reason", "asked", "--grace", "0", "--json")
    assert json.loads(purged)["rows"] == 2


def test_derived_tables_on_a_shared_store(shared_place: str) -> None:
    lake, into = f"{shared_place}/lake", f"{shared_place}/current"

    def keep_up() -> str:
        arguments = ["current", lake, "--into", into, "--delete", "hard"]
        return CliRunner().invoke(command, arguments, catch_exceptions=False).output

    land(lake, changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "b")))
    assert "1 tables changed: 2 changes taken in" in keep_up()
    land(lake, changes(ID_NAME, (3, "d", 1, "a"), (4, "u", 2, "c")), offset=2)
    assert "1 tables changed" in keep_up()
    assert "0 tables changed" in keep_up()
    place = find(into, ORDERS)
    assert place.format == "delta"
    directory = place.url.replace("s3a://", "s3://")
    found = DeltaTable(directory, storage_options=tree_at(into).settings).to_pyarrow_table().select(["id", "name"])
    assert rows(found) == [(2, "c")]


def test_spark_reads_a_lake_of_a_shared_store(shared_place: str) -> None:
    """Without Spark: what its tasks are sent, and what they read."""
    land(shared_place, changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "b")))
    reader = LakeDataSource({"path": shared_place, "table": ORDERS, "asof": "1", "timeout": "9s"}).reader(None)
    [batch] = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert batch.to_pylist() == [{"id": 1, "name": "a"}]
    with pytest.raises(ConfigError, match="does not take these options"):
        LakeDataSource({"path": shared_place, "table": ORDERS, "timeout": "soon"}).reader(None)


def test_a_bucket_that_is_not_there_and_a_login_that_may_not(s3: S3) -> None:
    options = s3.options()
    with pytest.raises(ConfigError, match="refuses to list") as told:
        open_sink("s3://tests/x", **{**options, "secret_key": "wrong"}).position("db1", 0)
    assert "check access_key, secret_key and region" in told.value.fix
    for place, message in (("s3://nobody-made-it/x", "there is no bucket for"), (s3.place(), "there is no lake at")):
        with pytest.raises(ConfigError, match=message):
            Manifest.open(tree_at(place, StoreOptions.model_validate(options)))


def test_a_command_tells_of_a_wrong_place() -> None:
    with pytest.raises(ConfigError, match="is no place for files"):
        CliRunner().invoke(command, ["ls", "ftp://host/lake"], catch_exceptions=False)
