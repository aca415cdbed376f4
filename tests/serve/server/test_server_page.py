"""The page, in a real browser: a picture is dropped, a row is typed."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testing.console.browser import CHROMIUM, PATIENCE_MS, chromium
from testing.serving.pictures import picture
from testing.serving.server import Server, Starter

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FilePayload, Page

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(
        CHROMIUM is None and os.environ.get("CI") != "true",
        reason="needs chromium: apt-get install chromium-headless-shell, or tools/setup.sh browser",
    ),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    yield opened
    context.close()


def test_a_model_chosen_again_leaves_what_was_typed(page: Page, server: Server) -> None:
    """Its description may come late: after the person has begun."""
    from playwright.sync_api import Route, expect

    late: list[Route] = []
    page.goto(server.url)
    expect(page.locator("#expects")).to_contain_text("x FP32 [-1,4]")
    page.route("**/v2/models/double", lambda route: late.append(route))
    with page.expect_request("**/v2/models/double"):
        page.select_option("#model", "double")
    page.fill("#values", "1, 2, 3, 4")
    page.wait_for_timeout(0)
    late[0].continue_()
    page.evaluate("choosing")
    expect(page.locator("#values")).to_have_value("1, 2, 3, 4")


def test_a_person_tries_models(page: Page, server: Server) -> None:
    from playwright.sync_api import expect

    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
    page.goto(server.url)
    with server.client() as client:
        expect(page.locator("#model option")).to_have_count(len(client.index()))

    page.select_option("#model", "double")
    expect(page.locator("#expects")).to_contain_text("x FP32 [-1,4]")
    page.fill("#values", "1, 2, 3, 4")
    page.click("#send")
    expect(page.locator("#answer")).to_contain_text("[2,4,6,8]")
    expect(page.locator("#took")).to_contain_text("answered in")

    page.select_option("#model", "colours")
    chosen: FilePayload = {"name": "green.png", "mimeType": "image/png", "buffer": picture()}
    page.set_input_files("#file", chosen)
    expect(page.locator("#answer .bar").first).to_contain_text("green")

    page.select_option("#model", "boxes")
    transfer = page.evaluate_handle(
        """(bytes) => {
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(bytes)], "p.png", { type: "image/png" }));
            return transfer;
        }""",
        list(picture()),
    )
    page.dispatch_event("#drop", "drop", {"dataTransfer": transfer})
    expect(page.locator(".box")).to_have_count(2)
    expect(page.locator(".box").first).to_have_attribute("style", re.compile("width: 50%"))
    assert errors == []

    page.select_option("#model", "double")
    page.fill("#values", "1, 2, three")
    page.click("#send")
    expect(page.locator(".error")).to_contain_text("a row must be numbers, got three")
    page.fill("#values", "1, 2")
    page.click("#send")
    expect(page.locator(".error")).to_contain_text("must have 4 values, got 2")

    page.goto(f"{server.url}/docs")
    expect(page.locator("details", has_text="/v2/models/{name}/infer").first).to_be_visible()


def test_what_is_filled_in_for_a_model_can_be_asked_as_it_is(page: Page, server: Server) -> None:
    """Several inputs, words, flags and open lengths; what the page shows as code gives the same answer."""
    from playwright.sync_api import expect

    expect.set_options(timeout=60_000)
    page.goto(server.url)
    for name, inputs in (("mixed", 3), ("words", 1), ("double", 1)):
        page.select_option("#model", name)
        expect(page.locator("#inputs textarea")).to_have_count(inputs)
        expect(page.locator("#facts")).to_contain_text("version 1")
        page.click("#send")
        expect(page.locator("#took")).to_contain_text("answered in")
        assert page.locator(".error").count() == 0
    page.select_option("#model", "words")
    expect(page.locator("#shape-0")).to_have_attribute("aria-label", "shape of tokens")
    page.fill("#values", "1, 2, 3")
    page.click("#send")
    expect(page.locator("#took")).to_contain_text("answered in")
    expect(page.locator("#shape-0")).to_have_value("1, 3")
    page.fill("#shape-0", "one")
    page.click("#send")
    expect(page.locator(".error")).to_contain_text("must be 2 whole numbers, got one")

    page.select_option("#model", "double")
    page.fill("#values", "1, 2, 3, 4")
    code = (page.locator("#snippets").text_content() or "").partition("\n\n")
    assert code[0].startswith(f'curl -s {server.url}/v2/models/double/infer -d \'{{"inputs":[{{')
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code[2], {})
    assert "[[2., 4., 6., 8.]]" in said.getvalue()


def test_the_page_asks_for_a_key(page: Page, start: Starter, onnx_models: Path) -> None:
    from playwright.sync_api import expect

    from weft.serve.server.keys import add_key

    _, key = add_key(start.folder / "keys.json", "me")
    server = start(str(onnx_models / "double.onnx"), "--keys", "keys.json")
    page.goto(server.url)
    expect(page.locator(".error")).to_contain_text("a key must be given")
    page.click("summary")
    page.fill("#key", key)
    page.press("#key", "Tab")
    expect(page.locator("#model option")).to_have_count(1)
