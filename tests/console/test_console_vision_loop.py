"""The whole loop of vision in a browser on a real `weft up`: import, label, train, deploy, try, auto-label, accept."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from testing.console.browser import needs_browser, open_page
from testing.console.service import weft_up

from weft.vision.pictures.decoding import encode_png

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [*needs_browser, pytest.mark.long, pytest.mark.xdist_group("console-service")]

PATIENCE_MS = 120_000  # cores may be busy
LABELLED, LEFT = 12, 2  # pictures of two colours in turns
COLOURS = (("red", (200, 40, 30)), ("blue", (30, 60, 200)))


def picture(number: int) -> bytes:
    """Return a picture of noise about a colour: red where the number is even."""
    noise = np.random.default_rng(number).integers(-25, 25, (48, 64, 3))
    return encode_png(np.clip(np.array(COLOURS[number % 2][1]) + noise, 0, 255).astype(np.uint8))


def zipped() -> bytes:
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w") as archive:
        for number in range(LABELLED + LEFT):
            archive.writestr(f"{number:02d}.png", picture(number))
    return into.getvalue()


def test_pictures_become_a_model_that_labels_the_rest(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    expect.set_options(timeout=PATIENCE_MS)
    # The browser notes that a server which is being started does not answer yet.
    with weft_up(tmp_path) as link, open_page(browser, quiet=False) as page:
        page.set_default_timeout(PATIENCE_MS)
        page.goto(link)
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        imported(page)
        drawn(page)
        classified(page)
        trained(page)
        try:
            served_and_tried(page)
            labelled_by_the_model(page)
        finally:
            asked(page, "DELETE", "/deployments/colours")  # servers outlive the service


def imported(page: Page) -> None:
    """Drop a zip where there is no data set yet; one is made of it."""
    from playwright.sync_api import expect

    page.get_by_role("link", name="Vision", exact=True).click()
    page.get_by_label("Files to import").set_input_files(
        {"name": "colours.zip", "mimeType": "application/zip", "buffer": zipped()}
    )
    expect(page.get_by_role("heading", name="Vision / colours")).to_be_visible()
    grid = page.get_by_role("listbox", name="Pictures")
    expect(grid.get_by_role("option")).to_have_count(LABELLED + LEFT)
    somebody_else_sends_a_picture(page)
    expect(grid.get_by_role("option")).to_have_count(LABELLED + LEFT + 1)  # without a key or a click
    late = asked(page, "GET", "/vision/datasets/colours/files?query=name=='late.png'")["files"][0]
    asked(page, "DELETE", f"/vision/files/{late['id']}")


def somebody_else_sends_a_picture(page: Page) -> None:
    """Upload a picture past the page."""
    api = f"{page.url.partition('/vision')[0]}/api/v1"
    headers = {
        "x-weft-csrf": page.request.get(f"{api}/session").json()["csrf"],
        "content-type": "application/octet-stream",
    }
    sent = page.request.post(
        f"{api}/vision/datasets/colours/upload?name=late.png", data=picture(998), headers=headers
    )
    assert sent.ok, sent.text()


def drawn(page: Page) -> None:
    """Draw a box, and take it back."""
    from playwright.sync_api import expect

    page.get_by_role("link", name="Label", exact=True).click()
    stage = page.get_by_role("application")
    expect(stage.locator("img")).to_have_js_property("complete", True)
    box = stage.locator("img").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + box["height"] / 4)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
    page.mouse.up()
    expect(page.get_by_role("img", name=re.compile("^box object, 16 by 12"))).to_be_visible()
    saved(page)
    page.keyboard.press("Control+z")
    expect(page.get_by_role("group", name="Shapes").get_by_role("img")).to_have_count(0)
    saved(page)
    somebody_else_saves(page, [{"label": "theirs", "box": [4, 4, 24, 24]}])
    expect(page.get_by_role("img", name="box theirs, 20 by 20")).to_be_visible()  # without a key or a click
    somebody_else_saves(page, [])
    expect(page.get_by_role("group", name="Shapes").get_by_role("img")).to_have_count(0)


def somebody_else_saves(page: Page, shapes: list[dict[str, Any]]) -> None:
    """Save labels of the first picture past the page."""
    first = asked(page, "GET", "/vision/datasets/colours/files?limit=1")["files"][0]
    asked(
        page,
        "PUT",
        f"/vision/files/{first['id']}/labels",
        {"revision": first["revision"], "shapes": shapes},
    )


def asked(page: Page, method: str, path: str, body: object = None) -> Any:
    """Ask the service past the page, as its user."""
    api = f"{page.url.partition('/vision')[0]}/api/v1"
    csrf = page.request.get(f"{api}/session").json()["csrf"]
    answer = page.request.fetch(api + path, method=method, data=body, headers={"x-weft-csrf": csrf})
    assert answer.ok, answer.text()
    return answer.json() if answer.text() else None


def saved(page: Page) -> None:
    from playwright.sync_api import expect

    expect(page.get_by_test_id("saving")).to_have_text("Saved")


def classified(page: Page) -> None:
    """Name two categories in the page, and give the rest theirs by digits."""
    from playwright.sync_api import expect

    page.keyboard.press("k")
    for number in range(LABELLED):
        expect(page.get_by_role("heading", name=f"{number:02d}.png")).to_be_visible()
        if number < 2:  # a new name is given to the picture, and the next one comes
            page.keyboard.press("j")
            page.keyboard.type(COLOURS[number][0])
            page.keyboard.press("Enter")
        else:
            page.keyboard.press("12"[number % 2])
    expect(page.get_by_role("heading", name=f"{LABELLED:02d}.png")).to_be_visible()
    saved(page)
    page.get_by_role("link", name="Back to colours").click()


def trained(page: Page) -> None:
    """Train a small network and see its curve move."""
    from playwright.sync_api import expect

    page.get_by_role("button", name="Train", exact=True).click()
    dialog = page.get_by_role("dialog", name="Train on colours")
    expect(dialog.get_by_role("radio", name=re.compile("^Whole pictures"))).to_be_checked()
    dialog.get_by_text("Settings").click()
    for field, value in (("Network", "small"), ("Epochs", "20"), ("Batch", "4"), ("Side of the input", "32")):
        dialog.get_by_label(field, exact=False).fill(value)
    dialog.get_by_role("button", name="Train", exact=True).click()
    chart = page.get_by_test_id("chart").first.get_by_role("img")
    first = chart.get_attribute("aria-label")
    expect(chart).not_to_have_attribute("aria-label", str(first))
    expect(page.get_by_role("heading", name=re.compile("completed"))).to_be_visible()
    expect(page.get_by_role("group", name="Confusion matrix")).to_be_visible()
    example = page.get_by_role("link", name=re.compile(r"\.png: (red|blue), \d+ %$")).first
    expect(example.locator("img")).to_have_js_property("complete", True)


def served_and_tried(page: Page) -> None:
    """Serve the model by one press, and show it a picture at once: the page waits until it runs."""
    from playwright.sync_api import expect

    page.get_by_role("link", name="Model", exact=True).click()
    page.get_by_role("button", name="Deploy", exact=True).click()
    tried = page.get_by_role("region", name="Try it")
    page.get_by_label("Picture to try").set_input_files(
        {"name": "new.png", "mimeType": "image/png", "buffer": picture(101)}
    )
    expect(tried.get_by_role("listitem").first).to_contain_text(COLOURS[101 % 2][0])
    expect(tried).to_contain_text("/vision/deployments/colours/predict")


def labelled_by_the_model(page: Page) -> None:
    """Let the model label the rest, and accept it picture by picture."""
    from playwright.sync_api import expect

    page.get_by_role("link", name="colours@1").first.click()
    page.get_by_role("button", name="Auto-label").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("slider").fill("0.3")  # two classes: the better one always has a half
    dialog.get_by_role("button", name=f"Label {LEFT} pictures").click()
    page.get_by_role("region", name="Auto-label").get_by_role("link", name="Check them").click()
    panel = page.get_by_role("region", name="Auto labels")
    for number in range(LABELLED, LABELLED + LEFT):
        expect(page.get_by_role("heading", name=f"{number:02d}.png")).to_be_visible()
        expect(panel).to_contain_text(f"A model says {COLOURS[number % 2][0]}")
        page.keyboard.press("y")
    expect(panel).to_have_count(0)
    saved(page)
