"""What only webhooks have, on a real HTTP server: bodies and headers as a receiver sees them, and what becomes of its answers."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from headrace.errors import ConfigError, DataError, HeadraceError, RetryableError
from headrace.flow.shape import Shaper
from headrace.flow.spec import FlowSpec
from headrace.log.base import Entry
from headrace.log.directory import DirectoryLog
from headrace.retry import Backoff
from headrace.sinks.base import Position
from headrace.sinks.webhook import WebhookSink
from headrace.stream.deliver import Follower
from headrace.testing.sink import ORDERS, Change, batch_of, order, version_of
from headrace.ums.change import MARK_KEY, Cause, ChangeBatch, Clear, Mark, Statement
from headrace.ums.schema import Column
from tests.servers.webhook import Answer, Request, Webhook

POSITION = Position("db1", 0, 1, 1, 1)


@pytest.fixture
def server() -> Iterator[Webhook]:
    with Webhook() as webhook:
        yield webhook


def open_sink(url: str, **settings: Any) -> WebhookSink:
    return WebhookSink(WebhookSink.Config(type="webhook", url=url, **settings), "mart")


def post(url: str, *changes: ChangeBatch | Clear, **settings: Any) -> None:
    with closing(open_sink(url, **settings)) as sink:
        for change in changes:
            sink.prepare(change.table)
            sink.clear(change) if isinstance(change, Clear) else sink.write(change)
        sink.commit(POSITION)


def test_rows_are_posted_as_they_are_now(server: Webhook) -> None:
    clear = Clear(ORDERS, 3, 3, Cause.TRUNCATED, Statement("TRUNCATE orders", "binlog.000003:4"))
    changes = [order(1, 10, note='ü"\n'), order(2, 10, "d"), Change("i", 4, {"id": 11, "amount": Decimal("0.50")})]
    post(server.url, batch_of(ORDERS, changes[:2]), clear, batch_of(ORDERS, changes[2:]))
    bodies = [json.loads(request.body) for request in server.taken]
    head = {"flow": "mart", "namespace": "mysql.db1.shop.orders.0.0.0"}
    at = "2023-11-14 22:13:20.00000"
    assert bodies == [
        {**head, "key": ["id"], "rows": [
            {"id": 10, "note": 'ü"\n', "amount": 1.0, "_ums_id_": "1", "_ums_ts_": f"{at}1", "_is_active_": 1},
            {"id": 10, "note": "by 2", "amount": 2.0, "_ums_id_": "2", "_ums_ts_": f"{at}2", "_is_active_": 0},
        ]},
        {**head, "clear": {"id": "3", "cause": "truncated", "sql": "TRUNCATE orders", "at": "binlog.000003:4"}},
        {**head, "key": ["id"], "rows": [
            {"id": 11, "note": None, "amount": 0.5, "_ums_id_": "4", "_ums_ts_": f"{at}4", "_is_active_": 1},
        ]},
    ]  # fmt: skip
    assert b'"amount": 0.50' in server.taken[2].body, "all digits are there"
    assert {request.path for request in server.taken} == {"/hook"}


def test_requests_hold_so_many_rows_and_headers_go_along(server: Webhook) -> None:
    post(server.url, batch_of(ORDERS, [order(n, n) for n in range(1, 8)]), batch_rows=3, headers={"X-Token": "s3cret"})
    assert [len(json.loads(request.body)["rows"]) for request in server.taken] == [3, 3, 1]
    assert {request.headers["x-token"] for request in server.taken} == {"s3cret"}


def test_the_same_rows_have_the_same_idempotency_key(server: Webhook) -> None:
    for _ in range(2):
        post(server.url, batch_of(ORDERS, [order(1, 1)]))
    post(server.url, batch_of(ORDERS, [order(2, 1)]))
    keys = [request.headers["idempotency-key"] for request in server.taken]
    assert keys[0] == keys[1] != keys[2]
    assert keys == [request.headers["webhook-id"] for request in server.taken]
    assert keys[0] == hashlib.sha256(b"mart\0" + server.taken[0].body).hexdigest()


@pytest.mark.parametrize("secret", ["a plain secret", "whsec_" + b64encode(b"\0\xff" * 12).decode()])
def test_requests_are_signed_as_standard_webhooks_are(secret: str, server: Webhook) -> None:
    post(server.url, batch_of(ORDERS, [order(1, 1)]), secret=secret)
    [request] = server.taken
    key = b64decode(secret[6:]) if secret.startswith("whsec_") else secret.encode()
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + request.body
    expected = b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"
    assert abs(time.time() - int(request.headers["webhook-timestamp"])) < 60
    assert "webhook-signature" not in post_unsigned(server).headers


def post_unsigned(server: Webhook) -> Request:
    post(server.url, batch_of(ORDERS, [order(1, 1)]))
    return server.taken[-1]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *((status, RetryableError) for status in (408, 425, 429, 500, 502, 503, 504)),
        *((status, ConfigError) for status in (301, 307, 401, 403, 404, 405, 407, 410)),
        *((status, DataError) for status in (400, 409, 413, 415, 422)),
    ],
)
def test_answers_say_who_must_act(status: int, kind: type[HeadraceError], server: Webhook) -> None:
    server.answer = lambda request: Answer(status, body=b"no such luck")
    with pytest.raises(HeadraceError, match=f"/hook answers {status}: no such luck") as caught:
        post(server.url.replace("//", "//me:s3cret@") + "?token=s3cret", batch_of(ORDERS, [order(1, 1)]))
    assert type(caught.value) is kind
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("wanted", "least_s", "most_s"),
    [
        ("7", 7, 7),
        ("9000", 30, 30),
        ("soon", 0.1, 0.1),
        (time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(0)), 0.1, 0.1),
        ("Fri, 01 Jan 2100 00:00:00 GMT", 30, 30),
    ],
)
def test_a_server_may_say_when_to_come_again(wanted: str, least_s: float, most_s: float, server: Webhook) -> None:
    server.answer = lambda request: Answer(429, (("Retry-After", wanted),))
    with pytest.raises(RetryableError) as caught:
        post(server.url, batch_of(ORDERS, [order(1, 1)]))
    assert least_s <= caught.value.retry_after_s <= most_s
    assert Backoff(60).failed(caught.value) >= least_s


def test_a_server_that_is_away_or_slow_is_an_outage(server: Webhook) -> None:
    server.answer = lambda request: time.sleep(0.5) or Answer()  # type: ignore[func-returns-value]
    with pytest.raises(RetryableError, match="does not answer"):
        post(server.url, batch_of(ORDERS, [order(1, 1)]), timeout=0.05)
    server.stop()
    with pytest.raises(RetryableError, match="does not answer"):
        post(server.url, batch_of(ORDERS, [order(1, 1)]))


def test_check_finds_out_whether_somebody_is_there(server: Webhook, tmp_path: Path) -> None:
    open_sink(server.url).check()
    assert server.requests == []
    with pytest.raises(ConfigError, match="is not who it should be"):
        open_sink(server.url.replace("http:", "https:")).check()
    with pytest.raises(ConfigError, match="there is no file"):
        open_sink(server.url, ca=tmp_path / "none.pem").check()
    server.stop()
    with pytest.raises(RetryableError, match="does not answer"):
        open_sink(server.url).check()


def test_names_and_values_that_json_cannot_have_are_told(server: Webhook) -> None:
    reserved = version_of(ORDERS, 0, *ORDERS.columns, Column("_ums_id_", ORDERS.columns[0].type, "bigint"))
    with pytest.raises(ConfigError, match="the column _ums_id_"):
        open_sink(server.url).prepare(reserved)


@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": {"a b": "s3cret"}},
        {"headers": {"a": "s3cret\n"}},
        {"url": "http://x:99999/"},
        {"url": "ftp://x/y"},
        {"url": "https:///y"},
        {"secret": "whsec_?"},
        {"batch_rows": 0},
        {"format": "xml"},
    ],
)
def test_wrong_settings_are_told_without_their_values(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        WebhookSink.Config.model_validate(
            {"type": "webhook", "url": "https://x/y", "headers": {"a": "s3cret"}, **wrong}
        )
    assert "s3cret" not in str(caught.value)


def flow_of(log: DirectoryLog, server: Webhook, **flow: Any) -> Callable[[], Follower]:
    spec = FlowSpec.model_validate(
        {"name": "mart", "from": "mysql.db1", "to": {"type": "webhook", "url": server.url}, **flow}
    )

    def follow() -> Follower:
        follower = Follower(lambda: WebhookSink(spec.to, "mart"), Shaper(spec), log, "db1", 0, start=None)  # type: ignore[arg-type]
        follower.run(lambda: False, lambda offset: offset >= log.spans("db1")[0].stop, Backoff(30))
        return follower

    return follow


def append(log: DirectoryLog, *rows: Change) -> None:
    batch, newest = batch_of(ORDERS, rows), rows[-1].id
    mark = Mark("db1", {}, newest, newest)
    log.append("db1", 0, [Entry(batch.key(), batch.to_block(), 0), Entry(MARK_KEY, mark.to_block(), 0)])


def test_a_flow_waits_for_a_server_that_is_away_and_sets_aside_what_it_refuses(server: Webhook, tmp_path: Path) -> None:
    answers = iter([Answer(503), Answer(429), *[Answer()] * 100])

    def answer(request: Request) -> Answer:
        return Answer(422, body=b"poison") if b"poison" in request.body else next(answers)

    server.answer = answer
    with closing(DirectoryLog(DirectoryLog.Config(type="directory", path=tmp_path / "log"))) as log:
        append(log, *[order(n, n, note="poison" if n == 5 else None) for n in range(1, 10)])
        append(log, order(10, 5, "u"))
        follower = flow_of(log, server, set_aside=1)()
        assert follower.delivered.retries == 2
        assert follower.delivered.failed.total() == 1
        newest: dict[int, tuple[int, str]] = {}
        for request in server.taken:
            for row in json.loads(request.body)["rows"]:
                newest[row["id"]] = max(newest.get(row["id"], (0, "")), (int(row["_ums_id_"]), row["note"]))
        assert newest == {n: (n, f"by {n}") if n != 5 else (10, "by 10") for n in range(1, 10)}
