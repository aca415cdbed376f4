"""The report on paper: PDF by a browser without a window, where one is installed."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 120


def find_browser() -> str | None:
    """Return the path of a browser that can print; None where there is none."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def print_pdf(html: Path, pdf: Path, browser: str | None = None) -> str:
    """Write an HTML file as PDF; return a sentence about it, also where no browser is there to do so."""
    browser = browser or find_browser()
    if browser is None:
        return f"no {pdf.name}: printing needs chromium, and none is installed; open {html} in a browser and print it"
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={home}",
                "--no-pdf-header-footer", f"--print-to-pdf={pdf.resolve()}", html.resolve().as_uri(),
            ],
            capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    if done.returncode or not pdf.exists():
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return f"no {pdf.name}: {browser} could not print ({reason}); open {html} in a browser and print it"
    return f"{pdf}: the same on paper"
