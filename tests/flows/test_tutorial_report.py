"""The tutorial of the real-time report does what it says: its one command, with fewer changes, and the page as people see it.

Its picture is made anew by ``HEADRACE_PICTURES=docs/tutorial``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from examples.report.page import serving
from playwright.sync_api import Page, expect

from tests.browser import chromium, looking, overflow, picture, unnamed
from tests.servers.process import free_port

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "report"


@contextmanager
def playing(directory: Path) -> Iterator[subprocess.Popen[str]]:
    """The tutorial's program, ended as people end it."""
    command = [sys.executable, "-m", "examples.report.run", str(directory), "--changes", "60", "--stay"]
    with subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


def told(process: subprocess.Popen[str], until: str, directory: Path) -> list[str]:
    """What the program says up to the line that begins so."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip("\n"))
        if line.startswith(until):
            return lines
    log = directory / "run.log"
    raise AssertionError("\n".join([*lines, log.read_text() if log.exists() else ""]))


@pytest.mark.timeout(1200)
def test_the_page_follows_three_systems(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with playing(out) as process:
        begun = told(process, "The page: ", out)
        assert any("computed anew by region when an input changes" in line for line in begun), begun
        with chromium() as browser, looking(browser, begun[-1].removeprefix("The page: ")) as page:
            played = told(process, "The report has exactly what the three databases say.", out)
            lines = [
                line.split()
                for line in played[played.index(next(line for line in played if "category" in line)) + 1 : -2]
            ]
            assert lines
            see(page, lines)
    assert process.returncode == 0


def see(page: Page, lines: list[list[str]]) -> None:
    """The table and the chart show what the program has told."""
    rows = page.get_by_role("table", name="Report").locator("tbody tr")
    expect(rows).to_have_text(["".join(line) for line in lines])
    amounts: dict[str, float] = {}
    for region, _, _, amount, _ in lines:
        amounts[region] = amounts.get(region, 0) + float(amount)
    chart = page.get_by_role("img", name="Amount of orders by region")
    expect(chart.locator("text.amount")).to_have_text([f"{round(amount):,}" for amount in amounts.values()])
    expect(page.locator("#state")).to_contain_text("asked for again each second")
    assert unnamed(page) == []
    picture(page, "report")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 800})
        assert overflow(page) <= 0, width


def test_a_page_that_is_not_fresh_says_so() -> None:
    nobody = f"postgresql://somebody@127.0.0.1:{free_port()}/report"
    with serving(nobody) as address, chromium() as browser, looking(browser, address) as page:
        expect(page.locator("#state")).to_have_text("Not fresh: the report's database does not answer")
        # What is loaded from elsewhere would be refused by the browser, and nothing else is served.
        assert "default-src 'none'" in page.request.get(address).headers["content-security-policy"]
        assert page.request.get(f"{address}/flow.yaml").status == 404


def test_the_page_s_program_says_what_it_needs() -> None:
    with serving("postgresql://nobody") as address:
        taken = address.rpartition(":")[2]
        url_is_missing = page_ended(REPORT_URL="")
        port_is_taken = page_ended("--port", taken, REPORT_URL="postgresql://nobody")
    assert url_is_missing.returncode == port_is_taken.returncode == 2
    assert url_is_missing.stdout.startswith("set REPORT_URL to the database of the report, as postgresql://")
    assert (
        port_is_taken.stdout
        == f"the port {taken} is not to be had (Address already in use): choose another one by --port\n"
    )


def page_ended(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "examples.report.page", *options]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_the_tutorial_shows_the_flow_file_as_it_is() -> None:
    flow = (EXAMPLE / "flow.yaml").read_text()
    computed = flow[flow.index("  - type: sql") : flow.index("log: ")]
    delivered = flow[flow.index("flows:") :]
    tutorial = (ROOT / "docs" / "tutorial" / "real-time-report.md").read_text()
    assert computed in tutorial
    assert delivered in tutorial
