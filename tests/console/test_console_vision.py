"""The pages of vision in a real browser: draw, undo, repeat, keys alone, nothing lost without a network, imports."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from testing.console.browser import made_up_service, needs_browser, open_page
from testing.console.vision_world import picture

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page, Route

pytestmark = [*needs_browser, pytest.mark.xdist_group("console-vision")]


@pytest.fixture(scope="module")
def cells() -> Iterator[str]:
    """The address of a service with a data set of pictures; every test has pictures of its own."""
    with made_up_service(3) as url:
        yield url


def open_picture(page: Page, url: str, number: int, search: str = "") -> Locator:
    """Open a picture and return the stage, when the picture is drawn."""
    from playwright.sync_api import expect

    page.goto(f"{url}/vision/label/cells/cells-{number}{search}")
    stage = page.get_by_role("application")
    stage.wait_for()
    expect(stage.locator("img")).to_have_js_property("complete", True)  # not an eval, which pages forbid
    return stage


def drag(page: Page, stage: Locator, *points: tuple[float, float]) -> None:
    """Drag over the stage; points are shares of the picture's sides."""
    where = [place(page, stage, *point) for point in points]
    page.mouse.move(*where[0])
    page.mouse.down()
    for x, y in where[1:]:
        page.mouse.move(x, y, steps=4)
    page.mouse.up()


def place(page: Page, stage: Locator, x: float, y: float) -> tuple[float, float]:
    box = stage.locator("img").bounding_box()
    assert box is not None
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def saved(page: Page) -> None:
    from playwright.sync_api import expect

    expect(page.get_by_test_id("saving")).to_have_text("Saved")


def labels(page: Page, url: str, number: int) -> dict[str, Any]:
    """Return what the service has."""
    found: dict[str, Any] = page.request.get(f"{url}/api/v1/vision/files/cells-{number}").json()
    return found


def test_boxes_are_drawn_undone_labelled_by_digits_and_saved(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    stage = open_picture(page, cells, 2)
    drag(page, stage, (0.25, 0.25), (0.5, 0.5))
    shape = page.get_by_role("group", name="Shapes").get_by_role("img")
    expect(shape).to_have_attribute("aria-label", re.compile(r"^box RBC, 1[56]\d by 1[12]\d$"))
    page.keyboard.press("2")  # the selected box is another label's
    expect(shape).to_have_attribute("aria-label", re.compile("^box WBC"))
    drag(page, stage, (0.6, 0.6), (0.8, 0.9))
    expect(shape).to_have_count(2)
    page.keyboard.press("Control+z")
    expect(shape).to_have_count(1)
    page.keyboard.press("Control+z")
    page.keyboard.press("Control+z")
    expect(shape).to_have_count(0)
    for _ in range(3):
        page.keyboard.press("Control+Shift+z")
    expect(shape).to_have_count(2)
    saved(page)
    assert [one["label"] for one in labels(page, cells, 2)["shapes"]] == ["WBC", "WBC"]
    page.reload()
    expect(shape).to_have_count(2)


def test_polygons_are_drawn_and_their_vertices_edited(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    stage = open_picture(page, cells, 5)
    page.keyboard.press("p")
    for point in ((0.2, 0.2), (0.6, 0.2), (0.6, 0.6), (0.2, 0.6), (0.2, 0.2)):
        page.mouse.click(*place(page, stage, *point))
    polygon = page.get_by_role("img", name=re.compile("^polygon"))
    expect(polygon).to_have_attribute("aria-label", re.compile("4 vertices"))
    page.keyboard.press("s")
    drag(page, stage, (0.4, 0.2), (0.4, 0.1))  # an edge: a vertex is made there
    expect(polygon).to_have_attribute("aria-label", re.compile("5 vertices"))
    page.keyboard.press("Delete")
    expect(polygon).to_have_attribute("aria-label", re.compile("4 vertices"))
    drag(page, stage, (0.6, 0.6), (0.8, 0.8))
    saved(page)
    ring = labels(page, cells, 5)["shapes"][0]["polygons"][0]
    assert len(ring) == 4
    assert ring[2] == pytest.approx([512, 384], abs=4)


def test_the_wheel_zooms_to_the_cursor_and_space_pans(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    stage = open_picture(page, cells, 38)
    scale = stage.locator("output")
    fitted = str(scale.text_content())
    whole = stage.locator("img").bounding_box()
    at = place(page, stage, 0.25, 0.75)
    page.mouse.move(*at)
    page.mouse.wheel(0, -600)
    expect(scale).not_to_have_text(fitted)
    assert place(page, stage, 0.25, 0.75) == pytest.approx(at, abs=1)
    page.keyboard.down(" ")
    page.mouse.down()
    page.mouse.move(at[0] + 60, at[1] - 30, steps=3)
    page.mouse.up()
    page.keyboard.up(" ")
    assert place(page, stage, 0.25, 0.75) == pytest.approx((at[0] + 60, at[1] - 30), abs=1)
    expect(page.get_by_role("group", name="Shapes").get_by_role("img")).to_have_count(
        0
    )  # a hand draws nothing
    page.keyboard.press("Home")
    expect(scale).to_have_text(fitted)
    assert stage.locator("img").bounding_box() == whole


def test_a_long_label_leaves_its_buttons_in_view(page: Page, cells: str) -> None:
    stage = open_picture(page, cells, 44)
    drag(page, stage, (0.25, 0.25), (0.5, 0.5))
    page.keyboard.press("j")
    page.keyboard.type("a cell that is described in some fifty letters")
    page.keyboard.press("Enter")
    hide = page.get_by_role("button", name=re.compile("^hide a cell that"))
    hide.wait_for()
    box, size = hide.bounding_box(), page.viewport_size
    assert box is not None
    assert size is not None
    assert box["x"] + box["width"] <= size["width"]
    saved(page)


def test_a_shape_is_dragged_and_follows_the_pointer(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    stage = open_picture(page, cells, 41)
    drag(page, stage, (0.2, 0.2), (0.4, 0.4))
    page.keyboard.press("s")
    start, end = place(page, stage, 0.3, 0.3), place(page, stage, 0.5, 0.6)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=4)
    moved = page.get_by_role("group", name="Dragged").get_by_role("img")
    expect(moved).to_have_count(1)
    box = moved.bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert middle == pytest.approx(end, abs=2)
    page.mouse.up()
    saved(page)
    assert labels(page, cells, 41)["shapes"][0]["box"] == pytest.approx([256, 240, 384, 336], abs=4)


def test_a_brush_paints_a_mask_and_an_eraser_takes_it_away(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    stage = open_picture(page, cells, 8)
    page.keyboard.press("m")
    drag(page, stage, (0.3, 0.3), (0.6, 0.3), (0.6, 0.6))
    expect(page.get_by_role("img", name=re.compile("^mask RBC"))).to_have_count(1)
    expect(page.get_by_test_id("masks")).to_be_visible()
    saved(page)
    mask = labels(page, cells, 8)["shapes"][0]["mask"]
    assert mask["size"] == [480, 640]
    page.keyboard.press("e")
    for _ in range(12):
        page.keyboard.press("]")
    drag(page, stage, (0.2, 0.3), (0.7, 0.3), (0.6, 0.7))
    expect(page.get_by_role("img", name=re.compile("^mask"))).to_have_count(0)


def test_shapes_are_repeated_copied_and_pasted(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    open_picture(page, cells, 10)  # six or so that a model made
    shapes = page.get_by_role("group", name="Shapes").get_by_role("img")
    before = shapes.count()
    page.keyboard.press("f")
    expect(page.get_by_role("heading", name="BloodImage_00011.jpg")).to_be_visible()
    expect(shapes).to_have_count(0)
    page.keyboard.press("r")
    expect(shapes).to_have_count(before)
    page.keyboard.press("Control+c")
    page.keyboard.press("Control+v")
    expect(shapes).to_have_count(2 * before)
    page.keyboard.press("n")  # the next without labels
    expect(page.get_by_role("heading", name="BloodImage_00014.jpg")).to_be_visible()
    page.keyboard.press("Control+v")
    expect(shapes).to_have_count(before)
    saved(page)
    assert all(one.get("confidence") is None for one in labels(page, cells, 14)["shapes"])


def test_a_picture_is_labelled_by_keys_alone(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    stage = open_picture(page, cells, 17)
    shapes = page.get_by_role("group", name="Shapes").get_by_role("img")
    page.keyboard.press("b")
    page.keyboard.press("Enter")  # a corner at the cross, in the middle
    for _ in range(4):
        page.keyboard.press("Shift+ArrowRight")
        page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Enter")
    expect(shapes).to_have_attribute("aria-label", "box RBC, 40 by 40")
    page.keyboard.press("Alt+Shift+ArrowRight")
    expect(shapes).to_have_attribute("aria-label", "box RBC, 50 by 40")
    page.keyboard.press("3")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Escape")
    stage.focus()
    page.keyboard.press("Tab")  # the first object
    expect(page.get_by_role("button", name="Platelets box 50 by 40")).to_have_attribute(
        "aria-pressed", "true"
    )
    page.keyboard.press("Tab")  # after the last one, Tab leaves the picture
    expect(stage).not_to_be_focused()
    page.keyboard.press("?")
    sheet = page.get_by_role("dialog", name="Keys of this page")
    expect(sheet).to_contain_text("Repeat the shapes of the picture before")
    page.keyboard.press("Escape")
    saved(page)
    assert labels(page, cells, 17)["shapes"][0]["box"] == pytest.approx([319, 240, 369, 280], abs=1)


def test_pictures_are_classified_by_digits(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    open_picture(page, cells, 20, "?mode=pictures&state=unlabelled")
    page.keyboard.press("2")
    expect(page.get_by_role("heading", name="BloodImage_00023.jpg")).to_be_visible()
    page.keyboard.press("1")
    expect(page.get_by_role("heading", name="BloodImage_00026.jpg")).to_be_visible()
    saved(page)
    assert [labels(page, cells, number)["category"] for number in (20, 23)] == ["ill", "healthy"]


def test_no_label_is_lost_while_the_service_is_away(browser: Browser, cells: str) -> None:
    from playwright.sync_api import expect

    with open_page(browser, quiet=False) as page:  # the browser notes requests that failed
        stage = open_picture(page, cells, 29)
        page.route("**/api/v1/vision/files/*/labels", lambda route: route.abort())
        drag(page, stage, (0.2, 0.2), (0.4, 0.4))
        expect(page.get_by_test_id("saving")).to_contain_text("Offline: 1 picture kept here")
        page.keyboard.press("f")
        expect(page.get_by_role("heading", name="BloodImage_00030.jpg")).to_be_visible()
        page.on("dialog", lambda dialog: dialog.accept())
        page.goto(f"{cells}/vision/label/cells/cells-29")  # a page that begins anew knows what was not saved
        expect(page.get_by_role("img", name=re.compile("^box RBC"))).to_have_count(1)
        assert labels(page, cells, 29)["shapes"] == []
        page.unroute("**/api/v1/vision/files/*/labels")
        saved(page)
        assert len(labels(page, cells, 29)["shapes"]) == 1


def test_two_people_do_not_overwrite_each_other(browser: Browser, cells: str) -> None:
    from playwright.sync_api import expect

    def other(page: Page, shapes: list[dict[str, Any]]) -> None:
        """Somebody else saves labels."""
        revision = labels(page, cells, 3)["revision"]
        answer = page.request.put(
            f"{cells}/api/v1/vision/files/cells-3/labels",
            data={"revision": revision, "shapes": shapes},
            headers={"x-weft-csrf": "csrf-of-tests"},
        )
        assert answer.ok

    with open_page(browser, quiet=False) as page:  # the browser notes the refusal
        stage = open_picture(page, cells, 3)
        before = labels(page, cells, 3)["shapes"]
        theirs = {"id": "theirs", "label": "WBC", "box": [1, 1, 60, 60]}
        other(page, [*before, theirs])
        page.keyboard.press("b")
        drag(page, stage, (0.7, 0.7), (0.9, 0.9))
        saved(page)  # changes that do not clash are put together
        assert len(labels(page, cells, 3)["shapes"]) == len(before) + 2
        expect(page.get_by_role("img", name="box WBC, 59 by 59")).to_be_visible()

        now = labels(page, cells, 3)["shapes"]
        other(page, [one | {"box": [5, 5, 65, 65]} if one["id"] == "theirs" else one for one in now])
        page.get_by_role("button", name="WBC box 59 by 59").click()
        page.keyboard.press("ArrowDown")
        dialog = page.get_by_role("dialog", name="Somebody else changed these labels, too")
        expect(dialog).to_contain_text("Theirs: 1 changed")
        dialog.get_by_role("button", name="Take theirs").click()
        saved(page)
        expect(page.get_by_role("img", name="box WBC, 60 by 60")).to_be_visible()


def test_auto_labels_are_accepted_by_confidence(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    open_picture(page, cells, 1)
    panel = page.get_by_role("region", name="Auto labels")
    expect(panel).to_contain_text("5 of 5")
    panel.get_by_role("slider").fill("0.6")
    expect(panel).to_contain_text("3 of 5")
    page.keyboard.press("y")
    expect(panel).to_contain_text("0 of 2")
    panel.get_by_role("slider").fill("0")
    page.keyboard.press("x")
    expect(panel).to_have_count(0)
    saved(page)
    assert [one.get("confidence") for one in labels(page, cells, 1)["shapes"]] == [None] * 3


def test_an_assist_tool_outlines_what_is_in_a_box(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    stage = open_picture(page, cells, 32)
    page.keyboard.press("a")
    drag(page, stage, (0.3, 0.3), (0.6, 0.6))
    expect(page.get_by_role("img", name=re.compile("^polygon RBC.*4 vertices"))).to_have_count(1)


def test_pictures_are_imported_and_what_is_none_is_told(browser: Browser, cells: str) -> None:
    from playwright.sync_api import expect

    with open_page(browser, quiet=False) as page:  # the browser notes the refusal
        page.goto(f"{cells}/vision")
        page.get_by_role("button", name="New data set").click()
        page.get_by_label("Name", exact=True).fill("leaves")
        page.get_by_role("button", name="Make it").click()
        expect(page.get_by_text("Drop pictures here")).to_be_visible()
        files = [
            {"name": f"leaf-{number}.jpg", "mimeType": "image/jpeg", "buffer": picture(number, 64)}
            for number in range(5)
        ]
        files.append({"name": "notes.jpg", "mimeType": "image/jpeg", "buffer": b"no picture at all"})
        page.get_by_label("Files to import").set_input_files(files)  # type: ignore[arg-type]
        expect(page.get_by_role("region", name="Import")).to_contain_text("5 files imported")
        expect(page.get_by_role("region", name="Import")).to_contain_text("notes.jpg must be a picture")
        expect(page.get_by_role("listbox", name="Pictures").get_by_role("option")).to_have_count(5)


def test_pictures_are_fetched_from_addresses(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    asked: list[object] = []

    def answer(route: Route) -> None:
        asked.append(route.request.post_data_json)
        route.fulfill(status=202, json={"id": "t1", "kind": "fetch", "state": "waiting"})

    page.route("**/vision/datasets/*/import", answer)
    page.goto(f"{cells}/vision/data/cells")
    page.get_by_role("button", name="More", exact=True).click()
    dialog = page.get_by_role("dialog", name="cells")
    dialog.get_by_label("Addresses of pictures").fill("https://host/a.jpg\nhello")
    dialog.get_by_role("button", name="Fetch").click()
    expect(dialog.get_by_role("alert")).to_contain_text("each line must be an address")
    assert asked == []
    dialog.get_by_label("Addresses of pictures").fill("https://host/a.jpg\n# more\nhttps://host/b.jpg")
    dialog.get_by_role("button", name="Fetch").click()
    expect(dialog).to_have_count(0)
    with page.expect_response("**/vision/datasets/*/import"):
        page.get_by_label("Files to import").set_input_files(
            {"name": "list.txt", "mimeType": "text/plain", "buffer": b"https://host/c.jpg\n"}
        )
    assert asked == [
        {"urls": ["https://host/a.jpg", "https://host/b.jpg"]},
        {"urls": ["https://host/c.jpg"]},
    ]


def test_many_files_are_changed_at_once(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{cells}/vision/data/cells?state=auto&sort=-added")
    grid = page.get_by_role("listbox", name="Pictures")
    grid.get_by_role("option").first.wait_for()
    grid.focus()
    page.keyboard.press("x")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    expect(page.get_by_role("toolbar", name="Selected files")).to_contain_text("2 files selected")
    page.get_by_role("button", name="Accept auto labels").click()
    expect(page.get_by_text("2 files accepted")).to_be_visible()
    assert {one.get("confidence") for one in labels(page, cells, 997)["shapes"]} == {None}


def test_a_training_is_begun_watched_live_and_ended_with_its_best(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{cells}/vision/data/cells?do=train")
    dialog = page.get_by_role("dialog", name="Train on cells")
    expect(dialog.get_by_role("radio", name=re.compile("^Objects"))).to_be_checked()
    dialog.get_by_role("button", name="Train", exact=True).click()
    chart = page.get_by_test_id("chart").first.get_by_role("img")
    first = chart.get_attribute("aria-label")
    expect(chart).not_to_have_attribute("aria-label", str(first))  # the curve moves by itself
    example = page.get_by_role("link", name=re.compile(r"^BloodImage_00001.jpg: \d+ found"))
    expect(example.locator("rect").first).to_be_visible()  # what it finds is drawn over the picture
    page.get_by_role("button", name="End now, keep the best").click()
    expect(page.get_by_role("group", name="Confusion matrix")).to_contain_text("840")
    slider = page.get_by_role("region", name="Threshold").get_by_role("slider")
    slider.fill("0.9")
    expect(page.get_by_role("region", name="Threshold")).to_contain_text("90 %")
    expect(page.get_by_role("region", name="Worst mistakes").get_by_role("link")).to_have_count(6)


def test_a_model_is_deployed_by_one_press_and_tried(page: Page, cells: str) -> None:
    from playwright.sync_api import expect

    page.goto(f"{cells}/vision/models/cells@2")
    page.get_by_role("button", name="Production", exact=True).click()
    expect(page.get_by_role("button", name="Production", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    page.get_by_role("button", name="Deploy", exact=True).click()
    tried = page.get_by_role("region", name="Try it")
    page.get_by_label("Picture to try").set_input_files(
        {"name": "blood.jpg", "mimeType": "image/jpeg", "buffer": picture(3)}
    )
    boxes = tried.get_by_role("group", name="What it found").get_by_role("img")
    expect(boxes.first).to_be_visible()
    before = boxes.count()
    tried.get_by_role("slider").fill("0.9")
    expect(boxes).to_have_count(1)
    assert before > 1
    expect(tried).to_contain_text("/api/v1/vision/deployments/cells/predict")
    tried.get_by_role("button", name="Python").click()
    expect(tried).to_contain_text("requests.post(")
