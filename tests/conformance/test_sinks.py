"""Every registered sink passes the suite; the database sink once per dialect and way of deleting, on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from uuid import uuid4

import pytest

from headrace import registry
from headrace.sinks.base import Sink
from headrace.testing.sink import OpenSink, SinkConformance

Settings = dict[str, object]
Store = Callable[[pytest.FixtureRequest, Path], AbstractContextManager[Settings]]


def _lake(request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[Settings]:
    return nullcontext({"path": str(folder / "lake")})


def _memory(request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[Settings]:
    return nullcontext({"name": str(uuid4())})


def _sqlite(request: pytest.FixtureRequest, folder: Path) -> AbstractContextManager[Settings]:
    return nullcontext({"url": f"sqlite:///{folder / 'mart.db'}"})


def _server(fixture: str) -> Store:
    @contextmanager
    def store(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
        server = request.getfixturevalue(fixture)
        with server.database() as name:
            yield {"url": server.url(name)}

    return store


def _hard(store: Store) -> Store:
    @contextmanager
    def with_hard_deletes(request: pytest.FixtureRequest, folder: Path) -> Iterator[Settings]:
        with store(request, folder) as settings:
            yield {**settings, "delete": "hard"}

    return with_hard_deletes


_DIALECTS = {"sqlite": _sqlite, "postgresql": _server("postgresql"), "mariadb": _server("mariadb")}
STORES: dict[str, dict[str, Store]] = {
    "lake": {"lake": _lake},
    "memory": {"memory": _memory},
    "database": {**_DIALECTS, **{f"{name}-hard": _hard(store) for name, store in _DIALECTS.items()}},
}
"""Name of a sink -> its stores: what to put into the configuration beside `type`."""

_CASES = [(sink, variant) for sink in registry.SINKS for variant in STORES.get(sink, {"no store": None})]


@pytest.mark.parametrize(("sink", "variant"), _CASES, ids=[variant for _, variant in _CASES])
class TestSinks(SinkConformance):
    @pytest.fixture
    def open_sink(self, sink: str, variant: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenSink]:
        assert sink in STORES, f"the sink '{sink}' is registered: give it a store in {__name__}.STORES"
        made: type[Sink] = registry.load("sinks", sink)
        with STORES[sink][variant](request, tmp_path) as settings:
            config = made.Config.model_validate({"type": sink, **settings})
            yield lambda: made(config, "flow")  # type: ignore[call-arg]
