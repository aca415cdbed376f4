"""A real browser on the pages of the console, and what tests ask of every page."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from weft.console import pages

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "src" / "weft" / "console" / "web"
# The shell draws no window of its own around a page, which takes two thirds of a browser's time.
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in BROWSERS if (found := shutil.which(name))), None)
WIDE, NARROW = (1360, 850), (400, 820)
OF_COLOURS = ("color-contrast", "link-in-text-block")  # rules of axe by which another theme may fail
PATIENCE_MS = 60_000  # for what a page is to show: cores may be busy

needs_browser = [
    pytest.mark.clients,
    pytest.mark.skipif(
        CHROMIUM is None and os.environ.get("CI") != "true",
        reason="needs chromium: apt-get install chromium-headless-shell, or tools/setup.sh browser",
    ),
    pytest.mark.skipif(
        pages() is None and os.environ.get("CI") != "true", reason="needs the built pages: make pages"
    ),
]


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without windows."""
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        )
        yield browser
        browser.close()


@contextmanager
def open_page(
    browser: Browser, *, size: tuple[int, int] = WIDE, dark: bool = False, quiet: bool = True
) -> Iterator[Page]:
    """A page in a fresh profile; what it complains of on its console fails the test."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme="dark" if dark else "light",
        reduced_motion="reduce",
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    yield page
    context.close()
    if quiet:
        assert complaints == []


@contextmanager
def made_up_service(jobs: int, *words: str) -> Iterator[str]:
    """The address of a made-up service with so many jobs, in a process of its own."""
    command = [sys.executable, "-m", "testing.console.app", str(jobs), *words]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def accessibility_problems(page: Page, rules: Sequence[str] = ()) -> list[str]:
    """Return what axe finds on a page by all its rules, or by some: its rule and the elements."""
    # Colours that were changed a moment ago are drawn before they are judged.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    if not page.evaluate("'axe' in window"):
        page.evaluate((WEB / "node_modules" / "axe-core" / "axe.min.js").read_text())
    options: dict[str, Any] = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    found: dict[str, Any] = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{violation['id']}: {node['html'][:160]} ({node['failureSummary']})"
        for violation in found["violations"]
        for node in violation["nodes"][:3]
    ]


def overflow(page: Page) -> int:
    """Return by how many pixels a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
