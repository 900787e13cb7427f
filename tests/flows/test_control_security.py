"""What docs/security-review.md promises of the server on HTTP and HTTPS, asked of a real one."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import closing
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3

from tests.control import PASSWORD, Client, ControlServer, serving, shop
from tests.servers.install import find_program

CONSOLE = Path(__file__).parents[2] / "src" / "headrace" / "control" / "console"
YEAR_S = 31_536_000


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of this machine, signed by itself, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        [find_program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem",
         "-days", "1", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        cwd=folder,
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder / "cert.pem", folder / "key.pem"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path]) -> Iterator[ControlServer]:
    with serving(tmp_path_factory.mktemp("control") / "server", tls=certificate) as started:
        yield started


@pytest.fixture(scope="module")
def admin(server: ControlServer) -> Client:
    return server.client()


def asked(server: ControlServer, method: str, path: str, body: Any = None, **headers: str) -> urllib3.BaseHTTPResponse:
    """As a browser asks, with whatever cookies and headers are said, and the path as it is."""
    given: Mapping[str, str] = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.pool().request(method, f"{server.url}{path}", json=body, headers=given, redirect=False)


def logged_in(server: ControlServer, **headers: str) -> str:
    """The cookie as it is sent back."""
    answer = asked(server, "POST", "/api/v1/session", {"name": "admin", "password": PASSWORD}, **headers)
    assert answer.status == 200, answer.data
    [(name, morsel)] = SimpleCookie(answer.headers["set-cookie"]).items()
    assert name == "__Host-headrace_session"
    assert (morsel["secure"], morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, True, "strict", "/")
    assert not morsel["domain"]
    return f"{name}={morsel.value}"


def test_a_session_is_one_of_https_alone(server: ControlServer, admin: Client) -> None:
    cookie = logged_in(server)
    assert asked(server, "GET", "/api/v1/me", cookie=cookie).status == 200
    # A cookie without the prefix may have been planted by a page of http.
    assert asked(server, "GET", "/api/v1/me", cookie=cookie.removeprefix("__Host-")).status == 401


def test_a_log_in_ends_the_session_before_it_and_a_log_out_leaves_nothing(server: ControlServer, admin: Client) -> None:
    first = logged_in(server)
    second = logged_in(server, cookie=first)
    assert first != second
    assert asked(server, "GET", "/api/v1/me", cookie=first).status == 401
    csrf = asked(server, "GET", "/api/v1/me", cookie=second).json()["csrf"]
    out = asked(server, "DELETE", "/api/v1/session", cookie=second, x_csrf_token=csrf)
    assert (out.status, out.headers["clear-site-data"]) == (204, '"cache"')
    assert SimpleCookie(out.headers["set-cookie"])["__Host-headrace_session"].value == ""
    assert asked(server, "GET", "/api/v1/me", cookie=second).status == 401


def test_users_change_their_own_password(server: ControlServer, admin: Client) -> None:
    other = "another four words here"
    admin.do("POST", "/users", {"name": "eve", "role": "viewer", "password": PASSWORD})
    token = Client(server.url, server.token_of("eve"), server.pool())
    wrong = token.ask("PUT", "/me/password", {"current": "not this one", "new": other})
    assert (wrong.status, "current password" in wrong.body["error"]) == (422, True)
    common = token.ask("PUT", "/me/password", {"current": PASSWORD, "new": "passwordpassword"})
    assert (common.status, "tried first" in common.body["error"]) == (422, True)
    assert token.ask("PUT", "/me/password", {"new": other}).status == 422
    assert token.ask("PUT", "/me/password", {"current": PASSWORD, "new": other}).status == 204
    for password, status in ((PASSWORD, 401), (other, 200)):
        assert asked(server, "POST", "/api/v1/session", {"name": "eve", "password": password}).status == status


def test_every_answer_tells_browsers_what_they_may_do(server: ControlServer, admin: Client) -> None:
    for path in (
        "/",
        "/ui/",
        "/ui/files/main.js",
        "/ui/files/nothing.js",
        "/api/v1/me",
        "/api/v1/nothing",
        "/metrics",
        "/healthz",
    ):
        answer = asked(server, "GET", path, origin="https://elsewhere.example", sec_fetch_site="cross-site")
        headers = answer.headers
        assert headers["strict-transport-security"] == f"max-age={YEAR_S}", path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "no-referrer", path
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy, path
        assert "frame-ancestors 'none'" in policy, path
        assert not [name for name in headers if name.startswith("access-control-")], path
        assert "server" not in headers, path
        if answer.data:
            kind = headers["content-type"]
            assert kind.startswith("application/json") or "charset=utf-8" in kind, (path, kind)


def test_what_changes_something_is_not_to_be_had_by_get_or_by_a_form(server: ControlServer, admin: Client) -> None:
    described = admin.get("/openapi.json")
    safe = {path for path, methods in described["paths"].items() if "get" in methods}
    for path in set(described["paths"]) - safe:
        assert asked(server, "GET", path.replace("{name}", "a").replace("{user}", "a")).status in {401, 405}, path
    cookie = logged_in(server)
    form = server.pool().request(
        "POST",
        f"{server.url}/api/v1/pipelines",
        body=b'{"name": "forged", "text": ""}',
        headers={"cookie": cookie, "content-type": "text/plain"},
    )
    assert form.status in {403, 422}
    assert admin.ask("GET", "/pipelines/forged").status == 404
    assert asked(server, "TRACE", "/api/v1/me").status == 405


@pytest.mark.parametrize(
    "path",
    [
        "/ui/files/../app.py", "/ui/files/..%2f..%2fpeople.py", "/ui/files/%2e%2e/%2e%2e/people.py", "/ui/files//etc/passwd",
        "/ui/files/vendor/", "/ui/files/..%5c..%5cpeople.py",
    ],
)  # fmt: skip
def test_files_of_the_console_are_all_that_is_served(server: ControlServer, path: str) -> None:
    at = urlsplit(server.url)
    connection = http.client.HTTPSConnection(at.hostname or "", at.port, context=server.trusting())
    with closing(connection):
        connection.request("GET", path)  # as it stands: urllib3 would put it right
        answer = connection.getresponse()
        body = answer.read()
    # What is no file of the console below /ui is its one page, or is not there.
    assert answer.status == 404 or body == (CONSOLE / "index.html").read_bytes(), (path, answer.status)


@pytest.mark.parametrize("name", ["..", "../../etc", "a/b", ".hidden", "a%00", "-x", "A", "x" * 64])
def test_a_pipeline_has_no_name_that_leads_elsewhere(server: ControlServer, admin: Client, name: str) -> None:
    assert admin.ask("POST", "/pipelines", {"name": name, "text": shop()}).status == 422
    assert not [path for path in server.directory.parent.rglob("r1.yaml") if path.parent.parent.name != "pipelines"]


def bomb() -> str:
    """Ten lines that stand for 10^9 values."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [bomb(), "a: &a [*a]", "a: &a {b: *a}", "a: " + "[" * 50_000, "? " * 20_000, "a: !!python/object/apply:os.getpid []", "a: \x00"],
    ids=["aliases that multiply", "list in itself", "mapping in itself", "deep lists", "deep keys", "code", "control character"],
)  # fmt: skip
def test_yaml_that_does_harm_elsewhere_is_refused(admin: Client, text: str) -> None:
    answer = admin.ask("POST", "/pipelines", {"name": "bomb", "text": text})
    assert answer.status == 422, answer
    assert answer.body["fix"]


def test_a_flow_file_that_is_only_looked_at_makes_no_connection(admin: Client, server: ControlServer) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        port = listening.getsockname()[1]
        source = (
            f'{{type: mysql, name: db1, host: 127.0.0.1, port: {port}, user: u, password: "${{DB1}}", tables: ["s.*"]}}'
        )
        (server.directory / "secrets").mkdir(exist_ok=True)
        (server.directory / "secrets" / "DB1").write_text("s")
        flows = f'[{{name: w, from: "mysql.db1.s.*", to: {{type: webhook, url: "http://127.0.0.1:{port}/"}}}}]'
        text = shop(source=source, flows=flows)
        assert admin.do("POST", "/pipelines/validate", {"text": text}) == ["w"]
        admin.do("POST", "/pipelines", {"name": "looked", "text": text})
        admin.get("/pipelines/looked/ways")
        with pytest.raises(BlockingIOError):
            listening.accept()
        operator = server.client("operator")
        assert operator.ask("POST", "/pipelines/validate", {"text": text}).status == 403, (
            "who writes flow files is an admin"
        )


def test_old_versions_of_tls_are_refused(server: ControlServer) -> None:
    at = urlsplit(server.url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with socket.create_connection((at.hostname, at.port)) as plain, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(plain)
    with socket.create_connection((at.hostname, at.port)) as plain:
        encrypted = server.trusting().wrap_socket(plain, server_hostname="127.0.0.1")
        assert encrypted.version() == "TLSv1.3"
        encrypted.close()


def test_passwords_and_tokens_are_not_in_what_is_kept_or_told(server: ControlServer, admin: Client) -> None:
    token = admin.do("POST", "/users/admin/tokens", {"name": "kept", "role": "viewer"})["secret"]
    cookie = logged_in(server).partition("=")[2]
    told = [str(admin.get(path)) for path in ("/users", "/users/admin/tokens", "/audit", "/me")]
    kept = [
        path.read_bytes() for path in server.directory.rglob("*") if path.is_file() and path.parent.name != "secrets"
    ]
    for secret in (token, cookie, PASSWORD):
        assert not any(secret in text for text in told)
        assert not any(secret.encode() in content for content in kept)
        assert secret not in server.printed()
