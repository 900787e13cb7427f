"""The console as people see it: a real Chromium, without a screen, that a test drives."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, expect, sync_playwright

from tests import patience
from tests.control import PASSWORD
from tests.servers.install import find_program

_PATIENCE_MS = patience.HANG_S * 1000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Started; ended on leaving."""
    expect.set_options(timeout=_PATIENCE_MS)
    # A sandbox inside of a container's cannot be had by root.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_program("chromium"), args=arguments, timeout=_PATIENCE_MS
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def looking(browser: Browser, url: str, *, user: str = "", width: int = 1280, is_dark: bool = False) -> Iterator[Page]:
    """A window of its own at the console, signed in when a user is named. An error in a script fails the test."""
    scheme = "dark" if is_dark else "light"
    context = browser.new_context(
        base_url=url, viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.set_default_timeout(_PATIENCE_MS)
    page = context.new_page()
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.extend([] if _is_of_network(str(error)) else [str(error)]))
    page.on("console", lambda told: problems.extend(_problem(told)))
    try:
        page.goto("/")
        if user:
            sign_in(page, user)
        yield page
        assert not problems, problems
    finally:
        context.close()


def _problem(told: ConsoleMessage) -> Iterator[str]:
    """A browser tells of all that it cannot load, too: what the API refuses, or a server that was killed or left meanwhile."""
    if told.type in {"error", "warning"} and not _is_of_network(told.text):
        yield told.text


def _is_of_network(text: str) -> bool:
    return any(words in text for words in ("Failed to load resource", "Failed to fetch", "net::ERR_"))


def sign_in(page: Page, user: str, password: str = PASSWORD) -> None:
    page.get_by_label("Name").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()


def confirm(page: Page, button: str) -> None:
    """Answers the question that is being asked. Another one may be asked at once."""
    dialog = page.get_by_role("dialog")
    asked = dialog.element_handle()
    dialog.get_by_role("button", name=button, exact=True).click()
    asked.wait_for_element_state("hidden")


def row_of(page: Page, table: str, text: str) -> Locator:
    """The rows of a table that have a text."""
    return page.get_by_role("region", name=table).get_by_role("row").filter(has_text=text)


def unnamed(page: Page) -> list[str]:
    """Controls that a screen reader could not name."""
    found: list[str] = page.evaluate(
        """() => [...document.querySelectorAll("a, button, input, select, textarea, summary, [role=region], svg[role=img]")]
        .filter((part) => !(part.ariaLabel || part.textContent.trim() || part.ariaHidden === "true"
            || [...(part.labels ?? [])].some((label) => label.textContent.trim())))
        .map((part) => part.outerHTML.slice(0, 200))"""
    )
    return found


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than the window."""
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found


def picture(page: Page, name: str) -> None:
    """For the documentation, when HEADRACE_PICTURES names a directory."""
    if directory := os.environ.get("HEADRACE_PICTURES"):
        page.screenshot(path=Path(directory) / f"{name}.png")
