"""Alerts from real servers to a real mail server and real webhooks: told once, escalated, silenced, not lost when anything dies."""

from __future__ import annotations

import json
import ssl
import subprocess
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from hmac import digest
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from sqlalchemy import update

from headrace.control.tables import NOTICES, ControlDatabase
from tests.control import Client, ControlServer, serving, shop, wait_until
from tests.servers.install import find_program
from tests.servers.mail import MailServer
from tests.servers.mariadb import MariaDb
from tests.servers.webhook import Answer, Webhook

FULL = {
    "when": {"kind": "disk", "below_percent": 99.999},
    "holds_s": 0,
    "settles_s": 0,
    "severity": "critical",
    "note": "make room",
}
"""Always so, and with `EMPTY` never: a disk that a test can fill and clear."""
EMPTY = {**FULL, "when": {"kind": "disk", "below_percent": 0.0001}}
CHAT = {"kind": "webhook", "url": "${CHAT_URL}", "signed_by": "${CHAT_SECRET}", "headers": {"Authorization": "Bearer ${CHAT_SECRET}"},
        "body": {"text": "*{title}*\n{text}", "alerts": "{alerts}", "n": 5}}  # fmt: skip


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Of a server, with the secrets of its channels."""
    (tmp_path / "server" / "secrets").mkdir(parents=True)
    return tmp_path / "server"


@pytest.fixture
def chat(directory: Path) -> Iterator[Webhook]:
    with Webhook() as started:
        write_secrets(directory, CHAT_URL=started.url, CHAT_SECRET="whsec_" + b64encode(b"key of the chat").decode())
        yield started


def write_secrets(directory: Path, **secrets: str) -> None:
    for name, value in secrets.items():
        (directory / "secrets" / name).write_text(value + "\n")


def certificate(folder: Path) -> ssl.SSLContext:
    """Of a server at 127.0.0.1; the file is `folder`/certificate.pem."""
    key, pem = folder / "key.pem", folder / "certificate.pem"
    new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=mail", "-days", "2"]
    files = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(pem)]
    subprocess.run([find_program("openssl"), *new, *files], check=True, capture_output=True)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(pem, key)
    return context


def email(server: MailServer, **options: Any) -> dict[str, Any]:
    to = ["ada@example.org", "bob@example.org"]
    return {
        "kind": "email",
        "host": "127.0.0.1",
        "port": server.port,
        "sender": "headrace@example.org",
        "to": to,
        **options,
    }


def notices(admin: Client, **wanted: Any) -> list[dict[str, Any]]:
    """Those that are as wanted, the oldest first."""
    found = admin.get("/alerts/notices?limit=200")
    return [notice for notice in reversed(found) if all(notice[key] == value for key, value in wanted.items())]


def ended(admin: Client, channel: str, count: int, state: str = "sent") -> None:
    """Waits until so many notices of a channel have come to that."""
    wait_until(lambda: len(notices(admin, channel=channel, state=state)) == count)


def test_an_alert_from_its_beginning_to_its_end(directory: Path, chat: Webhook, tmp_path: Path) -> None:
    context = certificate(tmp_path)
    write_secrets(directory, MAIL="pass word")
    with MailServer(tls=context, user="head race", password="pass word") as mail, serving(directory) as server:
        admin = server.client()
        encrypted = {"user": "head race", "password": "${MAIL}", "ca": str(tmp_path / "certificate.pem")}
        admin.do("PUT", "/alerts/channels/mail", email(mail, **encrypted))
        admin.do("PUT", "/alerts/channels/chat", CHAT)
        sms = {
            "kind": "webhook",
            "url": chat.url.replace("hook", "sms"),
            "format": "form",
            "body": {"to": "+49 1", "text": "{title}", "password": "${MAIL}"},
        }
        admin.do("PUT", "/alerts/channels/sms", sms)
        escalation = [{"after_s": 1, "to": ["sms"]}]
        admin.do("PUT", "/alerts/rules/disk", {**FULL, "to": ["mail", "chat"], "escalate": escalation})
        for channel in ("mail", "chat", "sms"):
            ended(admin, channel, 1)

        [alert] = admin.get("/alerts?state=firing")
        assert (alert["rule"], alert["pipeline"], alert["severity"]) == ("disk", "", "critical")
        assert set(alert["told"]) == {"mail", "chat", "sms"}
        [told] = mail.taken
        assert told.to == ["ada@example.org", "bob@example.org"]
        assert told.message["Subject"].startswith("[critical] firing: disk, this server, disk ")
        assert "make room" in told.message.get_content()
        assert told.message["Auto-Submitted"] == "auto-generated"
        [to_chat] = [request for request in chat.taken if request.path == "/hook"]
        body = json.loads(to_chat.body)
        assert body["text"].startswith("*[critical] firing: disk, this server, disk ")
        assert [(each["id"], each["state"]) for each in body["alerts"]] == [(alert["id"], "firing")]
        assert body["n"] == 5
        assert to_chat.headers["authorization"].startswith("Bearer whsec_")
        signed = f"{to_chat.headers['webhook-id']}.{to_chat.headers['webhook-timestamp']}.".encode() + to_chat.body
        expected = b64encode(digest(b"key of the chat", signed, sha256)).decode()
        assert to_chat.headers["webhook-signature"] == f"v1,{expected}"
        [to_phone] = [request for request in chat.taken if request.path == "/sms"]
        assert parse_qs(to_phone.body.decode()) == {
            "to": ["+49 1"],
            "text": [told.message["Subject"]],
            "password": ["pass word"],
        }

        assert (
            server.client("operator").do("POST", f"/alerts/{alert['id']}/acknowledge")["acknowledged_by"] == "operator"
        )
        admin.do("PUT", "/alerts/rules/disk", {**EMPTY, "to": ["mail", "chat"]})
        for channel in ("mail", "chat", "sms"):
            ended(admin, channel, 2)
        assert [each["state"] for each in admin.get("/alerts")] == ["over"]
        assert mail.taken[1].message["Subject"].startswith("[critical] over: ")
        assert "whsec_" not in str(admin.get("/alerts/channels"))
        did = [deed["action"] for deed in admin.get("/audit")]
        assert did.count("alert rule") == 2
        assert "acknowledge" in did


def test_what_a_channel_does_not_take_is_told_on_its_page(directory: Path, chat: Webhook) -> None:
    with MailServer() as mail, serving(directory) as server:
        admin = server.client()
        admin.do("PUT", "/alerts/channels/mail", email(mail, encryption="none"))
        admin.do("PUT", "/alerts/channels/chat", CHAT)
        mail.unknown = {"ada@example.org", "bob@example.org"}
        chat.answer = lambda request: Answer(400, body=b"no such field: n")
        for channel in ("mail", "chat"):
            admin.do("POST", f"/alerts/channels/{channel}/try")
            ended(admin, channel, 1, "refused")
        assert "refuses ada@example.org" in notices(admin, channel="mail")[0]["why"]
        assert "400: no such field: n" in notices(admin, channel="chat")[0]["why"]
        mail.unknown, mail.answer = set(), "451 later"
        chat.answer = lambda request: Answer(401)  # until somebody has mended the secret
        for channel in ("mail", "chat"):
            admin.do("POST", f"/alerts/channels/{channel}/try")
            wait_until(lambda channel=channel: notices(admin, channel=channel, state="waiting", attempts=2))
        mail.answer = "250 taken"
        chat.answer = lambda request: Answer()
        for channel in ("mail", "chat"):
            ended(admin, channel, 1)
        assert len(mail.taken) == len(chat.taken) == 1
        ids = Counter(request.headers["webhook-id"] for request in chat.requests)
        assert len(ids) == 2, "each attempt has the id of its message"


def test_nothing_is_lost_while_channels_and_the_server_are_away(directory: Path, chat: Webhook) -> None:
    mail = MailServer()
    with serving(directory) as server:
        admin = server.client()
        admin.do("PUT", "/alerts/channels/mail", email(mail, encryption="none"))
        admin.do("PUT", "/alerts/channels/chat", CHAT)
        chat.stop()
        admin.do("PUT", "/alerts/rules/disk", {**FULL, "to": ["mail", "chat"]})
        for channel in ("mail", "chat"):
            wait_until(
                lambda channel=channel: [
                    each for each in notices(admin, channel=channel, state="waiting") if each["why"]
                ]
            )
        admin.do("PUT", "/alerts/rules/disk", {**EMPTY, "to": ["mail", "chat"]})
        wait_until(lambda: len(notices(admin, state="waiting")) == 4)
        assert {found["waiting"] for found in admin.get("/alerts/channels")} == {2}
        server.kill()
        server.start()
        admin.url = server.url
        chat.start()
        with mail:
            for channel in ("mail", "chat"):
                ended(admin, channel, 2)
        subjects = [told.message["Subject"].split(":")[0] for told in mail.taken]
        assert subjects == ["[critical] firing", "[critical] over"], "in their order"
        assert [json.loads(request.body)["alerts"][0]["state"] for request in chat.taken] == ["firing", "over"]


def test_silence_puts_off_and_ends(directory: Path, chat: Webhook) -> None:
    with serving(directory) as server:
        admin, operator = server.client(), server.client("operator")
        admin.do("PUT", "/alerts/channels/chat", CHAT)
        silence = operator.do(
            "POST", "/alerts/silences", {"rule": "di*", "seconds": 3600, "reason": "the disk is being changed"}
        )
        admin.do("PUT", "/alerts/rules/disk", {**FULL, "to": ["chat"]})
        admin.do("PUT", "/alerts/rules/other", {**FULL, "to": ["chat"]})
        ended(admin, "chat", 1)
        wait_until(lambda: {alert["rule"] for alert in admin.get("/alerts?state=firing")} == {"disk", "other"})
        shown = {alert["rule"]: (alert["silenced"], alert["told"]) for alert in admin.get("/alerts")}
        assert shown == {"disk": (True, []), "other": (False, ["chat"])}
        operator.do("POST", f"/alerts/silences/{silence['id']}/end")
        ended(admin, "chat", 2)
        assert [json.loads(request.body)["alerts"][0]["rule"] for request in chat.taken] == ["other", "disk"]


def test_of_two_servers_one_tells(directory: Path, chat: Webhook) -> None:
    """The one that leads is killed in the middle of it and begins again; each is told once, by whoever leads."""
    rules = [f"disk-{number}" for number in range(12)]
    with serving(directory) as first, serving(directory) as second:
        client = {server.url: server.client() for server in (first, second)}
        found: list[ControlServer] = []
        wait_until(lambda: found.extend(server for server in (first, second) if client[server.url].leads()) or found)
        leads = found[0]
        admin = client[(second if leads is first else first).url]
        admin.do("PUT", "/alerts/channels/chat", CHAT)
        for rule in rules[:6]:
            admin.do("PUT", f"/alerts/rules/{rule}", {**FULL, "to": ["chat"]})
        wait_until(lambda: chat.requests)
        leads.kill()
        for rule in rules[6:]:
            admin.do("PUT", f"/alerts/rules/{rule}", {**FULL, "to": ["chat"]})
        ended(admin, "chat", 12)
        leads.start()
        for rule in rules:
            admin.do("PUT", f"/alerts/rules/{rule}", {**EMPTY, "to": ["chat"]})
        ended(admin, "chat", 24)
    by_id = {request.headers["webhook-id"]: json.loads(request.body)["alerts"] for request in chat.taken}
    told = Counter((each["rule"], each["state"]) for alerts in by_id.values() for each in alerts)
    assert told == {(rule, state): 1 for rule in rules for state in ("firing", "over")}


def let_its_time_pass(directory: Path) -> None:
    """While no server lives: the message that a dead one has taken is nobody's any more. That nobody takes it before is
    held in conformance/test_alert_store.py, on a clock that it moves."""
    with closing(ControlDatabase(f"sqlite:///{directory / 'control.db'}")) as database:
        database.open()
        with database.transaction() as connection:
            taken = update(NOTICES).where(NOTICES.c.message.is_not(None), NOTICES.c.state == "waiting")
            assert connection.execute(taken.values(next_us=0)).rowcount == 1


def test_a_server_that_dies_while_it_sends_is_followed_under_the_same_id(directory: Path, chat: Webhook) -> None:
    server = ControlServer(directory)
    try:
        server.start({"HEADRACE_CRASH_AT": "alerts.sent"})
        admin = server.client()
        admin.do("PUT", "/alerts/channels/chat", CHAT)
        admin.do("POST", "/alerts/channels/chat/try")
        server.wait_for_death()  # the chat has it, and nobody has noted that
        let_its_time_pass(directory)
        server.start({"HEADRACE_CRASH_AT": "alerts.taken"})
        server.wait_for_death()  # it is taken once more, and was not sent
        let_its_time_pass(directory)
        server.start()
        admin.url = server.url
        ended(admin, "chat", 1)
        assert len(chat.taken) == 2
        assert len({request.headers["webhook-id"] for request in chat.taken}) == 1
    finally:
        server.end_all()


def test_what_is_done_to_a_source_is_told(directory: Path, chat: Webhook) -> None:
    """A table changes, then the server's log is reset: the run tells both, the second one while it ends."""
    with MariaDb() as database, serving(directory) as server:
        database.execute("CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", *["FLUSH BINARY LOGS"] * 3)
        write_secrets(directory, DB1=database.password)
        admin = server.client()
        admin.do("PUT", "/alerts/channels/chat", CHAT)
        for kind in ("schema", "log_number"):
            admin.do("PUT", f"/alerts/rules/{kind}", {"when": {"kind": kind}, "holds_s": 0, "to": ["chat"]})
        place = f'host: "{database.host}", port: {database.port}, user: "{database.user}", password: "${{DB1}}"'
        source = f'{{type: mysql, name: db1, {place}, tables: ["shop.*"], heartbeat: 1s}}'
        flow = '[{name: mart, from: "mysql.db1.shop.*", to: {type: database, url: "sqlite:///./mart.db"}}]'
        admin.do("POST", "/pipelines", {"name": "shop", "text": shop(source=source, flows=flow)})
        admin.do("POST", "/pipelines/shop/start")
        database.execute("INSERT INTO shop.t VALUES (1)", "ALTER TABLE shop.t ADD COLUMN note TEXT")
        ended(admin, "chat", 1)
        [told] = told_of(chat, "schema")
        assert told["subject"] == "table mysql.db1.shop.t, version 1"
        assert told["text"].startswith("note added (")
        assert "ALTER TABLE shop.t ADD COLUMN note" in told["text"]
        database.execute("RESET MASTER")
        ended(admin, "chat", 2)
        [told] = told_of(chat, "log_number")
        assert told["subject"] == "source db1"
        # It was reset: the heartbeat sees the number fall, or the next connection that the place is lost.
        assert "fell from binlog.000004 to binlog.000001" in told["text"] or "it was reset" in told["text"]


def told_of(chat: Webhook, rule: str) -> list[dict[str, Any]]:
    found = [each for request in chat.taken for each in json.loads(request.body)["alerts"]]
    return [each for each in found if each["rule"] == rule]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("channels/mail", {"kind": "email", "host": "h", "user": "u", "password": "hidden", "sender": "a@b", "to": ["a@b"]}, "email.password"),
        ("channels/chat", {"kind": "webhook", "url": "ftp://host/"}, "webhook.url"),
        ("channels/chat", {"kind": "webhook", "url": "https://ada:hidden@host/"}, "webhook.url"),
        ("channels/chat", {**CHAT, "headers": {"X-Api-Key": "hidden"}}, "webhook.headers"),
        ("channels/chat", {**CHAT, "body": {"token": "hidden"}}, "webhook.body"),
        ("channels/chat", {**CHAT, "body": {"text": "{titel}"}}, "webhook.body"),
        ("channels/chat", {**CHAT, "format": "form", "body": {"n": 1}}, "webhook"),
        ("rules/disk", {**FULL, "to": ["nobody"]}, ""),
        ("rules/disk", {**FULL, "when": {"kind": "moon"}}, "when"),
        ("rules/disk", {**FULL, "when": {"kind": "schema", "within_s": 1}}, "when.schema.within_s"),
        ("rules/disk", {**FULL, "colour": "red"}, "colour"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_its_field(refusing: Client, path: str, body: Any, field: str) -> None:
    answer = refusing.ask("PUT", f"/alerts/{path}", body)
    assert answer.status == 422, answer
    assert not field or field in {found["field"] for found in answer.body["fields"]}
    assert "hidden" not in str(answer.body)


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with serving(tmp_path_factory.mktemp("alerts") / "server") as server:
        yield server.client()
