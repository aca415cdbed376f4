"""Pages of studies in a real browser: brushes hold in every view, curves grow by themselves, a dialog begins one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from testing.console.browser import NARROW, needs_browser, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [*needs_browser, pytest.mark.xdist_group("console-pages")]


def test_a_brush_holds_in_every_view_and_is_in_the_address(page: Page, many: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{many}/studies/3/parallel")
    axes = page.get_by_test_id("brush")
    box = axes.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 64, box["y"] + 120)  # the first axis, lr
    page.mouse.down()
    page.mouse.move(box["x"] + 66, box["y"] + 220, steps=3)
    page.mouse.up()
    dropped = page.get_by_role("button", name=re.compile(r"^lr \S+ to "))
    expect(dropped).to_be_visible()
    expect(page).to_have_url(re.compile("brush=lr"))
    page.keyboard.press("7")
    shown = page.get_by_text(re.compile("^[0-9]+ of 1.000$"))
    expect(shown).to_be_visible()
    page.get_by_role("searchbox", name="Find trials").fill("optimizer=sgd lr<0.005")
    expect(page.get_by_role("gridcell", name="adamw")).to_have_count(0)
    page.get_by_role("grid", name="Trials").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("navigation", name="Job of trial")).to_contain_text("Logs")
    dropped.click()
    page.get_by_role("searchbox", name="Find trials").fill("")
    expect(page.get_by_text(re.compile("^1.000 of 1.000$"))).to_be_visible()


def test_a_study_moves_by_itself_and_does_what_it_is_told(browser: Browser, fresh: str) -> None:
    from playwright.sync_api import expect

    with open_page(browser, quiet=False) as page:  # the browser notes what was refused
        page.goto(f"{fresh}/studies/3/trials?state=running&sort=-step")
        step = page.get_by_role("row").nth(1).get_by_role("gridcell").nth(4)
        first = step.inner_text()
        expect(step).not_to_have_text(first)
        page.keyboard.press("p")
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        page.get_by_role("button", name="Add trial").click()
        dialog = page.get_by_role("dialog", name="Add a trial")
        dialog.get_by_label("lr:").fill("7")
        dialog.get_by_role("button", name="Add", exact=True).click()
        expect(dialog.get_by_role("alert")).to_contain_text("must")  # it is outside the space
        dialog.get_by_label("lr:").fill("0.004")
        dialog.get_by_role("button", name="Add", exact=True).click()
        expect(page.get_by_text("the trial is tried next")).to_be_visible()
        expect(page.get_by_role("link", name=re.compile("Trials *1001"))).to_be_visible()


def test_a_trial_is_held_promoted_and_its_model_kept(browser: Browser, fresh: str) -> None:
    from playwright.sync_api import expect

    with open_page(browser) as page:
        page.goto(f"{fresh}/studies/3/trials?state=paused")
        page.get_by_role("row").nth(1).click()
        panel = page.get_by_role("region", name=re.compile("^Trial [0-9]+$"))
        panel.get_by_role("button", name="Pause").click()
        expect(panel).to_contain_text("until it is promoted")
        expect(panel.get_by_role("button", name="Pause")).to_have_count(0)
        page.keyboard.press("m")
        expect(page.get_by_text("it goes on before all others")).to_be_visible()
        expect(panel.get_by_role("button", name="Promote")).to_have_count(0)
        page.get_by_role("button", name="Keep model").click()
        page.get_by_role("dialog", name="Keep the model").get_by_role(
            "button", name="Keep", exact=True
        ).click()
        expect(page.get_by_text("it is kept as a version of digits")).to_be_visible()
        page.goto(f"{fresh}/studies/3/importance")
        page.get_by_role("link", name="contour of lr and optimizer").click()
        expect(page).to_have_url(re.compile("px=lr&py=optimizer"))


def test_the_tab_that_is_open_is_in_sight_on_a_narrow_screen(browser: Browser, many: str) -> None:
    from playwright.sync_api import expect

    with open_page(browser, size=NARROW) as page:
        page.goto(f"{many}/studies/3/trials")
        tabs = page.get_by_role("navigation", name="Parts of the study")
        expect(tabs.get_by_role("link", name=re.compile("^Trials"))).to_be_in_viewport(ratio=1)
        page.keyboard.press("1")
        expect(tabs.get_by_role("link", name=re.compile("^Progress"))).to_be_in_viewport(ratio=1)


def test_the_dialog_writes_a_study(browser: Browser, fresh: str) -> None:
    from playwright.sync_api import expect

    with open_page(browser, quiet=False) as page:  # the browser notes what was refused
        page.goto(f"{fresh}/studies")
        page.get_by_role("heading", name="Studies").wait_for()
        page.keyboard.press("w")
        dialog = page.get_by_role("dialog", name="New tuning")
        for name in ("SGD", "AdamW"):
            dialog.get_by_label(name, exact=True).uncheck()
        dialog.get_by_label("Muon").check()
        dialog.get_by_label("Learning rate to").fill("0.001")
        expect(dialog.get_by_role("alert")).to_contain_text("must")  # its ends are swapped
        expect(dialog.get_by_role("button", name="Start tuning")).to_be_disabled()
        dialog.get_by_label("Learning rate from").fill("0.0001")
        expect(dialog.get_by_text("It would begin with")).to_be_visible()
        dialog.get_by_role("button", name="Start tuning").click()
        expect(page).to_have_url(re.compile("/studies/4"))
        page.goto(f"{fresh}/studies/4/settings")
        written = page.get_by_role("group", name="code")
        expect(written).to_contain_text("log:0.0001:0.001")
        expect(written).to_contain_text("float:0.8:0.9 if optimizer == muon")
