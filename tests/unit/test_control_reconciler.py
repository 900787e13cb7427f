"""The reconciler when files of a pipeline are not as they should be: the others are tended all the same."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from headrace.control.api.plane import Plane
from headrace.control.launch import Launch
from headrace.control.pipelines import Revision
from headrace.control.placement import Local
from headrace.control.places import Places
from headrace.control.tables import ControlDatabase
from headrace.errors import CorruptError, StorageError
from tests.control import TEST, shop


def test_one_pipeline_in_trouble_holds_up_no_other(tmp_path: Path) -> None:
    with closing(ControlDatabase(f"sqlite:///{tmp_path / 'control.db'}")) as database:
        database.open()
        plane = Plane.of(database, tmp_path, tmp_path / "secrets", "here")
        plane.places.create()
        for name in ("broken", "whole"):
            plane.pipelines.create(name, shop(source='"${GONE}"'), Local(), TEST)
            plane.pipelines.start(name, TEST)
        (tmp_path / "pipelines" / "broken").write_text("a file in the place of a directory")
        assert plane.reconciler.tick()
        assert list(plane.reconciler.in_trouble) == ["broken"]
        assert "could not" in plane.reconciler.in_trouble["broken"]
        states = {pipeline.name: run and run.why for pipeline, run in plane.runs.newest()}
        assert "GONE" in str(states["whole"]), "it was tended: its secret is missing"

        (tmp_path / "pipelines" / "broken").unlink()
        plane.reconciler.tick()
        assert not plane.reconciler.in_trouble


def test_a_name_that_was_used_before_gets_its_own_flow_file(tmp_path: Path) -> None:
    places = Places(tmp_path, tmp_path / "secrets")
    for text in ("one: 1", "two: 2", "two: 2"):
        assert places.file(Revision("shop", 1, text, "ada", 0)).read_text() == text


def test_files_of_a_launch_that_somebody_has_removed_are_a_clear_error(tmp_path: Path) -> None:
    launch = Launch(tmp_path / "launches" / "a")
    launch.create()
    launch.call_off()
    (launch.directory / "claim").write_text('{"host": "here", "pid": 1}')
    (launch.directory / "lock").unlink()
    with pytest.raises(StorageError, match="could not look at"):
        launch.look()
    (launch.directory / "claim").write_text("{")
    with pytest.raises(CorruptError, match="not what was written"):
        launch.look()
