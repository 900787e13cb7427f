"""Every page of the console in Chromium, with a pipeline behind that captures from MySQL, loads, and delivers into a lake and a database."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from headrace.control.pipelines import Pipelines
from headrace.control.placement import Local
from headrace.control.tables import ControlDatabase
from tests.browser import chromium, confirm, looking, overflow, picture, row_of, sign_in, unnamed
from tests.control import PASSWORD, RECORDED, TEST, Client, ControlServer, serving, shop, wait_until
from tests.servers.mysql import MySql

FLOW = """\
source: {{type: mysql, name: db1, host: "{server.host}", port: {server.port}, user: "{server.user}", password: "${{DB1}}",
          tables: ["{database}.*"], start: latest, heartbeat: 5s, load: {{chunk_rows: 100, rows_per_s: 100}}}}
log: {{type: directory, path: ./log}}
state: ./state
epoch: 2s
watermark: {{}}
flows:
  - {{name: raw, from: "mysql.db1.{database}.*", to: {{type: lake, path: ./lake, windows: 5s}}}}
  - {{name: mart, from: "mysql.db1.{database}.*", to: {{type: database, url: "sqlite:///./mart.db"}}, set_aside: 100}}
"""


@dataclass
class Scene:
    """A server with the pipeline `shop`, its source, and a browser."""

    server: ControlServer
    admin: Client
    browser: Browser
    mysql: MySql
    database: str

    @property
    def mart(self) -> Path:
        return self.server.directory / "pipelines" / "shop" / "mart.db"

    def change(self, *statements: str) -> None:
        self.mysql.execute(*statements, database=self.database)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, mysql: MySql, browser: Browser) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("console") / "server"
    (directory / "secrets").mkdir(parents=True)
    (directory / "secrets" / "DB1").write_text(mysql.password)
    with mysql.database() as database, serving(directory) as server:
        for table, rows in (("visits", 100_000), ("orders", 40)):
            # So many visits that they are still being loaded when a slow machine comes to look at it.
            mysql.execute(
                "SET SESSION cte_max_recursion_depth = 200000",
                f"CREATE TABLE {table} (id INT PRIMARY KEY, note VARCHAR(20))",
                f"INSERT INTO {table} WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {rows})"
                " SELECT n, CONCAT('row ', n) FROM s",
                database=database,
            )
        admin = server.client()
        for role in ("viewer", "operator"):
            server.client(role)
        admin.do("POST", "/pipelines", {"name": "shop", "text": FLOW.format(server=mysql, database=database)})
        admin.do("POST", "/pipelines/shop/start")
        yield Scene(server, admin, browser, mysql, database)


@pytest.fixture
def page(scene: Scene) -> Iterator[Page]:
    """Somebody who may do everything looks at it."""
    with looking(scene.browser, scene.server.url, user="admin") as found:
        yield found


def test_signing_in_by_keyboard(scene: Scene) -> None:
    with looking(scene.browser, scene.server.url) as page:
        expect(page.get_by_label("Name")).to_be_focused()
        page.keyboard.type("admin")
        page.keyboard.press("Tab")
        page.keyboard.type("not the password")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("name or password is wrong")
        page.keyboard.press("Tab")
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type(PASSWORD)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Pipelines")).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
        page.get_by_role("button", name="Sign out").press("Enter")
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        page.goto("/ui/audit")
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        sign_in(page, "admin")
        expect(page.get_by_role("heading", name="Audit")).to_be_visible()


def test_users_tokens_and_the_audit(scene: Scene, page: Page) -> None:
    page.goto("/ui/users")
    page.get_by_role("button", name="Add a user").click()
    page.get_by_role("dialog").get_by_label("Name").fill("ada")
    page.get_by_role("dialog").get_by_label("Password").fill(PASSWORD)
    confirm(page, "Add")
    page.get_by_role("button", name="Change ada").click()
    page.get_by_role("dialog").get_by_label("Role").select_option("operator")
    confirm(page, "Change")
    expect(row_of(page, "Users", "ada")).to_contain_text("operator")
    page.get_by_role("button", name="Make a token").click()
    page.get_by_role("dialog").get_by_label("Name").fill("ci")
    page.get_by_role("dialog").get_by_label("Role").select_option("viewer")
    confirm(page, "Make")
    secret = page.get_by_role("dialog").locator(".secret").inner_text()
    confirm(page, "It is kept")
    program = Client(scene.server.url, secret)
    assert program.get("/me")["role"] == "viewer"
    page.get_by_role("button", name="Revoke ci").click()
    confirm(page, "Revoke")
    expect(page.get_by_role("button", name="Revoke ci")).to_have_count(0)
    assert program.ask("GET", "/me").status == 401
    page.get_by_role("button", name="Remove ada").click()
    confirm(page, "Remove")
    expect(page.get_by_role("region", name="Users").get_by_text("ada")).to_have_count(0)
    page.get_by_role("link", name="Audit").click()
    expect(row_of(page, "Audit", "ada").first).to_be_visible()


def test_one_s_own_password_is_changed(scene: Scene) -> None:
    scene.admin.do("POST", "/users", {"name": "eve", "role": "viewer", "password": PASSWORD})
    fresh = "seven otters under a paper moon"

    def change(current: str, new: str, again: str) -> Locator:
        page.get_by_role("button", name="Password", exact=True).click()
        dialog = page.get_by_role("dialog")
        for label, text in (("Current password", current), ("New password", new), ("The new one again", again)):
            dialog.get_by_label(label, exact=False).fill(text)
        return dialog

    with looking(scene.browser, scene.server.url, user="eve") as page:
        dialog = change(PASSWORD, fresh, "another one")
        dialog.get_by_role("button", name="Change").click()
        expect(dialog.locator("input:invalid")).to_have_attribute("name", "again")
        dialog.get_by_role("button", name="Cancel").click()
        change("not this one", fresh, fresh)
        confirm(page, "Change")
        expect(page.locator("#notices .failed")).to_contain_text("the current password is wrong")
        change(PASSWORD, fresh, fresh)
        confirm(page, "Change")
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()
        sign_in(page, "eve", fresh)
        expect(page.get_by_role("heading", name="Pipelines")).to_be_visible()
    assert Client(scene.server.url).ask("POST", "/session", {"name": "eve", "password": PASSWORD}).status == 401
    scene.admin.do("DELETE", "/users/eve")


def test_nothing_comes_from_elsewhere_and_no_script_stands_in_the_page(scene: Scene, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    answer = page.goto("/ui/pipelines/shop")
    assert answer is not None
    expect(page.get_by_role("img", name=re.compile("From db1"))).to_be_visible()
    assert len(asked) > 10
    assert {url[: len(scene.server.url)] for url in asked} == {scene.server.url}
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlServer]:
    """A server with a thousand pipelines; none of them is to run."""
    directory = tmp_path_factory.mktemp("many") / "server"
    with serving(directory) as server:
        server.client()
        database = ControlDatabase(f"sqlite:///{directory / 'control.db'}")
        database.open()
        for number in range(1000):
            Pipelines(database).create(f"line-{number:04}", shop(), Local(), TEST)
        database.close()
        yield server


def test_a_thousand_pipelines_are_found_and_paged_through(browser: Browser, many: ControlServer) -> None:
    with looking(browser, many.url, user="admin") as page:
        rows = page.get_by_role("region", name="Pipelines").get_by_role("row")
        expect(rows).to_have_count(51)
        expect(page.get_by_text("1,000 pipelines")).to_be_visible()
        page.get_by_role("button", name="Next").click()
        expect(rows.nth(1)).to_contain_text("line-0050")
        page.get_by_label("Find pipelines").fill("0999")
        expect(rows).to_have_count(2)
        page.reload()
        expect(rows).to_have_count(2)
        page.get_by_label("Find pipelines").fill("")
        page.get_by_label("Order").select_option("state")
        page.get_by_role("button", name="stopped 1,000").click()
        expect(page).to_have_url(re.compile("state=stopped"))
        many.kill()
        expect(page.get_by_text("No news since")).to_be_visible()
        expect(rows).to_have_count(51)


def test_a_pipeline_comes_to_be_in_five_clicks(scene: Scene, page: Page) -> None:
    page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="New pipeline").click()
    page.get_by_label("Binlog files that were recorded").check()
    page.get_by_label("Name of the source").fill("recorded")
    page.get_by_role("textbox", name="Files").fill(f"{RECORDED}/binlog.0000*")
    page.get_by_role("button", name="Next: the target").click()
    page.get_by_label("Place").fill("./lake")
    page.get_by_role("button", name="Next: the flow file").click()
    text = page.get_by_label("Flow file")
    expect(text).to_have_value(re.compile("type: lake"))
    right = text.input_value()
    text.fill(right.replace("type: lake", "type: laek"))
    page.get_by_role("button", name="Keep and check").click()
    expect(page.get_by_role("alert")).to_contain_text("laek")
    text.fill(right)
    page.get_by_role("button", name="Keep and check").click()
    expect(page.get_by_role("status").first).to_contain_text("nothing stands in its way")
    page.get_by_role("button", name="Start", exact=True).click()
    expect(page).to_have_url(re.compile("/ui/pipelines/recorded$"))
    expect(page.locator(".head .state")).to_have_text(re.compile("starting|running"))

    page.get_by_role("button", name="Stop").click()
    confirm(page, "Stop")
    expect(page.locator(".head .state")).to_have_text("stopped")
    page.get_by_role("link", name="Flow file").click()
    page.get_by_role("button", name="Edit").click()
    page.get_by_role("textbox", name="Flow file").fill(right + "epoch: 3s\n")
    page.get_by_role("button", name="Keep as revision 2").click()
    expect(page.get_by_label("Flow file")).to_contain_text("epoch: 3s")
    page.get_by_role("button", name="Remove").click()
    confirm(page, "Remove")
    expect(page).to_have_url(re.compile("/ui/$"))
    expect(row_of(page, "Pipelines", "recorded")).to_have_count(0)


def test_a_full_load_is_watched_and_steered(scene: Scene, page: Page) -> None:
    page.goto("/ui/pipelines/shop/loads")
    visits = row_of(page, "Full loads", f"{scene.database}.visits")
    expect(visits).to_contain_text("loading")
    expect(visits.get_by_role("progressbar")).not_to_have_js_property("value", 0)
    picture(page, "full-load")
    page.get_by_role("button", name="Pause").click()
    expect(visits).to_contain_text("paused")
    visits.get_by_role("button", name="Cancel").click()
    confirm(page, "Cancel the load")
    expect(visits).to_contain_text("cancelled")
    page.get_by_role("button", name="Resume").click()
    expect(row_of(page, "Full loads", f"{scene.database}.orders")).to_contain_text("loaded")


def test_the_overview_shows_what_passes(scene: Scene, page: Page) -> None:
    line = row_of(page, "Pipelines", "shop")
    expect(line).to_contain_text("running")
    scene.change("UPDATE orders SET note = 'seen' WHERE id = 1")
    expect(line.get_by_role("cell").nth(2)).to_contain_text(re.compile(r"\d+ (ms|s|min)"))  # the delay
    expect(line.get_by_role("cell").nth(3)).to_contain_text(re.compile(r"\d{4}-\d\d-\d\d"))  # the watermark
    line.get_by_role("link", name="shop").click()
    expect(page).to_have_url(re.compile("/ui/pipelines/shop$"))
    expect(page).to_have_title("shop · Now · headrace")


def test_a_pipeline_shows_its_way_and_is_stopped_and_started(scene: Scene, page: Page) -> None:
    page.goto("/ui/pipelines/shop")
    way = page.get_by_role("img", name=re.compile(r"From db1 .* over the log to raw → lake .*, mart → database"))
    expect(way).to_contain_text("rows/s")
    expect(row_of(page, "Tables", f"{scene.database}.orders").first).to_be_visible()
    picture(page, "pipeline")
    page.get_by_role("link", name="Offsets").click()
    expect(row_of(page, "Offsets", "flow mart").first).to_be_visible()
    page.get_by_role("link", name="Process log").click()
    expect(page.get_by_label("Process log")).to_contain_text("mart")

    page.get_by_role("button", name="Restart").click()
    confirm(page, "Cancel")
    page.get_by_role("button", name="Stop").click()
    confirm(page, "Stop")
    expect(page.get_by_role("button", name="Start", exact=True)).to_be_visible()
    expect(page.locator(".head .state")).to_have_text("stopped")
    page.get_by_role("button", name="Start", exact=True).click()
    page.get_by_role("link", name="Events and runs").click()
    expect(row_of(page, "Events", "stopped").first).to_be_visible()
    expect(row_of(page, "Runs", "it has stopped")).to_have_count(1)
    expect(page.locator(".head .state")).to_have_text("running")


def test_rows_set_aside_are_delivered_again(scene: Scene, page: Page) -> None:
    wait_until(lambda: _orders(scene.mart) == 40)
    _run(
        scene.mart,
        "CREATE TRIGGER rule BEFORE INSERT ON orders WHEN NEW.note = 'poison' BEGIN SELECT RAISE(ABORT, 'against the rule'); END",
    )
    scene.admin.do("PUT", "/alerts/rules/aside", {"when": {"kind": "set_aside"}, "holds_s": 0})
    scene.change("INSERT INTO orders VALUES (1001, 'poison')")
    page.goto("/ui/alerts")
    expect(row_of(page, "Alerts", "flow mart from db1")).to_contain_text("1 rows set aside since its process began")
    page.goto("/ui/pipelines/shop/errors")
    fault = row_of(page, "Rows set aside", "against the rule")
    expect(fault).to_be_visible()
    expect(row_of(page, "Rows", "1001").filter(has_text="waiting").first).to_be_visible()
    _run(scene.mart, "DROP TRIGGER rule")
    fault.get_by_role("button", name="Deliver again").click()
    confirm(page, "Deliver")
    done = page.locator(".operation", has_text="replay")
    expect(done).to_contain_text("done")
    done.locator("summary").click()
    expect(done).to_contain_text("1 rows of")
    expect(row_of(page, "Rows", "1001").filter(has_text="delivered").first).to_be_visible()
    assert _orders(scene.mart) == 41


def test_a_table_is_read_as_of_a_moment_and_change_by_change(scene: Scene, page: Page) -> None:
    table = f"mysql.db1.{scene.database}.orders"
    scene.change("UPDATE orders SET note = 'changed' WHERE id = 2")
    wait_until(lambda: len(scene.admin.get(f"/pipelines/shop/lake/history?table={table}&key=id%3D2")) == 2)
    page.goto("/ui/pipelines/shop/tables")
    page.get_by_role("link", name=table).click()
    rows = page.get_by_role("region", name="Rows")
    expect(rows.get_by_role("row").filter(has_text="changed")).to_have_count(1)
    picture(page, "table")
    slider = page.get_by_role("slider", name="As of")
    slider.press("Home")
    expect(page).to_have_url(re.compile("time="))
    expect(rows.get_by_role("row").filter(has_text="changed")).to_have_count(0)
    page.get_by_role("button", name="Newest").click()
    page.get_by_label("Show").select_option("every change up to it")
    page.get_by_label("Key").fill("id=2")
    page.get_by_label("Key").press("Enter")
    expect(rows.get_by_role("row")).to_have_count(3)
    page.reload()
    expect(rows.get_by_role("row")).to_have_count(3)


def test_a_row_that_was_lost_turns_a_verification_red(scene: Scene, page: Page) -> None:
    page.goto("/ui/pipelines/shop/verify")

    def verify() -> None:
        page.get_by_role("button", name="Verify", exact=True).click()
        page.get_by_role("dialog").get_by_label("Tables").fill(f"{scene.database}.orders")
        confirm(page, "Verify now")

    verify()
    mart = row_of(page, "Verifications", "mart")
    expect(mart.filter(has_text="the same")).to_have_count(1)
    _run(scene.mart, "DELETE FROM orders WHERE id = 7")
    verify()
    wrong = mart.filter(has_text="differs").first
    expect(wrong).to_be_visible()
    wrong.locator("summary").click()
    expect(wrong.get_by_role("region", name="Differences")).to_contain_text("missing")
    page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link", name="Verification").click()
    expect(page.get_by_role("status").first).to_contain_text("1 of 2 tables differ")


def test_windows_have_certificates_that_are_checked(scene: Scene, page: Page) -> None:
    page.goto("/ui/pipelines/shop/windows")
    closed = row_of(page, "Windows", "mysql.db1").filter(has=page.locator("summary")).first
    expect(closed).to_be_visible()
    closed.locator("summary").click()
    expect(closed).to_contain_text("Digest")
    page.get_by_role("button", name="Check all certificates").click()
    expect(page.locator(".operation", has_text="verify")).to_contain_text("done")


def test_watermarks_name_who_holds_them(scene: Scene, page: Page) -> None:
    page.goto("/ui/pipelines/shop/watermarks")
    source = page.get_by_role("region", name="source:db1")
    expect(source).to_contain_text("Complete up to")
    expect(source.get_by_role("row").filter(has_text="db1")).to_have_count(1)
    expect(source.locator(".heat rect").nth(1)).to_be_attached()


def test_a_viewer_sees_and_may_not_touch(scene: Scene) -> None:
    with looking(scene.browser, scene.server.url, user="viewer") as page:
        page.goto("/ui/pipelines/shop")
        expect(page.locator(".head .state")).to_be_visible()
        expect(page.locator(".head button")).to_have_count(0)
        expect(page.get_by_role("link", name="Process log")).to_have_count(0)
        expect(page.get_by_role("link", name="New pipeline")).to_have_count(0)
        page.goto("/ui/nowhere")
        expect(page.get_by_role("heading", name="There is no such page")).to_be_visible()
        page.goto("/ui/pipelines/nothing")
        expect(page.get_by_role("alert")).to_contain_text("no pipeline nothing")


PAGES = ("", "pipelines/shop", "pipelines/shop/offsets", "pipelines/shop/events", "pipelines/shop/tables", "pipelines/shop/loads",
         "pipelines/shop/errors", "pipelines/shop/windows", "pipelines/shop/verify", "pipelines/shop/watermarks", "pipelines/shop/log",
         "pipelines/shop/file",
         "new", "verifications", "users", "audit")  # fmt: skip


def test_every_page_is_named_for_screen_readers_and_fits_a_narrow_dark_screen(scene: Scene) -> None:
    with looking(scene.browser, scene.server.url, user="admin", width=390, is_dark=True) as page:
        for path in PAGES:
            page.goto(f"/ui/{path}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator(".coming")).to_have_count(0)
            assert overflow(page) <= 0, path
            assert unnamed(page) == [], path
            if path == "pipelines/shop":
                picture(page, "narrow")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_label("Colours").select_option("light")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark


def _run(database: Path, statement: str) -> None:
    connection = sqlite3.connect(database, timeout=60)
    with connection:
        connection.execute(statement)
    connection.close()


def _orders(database: Path) -> int:
    if not database.exists():
        return -1
    connection = sqlite3.connect(database, timeout=60)
    try:
        found: int = connection.execute("SELECT count(*) FROM orders").fetchone()[0]
    except sqlite3.OperationalError:  # not made yet
        return -1
    finally:
        connection.close()
    return found
