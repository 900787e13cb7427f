"""What the client of stream loads does with frontends and backends that redirect, refuse, fall silent or are not who they should be."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, FatalError, RetryableError
from headrace.sinks.doris.answers import Kind, LabelState, Second
from headrace.sinks.doris.cluster import Cluster, Load
from headrace.sinks.doris.config import ClusterConfig
from headrace.sinks.doris.delivery import Delivery
from headrace.sinks.doris.http import NoAnswerError
from tests.servers.doris import Doris
from tests.servers.process import free_port
from tests.servers.webhook import Webhook

HEADERS = {"format": "csv", "columns": "id", "max_filter_ratio": "0", "strict_mode": "true"}


@pytest.fixture
def doris() -> Iterator[Doris]:
    with Doris(frontends=2, backends=2, password="p@ss:word/ü") as server:
        server.sql("CREATE TABLE t (id BIGINT NOT NULL) DUPLICATE KEY(id) DISTRIBUTED BY HASH(id) BUCKETS 1")
        yield server


def cluster(doris: Doris, **more: object) -> Cluster:
    reached = {"frontends": doris.frontend_places, "query": f"127.0.0.1:{doris.sql_port}", "password": doris.password}
    return Cluster(ClusterConfig.model_validate({**reached, "timeout": 60, **more}))


def load(label: str, body: bytes = b"1\n2\n", *, two_phase: bool = False) -> Load:
    return Load("db", "t", label, HEADERS, body, two_phase)


def delivery(doris: Doris, give_up_after_s: float = 0.3) -> Delivery:
    return Delivery(cluster(doris), give_up_after_s=give_up_after_s, sleep=lambda _: None)


def test_the_body_goes_to_the_backend_only_with_the_login(doris: Doris) -> None:
    answer = cluster(doris).load(load("a"))
    assert (answer.kind, answer.loaded) == (Kind.LOADED, 2)
    (front, back) = [(role, said) for role, method, _, said in doris.seen if method == "PUT"]
    assert (front[0], back[0]) == ("fe", "be")
    assert front[1]["authorization"] == back[1]["authorization"]
    assert {front[1]["expect"], back[1]["expect"]} == {"100-continue"}
    assert doris.rows("t") == [(1,), (2,)]


def test_a_large_body_arrives_whole_and_one_that_is_refused_is_not_sent(doris: Doris) -> None:
    body = b"".join(b"%d\n" % n for n in range(200_000))
    assert cluster(doris).load(load("large", body)).loaded == 200_000
    again = cluster(doris).load(load("large", body))
    assert again.kind is Kind.FINISHED_BEFORE
    assert len(doris.rows("t")) == 200_000


def test_a_redirect_to_a_host_that_nobody_named_is_not_followed(doris: Doris) -> None:
    with Webhook() as stranger:
        place = stranger.url.removeprefix("http://").partition("/")[0]
        doris.faults.add("fe_elsewhere", text=place)
        with pytest.raises(ConfigError, match=f"sends loads on to {place}, which is none of the cluster's") as caught:
            cluster(doris).load(load("a"))
        assert doris.password not in str(caught.value)
        assert stranger.requests == []


def test_a_backend_may_be_named_or_reached_elsewhere(doris: Doris) -> None:
    backend = doris.backend_places[1]
    doris.faults.add("fe_elsewhere", text="be-1.internal:8040")
    assert cluster(doris, addresses={"be-1.internal:8040": backend}).load(load("a")).kind is Kind.LOADED
    doris.stop_backend(0)
    doris.stop_backend(1)
    doris.start_backend(1)
    doris.faults.add("fe_elsewhere", text=backend)
    assert cluster(doris, backends=[backend]).load(load("b")).kind is Kind.LOADED


def test_from_encrypted_to_plain_is_refused(doris: Doris) -> None:
    with pytest.raises(NoAnswerError, match="cannot be reached"):
        cluster(doris, tls={}).check()  # the stand-in speaks no TLS: nothing is sent without
    assert [method for _, method, _, _ in doris.seen] == []


def test_frontends_are_tried_in_turn(doris: Doris) -> None:
    doris.stop_frontend(0)
    asked = cluster(doris)
    assert asked.load(load("a")).kind is Kind.LOADED
    doris.start_frontend(0)
    doris.stop_frontend(1)
    assert asked.state("db", "a") is LabelState.VISIBLE
    doris.stop_frontend(0)
    with pytest.raises(NoAnswerError, match="cannot be reached"):
        asked.state("db", "a")


def test_a_wrong_password_is_told_once(doris: Doris) -> None:
    for action in (lambda one: one.check(), lambda one: one.load(load("a"))):
        with pytest.raises(ConfigError, match="does not let the user in") as caught:
            action(cluster(doris, password="wrong"))
        assert "wrong" not in caught.value.message


def test_no_backend_no_cluster(doris: Doris) -> None:
    for number in (0, 1):
        doris.stop_backend(number)
    with pytest.raises(NoAnswerError, match="no backend that is alive"):
        cluster(doris).check()
    with pytest.raises(RetryableError, match="No backend load available"):
        delivery(doris).deliver(load("a"))


@pytest.mark.parametrize("text", ["host", "http://h", "h:x", "ftp://h:1"])
def test_addresses_are_checked(doris: Doris, text: str) -> None:
    with pytest.raises(ValidationError):
        cluster(doris, frontends=[text])


# --- two phases


def test_two_phases_and_what_is_said_of_them(doris: Doris) -> None:
    asked = cluster(doris)
    first = asked.load(load("a", two_phase=True))
    assert (first.kind, doris.rows("t")) == (Kind.PRECOMMITTED, [])
    again = asked.load(load("a", two_phase=True))
    assert (again.kind, again.transaction) == (Kind.PRECOMMITTED_BEFORE, first.transaction)
    assert first.transaction is not None
    assert [asked.commit("db", first.transaction) for _ in range(2)] == [Second.COMMITTED] * 2
    assert asked.abort("db", "a") is Second.FORGOTTEN  # too late, which an abort by label cannot tell from never
    second = asked.load(load("b", two_phase=True))
    assert asked.abort("db", "b") is Second.ABORTED
    assert asked.commit("db", second.transaction or 0) is Second.ABORTED
    assert asked.commit("db", 1) is Second.FORGOTTEN
    assert doris.rows("t") == [(1,), (2,)]


def test_one_phase_ends_what_two_have_begun(doris: Doris) -> None:
    cluster(doris).load(load("a", two_phase=True))
    assert delivery(doris).deliver(load("a")).is_committed
    assert doris.rows("t") == [(1,), (2,)]


# --- what refuses


def test_what_refuses_is_told_by_who_must_act(doris: Doris) -> None:
    with pytest.raises(DataError, match=r"refuses 1 of 2 rows for db\.t .*\n.*invalid literal"):
        delivery(doris).deliver(load("a", b"1\nx\n"))
    with pytest.raises(ConfigError, match="unknown table, tableName=nowhere"):
        delivery(doris).deliver(Load("db", "nowhere", "b", HEADERS, b""))
    doris.faults.add("be_fail", times=100_000, text="what nobody has ever seen")
    with pytest.raises(FatalError, match="what nobody has ever seen"):
        delivery(doris, 60).deliver(load("c"))
    doris.faults.clear()
    doris.faults.add("be_fail", times=100_000, text="tablet writer write failed, err=-235")
    with pytest.raises(RetryableError, match="err=-235"):
        delivery(doris).deliver(load("d"))
    assert doris.rows("t") == []


def test_rows_are_filtered_as_far_as_they_may_be(doris: Doris) -> None:
    delivered = delivery(doris).deliver(Load("db", "t", "a", HEADERS | {"max_filter_ratio": "0.5"}, b"1\nx\n"))
    assert delivered.loaded == 1
    assert "invalid literal" in delivered.refused[0]


def test_a_list_of_rows_that_cannot_be_fetched_is_no_failure(doris: Doris) -> None:
    port = free_port()
    assert (
        "could not be fetched" in cluster(doris).error_lines(f"http://127.0.0.1:{port}/api/_load_error_log?file=x")[0]
    )
