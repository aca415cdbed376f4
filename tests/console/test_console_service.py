"""The console on a real `weft up`: log in by its link, submit, watch live until the end, stop, compare."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testing.console.browser import needs_browser, open_page
from testing.console.service import weft_up

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [*needs_browser, pytest.mark.long, pytest.mark.xdist_group("console-service")]

TRAIN = """import time, weft
for step in range({steps}):
    weft.log(step=step, loss=1 / (step + 1))
    print('step', step, flush=True)
    time.sleep(0.05)
"""


def specification(name: str, steps: int) -> str:
    fields = {
        "run": [sys.executable, "-c", TRAIN.format(steps=steps)],
        "name": name,
        "resources": {"cpus": 0.5},
    }
    return json.dumps(fields)  # JSON is YAML, too


def test_a_job_from_the_page_to_its_end(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with weft_up(tmp_path) as link, open_page(browser, quiet=False) as page:
        page.goto(link)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible(timeout=60_000)
        page.keyboard.press("n")
        editor = page.get_by_label("Specification in YAML")
        editor.fill(specification("short", 60))
        page.get_by_role("button", name="Submit", exact=True).click()
        expect(page.get_by_role("heading", name=re.compile("short 1"))).to_be_visible(timeout=60_000)
        expect(page.get_by_role("heading", name=re.compile("completed"))).to_be_visible(timeout=120_000)
        expect(page.get_by_test_id("chart").get_by_role("img")).to_have_attribute(
            "aria-label", re.compile("at step 59")
        )
        page.get_by_role("link", name="Logs").click()
        expect(page.get_by_role("log")).to_contain_text("step 59")
        page.get_by_role("link", name="Events").click()
        expect(page.get_by_role("listitem").filter(has_text=re.compile("Completed"))).to_be_visible()

        page.keyboard.press("n")
        editor.fill(specification("endless", 1_000_000))
        page.get_by_role("button", name="Submit", exact=True).click()
        expect(page.get_by_role("heading", name=re.compile("endless 2"))).to_contain_text(
            "running", timeout=120_000
        )
        page.get_by_role("button", name="Stop").click()
        expect(page.get_by_role("heading", name=re.compile("stopped"))).to_be_visible(timeout=120_000)
        page.keyboard.press("u")
        expect(page.get_by_role("row").nth(1)).to_contain_text("stopped")
