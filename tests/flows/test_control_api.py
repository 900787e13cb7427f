"""The API as programs and browsers use it, on a real server: who may do what, what is refused and how, and what schemathesis finds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings

from headrace.control.people import Role
from tests import patience
from tests.control import PASSWORD, Client, ControlServer, serving, shop, wait_until

_EXAMPLES = int(os.environ.get("HEADRACE_API_EXAMPLES", "4"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlServer]:
    directory = tmp_path_factory.mktemp("control") / "server"
    (directory / "secrets").mkdir(parents=True)
    (directory / "secrets" / "DB1").write_text("se cret\n")
    with serving(directory) as started:
        yield started


@pytest.fixture(scope="module")
def clients(server: ControlServer) -> dict[Role, Client]:
    return {role: server.client(role) for role in ("viewer", "operator", "admin")}


@pytest.fixture
def admin(clients: dict[Role, Client]) -> Client:
    return clients["admin"]


def test_nothing_is_told_or_done_without_a_login(server: ControlServer) -> None:
    anybody, guessing = Client(server.url), Client(server.url, "hr_guessed")
    described = anybody.get("/openapi.json")
    assert described["openapi"].startswith("3.1")
    asked = [
        (method.upper(), path.removeprefix("/api/v1").replace("{name}", "shop").replace("{user}", "ada"))
        for path, methods in described["paths"].items()
        for method in methods
        if (method, path) != ("post", "/api/v1/session")
    ]
    assert len(asked) > 30
    for method, path in asked:
        filled = path.replace("{run}", "a" * 32).replace("{operation}", "a" * 32).replace("{token}", "a" * 16)
        assert anybody.ask(method, filled).status == 401, (method, path)
        assert guessing.ask(method, filled).status == 401, (method, path)


def test_roles_may_do_what_they_are_for(clients: dict[Role, Client]) -> None:
    clients["admin"].do("POST", "/pipelines", {"name": "roles", "text": shop()})
    asked: list[tuple[str, str, Any, Role]] = [
        ("GET", "/pipelines", None, "viewer"),
        ("POST", "/pipelines/roles/stop", None, "operator"),
        ("PUT", "/pipelines/roles", {"text": shop(epoch="3s"), "base": 1}, "admin"),
        ("GET", "/audit", None, "admin"),
        ("DELETE", "/pipelines/roles", None, "admin"),
    ]
    order: list[Role] = ["viewer", "operator", "admin"]
    for method, path, body, needed in asked:
        for role in order:
            status = clients[role].ask(method, path, body).status
            if order.index(role) < order.index(needed):
                assert status == 403, (role, path)
            else:
                assert status < 300, (role, path)


def test_a_flow_file_that_is_wrong_is_refused_by_its_fields(admin: Client) -> None:
    wrong = shop(flows='[{name: mart, from: "mysql.db1.shop.*", to: {type: databse}, colour: red}]', epoch="soon")
    answer = admin.ask("POST", "/pipelines", {"name": "wrong", "text": wrong})
    assert answer.status == 422
    assert {(found["field"], found["line"]) for found in answer.body["fields"]} == {
        ("epoch", 4), ("flows[0].colour", 5), ("flows[0].to", 5),
    }  # fmt: skip
    assert admin.ask("GET", "/pipelines/wrong").status == 404


def test_unknown_fields_and_wrong_types_are_refused_by_name(admin: Client) -> None:
    answer = admin.ask("POST", "/pipelines", {"name": "x", "text": 5, "placment": {}})
    assert answer.status == 422
    assert {found["field"] for found in answer.body["fields"]} == {"text", "placment"}
    assert admin.ask("GET", "/audit?limt=3").status == 422
    assert admin.ask("POST", "/pipelines", b"{not json").status == 400
    assert admin.ask("POST", "/pipelines", b'{"name": "' + b"x" * (2 << 20) + b'"}').status == 413
    assert admin.ask("GET", "/nowhere").status == 404
    assert admin.ask("DELETE", "/me").status == 405


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"source": '{type: mysql, name: db1, host: h, user: u, password: hidden, tables: ["shop.*"]}'}, "source.password"),
        ({"flows": '[{name: m, from: "mysql.db1.shop.*", to: {type: database, url: "postgresql://me:hidden@h/d"}}]'}, "flows[0].to.url"),
        ({"source": '{type: mysql, name: db1, host: h, user: u, password: "${DB1:-hidden}", tables: ["shop.*"]}'}, "source.password"),
    ],
)  # fmt: skip
def test_secrets_in_clear_are_refused(
    server: ControlServer, admin: Client, changes: dict[str, str], field: str
) -> None:
    answer = admin.ask("POST", "/pipelines", {"name": "refused", "text": shop(**changes)})
    assert answer.status == 422
    assert [found["field"] for found in answer.body["fields"]] == [field]
    assert "hidden" not in str(answer.body)
    assert str(server.directory) not in str(answer.body)


def test_secrets_are_references_to_what_the_server_has(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    source = '{{type: mysql, name: db1, host: h, user: u, password: "${{{name}}}", tables: ["shop.*"]}}'
    assert admin.get("/secrets") == ["DB1"]
    assert admin.do("POST", "/pipelines/validate", {"text": shop(source=source.format(name="DB1"))}) == ["mart"]
    unknown = admin.ask("POST", "/pipelines/validate", {"text": shop(source=source.format(name="HOME"))})
    assert (unknown.status, "HOME" in unknown.body["error"]) == (422, True), "variables of the server are not to be had"
    admin.do("POST", "/pipelines", {"name": "secret", "text": shop(source=source.format(name="DB1"))})
    assert "se cret" not in str(admin.get("/pipelines/secret/revisions"))


def test_a_change_of_an_older_revision_is_a_conflict(admin: Client) -> None:
    admin.do("POST", "/pipelines", {"name": "twice", "text": shop()})
    admin.do("PUT", "/pipelines/twice", {"text": shop(epoch="3s"), "base": 1})
    assert admin.ask("PUT", "/pipelines/twice", {"text": shop(epoch="4s"), "base": 1}).status == 409
    assert admin.ask("POST", "/pipelines", {"name": "twice", "text": shop()}).status == 409
    assert [revision["number"] for revision in admin.get("/pipelines/twice/revisions")] == [2, 1]
    drift = admin.ask("POST", "/pipelines/twice/drift", {"placement": {"type": "spark-submit"}})
    assert (drift.status, "does not name one" in drift.body["error"]) == (422, True)


def test_a_browser_needs_its_csrf_token_to_change_anything(server: ControlServer, admin: Client) -> None:
    browser = Client(server.url)
    assert browser.ask("POST", "/session", {"name": "admin", "password": "wrong password"}).status == 401
    logged_in = browser.ask("POST", "/session", {"name": "admin", "password": PASSWORD})
    morsel = SimpleCookie(logged_in.headers["set-cookie"])["headrace_session"]
    assert (morsel["httponly"], morsel["samesite"]) == (True, "strict")
    cookie = {"cookie": f"headrace_session={morsel.value}"}
    csrf = {"x-csrf-token": browser.ask("GET", "/me", headers=cookie).body["csrf"]}
    body = {"name": "browser", "text": shop()}
    assert browser.ask("POST", "/pipelines", body, cookie).status == 403
    assert browser.ask("POST", "/pipelines", body, cookie | {"x-csrf-token": "guessed"}).status == 403
    assert browser.ask("POST", "/pipelines", body, cookie | csrf).status == 201
    assert browser.ask("DELETE", "/session", None, cookie | csrf).status == 204
    assert browser.ask("GET", "/me", headers=cookie).status == 401
    assert admin.get("/audit")[0]["action"] == "create"


def test_users_and_tokens_are_kept_apart(clients: dict[Role, Client]) -> None:
    admin, viewer = clients["admin"], clients["viewer"]
    admin.do("POST", "/users", {"name": "eve", "role": "operator", "password": PASSWORD})
    assert admin.ask("POST", "/users", {"name": "eve2", "role": "operator", "password": "short"}).status == 422
    assert viewer.ask("GET", "/users/eve/tokens").status == 403
    assert viewer.ask("POST", "/users/viewer/tokens", {"name": "mine", "role": "operator"}).status == 403
    token = viewer.do("POST", "/users/viewer/tokens", {"name": "mine", "role": "viewer"})
    mine = Client(viewer.url, token["secret"])
    assert mine.get("/me")["user"] == "viewer"
    assert "secret" not in {key for each in viewer.get("/users/viewer/tokens") for key, value in each.items() if value}
    viewer.do("DELETE", f"/users/viewer/tokens/{token['id']}")
    assert mine.ask("GET", "/me").status == 401
    assert admin.ask("DELETE", "/users/admin").status == 409
    admin.do("PATCH", "/users/eve", {"active": False})
    assert viewer.ask("POST", "/session", {"name": "eve", "password": PASSWORD}).status == 401
    admin.do("DELETE", "/users/eve")


def operated(admin: Client, name: str, verb: str) -> Any:
    """What came of an operation."""
    begun = admin.do("POST", f"/pipelines/{name}/{verb}")
    path = f"/pipelines/{name}/operations/{begun['id']}"
    wait_until(lambda: admin.get(path)["state"] != "running")
    return admin.get(path)


def test_operations_tell_what_came_of_them(admin: Client) -> None:
    missing = '{type: mysql, name: db1, files: "./nowhere/binlog.0*", tables: ["shop.*"]}'
    admin.do("POST", "/pipelines", {"name": "checked", "text": shop(source=missing)})
    failed = operated(admin, "checked", "check")
    assert failed["state"] == "failed"
    assert failed["fix"]
    admin.do("PUT", "/pipelines/checked", {"text": shop(), "base": 1})
    done = operated(admin, "checked", "check")
    assert done["state"] == "done"
    assert {"name": "source db1", "result": "fine"} in done["result"]
    assert admin.get("/pipelines/checked/operations?kind=check") == [done, failed]
    assert admin.get("/pipelines/checked/operations?kind=replay") == []
    assert admin.ask("POST", "/pipelines/checked/load", {}).status == 409, "its process does the loading"
    assert admin.ask("GET", "/pipelines/checked/offsets").status == 409, "there is no log yet"


def test_one_address_may_ask_only_so_often(tmp_path: Path) -> None:
    with serving(tmp_path / "server", rate=5) as server:
        answers = [Client(server.url).ask("GET", "/me").status for _ in range(60)]
    assert set(answers) == {401, 429}


def test_schemathesis_finds_no_server_error(server: ControlServer, admin: Client) -> None:
    """Requests made of the API's own description, right and wrong ones: no 500, nothing that the description does not have."""
    admin.do("POST", "/pipelines", {"name": "a", "text": shop()})
    schema = schemathesis.openapi.from_url(f"{server.url}/api/v1/openapi.json")
    checks = schemathesis.checks
    wanted = [
        checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance,
        checks.response_schema_conformance,
    ]  # fmt: skip
    headers = {"authorization": f"Bearer {admin.token}"}
    few = settings(
        max_examples=_EXAMPLES,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
        derandomize=True,
    )
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        if (operation.method.upper(), operation.path) in _NOT_TRIED:
            continue

        @few
        @schemathesis_given(operation)
        def try_it(case: schemathesis.Case) -> None:
            case.call_and_validate(headers=headers, checks=wanted, timeout=patience.HANG_S)

        try_it()
        tried += 1
    assert tried > 30


_NOT_TRIED = {
    ("DELETE", "/api/v1/session"),
    ("POST", "/api/v1/pipelines/{name}/start"),
    ("POST", "/api/v1/alerts/channels/{channel}/try"),
}
"""Nothing is to be begun that nobody stops, and nothing sent to addresses that were made up: rules are tried before there is any channel."""


def schemathesis_given(operation: Any) -> Any:
    from hypothesis import given  # noqa: PLC0415

    return given(case=operation.as_strategy())
