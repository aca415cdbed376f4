"""Views of the console in a real browser: the address is the view, keys reach everything, actions act, pages live."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from testing.console.browser import NARROW, made_up_service, needs_browser, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [*needs_browser, pytest.mark.xdist_group("console-views")]

RUNNING = 389  # of the fixture's 400 jobs


def test_a_list_of_thousands_draws_what_fits_the_window(page: Page) -> None:
    from playwright.sync_api import expect

    with made_up_service(10_000) as url:
        page.goto(f"{url}/jobs")
        expect(page.get_by_role("heading", name="Jobs")).to_contain_text("10")
        grid = page.get_by_role("grid", name="Jobs")
        expect(grid).to_have_attribute("aria-rowcount", "10001")
        assert grid.get_by_role("row").count() < 80
        page.goto(f"{url}/jobs?state=failed&sort=name")
        expect(grid.get_by_role("row").nth(1)).to_contain_text("failed")
        # Scrolled to the end of what is loaded, the next page of the server comes.
        rows = page.locator("[role=rowgroup]")
        before = rows.evaluate("element => element.clientHeight")
        grid.evaluate("element => element.scrollTo(0, 1e7)")
        expect(rows).not_to_have_js_property("clientHeight", before)
        assert rows.evaluate("element => element.clientHeight") > before
        page.close()  # before the service, which it would miss


def test_filters_are_in_the_address(page: Page, many: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{many}/jobs")
    page.get_by_role("button", name="Failed").click()
    expect(page).to_have_url(re.compile(r"state=failed"))
    page.keyboard.press("/")
    page.keyboard.type("unet")
    expect(page).to_have_url(re.compile(r"q=unet"))
    expect(page.get_by_role("row").nth(1)).to_contain_text("unet")
    page.reload()
    expect(page.get_by_role("searchbox", name="Search jobs")).to_have_value("unet")
    expect(page.get_by_role("button", name="Failed")).to_have_attribute("aria-pressed", "true")


def test_keys_choose_open_and_compare(page: Page, many: str) -> None:
    from playwright.sync_api import expect

    page.goto(many)
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("g")
    page.keyboard.press("j")
    expect(page).to_have_url(f"{many}/jobs")
    page.get_by_role("row").nth(3).wait_for()
    for key in ("j", "x", "j", "j", "x"):
        page.keyboard.press(key)
    expect(page.get_by_role("row", selected=True)).to_have_count(2)
    page.keyboard.press("c")
    expect(page).to_have_url(f"{many}/compare?jobs=400,398")
    page.get_by_role("heading", name="Compare").wait_for()
    page.go_back()
    page.get_by_role("row").nth(3).wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{many}/jobs/400")
    page.get_by_role("link", name="Logs").wait_for()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_contain_text("Up to the list of jobs")
    page.keyboard.press("Escape")
    page.keyboard.press("u")
    expect(page).to_have_url(f"{many}/jobs")


def test_many_jobs_are_stopped_at_once(fresh: str, page: Page) -> None:
    from playwright.sync_api import expect

    page.goto(f"{fresh}/jobs?state=active")
    page.get_by_role("row").nth(2).wait_for()
    page.get_by_role("checkbox", name="select all that are loaded").check()
    page.get_by_role("toolbar", name="Actions on the selected jobs").get_by_role(
        "button", name="Stop"
    ).click()
    expect(page.get_by_role("status").filter(has_text="stopping")).to_be_visible()
    expect(page.get_by_text("No job is like that")).to_be_visible()


def test_the_queue_says_why_and_takes_another_priority(fresh: str, page: Page) -> None:
    from playwright.sync_api import expect

    page.goto(f"{fresh}/jobs?view=queue")
    first = page.get_by_role("row").nth(1)
    expect(first).to_contain_text("#1, next: hosts are kept for it")
    first.get_by_role("button", name=re.compile("raise the priority")).click()
    expect(page.get_by_role("status").filter(has_text="priority")).to_be_visible()


def test_curves_grow_and_zoom_into_the_address(page: Page, many: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{many}/jobs/{RUNNING}?smooth=0.6&y=log")
    chart = page.get_by_test_id("chart").first
    drawing = chart.get_by_role("img")
    drawing.wait_for()
    before = drawing.get_attribute("aria-label")
    expect(drawing).not_to_have_attribute("aria-label", str(before))  # points come by the stream
    over = chart.locator(".u-over")
    box = over.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 30, steps=4)
    with page.expect_request(re.compile(r"curves\?.*first_step=\d+")):
        page.mouse.up()
    expect(page).to_have_url(re.compile(r"smooth=0.6&y=log&zoom=\d+-\d+"))
    page.get_by_role("button", name=re.compile("Steps")).click()
    expect(page).not_to_have_url(re.compile("zoom"))


def test_logs_are_searched_and_lead_to_the_first_error(page: Page, many: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{many}/jobs?state=failed")
    page.get_by_role("row").nth(1).get_by_role("link").click()
    page.get_by_role("link", name="First error in the log").click()
    found = page.locator("[data-found=true]")
    expect(found).to_contain_text("Traceback (most recent call last):")
    expect(page).to_have_url(re.compile(r"at=\d+"))
    page.get_by_role("searchbox", name="Search the log").fill(r"step +6\d\b")
    expect(page.get_by_role("log").locator("mark").first).to_contain_text("step")
    expect(page).to_have_url(re.compile("grep="))


def test_an_elastic_job_is_scaled_and_a_job_is_cloned(fresh: str, page: Page) -> None:
    from playwright.sync_api import expect

    page.goto(f"{fresh}/jobs?state=active")
    page.get_by_role("row").filter(has_text=re.compile(r"running.*\d of \d")).first.get_by_role(
        "link"
    ).click()
    page.get_by_role("button", name="Scale").click()
    page.get_by_role("slider", name="Workers").press("End")
    page.get_by_role("slider", name="Workers").press("ArrowLeft")
    asked = page.get_by_role("dialog").get_by_role("button", name=re.compile("Scale to"))
    workers = asked.inner_text().split()[-1]
    if asked.is_enabled():
        asked.click()
        expect(page.get_by_text(f"asked for {workers} worker")).to_be_visible()
    else:
        page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()  # or the key would be the dialog's
    page.keyboard.press("c")
    page.get_by_label("Priority").fill("80")
    with page.expect_request("**/clone") as request:
        page.get_by_role("button", name="Submit the copy").click()
    assert request.value.post_data_json == {"changes": {"queue.priority": 80}}
    expect(page).to_have_url(f"{fresh}/jobs/41")
    expect(page.get_by_text("Cloned from")).to_be_visible()


def test_a_specification_is_checked_while_it_is_typed(browser: Browser, many: str) -> None:
    from playwright.sync_api import expect

    with open_page(browser, quiet=False) as typed:  # the browser itself notes the 422
        typed.goto(f"{many}/new")
        editor = typed.get_by_label("Specification in YAML")
        editor.fill("run: train.py\nqueue:\n  priority: 900\n")
        expect(typed.get_by_text("queue.priority")).to_be_visible()
        expect(typed.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
        typed.get_by_role("button", name="queue.priority").click()
        assert typed.evaluate("getSelection().toString()") == "  priority: 900"
        editor.fill("run: train.py\n")
        expect(typed.get_by_text("It would run")).to_be_visible()


def test_a_token_is_shown_once(fresh: str, page: Page) -> None:
    from playwright.sync_api import expect

    page.goto(f"{fresh}/settings")
    page.get_by_label("Name", exact=True).fill("laptop")
    page.get_by_role("button", name="Make").click()
    dialog = page.get_by_role("dialog", name="Token laptop")
    expect(dialog.locator("code")).to_have_text(re.compile("^weft_"))
    page.get_by_role("button", name="I have kept it").click()
    expect(page.get_by_text("weft_9Qm2")).to_have_count(0)


def test_a_served_model_is_tried(page: Page, many: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{many}/models?open=digits@2")
    expect(page.get_by_role("group", name="Where it came from")).to_contain_text("digits-cosine")
    page.goto(f"{many}/deployments")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("answered in")).to_be_visible()
    expect(page.get_by_role("group", name="code")).to_contain_text("0.97")


def test_colours_are_chosen_and_kept(page: Page, many: str) -> None:
    page.goto(f"{many}/hosts")
    page.get_by_role("heading", name="Hosts").wait_for()
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light


def test_the_first_page_asks_for_a_log_in_and_then_goes_where_one_wanted(browser: Browser) -> None:
    from playwright.sync_api import expect

    with made_up_service(3, "--logged-out") as url, open_page(browser, quiet=False, size=NARROW) as page:
        page.goto(f"{url}/jobs?state=failed")
        expect(page).to_have_url(re.compile("/login"))
        page.get_by_label("Name", exact=True).fill("mara")
        page.get_by_label("Password").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("must belong together")
        page.get_by_label("Password").fill("correct horse")
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{url}/jobs?state=failed")
    with made_up_service(3, "--logged-out") as url, open_page(browser, quiet=False) as page:
        page.goto(f"{url}/login#link=once")
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert "link" not in page.url


def test_a_service_that_is_away_is_seen_and_found_again(browser: Browser) -> None:
    from playwright.sync_api import expect

    with open_page(browser, quiet=False) as page:
        with made_up_service(3) as url:
            page.goto(url)
            dot = page.get_by_test_id("stream")
            expect(dot).to_have_attribute("data-state", "live")
        expect(dot).to_have_attribute("data-state", "down")
        expect(page.get_by_role("alert")).to_contain_text("does not answer")
        with made_up_service(3, "--port", url.rsplit(":", 1)[1]):
            expect(dot).to_have_attribute("data-state", "live", timeout=60_000)
            expect(page.get_by_role("alert")).to_have_count(0)


def test_columns_are_hidden_and_that_is_kept(page: Page, many: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{many}/jobs")
    head = page.get_by_role("columnheader")
    expect(head.filter(has_text="Project")).to_have_count(1)
    page.get_by_role("button", name="Columns").click()
    page.get_by_role("checkbox", name="Project").uncheck()
    expect(head.filter(has_text="Project")).to_have_count(0)
    cells = page.get_by_role("row").nth(1).get_by_role("gridcell").count()
    assert cells == head.count()
    page.keyboard.press("Escape")
    expect(page.get_by_role("checkbox", name="Project")).to_have_count(0)
    page.reload()
    expect(head.filter(has_text="User")).to_have_count(1)
    expect(head.filter(has_text="Project")).to_have_count(0)


def test_a_job_is_moved_in_the_queue_by_drag_and_by_key(page: Page, many: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{many}/jobs?view=queue")
    rows = page.get_by_role("row")
    expect(rows.nth(5)).to_be_visible()
    above = int(rows.nth(2).get_by_role("gridcell").nth(5).inner_text())
    with page.expect_request(lambda request: request.method == "PATCH") as dragged:
        rows.nth(5).drag_to(rows.nth(2))
    assert dragged.value.post_data_json == {"priority": above + 1}
    for key in ("j", "j", "j"):
        page.keyboard.press(key)
    before = int(rows.nth(2).get_by_role("gridcell").nth(5).inner_text())
    with page.expect_request(lambda request: request.method == "PATCH") as moved:
        page.keyboard.press("Shift+K")
    assert moved.value.post_data_json == {"priority": before + 1}


def test_messages_to_a_webhook_are_listed(page: Page, many: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{many}/settings/webhooks")
    page.get_by_role("button", name="messages to").click()
    expect(page.get_by_role("cell", name="delivered")).to_be_visible()
    expect(page.get_by_text("got 502; next try")).to_be_visible()


def test_the_canary_of_a_deployment_is_set(page: Page, many: str) -> None:
    page.goto(f"{many}/deployments")
    page.get_by_role("cell", name="1 (canary)").wait_for()
    page.get_by_label("Percent of the requests").fill("35")
    with page.expect_request(lambda request: request.url.endswith("/canary")) as asked:
        page.get_by_role("button", name="Set the canary").click()
    assert asked.value.post_data_json == {"version": 1, "percent": 35}
