"""The console's page of alerts in Chromium, with a server behind that sends to a real webhook."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser import chromium, confirm, looking, overflow, picture, row_of, unnamed
from tests.control import ControlServer, serving
from tests.servers.webhook import Webhook

PARTS = ("alerts", "alerts/history", "alerts/rules", "alerts/silences", "alerts/channels")


@dataclass
class Scene:
    """A server, a chat that it may write to, and a browser."""

    server: ControlServer
    chat: Webhook
    browser: Browser


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory: Path = tmp_path_factory.mktemp("alerts") / "server"
    (directory / "secrets").mkdir(parents=True)
    with Webhook() as chat, chromium() as browser, serving(directory) as server:
        (directory / "secrets" / "CHAT_URL").write_text(chat.url)
        for role in ("viewer", "admin"):
            server.client(role)
        yield Scene(server, chat, browser)


@pytest.fixture
def page(scene: Scene) -> Iterator[Page]:
    with looking(scene.browser, scene.server.url, user="admin") as found:
        yield found


def tab(page: Page, name: str) -> Locator:
    return page.get_by_role("navigation", name="Parts of alerts").get_by_role("link", name=name, exact=True)


def keep_rule(page: Page, button: str, limit: str) -> None:
    """Keeps a rule on free room on a disk; of 99.999 % there is never so much, of 0.0001 % always."""
    page.get_by_role("button", name=button).click()
    dialog = page.get_by_role("dialog")
    if button == "Add a rule":
        dialog.get_by_label("Name", exact=True).fill("disk")
        dialog.locator("select[name=kind]").select_option("disk")
        dialog.get_by_label("Severity").select_option("critical")
        dialog.get_by_role("group", name="Tell", exact=True).get_by_label("chat").check()
        dialog.get_by_label("What to do").fill("make room")
    dialog.get_by_label("Limit").fill(limit)
    dialog.get_by_label("Holds for").fill("0")
    confirm(page, "Keep")


def test_an_alert_is_made_told_acknowledged_silenced_and_over(scene: Scene, page: Page) -> None:
    page.get_by_role("link", name="Alerts").click()
    expect(page.get_by_text("Nothing fires.")).to_be_visible()
    tab(page, "Channels").click()
    page.get_by_role("button", name="Add a webhook").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("chat")
    confirm(page, "Keep")
    page.get_by_role("button", name="Try chat").click()
    expect(row_of(page, "Notices", "chat")).to_contain_text("sent")
    assert json.loads(scene.chat.taken[0].body)["text"].startswith("[test] headrace")

    tab(page, "Rules").click()
    keep_rule(page, "Add a rule", "99.999")
    expect(row_of(page, "Rules", "disk")).to_contain_text("99.999 %")
    tab(page, "Now").click()
    alert = row_of(page, "Alerts", "disk")
    expect(alert).to_contain_text("% free")
    expect(alert).to_contain_text("chat")
    picture(page, "alerts")
    alert.get_by_role("button", name="Acknowledge disk").click()
    expect(alert).to_contain_text("acknowledged by admin")
    alert.get_by_role("button", name="Silence disk").click()
    page.get_by_role("dialog").get_by_label("Reason").fill("it is being changed")
    confirm(page, "Silence")
    expect(alert).to_contain_text("silenced")
    tab(page, "Silences").click()
    page.get_by_role("button", name="End the silence of disk").click()
    expect(row_of(page, "Silences", "it is being changed")).to_contain_text("over")

    tab(page, "Rules").click()
    keep_rule(page, "Change disk", "0.0001")
    tab(page, "History").click()
    expect(row_of(page, "Alerts", "disk")).to_contain_text("until")
    tab(page, "Channels").click()
    expect(row_of(page, "Notices", "over")).to_contain_text("sent")


def test_what_is_wrong_is_said_and_what_is_used_stays(scene: Scene, page: Page) -> None:
    page.goto("/ui/alerts/channels")
    page.get_by_role("button", name="Add e-mail").click()
    page.get_by_role("dialog").get_by_label("Name", exact=True).fill("mail")
    page.get_by_role("dialog").get_by_label("Options").fill('{"kind": "email", "password": "in clear"}')
    confirm(page, "Keep")
    expect(page.locator("#notices .failed")).to_contain_text("email.host")
    page.get_by_role("button", name="Remove chat").click()
    confirm(page, "Remove")
    expect(page.locator("#notices .failed").filter(has_text="rule disk tells by channel chat")).to_be_visible()
    tab(page, "Rules").click()
    page.get_by_role("button", name="Remove disk").click()
    confirm(page, "Remove")
    expect(page.get_by_text("There is no rule")).to_be_visible()
    tab(page, "Channels").click()
    page.get_by_role("button", name="Remove chat").click()
    confirm(page, "Remove")
    expect(page.get_by_text("There is no channel")).to_be_visible()


def test_each_part_is_named_for_screen_readers_and_fits_a_narrow_dark_screen(scene: Scene) -> None:
    with looking(scene.browser, scene.server.url, user="viewer", width=390, is_dark=True) as page:
        for path in PARTS:
            page.goto(f"/ui/{path}")
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator(".coming")).to_have_count(0)
            assert overflow(page) <= 0, path
            assert unnamed(page) == [], path
            expect(page.get_by_role("button", name="Add")).to_have_count(0)
