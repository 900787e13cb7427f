"""What every store of watermarks keeps, on real databases: SQLite, PostgreSQL, MariaDB, MySQL."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

import pytest

from headrace.errors import ConfigError, RetryableError
from headrace.retry import retrying
from headrace.watermark.server import WatermarkServer
from headrace.watermark.store import StageState, WatermarkStore
from headrace.watermark.topology import Topology
from headrace.watermark.wire import NEVER
from tests.servers.process import free_port

APPLICATION = Topology.model_validate(
    {"name": "app", "stages": [{"name": "logs"}, {"name": "lake", "after": ["logs"]}]}
)


@pytest.fixture
def store(url: str) -> Iterator[WatermarkStore]:
    with closing(WatermarkStore(url)) as opened:
        opened.open()
        opened.register(APPLICATION)
        yield opened


def logs(store: WatermarkStore) -> StageState:
    return next(stage for stage in store.publish([]).stages if stage.name == "logs")


def test_a_watermark_is_kept_and_never_falls(store: WatermarkStore, url: str) -> None:
    assert logs(store).published_us == NEVER
    store.publish([(logs(store), 100)])
    store.publish([(logs(store), 90)])
    with closing(WatermarkStore(url)) as other:
        other.open()
        assert logs(other).published_us == 100
        assert other.topologies() == [APPLICATION]


def test_servers_may_begin_at_the_same_moment_on_an_empty_database(url: str) -> None:
    together = Barrier(4)

    def begin(_: int) -> list[StageState]:
        with closing(WatermarkStore(url)) as opened:
            together.wait()
            opened.open()
            return list(opened.publish([]).stages)

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(begin, range(4))) == [[]] * 4


def test_it_is_not_committed_under_an_older_membership(store: WatermarkStore) -> None:
    before = logs(store)
    assert store.join(before.id, ["web1"]) == {"web1": 0}
    store.publish([(before, 100)])
    assert logs(store).published_us == NEVER
    store.publish([(logs(store), 100)])
    assert store.join(before.id, ["web2", "web1"]) == {"web2": 1, "web1": 0}
    version, members = store.membership(before.id)
    assert version == logs(store).version == before.version + 2
    assert dict(zip(members.names, members.since_us.tolist(), strict=True)) == {"web1": NEVER, "web2": 100}


def test_who_leaves_is_listed_and_may_come_back(store: WatermarkStore) -> None:
    stage = logs(store).id
    store.join(stage, ["web1", "web2", "web3"])
    store.leave(stage, ["web1"], "drained")
    store.leave(stage, ["web2"], "abandoned")
    assert {gone.name: gone.state for gone in store.gone(stage)} == {"web1": "drained", "web2": "abandoned"}
    store.publish([(logs(store), 50)])
    store.take_back(stage, [0, 1])
    _, members = store.membership(stage)
    assert dict(zip(members.names, members.since_us.tolist(), strict=True)) == {"web2": 50, "web3": NEVER}
    assert store.join(stage, ["web1"]) == {"web1": 0}


def test_weights_count_only_for_the_membership_that_they_are_of(store: WatermarkStore) -> None:
    stage = logs(store).id
    store.join(stage, ["web1", "web2"])
    weighed = logs(store)
    store.weigh(weighed, {0: 7.0, 1: 3.0})
    assert store.membership(stage)[1].weights.tolist() == [7, 3]
    store.weigh(weighed, {0: 1.0, 1: 1.0})
    assert store.membership(stage)[1].weights.tolist() == [7, 3]


def test_one_holds_a_lease_until_it_ends(url: str) -> None:
    now = [1000.0]
    with closing(WatermarkStore(url, lambda: now[0])) as store:
        store.open()
        assert store.lease("hosts", "one", 10)
        assert not store.lease("hosts", "other", 10)
        assert store.lease("hosts", "one", 10)
        now[0] += 11
        assert store.lease("hosts", "other", 10)
        assert not store.lease("hosts", "one", 10)


def test_many_join_at_once(store: WatermarkStore, url: str) -> None:
    """Each has an id of its own, and the version says that something has changed."""
    stage = logs(store).id

    def join(number: int) -> dict[str, int]:
        with closing(WatermarkStore(url)) as own:
            return retrying(lambda: own.join(stage, [f"web{number}", "shared"]), give_up_after_s=60)

    with ThreadPoolExecutor(8) as pool:
        joined = list(pool.map(join, range(24)))
    assert len({ids["shared"] for ids in joined}) == 1
    assert sorted(set().union(*(ids.values() for ids in joined))) == list(range(25))


def test_two_servers_register_and_see_each_other(url: str) -> None:
    with closing(WatermarkStore(url)) as one, closing(WatermarkStore(url)) as other:
        servers = [WatermarkServer(one), WatermarkServer(other)]
        for server in servers:
            server.open()
        servers[0].register(APPLICATION)
        assert servers[1].spec("app") == APPLICATION
        changed = replace_tolerance(APPLICATION)
        servers[1].register(changed)
        life = servers[0].life
        servers[0].tick()
        assert servers[0].spec("app") == changed
        assert servers[0].life != life, "clients must tell again what a changed stage has not heard"


def replace_tolerance(topology: Topology) -> Topology:
    return topology.model_copy(
        update={"stages": [topology.stages[0].model_copy(update={"tolerate": 0.5}), topology.stages[1]]}
    )


@pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
def test_a_database_that_is_away_is_waited_for(scheme: str) -> None:
    with (
        closing(WatermarkStore(f"{scheme}://me:secret@127.0.0.1:{free_port()}/nowhere")) as store,
        pytest.raises(RetryableError, match="cannot be used") as raised,
    ):
        store.open()
    assert "secret" not in str(raised.value)


def test_a_database_of_no_known_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="is no URL of a database"):
        WatermarkStore("oracle of delphi")
