"""Files of a lake, and a derived table, as tables in Hive's metastore, queried by Spark under their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headrace.cli.lake import lake as command
from headrace.errors import ConfigError
from headrace.lake.commit import Manifest
from headrace.lake.derived.place import find
from headrace.lake.derived.spec import Derive
from headrace.lake.derived.upkeep import derive
from headrace.stream.register import catalog_settings, register
from headrace.stream.session import start_session
from tests.lake_tables import ID_NAME, ORDERS, changes, land
from tests.servers.hdfs import Hdfs

pytestmark = pytest.mark.filterwarnings("ignore")  # Spark's own


def test_registered_tables_are_queried_by_name(tmp_path: Path, hdfs: Hdfs) -> None:
    lake, zipper, metastore = tmp_path / "lake", tmp_path / "zipper", tmp_path / "metastore"
    wanted = Derive.model_validate({"zipper": "parquet", "path": zipper})
    land(lake, changes(ID_NAME, (1, "i", 1, "a"), (2, "i", 2, "b"), (3, "u", 1, "c")))
    derive(Manifest.open(lake), wanted)
    arguments = ["register", str(lake), ORDERS, "--name", "shop.changes", "--metastore", str(metastore)]
    done = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert "shop.changes is" in done.output
    with pytest.raises(ConfigError, match=r"has a table shop\.changes already"):
        register(find(lake, ORDERS), "shop.changes", metastore, replace=False)

    session = start_session(2, tmp_path / "spark", catalog_settings(metastore))
    far = hdfs.place()
    land(far, changes(ID_NAME, (1, "i", 1, "far")))
    try:
        session.sql(find(far, ORDERS).statement("shop.far"))
        assert [row.name for row in session.sql("SELECT name FROM shop.far").collect()] == ["far"]
        session.sql(find(zipper, ORDERS).statement("shop.zipper"))
        found = session.sql("SELECT _ums_id_, name FROM shop.changes ORDER BY 1").collect()
        assert [tuple(row) for row in found] == [(1, "a"), (2, "b"), (3, "c")]
        land(lake, changes(ID_NAME, (4, "d", 2, "b")), offset=2)
        derive(Manifest.open(lake), wanted)
        for name in ("shop.changes", "shop.zipper"):
            session.catalog.refreshTable(name)
        assert session.sql("SELECT count(*) FROM shop.changes").collect()[0][0] == 4
        held = session.sql("SELECT id, name FROM shop.zipper WHERE from_id <= 2 AND 2 < to_id ORDER BY id").collect()
        assert [tuple(row) for row in held] == [(1, "a"), (2, "b")]
        now = session.sql("SELECT id, name FROM shop.zipper WHERE is_current").collect()
        assert [tuple(row) for row in now] == [(1, "c")]
    finally:
        session.stop()
