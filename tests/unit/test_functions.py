"""Functions of one's own in SQL: installed as pip does it, on the real engine."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.compute.functions import functions
from headrace.errors import ConfigError, DataError
from tests.flows.command import headrace
from tests.unit.test_compute import changes, computed, rows

PACKAGE = """\
    import pyarrow as pa
    import pyarrow.compute as pc
    from headrace.compute.functions import Function

    def _area(phones):
        assert isinstance(phones, pa.ChunkedArray)
        return pc.utf8_slice_codeunits(phones, 0, 3)

    def _gross(net, rate):
        return pc.multiply(net, rate)

    def _named(texts):
        return pc.fill_null(texts, "nobody")

    def _fussy(numbers):
        if pc.max(numbers).as_py() > 2:
            raise ValueError("more than two")
        return numbers

    area = Function(_area, ("VARCHAR",), "VARCHAR")
    gross = Function(_gross, ("DOUBLE", "DOUBLE"), "DOUBLE")
    named = Function(_named, ("VARCHAR",), "VARCHAR", takes_null=True)
    fussy = Function(_fussy, ("BIGINT",), "BIGINT")
    odd = Function(_area, ("VARCHR",), "VARCHAR")
    number = 5
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package without entry points; `called` gives it some."""
    (tmp_path / "own_functions.py").write_text(textwrap.dedent(PACKAGE))
    info = tmp_path / "own_functions-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-functions\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    functions.cache_clear()
    yield info
    functions.cache_clear()


def called(info: Path, **names: str) -> None:
    lines = [f"{name} = own_functions:{attribute}" for name, attribute in names.items()]
    (info / "entry_points.txt").write_text("\n".join(["[headrace.functions]", *lines]))


def test_sql_calls_them(installed: Path) -> None:
    called(installed, area="area", gross="gross", named="named")
    batch = changes(*({"id": n, "status": f"{n:05}" if n % 2 else None} for n in range(5000)))
    out = computed(
        batch,
        "SELECT id, area(status) AS area, named(status) AS who, gross(id, 0.5) AS half FROM orders WHERE id < 4000",
    )
    found = rows(out, "id", "area", "who", "half")
    assert len([row for row in found if row[0] == "i"]) == 4000
    assert found[:2] == [("i", 0, None, "nobody", 0.0), ("i", 1, "000", "00001", 0.5)]
    assert found[3999] == ("i", 3999, "039", "03999", 1999.5)


def test_a_value_on_which_one_fails_is_told(installed: Path) -> None:
    called(installed, fussy="fussy")
    with pytest.raises(DataError, match="ValueError: more than two"):
        computed(changes({"id": 3}), "SELECT id, fussy(id) AS n FROM orders")


@pytest.mark.parametrize(
    ("name", "attribute", "message"),
    [
        ("upper", "area", "function upper .* already exists"),
        ("odd", "odd", r"function odd \(VARCHR\) -> VARCHAR is not taken"),
        ("five", "number", "five .* is a int"),
        ("none", "missing", "none .* cannot be loaded: AttributeError"),
    ],
)
def test_one_that_is_none_is_told_by_name(installed: Path, name: str, attribute: str, message: str) -> None:
    called(installed, **{name: attribute})
    with pytest.raises(ConfigError, match=message):
        computed(changes({"id": 1}), "SELECT id, id + 1 AS n FROM orders")


def test_they_are_listed(installed: Path) -> None:
    called(installed, gross="gross")
    done = headrace(
        "list",
        "functions",
        env={"PYTHONPATH": os.pathsep.join([str(installed.parent), os.environ.get("PYTHONPATH", "")])},
    )
    assert (done.code, done.out.strip()) == (0, "gross(DOUBLE, DOUBLE) -> DOUBLE")
